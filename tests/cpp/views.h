// Operands of kernels under test: views of memory.
#pragma once
#include <initializer_list>
#include <vector>

#include "core/dtype.h"
#include "kernels/view.h"
#include "memory.h"

namespace minitorch {

template <class T>
char* bytes(Vector<T>& v, int64_t offset = 0) {
  return reinterpret_cast<char*>(v.data() + offset);
}

// A tensor with the given strides in elements, outermost dimension first; contiguous without strides.
inline TensorView view_of(void* data, DType dtype, const std::vector<int64_t>& sizes,
                          const std::vector<int64_t>& strides = {}) {
  TensorView v{};
  v.data = static_cast<char*>(data);
  v.dtype = dtype;
  v.ndim = static_cast<int>(sizes.size());
  v.numel = 1;
  for (int d = v.ndim - 1; d >= 0; d--) {
    v.sizes[d] = sizes[static_cast<size_t>(d)];
    v.strides[d] = strides.empty() ? v.numel : strides[static_cast<size_t>(d)];
    v.numel *= v.sizes[d];
  }
  return v;
}

// A pointwise operand: where it begins, and its strides in elements, innermost dimension first. As in the bridge's
// views, outer dimensions of one element are dropped.
struct Operand {
  void* data;
  DType dtype;
  std::vector<int64_t> strides;
};
inline PointwiseView pointwise_view(const std::vector<int64_t>& sizes, int num_outputs,
                                    std::initializer_list<Operand> operands) {
  PointwiseView v{};
  v.ndim = static_cast<int>(sizes.size());
  while (v.ndim > 1 && sizes[static_cast<size_t>(v.ndim - 1)] == 1) v.ndim--;
  v.num_outputs = num_outputs;
  v.num_operands = static_cast<int>(operands.size());
  v.numel = 1;
  for (int d = 0; d < v.ndim; d++) v.numel *= v.sizes[d] = sizes[static_cast<size_t>(d)];
  int k = 0;
  for (const Operand& operand : operands) {
    v.data[k] = static_cast<char*>(operand.data);
    v.dtype[k] = operand.dtype;
    for (int d = 0; d < v.ndim; d++)
      v.strides[k][d] = operand.strides[static_cast<size_t>(d)] * static_cast<int64_t>(size_of(operand.dtype));
    k++;
  }
  v.compute = v.dtype[num_outputs < v.num_operands ? num_outputs : 0];
  return v;
}

}  // namespace minitorch
