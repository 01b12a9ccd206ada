// Linear systems: Cholesky, LU and triangular matrices, and what PyTorch builds on them (solve, inverse, determinant).
// PyTorch's structured kernels arrange layouts and call its DispatchStubs, for which the functions here stand.
#include <ATen/ops/_cholesky_solve_helper_native.h>
#include <ATen/ops/_linalg_det_native.h>
#include <ATen/ops/_linalg_slogdet_native.h>
#include <ATen/ops/_linalg_solve_ex_native.h>
#include <ATen/ops/cholesky_inverse_native.h>
#include <ATen/ops/cholesky_native.h>
#include <ATen/ops/linalg_cholesky_ex_native.h>
#include <ATen/ops/linalg_inv_ex_native.h>
#include <ATen/ops/linalg_lu_factor_ex_native.h>
#include <ATen/ops/linalg_lu_native.h>
#include <ATen/ops/linalg_lu_solve_native.h>
#include <ATen/ops/linalg_solve_triangular_native.h>
#include <ATen/ops/lu_unpack_native.h>
#include <ATen/ops/triangular_solve_native.h>

#include "bridge/apart.h"
#include "bridge/checked.h"
#include "bridge/iterator.h"
#include "bridge/operators.h"
#include "ops/linalg.h"

namespace minitorch {
namespace {

using at::Tensor;

void cholesky(const Tensor& input, const Tensor& info, bool upper) {
  check_dtype("cholesky_cpu", input);
  cholesky_kernel(view_of(input), view_of(info), upper);
}

Tensor& cholesky_inverse(Tensor& result, Tensor& infos, bool upper) {
  check_dtype("cholesky_inverse_out_cpu", result);
  // PyTorch's infos lie in the host's memory, flat.
  const Tensor found = at::zeros(result.sizes().slice(0, result.dim() - 2), infos.options().device(result.device()));
  if (found.numel() == 0) return result;
  cholesky_inverse_kernel(view_of(result), view_of(found), upper);
  infos.copy_(found.reshape_as(infos));
  return result;
}

void solve_triangular(const Tensor& t, const Tensor& b, bool left, bool upper, at::native::TransposeType op,
                      bool unit) {
  TORCH_CHECK(t.scalar_type() == b.scalar_type(), "expected scalar type ", t.scalar_type(), " but found ",
              b.scalar_type());
  check_dtype("triangular_solve_cpu", t);
  if (b.numel() == 0) return;
  // The callers look after lazy conjugation themselves: the memory counts.
  Tensor matrix = with_batch_of((t.is_conj() ? t.conj() : t).resolve_neg(), 2, b, 2);
  // The stub's callers mean the memory as columns: rows that are adjacent elements are the columns of the transpose.
  if (matrix.stride(-1) == 1 && matrix.stride(-2) != 1) matrix = matrix.mT();
  triangular_solve_kernel({view_of(matrix), view_of(b), left, upper, unit, matrix_op(op)});
}

Tensor cholesky_solve_helper(const Tensor& self, const Tensor& a, bool upper) {
  check_same_device({&self, &a});
  TORCH_CHECK(self.dim() >= 2 && a.dim() == self.dim() && a.size(-1) == a.size(-2) && a.size(-1) == self.size(-2) &&
                  a.sizes().slice(0, a.dim() - 2) == self.sizes().slice(0, self.dim() - 2),
              "cholesky_solve: a factor of shape ", a.sizes(), " does not fit right sides of shape ", self.sizes());
  TORCH_CHECK(a.scalar_type() == self.scalar_type(), "expected scalar type ", self.scalar_type(), " but found ",
              a.scalar_type());
  const Tensor x = at::native::cloneBatchedColumnMajor(self);
  check_dtype("cholesky_solve_cpu", self);
  if (x.numel() == 0) return x;
  const Tensor factor = resolved(a);
  const auto solve = [&](MatrixOp op) {
    triangular_solve_kernel({view_of(factor), view_of(x), true, upper, false, op});
  };
  solve(upper ? MatrixOp::adjoint : MatrixOp::none);
  solve(upper ? MatrixOp::none : MatrixOp::adjoint);
  return x;
}

void lu_factor(const Tensor& input, const Tensor& pivots, const Tensor& infos, bool compute_pivots) {
  const auto type = input.scalar_type();
  const bool known =
      type == at::kFloat || type == at::kDouble || type == at::kComplexFloat || type == at::kComplexDouble;
  TORCH_CHECK(compute_pivots || !known, "linalg.lu_factor: LU without pivoting is not implemented on the CPU");
  lu_factor_kernel(view_of(input), view_of(pivots), view_of(infos));
}

void lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, at::native::TransposeType op) {
  // Rows outside of the matrix would be exchanged otherwise; CUDA's kernel leaves them alone.
  at::_assert_async(pivots.gt(0).all(),
                    "Pivots given to lu_solve must all be greater or equal to 1. "
                    "Did you properly pass the result of lu_factor?");
  at::_assert_async(pivots.le(lu.size(-2)).all(),
                    "Pivots given to lu_solve must all be smaller or equal to LU.size(-2). "
                    "Did you properly pass the result of lu_factor?");
  if (b.numel() == 0) return;
  const Tensor factors = with_batch_of(resolved(lu), 2, b, 2), exchanges = with_batch_of(pivots, 1, b, 2);
  lu_solve_kernel(view_of(factors), view_of(exchanges), view_of(b), matrix_op(op));
}

void unpack_pivots(at::TensorIterator& iter, const int64_t dim_size, const int64_t max_pivot) {
  if (iter.numel() == 0 || dim_size == 0) return;
  bool valid = true;
  unpack_pivots_kernel(view_of(iter), dim_size, max_pivot, &valid);
  TORCH_CHECK(valid,
              "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
              "Did you properly pass the result of lu_factor?");
}

// a keeps its shape when it is the output.
Tensor& solve_triangular_out(const Tensor& a, const Tensor& b, bool upper, bool left, bool unitriangular, Tensor& out) {
  return at::native::linalg_solve_triangular_out(out.is_same(a) ? a.alias() : a, b, upper, left, unitriangular, out);
}

struct LuUnpack : at::native::structured_lu_unpack_out {
  void impl(const Tensor& lu, const Tensor& pivots, bool unpack_data, bool unpack_pivots, const Tensor& p,
            const Tensor& l, const Tensor& u) {
    const auto batch = lu.sizes().slice(0, lu.dim() - 2);
    TORCH_CHECK(!unpack_pivots || (pivots.dim() == lu.dim() - 1 && pivots.sizes().slice(0, batch.size()) == batch &&
                                   pivots.size(-1) >= std::min(lu.size(-2), lu.size(-1))),
                "lu_unpack: pivots of sizes ", pivots.sizes(), " are not those of an LU of sizes ", lu.sizes());
    at::native::structured_lu_unpack_out::impl(lu, pivots, unpack_data, unpack_pivots, p, l, u);
  }
};

}  // namespace

MT_OPERATORS(aten, PrivateUse1, m) {
  structured_apart<at::native::structured_linalg_cholesky_ex_out>(m, "linalg_cholesky_ex", nullptr,
                                                                  "linalg_cholesky_ex.L");
  structured_apart<at::native::structured_linalg_lu_factor_ex_out>(m, "linalg_lu_factor_ex", nullptr,
                                                                   "linalg_lu_factor_ex.out");
  structured_apart<at::native::structured_linalg_lu_out>(m, "linalg_lu", nullptr, "linalg_lu.out");
  structured_apart<at::native::structured_linalg_lu_solve_out>(m, "linalg_lu_solve", nullptr, "linalg_lu_solve.out");
  structured_apart<LuUnpack>(m, "lu_unpack", nullptr, "lu_unpack.out");
  structured_apart<at::native::structured_triangular_solve_out>(m, "triangular_solve", nullptr, "triangular_solve.X");
  structured_apart<at::native::structured__linalg_solve_ex_out>(m, "_linalg_solve_ex", nullptr,
                                                                "_linalg_solve_ex.result");
  structured_apart<at::native::structured_linalg_inv_ex_out>(m, "linalg_inv_ex", nullptr, "linalg_inv_ex.inverse");
  structured_apart<at::native::structured__linalg_det_out>(m, "_linalg_det", nullptr, "_linalg_det.result");
  structured_apart<at::native::structured__linalg_slogdet_out>(m, "_linalg_slogdet", nullptr, "_linalg_slogdet.sign");
  m.impl("linalg_solve_triangular", MT_CHECKED(at::native::linalg_solve_triangular));
  m.impl("linalg_solve_triangular.out", MT_CHECKED(solve_triangular_out));
  m.impl("cholesky", MT_CHECKED(at::native::cholesky));
  m.impl("cholesky.out", MT_CHECKED(at::native::cholesky_out));
  m.impl("cholesky_inverse", MT_CHECKED(at::native::cholesky_inverse));
  m.impl("cholesky_inverse.out", MT_CHECKED(at::native::cholesky_inverse_out));
  m.impl("_cholesky_solve_helper", MT_CHECKED(cholesky_solve_helper));
}

}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(cholesky_stub, &minitorch::cholesky)
REGISTER_PRIVATEUSE1_DISPATCH(cholesky_inverse_stub, &minitorch::cholesky_inverse)
REGISTER_PRIVATEUSE1_DISPATCH(triangular_solve_stub, &minitorch::solve_triangular)
REGISTER_PRIVATEUSE1_DISPATCH(lu_factor_stub, &minitorch::lu_factor)
REGISTER_PRIVATEUSE1_DISPATCH(lu_solve_stub, &minitorch::lu_solve)
REGISTER_PRIVATEUSE1_DISPATCH(unpack_pivots_stub, &minitorch::unpack_pivots)
}  // namespace at::native
