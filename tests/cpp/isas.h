// Runs a test body on every instruction set that this build has and this processor can run, or once on a GPU.
#pragma once
#include <gtest/gtest.h>

#include "kernels/pointwise.h"
#include "runtime/backend.h"

namespace minitorch {

template <class F>
void on_each_isa(const F& body) {
  backend();
  const Slot best = active_slot;
  if (best == Slot::cuda) return body();
  for (Slot slot : {Slot::baseline, Slot::avx2, Slot::avx512}) {
    if (slot > best || !copy_kernel.available(slot)) continue;
    active_slot = slot;
    SCOPED_TRACE(slot_name(slot));
    body();
  }
  active_slot = best;
}

// A contiguous one-dimensional view over the buffers given, outputs first.
inline PointwiseView flat_view(int64_t n, int num_outputs, std::initializer_list<std::pair<void*, DType>> operands) {
  PointwiseView v{};
  v.ndim = 1;
  v.num_outputs = num_outputs;
  v.num_operands = static_cast<int>(operands.size());
  v.numel = v.sizes[0] = n;
  int k = 0;
  for (const auto& [data, dtype] : operands) {
    v.data[k] = static_cast<char*>(data);
    v.dtype[k] = dtype;
    v.strides[k++][0] = static_cast<int64_t>(size_of(dtype));
  }
  v.compute = v.dtype[num_outputs];
  return v;
}

}  // namespace minitorch
