// Binary pointwise operators: PyTorch's metas and TensorIterator, our kernels.
#include <ATen/NativeFunctions.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Pow.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/add_meta.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "ops/pointwise.h"
#include "runtime/backend.h"

// X(name): structured with variants name, name_, name.out; stub and kernel have the same name.
// clang-format off
#define MT_BINARY(X)                                                                      \
  X(atan2) X(fmax) X(fmin) X(gcd) X(heaviside) X(hypot) X(igamma) X(igammac) X(lcm)       \
  X(logaddexp) X(logaddexp2) X(nextafter)
// clang-format on
// X(polynomial, kernel): special_polynomial, whose stub lacks the prefix.
#define MT_POLYNOMIALS(X)                                \
  X(chebyshev_polynomial_t, chebyshev_t)                 \
  X(chebyshev_polynomial_u, chebyshev_u)                 \
  X(chebyshev_polynomial_v, chebyshev_v)                 \
  X(chebyshev_polynomial_w, chebyshev_w)                 \
  X(shifted_chebyshev_polynomial_t, shifted_chebyshev_t) \
  X(shifted_chebyshev_polynomial_u, shifted_chebyshev_u) \
  X(shifted_chebyshev_polynomial_v, shifted_chebyshev_v) \
  X(shifted_chebyshev_polynomial_w, shifted_chebyshev_w) \
  X(hermite_polynomial_h, hermite_h)                     \
  X(hermite_polynomial_he, hermite_he)                   \
  X(laguerre_polynomial_l, laguerre_l)                   \
  X(legendre_polynomial_p, legendre_p)
// X(name): variants name.Tensor, name_.Tensor, name.Tensor_out
#define MT_TENSOR_BINARY(X) X(bitwise_and) X(bitwise_or) X(bitwise_xor) X(fmod) X(remainder)
#define MT_ORDER(X) X(lt) X(le) X(gt) X(ge)
#define MT_COMPARISONS(X) X(eq) X(ne) MT_ORDER(X)

namespace minitorch {
namespace {

bool is(const at::Scalar& s, int value) { return !s.isSymbolic() && s.equal(value); }

// Of the comparisons native has these two for float8. A number beside a tensor is rounded to the tensor's dtype first.
template <PointwiseOp op>
void equality_stub(at::TensorIteratorBase& iter) {
  const at::ScalarType dtype = iter.common_dtype();
  if (!at::isFloat8Type(dtype)) return run_pointwise(op, iter);
  const at::Tensor a = iter.tensor(1).to(dtype).to(at::kFloat), b = iter.tensor(2).to(dtype).to(at::kFloat);
  iter.tensor(0).copy_(op == PointwiseOp::eq ? a.eq(b) : a.ne(b));
}

// Native has another kernel for float8 and 16-bit floats where the second operand is one number.
template <PointwiseOp op>
void quotient_stub(at::TensorIteratorBase& iter) {
  constexpr const char* names[3][2] = {{"div_cpu", "div_cpu_reduced_float"},
                                       {"div_trunc_cpu", "div_trunc_cpu_reduced_float"},
                                       {"div_floor_cpu", "div_floor_cpu_reduced_float"}};
  constexpr int row = op == PointwiseOp::div ? 0 : op == PointwiseOp::div_trunc ? 1 : 2;
  const bool number = at::isReducedFloatingType(iter.common_dtype()) && iter.is_scalar(2);
  named(row == 2 ? "floor_divide" : "div", names[row][number], [&] { run_pointwise(op, iter); });
}

// clamp by tensors has the same stubs; maximum and minimum themselves have refused complex numbers before.
void maximum_stub(at::TensorIteratorBase& iter) {
  check_native_has(!at::isComplexType(iter.common_dtype()), "maximum_cpu", iter.common_dtype());
  named("maximum", "maximum_cpu", [&] { run_pointwise(PointwiseOp::maximum, iter); });
}
void minimum_stub(at::TensorIteratorBase& iter) {
  check_native_has(!at::isComplexType(iter.common_dtype()), "minimum_cpu", iter.common_dtype());
  named("minimum", "minimum_cpu", [&] { run_pointwise(PointwiseOp::minimum, iter); });
}

// Native has products of float8 tensors, and none with a number.
void product_stub(at::TensorIteratorBase& iter) {
  if (!at::isFloat8Type(iter.common_dtype()) || iter.is_scalar(2)) return run_pointwise(PointwiseOp::mul, iter);
  iter.tensor(0).copy_(at::mul(iter.tensor(1).to(at::kFloat), iter.tensor(2).to(at::kFloat)));
}

// The innermost dimension of each operand is contiguous, or that of one input is a single value.
bool rows_are_contiguous(const at::TensorIteratorBase& iter) {
  if (iter.ndim() == 0) return false;
  int values = 0;
  for (int k = 0; k < iter.ntensors(); k++) {
    const int64_t stride = iter.strides(k)[0];
    if (k > 0 && stride == 0)
      values++;
    else if (stride != iter.element_size(k))
      return false;
  }
  return values < 2;
}

void add_stub(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  // Native multiplies complex numbers by one as well, of which 0 * inf is seen: (0 + inf i) + 0 is nan + inf i.
  if (at::isComplexType(iter.common_dtype())) return run_pointwise(PointwiseOp::add, iter, alpha);
  if (is(alpha, 1)) return run_pointwise(PointwiseOp::plain_add, iter);
  if (is(alpha, -1) && iter.common_dtype() != at::kBool) return run_pointwise(PointwiseOp::plain_sub, iter);
  if (!at::isReducedFloatingType(iter.common_dtype()) || !backend().host_accessible())
    return run_pointwise(PointwiseOp::add, iter, alpha);
  // Native CPU rounds alpha to 16 bits, and its loop for operands that are not contiguous rounds alpha * b as well.
  const bool half = iter.common_dtype() == at::kHalf, contiguous = rows_are_contiguous(iter);
  const double rounded =
      half ? static_cast<double>(alpha.to<c10::Half>()) : static_cast<double>(alpha.to<c10::BFloat16>());
  const auto strided = half ? PointwiseOp::add_half : PointwiseOp::add_bfloat16;
  run_pointwise(contiguous ? PointwiseOp::add : strided, iter, rounded);
}

// PyTorch generates add's impl per device, so it has no stub to register. Its meta checks alpha against the dtype of
// the output, which on the CPU is the common dtype even when out= has another.
struct Add : at::meta::structured_add_Tensor {
  void meta(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
    build_borrowing_binary_op(maybe_get_output(), self, other);
    at::native::alpha_check(common_dtype(), alpha);
  }
  void impl(const at::Tensor&, const at::Tensor&, const at::Scalar& alpha, const at::Tensor&) {
    add_stub(*this, alpha);
  }
};

void pow_scalar_stub(at::TensorIteratorBase& iter, const at::Scalar& exponent) {
  const bool floating = !at::isIntegralType(iter.common_dtype(), /*includeBool=*/true);
  if (is(exponent, 2)) return run_pointwise(PointwiseOp::square, iter);
  const bool brain = iter.common_dtype() == at::kBFloat16;
  if (is(exponent, 3)) return run_pointwise(brain ? PointwiseOp::cube_bfloat16 : PointwiseOp::cube, iter);
  const bool native_cpu = backend().host_accessible();  // native CUDA has no short forms for these
  const auto z = exponent.toComplexDouble();
  if (floating && (!exponent.isComplex() || (native_cpu && z.imag() == 0))) {
    const double e = z.real();
    if (e == 0.5) return run_pointwise(PointwiseOp::sqrt, iter);
    if (e == -0.5) return run_pointwise(PointwiseOp::rsqrt, iter);
    if (e == -1.0) return run_pointwise(PointwiseOp::reciprocal, iter);
    if (e == -2.0 && (native_cpu || !at::isComplexType(iter.common_dtype())))
      return run_pointwise(brain ? PointwiseOp::inverse_square_bfloat16 : PointwiseOp::inverse_square, iter);
  }
  // As a tensor's dtype would have it.
  if (iter.common_dtype() == at::kHalf)
    return run_pointwise(PointwiseOp::pow_scalar, iter, static_cast<double>(exponent.toHalf()));
  if (brain) return run_pointwise(PointwiseOp::pow_scalar, iter, static_cast<double>(exponent.toBFloat16()));
  run_pointwise(PointwiseOp::pow_scalar, iter, exponent);
}

// Native makes complex32 of two halves by complex() only.
void polar_stub(at::TensorIterator& iter) {
  if (iter.dtype(1) == at::kHalf) refuse_as_native("polar", at::kHalf);
  run_pointwise(PointwiseOp::polar, iter);
}

void ldexp_stub(at::TensorIteratorBase& iter) {
  const at::ScalarType x = iter.dtype(1), exponent = iter.dtype(2);
  check_native_has(at::isFloatingType(x) && !at::isFloat8Type(x), "ldexp_cpu", x);
  check_native_has(at::isIntegralType(exponent, /*includeBool=*/false) && !c10::isBarebonesUnsignedType(exponent),
                   "ldexp_cpu_exp", exponent);
  run_in_output_dtype(PointwiseOp::ldexp, iter);
}

// x << y has a name of its own among the operators, not among native's kernels.
template <PointwiseOp op>
void shift_stub(at::TensorIteratorBase& iter) {
  constexpr bool left = op == PointwiseOp::bitwise_left_shift;
  named(left ? "bitwise_left_shift" : "bitwise_right_shift", left ? "lshift_cpu" : "rshift_cpu",
        [&] { run_pointwise(op, iter); });
}

}  // namespace
}  // namespace minitorch

namespace at::native {
#define MT_REGISTER(name) MT_STUB(name##_stub, name)
MT_BINARY(MT_REGISTER)
MT_TENSOR_BINARY(MT_REGISTER)
MT_ORDER(MT_REGISTER)
MT_REGISTER(copysign)
MT_REGISTER(logical_and)
MT_REGISTER(logical_or)
MT_REGISTER(logical_xor)
MT_REGISTER(xlogy)
MT_REGISTER(xlog1py)
MT_REGISTER(complex)
MT_REGISTER(mse)
MT_REGISTER(smooth_l1)
MT_REGISTER(huber)
#undef MT_REGISTER
#define MT_REGISTER(name, kernel) MT_STUB_WITHOUT_HALVES(name##_stub, kernel, #name "_cpu")
MT_POLYNOMIALS(MT_REGISTER)
#undef MT_REGISTER
REGISTER_PRIVATEUSE1_DISPATCH(maximum_stub, &minitorch::maximum_stub)
REGISTER_PRIVATEUSE1_DISPATCH(minimum_stub, &minitorch::minimum_stub)
REGISTER_PRIVATEUSE1_DISPATCH(div_true_stub, &minitorch::quotient_stub<minitorch::PointwiseOp::div>)
REGISTER_PRIVATEUSE1_DISPATCH(div_trunc_stub, &minitorch::quotient_stub<minitorch::PointwiseOp::div_trunc>)
REGISTER_PRIVATEUSE1_DISPATCH(div_floor_stub, &minitorch::quotient_stub<minitorch::PointwiseOp::div_floor>)
REGISTER_PRIVATEUSE1_DISPATCH(lshift_stub, &minitorch::shift_stub<minitorch::PointwiseOp::bitwise_left_shift>)
REGISTER_PRIVATEUSE1_DISPATCH(rshift_stub, &minitorch::shift_stub<minitorch::PointwiseOp::bitwise_right_shift>)
MT_STUB(pow_tensor_tensor_stub, pow)
REGISTER_PRIVATEUSE1_DISPATCH(eq_stub, &minitorch::equality_stub<minitorch::PointwiseOp::eq>)
REGISTER_PRIVATEUSE1_DISPATCH(ne_stub, &minitorch::equality_stub<minitorch::PointwiseOp::ne>)
REGISTER_PRIVATEUSE1_DISPATCH(mul_stub, &minitorch::product_stub)
REGISTER_PRIVATEUSE1_DISPATCH(add_stub, &minitorch::add_stub)
REGISTER_PRIVATEUSE1_DISPATCH(pow_tensor_scalar_stub, &minitorch::pow_scalar_stub)
REGISTER_PRIVATEUSE1_DISPATCH(polar_stub, &minitorch::polar_stub)
MT_STUB_WITHOUT_HALVES(zeta_stub, zeta, "zeta_cpu")
REGISTER_PRIVATEUSE1_DISPATCH(ldexp_stub, &minitorch::ldexp_stub)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
#define MT_REGISTER(name) structured<at::native::structured_##name##_out>(m, #name, #name "_", #name ".out");
  MT_BINARY(MT_REGISTER)
  MT_REGISTER(maximum)
  MT_REGISTER(minimum)
#undef MT_REGISTER
#define MT_REGISTER(name) \
  structured<at::native::structured_##name##_out>(m, #name ".Tensor", #name "_.Tensor", #name ".Tensor_out");
  MT_TENSOR_BINARY(MT_REGISTER)
  MT_REGISTER(bitwise_left_shift)
  MT_REGISTER(bitwise_right_shift)
#undef MT_REGISTER
#define MT_REGISTER(name)                                                                                            \
  structured<at::native::structured_##name##_Tensor_out>(m, #name ".Tensor", #name "_.Tensor", #name ".Tensor_out"); \
  structured<at::native::structured_##name##_Scalar_out>(m, #name ".Scalar", #name "_.Scalar", #name ".Scalar_out");
  MT_COMPARISONS(MT_REGISTER)
#undef MT_REGISTER
#define MT_REGISTER(name, kernel) \
  structured<at::native::structured_special_##name##_out>(m, "special_" #name, nullptr, "special_" #name ".out");
  MT_POLYNOMIALS(MT_REGISTER)
#undef MT_REGISTER
  structured<Add>(m, "add.Tensor", "add_.Tensor", "add.out");
  structured<at::native::structured_sub_out>(m, "sub.Tensor", "sub_.Tensor", "sub.out");
  structured<at::native::structured_mul_out>(m, "mul.Tensor", "mul_.Tensor", "mul.out");
  structured<at::native::structured_div_out>(m, "div.Tensor", "div_.Tensor", "div.out");
  structured<at::native::structured_div_out_mode>(m, "div.Tensor_mode", "div_.Tensor_mode", "div.out_mode");
  structured<at::native::structured_copysign_out>(m, "copysign.Tensor", "copysign_.Tensor", "copysign.out");
  structured<at::native::structured_xlogy_out>(m, "xlogy.Tensor", "xlogy_.Tensor", "xlogy.OutTensor");
  structured<at::native::structured_special_xlog1py_out>(m, "special_xlog1py", nullptr, "special_xlog1py.out");
  structured<at::native::structured_special_zeta_out>(m, "special_zeta", nullptr, "special_zeta.out");
  structured<at::native::structured_pow_Tensor_Tensor_out>(m, "pow.Tensor_Tensor", "pow_.Tensor",
                                                           "pow.Tensor_Tensor_out");
  structured<at::native::structured_pow_Tensor_Scalar_out>(m, "pow.Tensor_Scalar", "pow_.Scalar",
                                                           "pow.Tensor_Scalar_out");
  structured<at::native::structured_pow_Scalar_out>(m, "pow.Scalar", nullptr, "pow.Scalar_out");

  m.impl("rsub.Tensor",
         MT_CHECKED((at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Scalar&))(at::native::rsub)));
  using TensorTensor = at::Tensor(const at::Tensor&, const at::Tensor&);
  using InplaceTensor = at::Tensor&(at::Tensor&, const at::Tensor&);
  using TensorScalar = at::Tensor(const at::Tensor&, const at::Scalar&);
  using InplaceScalar = at::Tensor&(at::Tensor&, const at::Scalar&);
  using ScalarTensor = at::Tensor(const at::Scalar&, const at::Tensor&);
  m.impl("floor_divide", MT_CHECKED(BinaryCastFirst<static_cast<TensorTensor*>(at::native::floor_divide)>::call));
  m.impl("floor_divide_.Tensor", MT_CHECKED(static_cast<InplaceTensor*>(at::native::floor_divide_)));
  m.impl("floor_divide.out", MT_CHECKED(BinaryCastFirst<at::native::floor_divide_out>::call));
  m.impl("remainder.Scalar_Tensor", MT_CHECKED(static_cast<ScalarTensor*>(at::native::remainder)));
  m.impl("__lshift__.Tensor", MT_CHECKED(static_cast<TensorTensor*>(at::native::__lshift__)));
  m.impl("__lshift__.Scalar", MT_CHECKED(static_cast<TensorScalar*>(at::native::__lshift__)));
  m.impl("__ilshift__.Tensor", MT_CHECKED(static_cast<InplaceTensor*>(at::native::__ilshift__)));
  m.impl("__ilshift__.Scalar", MT_CHECKED(static_cast<InplaceScalar*>(at::native::__ilshift__)));
  m.impl("__rshift__.Tensor", MT_CHECKED(static_cast<TensorTensor*>(at::native::__rshift__)));
  m.impl("__rshift__.Scalar", MT_CHECKED(static_cast<TensorScalar*>(at::native::__rshift__)));
  m.impl("__irshift__.Tensor", MT_CHECKED(static_cast<InplaceTensor*>(at::native::__irshift__)));
  m.impl("__irshift__.Scalar", MT_CHECKED(static_cast<InplaceScalar*>(at::native::__irshift__)));
  m.impl("logical_and.out", MT_CHECKED(BinaryCastFirst<at::native::logical_and_out>::call));
  m.impl("logical_or.out", MT_CHECKED(BinaryCastFirst<at::native::logical_or_out>::call));
  m.impl("logical_xor.out", MT_CHECKED(BinaryCastFirst<at::native::logical_xor_out>::call));
  m.impl("complex.out", MT_CHECKED(at::native::complex_out));
  m.impl("polar.out", MT_CHECKED(at::native::polar_out));
}
}  // namespace minitorch
