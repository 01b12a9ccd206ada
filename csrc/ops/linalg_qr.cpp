// QR factorisations, products with their orthogonal factor, the exponential of a matrix, and cross products.
#include <ATen/native/Cross.h>
#include <ATen/ops/geqrf_native.h>
#include <ATen/ops/linalg_cross_native.h>
#include <ATen/ops/linalg_householder_product_native.h>
#include <ATen/ops/linalg_qr_native.h>
#include <ATen/ops/ormqr_native.h>

#include "bridge/apart.h"
#include "bridge/checked.h"
#include "bridge/operators.h"
#include "ops/linalg.h"

namespace minitorch {
namespace {

using at::Tensor;

void qr_factor(const Tensor& input, const Tensor& tau) {
  check_dtype("geqrf_cpu", input);
  if (input.numel() == 0) return;
  qr_factor_kernel(view_of(input), view_of(tau));
}

Tensor& qr_product(Tensor& result, const Tensor& tau) {
  check_dtype("orgqr_cpu", result);
  if (result.numel() == 0) return result;
  const Tensor factors = resolved(tau);
  qr_product_kernel(view_of(result), view_of(factors));
  return result;
}

void qr_multiply(const Tensor& input, const Tensor& tau, const Tensor& other, bool left, bool transpose) {
  check_dtype("ormqr_cpu", input);
  if (other.numel() == 0) return;
  const Tensor reflectors = resolved(input), factors = resolved(tau);
  qr_multiply_kernel(view_of(reflectors), view_of(factors), view_of(other), left, transpose);
}

Tensor exponential_of_matrix(const Tensor& a) {
  at::native::squareCheckInputs(a, "linalg.matrix_exp");
  at::native::checkFloatingOrComplex(a, "linalg.matrix_exp");
  if (a.size(-1) == 0) return a.clone();
  if (a.size(-1) == 1) return a.exp();
  const auto dtype = a.scalar_type();
  if (at::isReducedFloatingType(dtype)) return exponential_of_matrix(a.to(at::kFloat)).to(dtype);
  const Tensor result = resolved(a).clone(at::MemoryFormat::Contiguous);
  if (result.numel() > 0) matrix_exp_kernel(view_of(result));
  return result;
}

void cross(const Tensor& result, const Tensor& a, const Tensor& b, const int64_t dim) {
  if (result.numel() == 0) return;
  const Tensor x = resolved(a), y = resolved(b);
  cross_kernel(view_of(result.movedim(dim, -1)), view_of(x.movedim(dim, -1)), view_of(y.movedim(dim, -1)));
}

}  // namespace

MT_OPERATORS(aten, PrivateUse1, m) {
  structured_apart<at::native::structured_linalg_qr_out>(m, "linalg_qr", nullptr, "linalg_qr.out");
  structured_apart<at::native::structured_linalg_cross_out>(m, "linalg_cross", nullptr, "linalg_cross.out");
  m.impl("geqrf", MT_CHECKED(at::native::geqrf));
  m.impl("geqrf.a", MT_CHECKED(at::native::geqrf_out));
  m.impl("linalg_householder_product", MT_CHECKED(at::native::linalg_householder_product));
  m.impl("linalg_householder_product.out", MT_CHECKED(at::native::linalg_householder_product_out));
  m.impl("ormqr", MT_CHECKED(at::native::ormqr));
  m.impl("ormqr.out", MT_CHECKED(at::native::ormqr_out));
  m.impl("linalg_matrix_exp", MT_CHECKED(exponential_of_matrix));
}

}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(geqrf_stub, &minitorch::qr_factor)
REGISTER_PRIVATEUSE1_DISPATCH(orgqr_stub, &minitorch::qr_product)
REGISTER_PRIVATEUSE1_DISPATCH(ormqr_stub, &minitorch::qr_multiply)
REGISTER_PRIVATEUSE1_DISPATCH(cross_stub, &minitorch::cross)
}  // namespace at::native
