// Activation functions and their derivatives. In the binary and ternary ones the arguments come in the order of
// PyTorch's TensorIterators, which is not the schema's everywhere; each says what they are.
//
// Where native's vectorised loop and the scalar one for its last few elements disagree about NaN, these follow the
// first.
#pragma once
#include "kernels/functors/pointwise.h"

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

inline constexpr double kSqrtHalf = 0.70710678118654752440;
inline constexpr double kInvSqrt2Pi = 0.39894228040143267794;
inline constexpr double kSqrt2OverPi = 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;  // D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", 2016

// MT_PARAMS_1(Name, field): a functor's constructor from scalars.
#define MT_PARAMS_1(Name, a) \
  T a;                       \
  MT_HD explicit Name(const PointwiseParams& p) : a(p.s[0].to<T>()) {}
#define MT_PARAMS_2(Name, a, b) \
  T a, b;                       \
  MT_HD explicit Name(const PointwiseParams& p) : a(p.s[0].to<T>()), b(p.s[1].to<T>()) {}
#define MT_PARAMS_3(Name, a, b, c) \
  T a, b, c;                       \
  MT_HD explicit Name(const PointwiseParams& p) : a(p.s[0].to<T>()), b(p.s[1].to<T>()), c(p.s[2].to<T>()) {}

template <class T>
struct Threshold {  // x, what to give above the threshold (x itself, or the gradient in the backward pass)
  MT_PARAMS_2(Threshold, threshold, value)
  MT_HD T operator()(T x, T other) const { return x <= threshold ? value : other; }
};
template <class T>
struct HardtanhBackward {  // gradient, x
  MT_PARAMS_2(HardtanhBackward, low, high)
  MT_HD T operator()(T g, T x) const { return (x > low) & (x < high) ? g : T(0); }
};

// The normal distribution function. In single precision and on a GPU as (1 + erf(x / sqrt(2))) / 2, which loses the
// digits of its tail as native's does; never below zero, where the error of erf could take it.
template <class T>
MT_HD T normal_cdf(T x) {
#if !defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, double>) return math::normal_cdf(x);
#endif
  const T sum = T(1) + math::erf_plain(x * T(kSqrtHalf));
  return T(0.5) * (sum < T(0) ? T(0) : sum);
}
MT_UNARY_FUNCTOR(Gelu, x* normal_cdf(x))
// GELU for 16-bit types, which show the tail's relative error: without a division, x 2^p(|x|) on the left and
// x - |x| 2^p(|x|) on the right, where p is the logarithm of the tail up to `most`, from where all results round to
// zero.
template <class T, int N>
MT_HD T gelu_narrow(T x, T most, const float (&c)[N]) {
#if defined(__CUDA_ARCH__)
  return x * normal_cdf(x);
#else
  const T a = ::fabsf(x), y = a < most ? a : most, u = y - T(0.5) * most;
  T p = c[N - 1];
#pragma GCC unroll 16
  for (int i = N - 2; i >= 0; i--) p = p * u + c[i];
  constexpr T round = 12582912.0f;  // 1.5 * 2^23
  const T n = (p + round) - round, f = p - n;
  T power = 9.6663685e-3f;
  power = power * f + 5.5921976e-2f;
  power = power * f + 2.4022349e-1f;
  power = power * f + 6.9312105e-1f;
  power = power * f + 1.0f;
  const uint32_t bias = (127u + 64u) << 23;  // and 2^-64: the tail may be subnormal
  const T scale = math::detail::bit_cast<T>((math::detail::bit_cast<uint32_t>(n + round) << 23) + bias);
  const T tail = a < most ? power * scale * 0x1p-64f : T(0);
  return x < T(0) ? x * tail : x - y * tail;
#endif
}
template <class T>
struct GeluHalf {  // 2^-14.3
  MT_HD T operator()(T x) const {
    constexpr float c[] = {-9.5329339f,   -4.7366754f,     -0.67044463f,  -0.0074179464f,
                           0.0011326264f, -0.00019773276f, 2.3017209e-05f};
    return gelu_narrow(x, T(6), c);
  }
};
template <class T>
struct GeluBFloat16 {  // 2^-11.9
  MT_HD T operator()(T x) const {
    constexpr float c[] = {-40.805435f,     -10.47406f,     -0.70861095f,    -0.0011636778f, 0.00010508604f,
                           -3.4659801e-06f, 4.7201798e-07f, -2.2490801e-07f, 1.8625207e-08f};
    return gelu_narrow(x, T(14.25), c);
  }
};
template <class T>
struct GeluBackward {  // gradient, x
  MT_HD T operator()(T g, T x) const {
    const T pdf = T(kInvSqrt2Pi) * math::exp(x * x * T(-0.5));
    return g * (normal_cdf(x) + x * pdf);
  }
};
// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)) keeps the digits of the left tail.
template <class T>
struct GeluTanh {
  MT_HD T operator()(T x) const {
    const T u = T(kSqrt2OverPi) * (x + T(kGeluCubic) * x * x * x);
    return x / (T(1) + math::exp(T(-2) * u));
  }
};
template <class T>
struct GeluTanhBackward {  // gradient, x
  MT_HD T operator()(T g, T x) const {
    const T square = x * x;
    const T t = math::tanh(T(kSqrt2OverPi) * (x + T(kGeluCubic) * square * x));
    const T slope = T(kSqrt2OverPi) * (T(1) + T(3 * kGeluCubic) * square);
    return g * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope);
  }
};

template <class T>
struct Silu {
  MT_HD T operator()(T x) const { return x / (T(1) + math::exp(-x)); }
};
template <class T>
struct SiluBackward {  // gradient, x
  MT_HD T operator()(T g, T x) const {
    const T s = T(1) / (T(1) + math::exp(-x));
    return g * s * (T(1) + x * (T(1) - s));
  }
};

// tanh(softplus(x)) = n / (n + 2) with n = e^x (e^x + 2).
template <class T>
MT_HD T tanh_softplus(T x) {
  const T e = math::exp(x < T(20) ? x : T(20)), n = e * (e + T(2));
  const T value = n / (n + T(2));
  return x != x ? x : value;
}
#if defined(__CUDA_ARCH__)
MT_UNARY_FUNCTOR(Mish, x* tanh_softplus(x))
#else
MT_HD float mish(float x) { return x * tanh_softplus(x); }
// With what is lost on the way, as native's is shorter. Left of -690 it is x e^x.
MT_HD double mish(double x) {
  using namespace math::detail;
  const double y = x < -690.0 ? -690.0 : (x < 20.0 ? x : 20.0);
  const ExpReduction reduced(y);
  const DoubleDouble power = exp_sum(reduced);
  const double scale = exp2_integer(reduced.n);
  const DoubleDouble e = {power.high * scale, power.low * scale}, n = math::detail::times(e, add_to(2.0, e));
  const DoubleDouble q = quotient(n, add_to(2.0, n));
  const double inner = x * q.join(), left = x < -690.0 ? x * math::exp(x) : inner;
  return x < 20.0 ? left : x;
}
MT_UNARY_FUNCTOR(Mish, mish(x))
#endif
template <class T>
struct MishBackward {  // gradient, x
  MT_HD T operator()(T g, T x) const {
    const T t = tanh_softplus(x);
    return g * (t + x * math::sigmoid(x) * (T(1) - t * t));
  }
};

template <class T>
struct Elu {  // s: coefficient below zero, above zero, of the input below zero
  MT_PARAMS_3(Elu, below, above, inner)
  MT_HD T operator()(T x) const {
    const T negative = math::expm1(x * inner) * below;
    return x < T(0) ? negative : x * above;
  }
};
template <class T>
struct EluBackward {  // gradient, x
  MT_PARAMS_3(EluBackward, below, above, inner)
  MT_HD T operator()(T g, T x) const {
    const T negative = g * inner * below * math::exp(x * inner);
    return x > T(0) ? g * above : negative;
  }
};
template <class T>
struct EluBackwardFromResult {  // gradient, elu(x)
  MT_PARAMS_3(EluBackwardFromResult, below, above, inner)
  MT_HD T operator()(T g, T y) const { return y > T(0) ? g * above : g * inner * (y + below); }
};

template <class T>
MT_HD T log_of_one_plus_exp(T x) {
  return math::log1p(math::exp(x));
}
#if !defined(__CUDA_ARCH__)
// max(x, 0) + log(1 + z) with z = exp(-|x|) in [0, 1], which is log(1 + z), or log(2) + log(1 + (z - 1) / 2) from
// sqrt(2) - 1 on, with log1p's polynomial and no division. What z and the sums of the large terms lose to rounding is
// put back; 1 / (1 + z), by which z's loss counts, is good to 4 %. Overflows where exp(x) does.
MT_HD float log_of_one_plus_exp(float x) {
  const math::detail::ExpSingle e(-::fabsf(x));
  const float z = math::detail::scale_single(e.high, e.n), below = math::detail::scale_single(e.low, e.n);
  const bool far = z > 0.41421356f;
  const float from = far ? 1.0f : 0.0f, left = z - from;
  const float lost = below + (z - (left + from));
  const float f = far ? left * 0.5f : left, square = f * f;
  const float tail = (square * f) * math::detail::log1p_tail(f) - 0.5f * square;
  const float base = far ? 0.69314718f : 0.0f, rest = far ? -1.9046542e-9f : 0.0f;
  const float positive = x > 0.0f ? x : 0.0f, head = base + positive, sum = head + f;
  const float small = (positive - (head - base)) + (f - (sum - head));
  const float value = sum + (tail + (small + (lost * (0.97f - 0.48f * z) + rest)));
  return x > 88.722839f ? INFINITY : value;
}
#endif
template <class T>
struct Softplus {
  MT_PARAMS_2(Softplus, beta, threshold)
  MT_HD T operator()(T x) const {
    const T scaled = x * beta, value = log_of_one_plus_exp(scaled) / beta;
    return scaled > threshold ? x : value;
  }
};
template <class T>
struct SoftplusBackward {  // gradient, x
  MT_PARAMS_2(SoftplusBackward, beta, threshold)
  MT_HD T operator()(T g, T x) const {
    const T scaled = x * beta, z = math::exp(scaled), value = g * z / (z + T(1));
    return scaled > threshold ? g : value;
  }
};

template <class T>
struct Hardshrink {
  MT_PARAMS_1(Hardshrink, lambda)
  MT_HD T operator()(T x) const { return (x >= -lambda) & (x <= lambda) ? T(0) : x; }
};
template <class T>
struct Softshrink {
  MT_PARAMS_1(Softshrink, lambda)
  MT_HD T operator()(T x) const { return x > lambda ? x - lambda : (x < -lambda ? x + lambda : (x != x ? x : T(0))); }
};
template <class T>
struct ShrinkBackward {  // gradient, x
  MT_PARAMS_1(ShrinkBackward, lambda)
  MT_HD T operator()(T g, T x) const { return (x < -lambda) | (x > lambda) ? g : T(0); }
};

// Clamp to [0, 6] that keeps NaN.
template <class T>
MT_HD T clamp6(T x) {
  x = x < T(0) ? T(0) : x;
  return x > T(6) ? T(6) : x;
}
MT_UNARY_FUNCTOR(Hardsigmoid, clamp6(x + T(3)) / T(6))
MT_UNARY_FUNCTOR(Hardswish, x* clamp6(x + T(3)) / T(6))
MT_BINARY_FUNCTOR(HardsigmoidBackward, (b > T(-3)) & (b < T(3)) ? a / T(6) : T(0))  // gradient, x
template <class T>
struct HardswishBackward {  // gradient, x
  MT_HD T operator()(T g, T x) const {
    const T middle = g * (x / T(3) + T(0.5));
    return x <= T(-3) ? T(0) : (x >= T(3) ? g : middle);
  }
};

template <class T>
struct LeakyRelu {
  MT_PARAMS_1(LeakyRelu, slope)
  MT_HD T operator()(T x) const { return x > T(0) ? x : x * slope; }
};
template <class T>
struct LeakyReluBackward {  // x, gradient
  MT_PARAMS_1(LeakyReluBackward, slope)
  MT_HD T operator()(T x, T g) const { return x > T(0) ? g : g * slope; }
};
MT_BINARY_FUNCTOR(Prelu, a > T(0) ? a : b * a)  // x, weight
template <class T>
struct PreluBackward {  // x, weight, gradient; gives the gradients of x and weight
  MT_HD Two<T> operator()(T x, T weight, T g) const {
    const bool positive = x > T(0);
    return {positive ? g : weight * g, positive ? T(0) : x * g};
  }
};

template <class T>
struct LogSigmoid {  // gives the result and the buffer exp(-|x|) that the backward pass takes
  MT_HD Two<T> operator()(T x) const {
    const T e = math::exp(-::fabs(x));
    return {(x < T(0) ? x : (x != x ? x : T(0))) - math::log1p(e), e};
  }
};
template <class T>
struct LogSigmoidBackward {  // x, buffer, gradient
  MT_HD T operator()(T x, T buffer, T g) const {
    const bool negative = x < T(0);
    const T most = negative ? T(1) : T(0), sign = negative ? T(1) : T(-1);
    return (most - sign * (buffer / (T(1) + buffer))) * g;
  }
};

MT_BINARY_FUNCTOR(Glu, a* math::sigmoid(b))  // value, gate
template <class T>
struct GluBackward {  // sigmoid(gate), value, gradient; gives the gradient of the gate
  MT_HD T operator()(T s, T value, T g) const { return (T(1) - s) * s * value * g; }
};
template <class T>
struct GluJvp {  // result, gate, tangent of the value, tangent of the gate
  MT_HD T operator()(T result, T gate, T dvalue, T dgate) const {
    const T s = math::sigmoid(gate);
    return dvalue * s + result * (dgate - s * dgate);
  }
};

template <class T>
MT_HD T conj_of(T x) {
  if constexpr (is_complex_v<T>) {
    return conj(x);
  } else {
    return x;
  }
}
MT_BINARY_FUNCTOR(SigmoidBackward, a* conj_of((T(1) - b) * b))  // gradient, result
MT_BINARY_FUNCTOR(TanhBackward, a* conj_of(T(1) - b * b))       // gradient, result

template <class T>
struct Logit {  // bounds of x; the first below zero for none
  MT_PARAMS_2(Logit, low, high)
  MT_HD T operator()(T x) const {
    const T clamped = low < T(0) ? x : (x < low ? low : (x > high ? high : x));
    return math::log(clamped / (T(1) - clamped));
  }
};
template <class T>
struct LogitBackward {  // gradient, x
  MT_PARAMS_2(LogitBackward, low, high)
  MT_HD T operator()(T g, T x) const {
    const T least = low < T(0) ? T(0) : low, most = low < T(0) ? T(1) : high;
    const T outside = low < T(0) ? std::numeric_limits<T>::quiet_NaN() : T(0);
    return (x >= least) & (x <= most) ? g / (x * (T(1) - x)) : outside;
  }
};

// Elementwise parts of the losses: prediction, target.
MT_BINARY_FUNCTOR(SquaredDifference, (a - b) * (a - b))
template <class T>
struct SmoothL1 {
  MT_PARAMS_1(SmoothL1, beta)
  MT_HD T operator()(T a, T b) const {
    const T z = ::fabs(a - b), inside = T(0.5) * z * z / beta;
    return z < beta ? inside : z - T(0.5) * beta;
  }
};
template <class T>
struct Huber {
  MT_PARAMS_1(Huber, delta)
  MT_HD T operator()(T a, T b) const {
    const T z = ::fabs(a - b);
    return z <= delta ? T(0.5) * z * z : delta * (z - T(0.5) * delta);
  }
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
