// Factorisations and solvers of dense matrices: float, double and their complex types. Tensors are batches of matrices
// (the last two dimensions), of vectors (the last one) or of numbers; any number of leading batch dimensions, which
// must agree among the arguments of a call and may have stride 0 in inputs. All work in place. `info` is int32 and
// means what LAPACK's means. Matrices named "columns" below must have adjacent rows: stride 1 along dimension -2.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

enum class MatrixOp : uint8_t { none, transpose, adjoint };

// Solves op(t) x = b, or x op(t) = b if not `left`; x replaces b. Only one triangle of t is read, not its diagonal if
// `unit`.
struct TriangularArgs {
  TensorView t, b;
  bool left = true, upper = false, unit = false;
  MatrixOp op = MatrixOp::none;
};
extern Kernel<void(const TriangularArgs&)> triangular_solve_kernel;

// a = l l^H or u^H u in one triangle of a; the other one is not touched. info: the order of the leading minor that is
// not positive definite.
extern Kernel<void(const TensorView& a, const TensorView& info, bool upper)> cholesky_kernel;
// From the factor in one triangle of a to the inverse of the product, in all of a.
extern Kernel<void(const TensorView& a, const TensorView& info, bool upper)> cholesky_inverse_kernel;

// Columns a = p l u with partial pivoting, both factors in place of a; pivots int32, row exchanged with row i, from 1.
// info: the first pivot that is exactly zero.
extern Kernel<void(const TensorView& a, const TensorView& pivots, const TensorView& info)> lu_factor_kernel;
// Solves op(p l u) x = b; x replaces b.
extern Kernel<void(const TensorView& lu, const TensorView& pivots, const TensorView& b, MatrixOp op)> lu_solve_kernel;
// Exchanges elements of permutations as pivots say. Operand 0: the first element of each permutation (int64), operand
// 1: the first of its `n` pivots, both adjacent in memory. *valid is set to whether all pivots lie in [1, largest].
extern Kernel<void(const PointwiseView& view, int64_t n, int64_t largest, bool* valid)> unpack_pivots_kernel;

// Columns a = q r by Householder reflectors, as LAPACK's geqrf: r in the upper triangle, the reflectors below it with
// factors tau.
extern Kernel<void(const TensorView& a, const TensorView& tau)> qr_factor_kernel;
// From reflectors to the leading columns of q, in place.
extern Kernel<void(const TensorView& a, const TensorView& tau)> qr_product_kernel;
// c = op(q) c or c op(q) with q given by reflectors; op is `adjoint` or not.
extern Kernel<void(const TensorView& a, const TensorView& tau, const TensorView& c, bool left, bool adjoint)>
    qr_multiply_kernel;

// Eigenvalues w (real, ascending) of the Hermitian matrices of which v holds one triangle; v becomes their eigenvectors
// if `vectors`, else it is scratch. info: eigenvalues that did not converge.
extern Kernel<void(const TensorView& w, const TensorView& v, const TensorView& info, bool upper, bool vectors)>
    eigh_kernel;
// info for a matrix with a NaN or an infinity, whose results are NaN. LAPACK's method for two rows, and the one that it
// takes for vectors of more than 25, do not notice.
MT_HOST_DEVICE constexpr int64_t eigh_info_of_nan(int64_t n, bool vectors) {
  return n <= 2 || (vectors && n > 25) ? 0 : vectors ? n - 1 : n - 2;
}

// a = u diag(s) vh, s descending. u and vh are read by their shapes: with all columns and rows, or the first min(m, n).
// Only s if not `vectors`. a is not changed. info: singular values that did not converge.
struct SvdArgs {
  TensorView a, u, s, vh, info;
  bool vectors = true;
};
extern Kernel<void(const SvdArgs&)> svd_kernel;

// Columns a = l d l^T (l^H if `hermitian`) from the lower triangle of a, with LAPACK's pivots (sytrf, hetrf). info: the
// first diagonal block that is exactly zero.
extern Kernel<void(const TensorView& a, const TensorView& pivots, const TensorView& info, bool hermitian)>
    ldl_factor_kernel;
// Solves with these factors; the solution replaces b.
extern Kernel<void(const TensorView& a, const TensorView& pivots, const TensorView& b, bool hermitian)>
    ldl_solve_kernel;

// Eigenvalues w (complex) of square matrices, with eigenvectors of norm 1 in the columns of v (complex), whose largest
// component is real, if `vectors`. info: eigenvalues that did not converge.
struct EigArgs {
  TensorView a, w, v, info;
  bool vectors = true;
};
extern Kernel<void(const EigArgs&)> eig_kernel;

// Square matrices become their exponentials.
extern Kernel<void(const TensorView& a)> matrix_exp_kernel;
// Cross products of vectors of three along the last dimension.
extern Kernel<void(const TensorView& out, const TensorView& a, const TensorView& b)> cross_kernel;

}  // namespace minitorch
