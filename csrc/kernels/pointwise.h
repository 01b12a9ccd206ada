// Pointwise operators: every output element depends on the input elements at the same index.
// Adding one: a functor in functors/, a line in a table below (and its binding line in ops/).
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// X(enumerator, functor, types): the operands and results are the functor's, `types` the compute types it is built for.
// A table for each source under kernels/cpu.
#define MT_ARITHMETIC_OPS(X)                                      \
  X(abs, Abs, NumericTypes)                                       \
  X(neg, Neg, NumericTypes)                                       \
  X(sign, Sign, RealBoolTypes)                                    \
  X(sgn, Sgn, ComplexTypes)                                       \
  X(signbit, Signbit, RealBoolTypes)                              \
  X(conj_physical, Conj, ComplexTypes)                            \
  X(floor, Floor, FloatTypes)                                     \
  X(ceil, Ceil, FloatTypes)                                       \
  X(trunc, Trunc, FloatTypes)                                     \
  X(round, Round, FloatTypes)                                     \
  X(round_decimals, RoundDecimals, FloatTypes)                    \
  X(frac, Frac, FloatTypes)                                       \
  X(frexp, Frexp, FloatTypes)                                     \
  X(nan_to_num, NanToNum, FloatComplexTypes)                      \
  X(isposinf, IsPosInf, FloatTypes)                               \
  X(isneginf, IsNegInf, FloatTypes)                               \
  X(logical_not, LogicalNot, AllTypes)                            \
  X(bitwise_not, BitwiseNot, IntBoolTypes)                        \
  X(sqrt, Sqrt, FloatComplexTypes)                                \
  X(rsqrt, Rsqrt, FloatComplexTypes)                              \
  X(reciprocal, Reciprocal, FloatComplexTypes)                    \
  X(square, Square, NumericTypes)                                 \
  X(cube, Cube, NumericTypes)                                     \
  X(inverse_square, InverseSquare, FloatComplexTypes)             \
  X(cube_bfloat16, CubeBFloat16, Types<float>)                    \
  X(inverse_square_bfloat16, InverseSquareBFloat16, Types<float>) \
  X(add, Add, AllTypes)                                           \
  X(add_half, AddHalf, Types<float>)                              \
  X(add_bfloat16, AddBFloat16, Types<float>)                      \
  X(plain_add, PlainAdd, AllTypes)                                \
  X(plain_sub, PlainSub, NumericTypes)                            \
  X(mul, Mul, AllUnsignedTypes)                                   \
  X(div, Div, FloatComplexTypes)                                  \
  X(addcmul, Addcmul, NumericTypes)                               \
  X(addcdiv, Addcdiv, FloatComplexTypes)                          \
  X(lerp_scalar, LerpScalar, FloatComplexTypes)                   \
  X(lerp_tensor, LerpTensor, FloatComplexTypes)

#define MT_COMPARE_OPS(X)               \
  X(eq, Eq, AllUnsignedTypes)           \
  X(ne, Ne, AllUnsignedTypes)           \
  X(lt, Lt, RealBoolTypes)              \
  X(le, Le, RealBoolTypes)              \
  X(gt, Gt, RealBoolTypes)              \
  X(ge, Ge, RealBoolTypes)              \
  X(logical_and, LogicalAnd, AllTypes)  \
  X(logical_or, LogicalOr, AllTypes)    \
  X(logical_xor, LogicalXor, AllTypes)  \
  X(where, Where, AllUnsignedTypes)     \
  X(maximum, Maximum, RealBoolTypes)    \
  X(minimum, Minimum, RealBoolTypes)    \
  X(fmax, Fmax, RealBoolTypes)          \
  X(fmin, Fmin, RealBoolTypes)          \
  X(clamp, Clamp, RealBoolTypes)        \
  X(clamp_min, ClampMin, RealBoolTypes) \
  X(clamp_max, ClampMax, RealBoolTypes) \
  X(clamp_tensor, ClampTensor, RealBoolTypes)

#define MT_INTEGER_OPS(X)                       \
  X(div_trunc, DivTrunc, RealTypes)             \
  X(div_floor, DivFloor, RealTypes)             \
  X(fmod, Fmod, RealTypes)                      \
  X(remainder, Remainder, RealTypes)            \
  X(bitwise_and, BitwiseAnd, UnsignedBoolTypes) \
  X(bitwise_or, BitwiseOr, UnsignedBoolTypes)   \
  X(bitwise_xor, BitwiseXor, UnsignedBoolTypes) \
  X(bitwise_left_shift, LeftShift, IntTypes)    \
  X(bitwise_right_shift, RightShift, IntTypes)  \
  X(gcd, Gcd, IntTypes)                         \
  X(lcm, Lcm, IntTypes)                         \
  X(heaviside, Heaviside, RealBoolTypes)        \
  X(pow, Pow, NumericTypes)                     \
  X(pow_scalar, PowScalar, NumericTypes)

#define MT_MATH_OPS(X)                       \
  X(exp, Exp, FloatComplexTypes)             \
  X(exp2, Exp2, FloatComplexTypes)           \
  X(expm1, Expm1, FloatComplexTypes)         \
  X(log, Log, FloatComplexTypes)             \
  X(log2, Log2, FloatComplexTypes)           \
  X(log10, Log10, FloatComplexTypes)         \
  X(log1p, Log1p, FloatComplexTypes)         \
  X(sin, Sin, FloatComplexTypes)             \
  X(cos, Cos, FloatComplexTypes)             \
  X(tan, Tan, FloatComplexTypes)             \
  X(asin, Asin, FloatComplexTypes)           \
  X(acos, Acos, FloatComplexTypes)           \
  X(atan, Atan, FloatComplexTypes)           \
  X(sinh, Sinh, FloatComplexTypes)           \
  X(cosh, Cosh, FloatComplexTypes)           \
  X(tanh, Tanh, FloatComplexTypes)           \
  X(asinh, Asinh, FloatComplexTypes)         \
  X(acosh, Acosh, FloatComplexTypes)         \
  X(atanh, Atanh, FloatComplexTypes)         \
  X(sigmoid, Sigmoid, FloatComplexTypes)     \
  X(sinc, Sinc, FloatComplexTypes)           \
  X(angle, Angle, FloatComplexTypes)         \
  X(erf, Erf, FloatTypes)                    \
  X(erfc, Erfc, FloatTypes)                  \
  X(atan2, Atan2, FloatTypes)                \
  X(hypot, Hypot, FloatTypes)                \
  X(copysign, Copysign, FloatTypes)          \
  X(nextafter, Nextafter, FloatingTypes)     \
  X(ldexp, Ldexp, FloatTypes)                \
  X(logaddexp, Logaddexp, FloatComplexTypes) \
  X(logaddexp2, Logaddexp2, FloatTypes)      \
  X(xlogy, Xlogy, FloatTypes)                \
  X(xlog1py, Xlog1py, FloatTypes)            \
  X(complex, MakeComplex, FloatTypes)        \
  X(polar, Polar, FloatTypes)

#define MT_SPECIAL_OPS(X)             \
  X(erfinv, Erfinv, FloatTypes)       \
  X(lgamma, Lgamma, FloatTypes)       \
  X(digamma, Digamma, FloatTypes)     \
  X(trigamma, Trigamma, FloatTypes)   \
  X(polygamma, Polygamma, FloatTypes) \
  X(zeta, Zeta, FloatTypes)           \
  X(igamma, Igamma, FloatTypes)       \
  X(igammac, Igammac, FloatTypes)     \
  X(entr, Entr, FloatTypes)           \
  X(erfcx, Erfcx, FloatTypes)         \
  X(ndtri, Ndtri, FloatTypes)         \
  X(log_ndtr, LogNdtr, FloatTypes)    \
  X(i0, I0, FloatTypes)               \
  X(i0e, I0e, FloatTypes)             \
  X(i1, I1, FloatTypes)               \
  X(i1e, I1e, FloatTypes)

#define MT_BESSEL_OPS(X)                          \
  X(airy_ai, AiryAi, FloatTypes)                  \
  X(bessel_j0, BesselJ0, FloatTypes)              \
  X(bessel_j1, BesselJ1, FloatTypes)              \
  X(bessel_y0, BesselY0, FloatTypes)              \
  X(bessel_y1, BesselY1, FloatTypes)              \
  X(bessel_k0, BesselK0, FloatTypes)              \
  X(bessel_k1, BesselK1, FloatTypes)              \
  X(scaled_bessel_k0, ScaledBesselK0, FloatTypes) \
  X(scaled_bessel_k1, ScaledBesselK1, FloatTypes) \
  X(spherical_bessel_j0, SphericalBesselJ0, FloatTypes)

#define MT_PATHWISE_OPS(X)                              \
  X(standard_gamma_grad, StandardGammaGrad, FloatTypes) \
  X(dirichlet_grad, DirichletGrad, FloatTypes)

#define MT_ORTHOGONAL_OPS(X)                            \
  X(chebyshev_t, ChebyshevT, FloatTypes)                \
  X(shifted_chebyshev_t, ShiftedChebyshevT, FloatTypes) \
  X(chebyshev_u, ChebyshevU, FloatTypes)                \
  X(shifted_chebyshev_u, ShiftedChebyshevU, FloatTypes) \
  X(chebyshev_v, ChebyshevV, FloatTypes)                \
  X(shifted_chebyshev_v, ShiftedChebyshevV, FloatTypes) \
  X(chebyshev_w, ChebyshevW, FloatTypes)                \
  X(shifted_chebyshev_w, ShiftedChebyshevW, FloatTypes) \
  X(hermite_h, HermiteH, FloatTypes)                    \
  X(hermite_he, HermiteHe, FloatTypes)                  \
  X(laguerre_l, LaguerreL, FloatTypes)                  \
  X(legendre_p, LegendreP, FloatTypes)

#define MT_ACTIVATION_OPS(X)                                     \
  X(threshold, Threshold, RealTypes)                             \
  X(hardtanh_backward, HardtanhBackward, FloatTypes)             \
  X(gelu, Gelu, FloatTypes)                                      \
  X(gelu_half, GeluHalf, Types<float>)                           \
  X(gelu_bfloat16, GeluBFloat16, Types<float>)                   \
  X(gelu_backward, GeluBackward, FloatTypes)                     \
  X(gelu_tanh, GeluTanh, FloatTypes)                             \
  X(gelu_tanh_backward, GeluTanhBackward, FloatTypes)            \
  X(silu, Silu, FloatComplexTypes)                               \
  X(silu_backward, SiluBackward, FloatComplexTypes)              \
  X(mish, Mish, FloatTypes)                                      \
  X(mish_backward, MishBackward, FloatTypes)                     \
  X(elu, Elu, FloatTypes)                                        \
  X(elu_backward, EluBackward, FloatTypes)                       \
  X(elu_backward_from_result, EluBackwardFromResult, FloatTypes) \
  X(softplus, Softplus, FloatTypes)                              \
  X(softplus_backward, SoftplusBackward, FloatTypes)             \
  X(hardshrink, Hardshrink, FloatTypes)                          \
  X(softshrink, Softshrink, FloatTypes)                          \
  X(shrink_backward, ShrinkBackward, FloatTypes)                 \
  X(hardsigmoid, Hardsigmoid, FloatTypes)                        \
  X(hardsigmoid_backward, HardsigmoidBackward, FloatTypes)       \
  X(hardswish, Hardswish, FloatTypes)                            \
  X(hardswish_backward, HardswishBackward, FloatTypes)           \
  X(leaky_relu, LeakyRelu, FloatTypes)                           \
  X(leaky_relu_backward, LeakyReluBackward, FloatTypes)          \
  X(prelu, Prelu, FloatTypes)                                    \
  X(prelu_backward, PreluBackward, FloatTypes)                   \
  X(log_sigmoid, LogSigmoid, FloatTypes)                         \
  X(log_sigmoid_backward, LogSigmoidBackward, FloatTypes)        \
  X(glu, Glu, FloatTypes)                                        \
  X(glu_backward, GluBackward, FloatTypes)                       \
  X(glu_jvp, GluJvp, FloatTypes)                                 \
  X(sigmoid_backward, SigmoidBackward, FloatComplexTypes)        \
  X(tanh_backward, TanhBackward, FloatComplexTypes)              \
  X(logit, Logit, FloatTypes)                                    \
  X(logit_backward, LogitBackward, FloatTypes)                   \
  X(mse, SquaredDifference, FloatTypes)                          \
  X(smooth_l1, SmoothL1, FloatTypes)                             \
  X(huber, Huber, FloatTypes)

// clang-format off
#define MT_POINTWISE_OPS(X)                                                                 \
  MT_ARITHMETIC_OPS(X) MT_COMPARE_OPS(X) MT_INTEGER_OPS(X) MT_MATH_OPS(X) MT_SPECIAL_OPS(X) \
  MT_BESSEL_OPS(X) MT_ORTHOGONAL_OPS(X) MT_PATHWISE_OPS(X) MT_ACTIVATION_OPS(X)
// clang-format on

enum class PointwiseOp : uint16_t {
#define MT_ENUM(name, functor, types) name,
  MT_POINTWISE_OPS(MT_ENUM)
#undef MT_ENUM
};
const char* name_of(PointwiseOp op);

extern Kernel<void(PointwiseOp, const PointwiseView&, const PointwiseParams&)> pointwise_kernel;

// output = input with conversion between any two dtypes; equal dtypes are moved as bytes.
extern Kernel<void(const PointwiseView&)> copy_kernel;
// Every element of the single output becomes the scalar.
extern Kernel<void(const PointwiseView&, const Scalar&)> fill_kernel;

}  // namespace minitorch
