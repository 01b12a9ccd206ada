// The kernel objects of dense linear algebra.
#include "kernels/linalg.h"

namespace minitorch {
constinit Kernel<void(const TriangularArgs&)> triangular_solve_kernel{"triangular_solve"};
constinit Kernel<void(const TensorView&, const TensorView&, bool)> cholesky_kernel{"cholesky"};
constinit Kernel<void(const TensorView&, const TensorView&, bool)> cholesky_inverse_kernel{"cholesky_inverse"};
constinit Kernel<void(const TensorView&, const TensorView&, const TensorView&)> lu_factor_kernel{"lu_factor"};
constinit Kernel<void(const TensorView&, const TensorView&, const TensorView&, MatrixOp)> lu_solve_kernel{"lu_solve"};
constinit Kernel<void(const PointwiseView&, int64_t, int64_t, bool*)> unpack_pivots_kernel{"unpack_pivots"};
constinit Kernel<void(const TensorView&, const TensorView&)> qr_factor_kernel{"qr_factor"};
constinit Kernel<void(const TensorView&, const TensorView&)> qr_product_kernel{"qr_product"};
constinit Kernel<void(const TensorView&, const TensorView&, const TensorView&, bool, bool)> qr_multiply_kernel{
    "qr_multiply"};
constinit Kernel<void(const TensorView&, const TensorView&, const TensorView&, bool, bool)> eigh_kernel{"eigh"};
constinit Kernel<void(const SvdArgs&)> svd_kernel{"svd"};
constinit Kernel<void(const TensorView&, const TensorView&, const TensorView&, bool)> ldl_factor_kernel{"ldl_factor"};
constinit Kernel<void(const TensorView&, const TensorView&, const TensorView&, bool)> ldl_solve_kernel{"ldl_solve"};
constinit Kernel<void(const EigArgs&)> eig_kernel{"eig"};
constinit Kernel<void(const TensorView&)> matrix_exp_kernel{"matrix_exp"};
constinit Kernel<void(const TensorView&, const TensorView&, const TensorView&)> cross_kernel{"cross"};
}  // namespace minitorch
