// The CPU loop under every pointwise operator. The operator's own code is one small loop over a contiguous block of
// the compute type; this engine walks the iteration space, splits it over threads and hands out blocks. Operands that
// are not contiguous, or are stored in another dtype, pass through a buffer that fits in L1. So a functor is compiled
// once per compute type, whatever layouts and dtypes it meets.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/cast.h"
#include "kernels/functors/pointwise.h"
#include "kernels/kernel.h"
#include "kernels/parallel.h"
#include "kernels/view.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

inline constexpr int64_t kBlock = 512;  // elements; 4 operands of 8 bytes take 16 KiB of L1

// Calls f(ptrs, n) for each piece of a row (dimension 0) of the view, in parallel.
template <class F>
inline void for_each_row(const PointwiseView& v, const F& f) {
  const int operands = v.num_operands;
  parallel_for(v.numel, kGrainSize, [&](int64_t begin, int64_t end) {
    int64_t index[kMaxDims];
    char* ptrs[kMaxOperands];
    for (int k = 0; k < operands; k++) ptrs[k] = v.data[k];
    int64_t rest = begin;
    for (int d = 0; d < v.ndim; d++) {
      index[d] = rest % v.sizes[d];
      rest /= v.sizes[d];
      for (int k = 0; k < operands; k++) ptrs[k] += index[d] * v.strides[k][d];
    }
    const int64_t row = v.ndim > 0 ? v.sizes[0] : 1;
    for (int64_t i = begin; i < end;) {
      const int64_t n = std::min(v.ndim > 0 ? row - index[0] : int64_t{1}, end - i);
      f(static_cast<char* const*>(ptrs), n);
      i += n;
      if (i == end) break;
      // The piece ended at the end of its row: back to the row's start, then carry into the outer dimensions.
      for (int k = 0; k < operands; k++) ptrs[k] -= index[0] * v.strides[k][0];
      index[0] = 0;
      for (int d = 1; d < v.ndim; d++) {
        for (int k = 0; k < operands; k++) ptrs[k] += v.strides[k][d];
        if (++index[d] < v.sizes[d]) break;
        for (int k = 0; k < operands; k++) ptrs[k] -= v.sizes[d] * v.strides[k][d];
        index[d] = 0;
      }
    }
  });
}

// Computes one contiguous block: ptrs[0..outputs) are written, the rest read, all in compute types.
using BlockFn = void (*)(const PointwiseParams& params, char* const* ptrs, int64_t n);

// Runs `block` over the view. `types[k]` is the compute type that the block expects operand k in.
void run_pointwise(const PointwiseView& v, const DType* types, BlockFn block, const PointwiseParams& params);

namespace engine {

// No __restrict__: an output may be the very same memory as an input (in place), which ivdep permits and restrict forbids.
template <class F, class In, class Out>
void unary_block(const PointwiseParams& params, char* const* ptrs, int64_t n) {
  const F f = functors::make_functor<F>(params);
  Out* out = reinterpret_cast<Out*>(ptrs[0]);
  const In* a = reinterpret_cast<const In*>(ptrs[1]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) out[i] = f(a[i]);
}

template <class F, class In, class Out>
void binary_block(const PointwiseParams& params, char* const* ptrs, int64_t n) {
  const F f = functors::make_functor<F>(params);
  Out* out = reinterpret_cast<Out*>(ptrs[0]);
  const In* a = reinterpret_cast<const In*>(ptrs[1]);
  const In* b = reinterpret_cast<const In*>(ptrs[2]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) out[i] = f(a[i], b[i]);
}

}  // namespace engine

template <template <class> class F, class T>
inline void run_unary(const PointwiseView& v, const PointwiseParams& params) {
  using Out = decltype(std::declval<F<T>>()(T{}));
  const DType types[] = {dtype_of<Out>, dtype_of<T>};
  run_pointwise(v, types, &engine::unary_block<F<T>, T, Out>, params);
}

template <template <class> class F, class T>
inline void run_binary(const PointwiseView& v, const PointwiseParams& params) {
  using Out = decltype(std::declval<F<T>>()(T{}, T{}));
  const DType types[] = {dtype_of<Out>, dtype_of<T>, dtype_of<T>};
  run_pointwise(v, types, &engine::binary_block<F<T>, T, Out>, params);
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
