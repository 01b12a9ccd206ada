// One parallel loop over the elements of a list of tensors, and the staging of 16-bit operands through float.
#pragma once
#include <vector>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/pointwise_engine.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// Calls f(item, begin, end) on pieces that cover all items' elements. Items only need `numel`. Backwards: each thread
// begins with the last of its items.
template <class Item, class F>
void for_each_piece(const std::vector<Item>& items, const F& f, bool backwards = false) {
  int64_t total = 0;
  for (const Item& item : items) total += item.numel;
  parallel_for(total, kGrainSize, [&](int64_t begin, int64_t end) {
    const auto count = static_cast<int64_t>(items.size());
    int64_t start = backwards ? total : 0;  // of the current item, in the numbering of all elements
    for (int64_t i = 0; i < count; i++) {
      const Item& item = items[static_cast<size_t>(backwards ? count - 1 - i : i)];
      if (backwards) start -= item.numel;
      const int64_t from = begin > start ? begin - start : 0, to = std::min(item.numel, end - start);
      if (from < to) f(item, from, to);
      if (!backwards) start += item.numel;
      if (backwards ? start <= begin : start >= end) break;
    }
  });
}

// Calls compute(pointers of compute type, n) on blocks of the elements [begin, end) of N tensors of dtype `stored`.
// Blocks of 16-bit floats are converted to T before, and those whose bit is set in `written` are converted back after.
template <class T, int N, class F>
void for_each_block(char* const* data, DType stored, unsigned written, int64_t begin, int64_t end, const F& compute) {
  T* ptrs[N];
  if (stored == dtype_of<T>) {
    for (int k = 0; k < N; k++) ptrs[k] = data[k] ? reinterpret_cast<T*>(data[k]) + begin : nullptr;
    return compute(ptrs, end - begin);
  }
  alignas(64) T buffers[N][kBlock];
  const LoadFn load = load_fn(stored, dtype_of<T>);
  const StoreFn store = store_fn(dtype_of<T>, stored);
  const auto size = static_cast<int64_t>(size_of(stored));
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t n = std::min(kBlock, end - i);
    for (int k = 0; k < N; k++) {
      ptrs[k] = data[k] ? buffers[k] : nullptr;
      if (data[k]) load(buffers[k], data[k] + i * size, size, n);
    }
    compute(ptrs, n);
    for (int k = 0; k < N; k++)
      if (data[k] && (written >> k & 1)) store(data[k] + i * size, size, buffers[k], n);
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
