// Products with few rows, where packing B would cost as much as the product itself.
#pragma once
#include "kernels/cpu/gemm_core.h"
#include "kernels/cpu/gemm_transpose.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace gemm {

template <class S>
struct Problem {
  int64_t m, n, k;
  const S *a, *b;
  int64_t a_row, a_col, b_row, b_col;
  bool conj_a, conj_b;
  Output<S> out;
};

// Whether a result of `rows` x `cols` is worth turning so that `rows` are the rows.
MT_INLINE bool is_narrow(int64_t rows, int64_t cols) { return rows <= 16 && cols > rows; }

// Pairwise, as the partial sums of the lanes are of one size.
template <class R>
MT_INLINE R sum_lanes(Vector<R> v) {
  R lane[kLanes<R>];
  store_vector(lane, v);
  for (int h = kLanes<R> / 2; h > 0; h /= 2)
    for (int i = 0; i < h; i++) lane[i] += lane[i + h];
  return lane[0];
}

// Calls f(r, c, the sum of the lanes of all[r][c]); as many as a vector has lanes are added up together, turned in
// registers.
template <class E, int kHeight, int kWidth, class F>
MT_INLINE void sum_block(const Vector<E> (&all)[kHeight][kWidth], const F& f) {
  constexpr int kStep = kLanes<E>;
  E sums[kHeight * kWidth];
  if constexpr (kStep >= 4 && kHeight * kWidth % kStep == 0) {
#pragma GCC unroll 4
    for (int g = 0; g < kHeight * kWidth; g += kStep) {
      Vector<E> turned[kStep];
#pragma GCC unroll 16
      for (int i = 0; i < kStep; i++) turned[i] = all[(g + i) / kWidth][(g + i) % kWidth];
      transpose<kStep>(turned);
#pragma GCC unroll 4
      for (int h = kStep / 2; h > 0; h /= 2)
#pragma GCC unroll 8
        for (int l = 0; l < h; l++) turned[l] += turned[l + h];
      store_vector(sums + g, turned[0]);
    }
  } else {
#pragma GCC unroll 4
    for (int r = 0; r < kHeight; r++)
#pragma GCC unroll 4
      for (int c = 0; c < kWidth; c++) sums[r * kWidth + c] = sum_lanes<E>(all[r][c]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kHeight; r++)
#pragma GCC unroll 4
    for (int c = 0; c < kWidth; c++) f(r, c, sums[r * kWidth + c]);
}

// Computes the product if it has a shape for which B is best read in place; false if it has not.
template <class S>
bool multiply_skinny(const Problem<S>& p, int threads);

}  // namespace gemm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
