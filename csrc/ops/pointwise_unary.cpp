// Unary pointwise operators: PyTorch's metas and TensorIterator, our kernels.
#include <ATen/NativeFunctions.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>

#include <cmath>
#include <limits>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "ops/float8.h"
#include "ops/pointwise.h"

// clang-format off
// X(name): structured, stub and kernel have this one name.
#define MT_UNARY(X)                                                                                         \
  X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atanh) X(bitwise_not) X(ceil) X(cos) X(cosh) X(digamma)       \
  X(erf) X(erfc) X(erfinv) X(exp) X(exp2) X(expm1) X(floor) X(frac) X(i0) X(isneginf) X(isposinf) X(lgamma) \
  X(log) X(log10) X(log1p) X(log2) X(neg) X(reciprocal) X(round) X(rsqrt) X(sigmoid) X(sign) X(signbit)     \
  X(sin) X(sinc) X(sinh) X(sqrt) X(tan) X(tanh) X(trunc)
// X(name, kernel): special_name.
#define MT_SPECIAL_UNARY(X) X(entr, entr) X(i0e, i0e) X(i1, i1) X(i1e, i1e)
// The same, and native CPU's kernel, name_cpu, has no 16-bit floats.
#define MT_SPECIAL_WITHOUT_HALVES(X)                                                                           \
  X(airy_ai, airy_ai) X(bessel_j0, bessel_j0) X(bessel_j1, bessel_j1) X(bessel_y0, bessel_y0)                  \
  X(bessel_y1, bessel_y1) X(erfcx, erfcx) X(log_ndtr, log_ndtr) X(ndtri, ndtri)                                \
  X(modified_bessel_i0, i0) X(modified_bessel_i1, i1) X(modified_bessel_k0, bessel_k0)                         \
  X(modified_bessel_k1, bessel_k1) X(scaled_modified_bessel_k0, scaled_bessel_k0)                              \
  X(scaled_modified_bessel_k1, scaled_bessel_k1) X(spherical_bessel_j0, spherical_bessel_j0)
// clang-format on

namespace minitorch {
namespace {

void sgn_stub(at::TensorIteratorBase& iter) {
  run_pointwise(c10::isComplexType(iter.common_dtype()) ? PointwiseOp::sgn : PointwiseOp::sign, iter);
}

// Of a real tensor conj_physical is a copy.
void conj_physical_stub(at::TensorIteratorBase& iter) {
  if (c10::isComplexType(iter.common_dtype())) return run_pointwise(PointwiseOp::conj_physical, iter);
  if (iter.numel() != 0) copy_kernel(view_of(iter));
}

void angle_stub(at::TensorIteratorBase& iter) { run_pointwise(PointwiseOp::angle, iter); }

void round_decimals_stub(at::TensorIteratorBase& iter, int64_t decimals) {
  named("round", "round_cpu", [&] {
    run_pointwise(PointwiseOp::round_decimals, iter, std::pow(10.0, static_cast<double>(std::abs(decimals))),
                  int64_t{decimals < 0});
  });
}

void polygamma_stub(at::TensorIteratorBase& iter, int64_t n) {
  named("polygamma",
        n == 0   ? "digamma"
        : n == 1 ? "trigamma"
                 : "polygamma",
        [&] {
          if (n == 0) return run_pointwise(PointwiseOp::digamma, iter);
          if (n == 1) return run_pointwise(PointwiseOp::trigamma, iter);
          run_pointwise(PointwiseOp::polygamma, iter, static_cast<double>(n));
        });
}

// Infinities become the largest finite values of the dtype unless the caller says otherwise.
void nan_to_num_stub(at::TensorIteratorBase& iter, std::optional<double> nan, std::optional<double> posinf,
                     std::optional<double> neginf) {
  if (is_rare_or_float8(iter.dtype())) refuse_as_native("nan_to_num", iter.dtype());
  double most = 0;
  switch (c10::toRealValueType(iter.dtype())) {
    case at::kHalf: most = std::numeric_limits<c10::Half>::max(); break;
    case at::kBFloat16: most = std::numeric_limits<c10::BFloat16>::max(); break;
    case at::kFloat: most = std::numeric_limits<float>::max(); break;
    default: most = std::numeric_limits<double>::max();
  }
  run_pointwise(PointwiseOp::nan_to_num, iter, nan.value_or(0.0), posinf.value_or(most), neginf.value_or(-most));
}

// Native looks at the dtype of the output as well.
void logical_not_stub(at::TensorIteratorBase& iter) {
  check_native_has(!is_rare_or_float8(iter.dtype(0)), "logical_not_cpu", iter.dtype(0));
  run_pointwise(PointwiseOp::logical_not, iter);
}

void frexp_stub(at::TensorIteratorBase& iter) {
  if (iter.numel() == 0 && !backend().synchronous()) return;
  PointwiseView v = view_of(iter);
  v.compute = v.dtype[2];
  pointwise_kernel(PointwiseOp::frexp, v, {});
}

// Native has this one for float8, except for that without a sign; it leaves negative zeros and NaNs as they are.
void magnitude_stub(at::TensorIteratorBase& iter) {
  const at::ScalarType dtype = iter.dtype(0);
  if (!at::isFloat8Type(dtype) || dtype == at::kFloat8_e8m0fnu) return run_pointwise(PointwiseOp::abs, iter);
  const at::Tensor bytes = as_bytes(iter.tensor(1));
  as_bytes(iter.tensor(0)).copy_(at::where(iter.tensor(1).to(at::kFloat).lt(0), bytes.bitwise_and(0x7f), bytes));
}

}  // namespace
}  // namespace minitorch

namespace at::native {
#define MT_REGISTER(name) MT_STUB(name##_stub, name)
MT_UNARY(MT_REGISTER)
#undef MT_REGISTER
#define MT_REGISTER(name, kernel) MT_STUB(special_##name##_stub, kernel)
MT_SPECIAL_UNARY(MT_REGISTER)
#undef MT_REGISTER
#define MT_REGISTER(name, kernel) MT_STUB_WITHOUT_HALVES(special_##name##_stub, kernel, #name "_cpu")
MT_SPECIAL_WITHOUT_HALVES(MT_REGISTER)
#undef MT_REGISTER
REGISTER_PRIVATEUSE1_DISPATCH(abs_stub, &minitorch::magnitude_stub)
REGISTER_PRIVATEUSE1_DISPATCH(logical_not_stub, &minitorch::logical_not_stub)
MT_STUB(trigamma_stub, trigamma)
REGISTER_PRIVATEUSE1_DISPATCH(angle_stub, &minitorch::angle_stub)
REGISTER_PRIVATEUSE1_DISPATCH(sgn_stub, &minitorch::sgn_stub)
REGISTER_PRIVATEUSE1_DISPATCH(conj_physical_stub, &minitorch::conj_physical_stub)
REGISTER_PRIVATEUSE1_DISPATCH(round_decimals_stub, &minitorch::round_decimals_stub)
REGISTER_PRIVATEUSE1_DISPATCH(polygamma_stub, &minitorch::polygamma_stub)
REGISTER_PRIVATEUSE1_DISPATCH(nan_to_num_stub, &minitorch::nan_to_num_stub)
REGISTER_PRIVATEUSE1_DISPATCH(frexp_stub, &minitorch::frexp_stub)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
#define MT_REGISTER(name, ...) structured<at::native::structured_##name##_out>(m, #name, #name "_", #name ".out");
  MT_UNARY(MT_REGISTER)
  MT_REGISTER(sgn)
#undef MT_REGISTER
#define MT_REGISTER(name, kernel) \
  structured<at::native::structured_special_##name##_out>(m, "special_" #name, nullptr, "special_" #name ".out");
  MT_SPECIAL_UNARY(MT_REGISTER)
  MT_SPECIAL_WITHOUT_HALVES(MT_REGISTER)
#undef MT_REGISTER
  structured<at::native::structured_round_decimals_out>(m, "round.decimals", "round_.decimals", "round.decimals_out");
  structured<at::native::structured_polygamma_out>(m, "polygamma", nullptr, "polygamma.out");

  // Their functional and in-place forms are PyTorch's composites.
  m.impl("abs.out", MT_CHECKED(at::native::abs_out));
  m.impl("angle", MT_CHECKED(at::native::angle));
  m.impl("angle.out", MT_CHECKED(at::native::angle_out));
  m.impl("conj_physical.out", MT_CHECKED(at::native::conj_physical_out));
  m.impl("logical_not.out", MT_CHECKED(at::native::logical_not_out));
  m.impl("nan_to_num.out", MT_CHECKED(at::native::nan_to_num_out));
  m.impl("frexp.Tensor_out", MT_CHECKED(at::native::frexp_out));
  m.impl("isnan", MT_CHECKED(at::native::isnan));
  m.impl("logit", MT_CHECKED(at::native::logit));
  m.impl("logit_", MT_CHECKED(at::native::logit_));
  m.impl("logit.out", MT_CHECKED(at::native::logit_out));
  m.impl("mvlgamma.out", MT_CHECKED(at::native::mvlgamma_out));
}
}  // namespace minitorch
