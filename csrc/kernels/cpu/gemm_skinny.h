// Products with few rows, where packing B would cost as much as the product itself.
#pragma once
#include "kernels/cpu/gemm_core.h"

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

// Computes the product if it has a shape for which B is best read in place; false if it has not.
template <class S>
bool multiply_skinny(const Problem<S>& p, int threads);

}  // namespace gemm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
