// The functors of the pointwise operators (see functor.h for what one is): elementary functions, signs and rounding,
// arithmetic. This header brings in those of compare.h as well.
#pragma once
#include <limits>
#include <type_traits>

#include "core/dtype.h"
#include "kernels/functors/compare.h"
#include "kernels/functors/complex_math.h"
#include "kernels/functors/functor.h"
#include "kernels/functors/math.h"

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

// ---- Elementary functions ------------------------------------------------------------------------------------------
MT_UNARY_FUNCTOR(Exp, math::exp(x))
MT_UNARY_FUNCTOR(Exp2, math::exp2(x))
MT_UNARY_FUNCTOR(Expm1, math::expm1(x))
MT_UNARY_FUNCTOR(Log, math::log(x))
MT_UNARY_FUNCTOR(Log2, math::log2(x))
MT_UNARY_FUNCTOR(Log10, math::log10(x))
MT_UNARY_FUNCTOR(Log1p, math::log1p(x))
MT_UNARY_FUNCTOR(Asin, math::asin(x))
MT_UNARY_FUNCTOR(Acos, math::acos(x))
MT_UNARY_FUNCTOR(Atan, math::atan(x))
MT_UNARY_FUNCTOR(Sinh, math::sinh(x))
MT_UNARY_FUNCTOR(Cosh, math::cosh(x))
MT_UNARY_FUNCTOR(Tanh, math::tanh(x))
MT_UNARY_FUNCTOR(Asinh, math::asinh(x))
MT_UNARY_FUNCTOR(Acosh, math::acosh(x))
MT_UNARY_FUNCTOR(Atanh, math::atanh(x))
MT_UNARY_FUNCTOR(Sigmoid, math::sigmoid(x))
MT_UNARY_FUNCTOR(Erf, math::erf(x))
MT_UNARY_FUNCTOR(Erfc, math::erfc(x))
MT_UNARY_FUNCTOR(Sqrt, math::sqrt(x))
MT_UNARY_FUNCTOR(Reciprocal, math::quotient(T(1), x))
MT_UNARY_FUNCTOR(Rsqrt, T(1) / math::sqrt(x))

// The host's polynomials of sin, cos and tan end at kTrigMax; beyond it libm reduces the argument.
#if defined(__CUDA_ARCH__)
#define MT_TRIG_EXCEPTIONS(argument, value)
#else
#define MT_TRIG_EXCEPTIONS(argument, value)                                      \
  static MT_HD bool exceptional(T x)                                             \
    requires(!is_complex_v<T>)                                                   \
  {                                                                              \
    const T at = argument;                                                       \
    return !(at < T(math::detail::kTrigMax) && at > T(-math::detail::kTrigMax)); \
  }                                                                              \
  MT_HD T exceptional_value(T x) const                                           \
    requires(!is_complex_v<T>)                                                   \
  {                                                                              \
    return value;                                                                \
  }
#endif
#define MT_TRIG_FUNCTOR(Name, function)                                       \
  template <class T>                                                          \
  struct Name {                                                               \
    MT_HD T operator()(T x) const { return math::function(x); }               \
    MT_TRIG_EXCEPTIONS(x, static_cast<T>(::function(static_cast<double>(x)))) \
  };
MT_TRIG_FUNCTOR(Sin, sin)
MT_TRIG_FUNCTOR(Cos, cos)
MT_TRIG_FUNCTOR(Tan, tan)
#undef MT_TRIG_FUNCTOR

// sin(pi x) / (pi x)
template <class T>
struct Sinc {
  MT_HD T operator()(T x) const {
    const T product = T(math::kPi) * x;
    const T value = math::sin(product) / product;
    return x == T(0) ? T(1) : value;
  }
  MT_TRIG_EXCEPTIONS(T(math::kPi) * x,
                     static_cast<T>(::sin(static_cast<double>(T(math::kPi) * x))) / (T(math::kPi) * x))
};
#undef MT_TRIG_EXCEPTIONS

// ---- Sign, rounding, classification --------------------------------------------------------------------------------
template <class T>
struct Abs {
  MT_HD real_t<T> operator()(T x) const {
    if constexpr (is_complex_v<T>) {
      return math::abs(x);
    } else if constexpr (std::is_floating_point_v<T>) {
      return ::fabs(x);
    } else if constexpr (std::is_unsigned_v<T>) {
      return x;
    } else {
      return x < T(0) ? minus(T(0), x) : x;
    }
  }
};

template <class T>
struct Neg {
  MT_HD T operator()(T x) const {
    if constexpr (wraps_v<T>) {
      return minus(T(0), x);
    } else {
      return -x;
    }
  }
};

MT_UNARY_FUNCTOR(Sign, static_cast<T>(static_cast<int>(T(0) < x) - static_cast<int>(x < T(0))))
template <class T>
struct Sgn {
  MT_HD T operator()(T z) const {
    const real_t<T> magnitude = math::abs(z);
    return magnitude == real_t<T>(0) ? T(0) : T(z.re / magnitude, z.im / magnitude);
  }
};
template <class T>
struct Signbit {
  MT_HD bool operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      return ::copysign(T(1), x) < T(0);
    } else {
      return x < T(0);
    }
  }
};

template <class T>
struct Angle {
  MT_HD real_t<T> operator()(T x) const {
    if constexpr (is_complex_v<T>) {
      return math::arg(x);
    } else {
      return x != x ? x : (x < T(0) ? T(math::kPi) : T(0));
    }
  }
};
MT_UNARY_FUNCTOR(Conj, conj(x))

MT_UNARY_FUNCTOR(Floor, ::floor(x))
MT_UNARY_FUNCTOR(Ceil, -::floor(-x))
MT_UNARY_FUNCTOR(Trunc, ::trunc(x))
MT_UNARY_FUNCTOR(Round, ::nearbyint(x))
MT_UNARY_FUNCTOR(Frac, x - ::trunc(x))

template <class T>
struct RoundDecimals {  // s[0]: 10^|decimals|, s[1]: whether decimals is negative
  T power;
  bool negative;
  MT_HD explicit RoundDecimals(const PointwiseParams& p) : power(p.s[0].to<T>()), negative(p.s[1].to<bool>()) {}
  MT_HD T operator()(T x) const { return negative ? ::nearbyint(x / power) * power : ::nearbyint(x * power) / power; }
};

template <class T>
struct NanToNum {  // s[0..2]: replacements of NaN, infinity, minus infinity
  real_t<T> nan, high, low;
  MT_HD explicit NanToNum(const PointwiseParams& p)
      : nan(p.s[0].to<real_t<T>>()), high(p.s[1].to<real_t<T>>()), low(p.s[2].to<real_t<T>>()) {}
  MT_HD real_t<T> replace(real_t<T> x) const {
    const real_t<T> infinity = std::numeric_limits<real_t<T>>::infinity();
    return x != x ? nan : (x == infinity ? high : (x == -infinity ? low : x));
  }
  MT_HD T operator()(T x) const {
    if constexpr (is_complex_v<T>) {
      return {replace(x.re), replace(x.im)};
    } else {
      return replace(x);
    }
  }
};

template <class T>
struct Frexp {
  MT_HD Two<T, int32_t> operator()(T x) const {
    int exponent = 0;
    const T mantissa = static_cast<T>(::frexp(static_cast<double>(x), &exponent));
    return {mantissa, x - x == T(0) ? exponent : 0};
  }
};

MT_PREDICATE(IsPosInf, x == std::numeric_limits<T>::infinity())
MT_PREDICATE(IsNegInf, x == -std::numeric_limits<T>::infinity())
MT_PREDICATE(LogicalNot, x == T(0))
template <class T>
struct BitwiseNot {
  MT_HD T operator()(T x) const {
    if constexpr (std::is_same_v<T, bool>) {
      return !x;
    } else {
      return static_cast<T>(~x);
    }
  }
};

// ---- Arithmetic ----------------------------------------------------------------------------------------------------
template <class T>
struct Add {  // a + alpha * b
  T alpha;
  MT_HD explicit Add(const PointwiseParams& p) : alpha(p.s[0].to<T>()) {}
  MT_HD T operator()(T a, T b) const { return plus(a, times(alpha, b)); }
};
// The same with alpha * b rounded to 16 bits, as native CPU's loop over strided 16-bit floats has it.
template <class Storage>
struct AddRounded {
  float alpha;
  MT_HD explicit AddRounded(const PointwiseParams& p) : alpha(Storage(p.s[0].to<float>())) {}
  MT_HD float operator()(float a, float b) const { return a + static_cast<float>(Storage(alpha * b)); }
};
template <class T>
using AddHalf = AddRounded<Half>;
template <class T>
using AddBFloat16 = AddRounded<BFloat16>;
// alpha == 1 in real numbers, the usual case: no multiplication.
MT_BINARY_FUNCTOR(PlainAdd, plus(a, b))
MT_BINARY_FUNCTOR(PlainSub, minus(a, b))
template <class T>
struct Mul {
  static constexpr bool wide_scalar = true;
  MT_HD T operator()(T a, T b) const { return times(a, b); }
};
template <class T>
struct Div {
  static constexpr bool wide_scalar = true;
  MT_HD T operator()(T a, T b) const { return math::quotient(a, b); }
};

// What divides integers by b, computed by f. On the CPU the caller has refused zero divisors. On a GPU nobody has: all
// bits are set there, as the hardware's division does. Left undefined, packs of bytes have been compiled so that a
// neighbour suffered.
template <class T, class F>
MT_HD T divided([[maybe_unused]] T b, const F& f) {
#if defined(__CUDA_ARCH__)
  if (b == T(0)) return static_cast<T>(~T(0));
#endif
  return f();
}

// Division rounded towards zero. Integers: -1 is apart because INT_MIN / -1 traps.
template <class T>
struct DivTrunc {
  static constexpr bool divides = true, wide_scalar = true;
  MT_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return ::trunc(a / b);
    } else if constexpr (std::is_signed_v<T>) {
      return b == T(-1) ? minus(T(0), a) : divided(b, [&] { return static_cast<T>(a / b); });
    } else {
      return divided(b, [&] { return static_cast<T>(a / b); });
    }
  }
};

#if defined(__CUDA_ARCH__)
#define MT_FMOD_EXCEPTIONS(expression)
#else
#define MT_FMOD_EXCEPTIONS(expression)      \
  static MT_HD bool exceptional(T a, T b)   \
    requires(std::is_floating_point_v<T>)   \
  {                                         \
    return !math::fmod_is_small(a, b);      \
  }                                         \
  MT_HD T exceptional_value(T a, T b) const \
    requires(std::is_floating_point_v<T>)   \
  {                                         \
    T mod;                                  \
    if constexpr (sizeof(T) == 4)           \
      mod = ::fmodf(a, b);                  \
    else                                    \
      mod = ::fmod(a, b);                   \
    return expression;                      \
  }
#endif
template <class T>
MT_HD T fmod_of(T a, T b) {
#if !defined(__CUDA_ARCH__)
  if constexpr (std::is_floating_point_v<T>) return math::fmod_small(a, b);
#endif
  if constexpr (std::is_floating_point_v<T>) {
    return ::fmod(a, b);
  } else if constexpr (std::is_signed_v<T>) {
    return b == T(-1) ? T(0) : divided(b, [&] { return static_cast<T>(a % b); });
  } else {
    return divided(b, [&] { return static_cast<T>(a % b); });
  }
}
// From the sign of the dividend to that of the divisor.
template <class T>
MT_HD T towards_divisor(T mod, T b) {
  const T moved = static_cast<T>(mod + b);
  return (mod != T(0)) & ((b < T(0)) != (mod < T(0))) ? moved : mod;
}
template <class T>
struct Fmod {  // sign of the dividend
  static constexpr bool divides = true;
  MT_HD T operator()(T a, T b) const { return fmod_of(a, b); }
  MT_FMOD_EXCEPTIONS(mod)
};
template <class T>
struct Remainder {  // sign of the divisor
  static constexpr bool divides = true;
  MT_HD T operator()(T a, T b) const { return towards_divisor(fmod_of(a, b), b); }
  MT_FMOD_EXCEPTIONS(towards_divisor(mod, b))
};
// Division rounded down. Floats: Python's definition, the exact quotient of a - fmod(a, b), made whole again where the
// quotient has been rounded (CPython's float_floor_div).
template <class T>
MT_HD T floor_quotient(T a, T b, T mod) {
  T quotient = (a - mod) / b;
  quotient -= (mod != T(0)) & ((b < T(0)) != (mod < T(0))) ? T(1) : T(0);
  T floored = ::floor(quotient);
  floored += quotient - floored > T(0.5) ? T(1) : T(0);
  const T plain = a / b, zero = ::copysign(T(0), plain);
  floored = quotient == T(0) ? zero : floored;
  return b == T(0) ? plain : floored;
}
template <class T>
struct DivFloor {
  static constexpr bool divides = true, wide_scalar = true;
  MT_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return floor_quotient(a, b, fmod_of(a, b));
    } else if constexpr (std::is_signed_v<T>) {
      if (b == T(-1)) return minus(T(0), a);
      return divided(b, [&] {
        const T quotient = static_cast<T>(a / b);
        return (a % b != 0) && ((a < 0) != (b < 0)) ? static_cast<T>(quotient - 1) : quotient;
      });
    } else {
      return divided(b, [&] { return static_cast<T>(a / b); });
    }
  }
  MT_FMOD_EXCEPTIONS(floor_quotient(a, b, mod))
};
#undef MT_FMOD_EXCEPTIONS

// Powers of integers by squaring; a negative exponent gives 1/a^n rounded towards zero.
template <class T>
MT_HD T integer_power(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b < T(0)) return a == T(1) ? T(1) : (a == T(-1) ? (b % T(2) == T(0) ? T(1) : T(-1)) : T(0));
  }
  T result = T(1);
  for (; b != T(0); b = static_cast<T>(b >> 1)) {
    if (b & T(1)) result = times(result, a);
    a = times(a, a);
  }
  return result;
}
template <class T>
struct Pow {
  MT_HD T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return integer_power(a, b);
    } else {
      return math::pow(a, b);
    }
  }
};
template <class T>
struct PowScalar {
  T exponent;
  MT_HD explicit PowScalar(const PointwiseParams& p) : exponent(p.s[0].to<T>()) {}
  MT_HD T operator()(T x) const { return Pow<T>{}(x, exponent); }
};
#if !defined(__CUDACC__)
template <>
struct PowScalar<double> {
  math::Exponent exponent;
  MT_HD explicit PowScalar(const PointwiseParams& p) : exponent(p.s[0].to<double>()) {}
  MT_HD double operator()(double x) const { return math::pow(x, exponent); }
};
#endif
// Exponents that have a shorter form than pow.
MT_UNARY_FUNCTOR(Square, times(x, x))
MT_UNARY_FUNCTOR(Cube, times(times(x, x), x))
MT_UNARY_FUNCTOR(InverseSquare, math::quotient(T(1), times(x, x)))
// Native rounds each product of bfloat16, but not of half. What divides one such power by another counts on it: the
// gradient of a norm.
MT_UNARY_FUNCTOR(CubeBFloat16, static_cast<T>(BFloat16(x* x)) * x)
MT_UNARY_FUNCTOR(InverseSquareBFloat16, T(1) / static_cast<T>(BFloat16(x * x)))

// ---- Bits -----------------------------------------------------------------------------------------------------------
MT_BINARY_FUNCTOR(BitwiseAnd, static_cast<T>(a& b))
MT_BINARY_FUNCTOR(BitwiseOr, static_cast<T>(a | b))
MT_BINARY_FUNCTOR(BitwiseXor, static_cast<T>(a ^ b))
// Shifts by a negative count or by the width and more: 0, or all sign bits to the right.
template <class T>
struct LeftShift {
  MT_HD T operator()(T a, T b) const {
    constexpr T width = static_cast<T>(sizeof(T) * 8);
    const bool outside = b < T(0) || b >= width;
    const T count = outside ? T(0) : b;
    return outside ? T(0) : static_cast<T>(static_cast<wrapping_t<T>>(a) << count);
  }
};
template <class T>
struct RightShift {
  MT_HD T operator()(T a, T b) const {
    constexpr T most = static_cast<T>(sizeof(T) * 8 - (std::is_signed_v<T> ? 1 : 0));
    const bool outside = b < T(0) || b >= most;
    if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(a >> (outside ? most : b));
    } else {
      return outside ? T(0) : static_cast<T>(a >> b);
    }
  }
};

// ---- Ternary -------------------------------------------------------------------------------------------------------
template <class T>
struct Addcmul {  // a + value * b * c
  T value;
  MT_HD explicit Addcmul(const PointwiseParams& p) : value(p.s[0].to<T>()) {}
  MT_HD T operator()(T a, T b, T c) const { return plus(a, times(times(value, b), c)); }
};
template <class T>
struct Addcdiv {  // a + value * b / c
  T value;
  MT_HD explicit Addcdiv(const PointwiseParams& p) : value(p.s[0].to<T>()) {}
  MT_HD T operator()(T a, T b, T c) const { return a + math::quotient(value * b, c); }
};
template <class T>
struct Where {
  MT_HD T operator()(bool condition, T a, T b) const { return condition ? a : b; }
};

// From the nearer end, so that weight 1 gives exactly `end`.
template <class T>
MT_HD T lerp(T start, T end, T weight) {
  bool small;
  if constexpr (is_complex_v<T>) {
    small = weight.re * weight.re + weight.im * weight.im < real_t<T>(0.25);
  } else {
    small = ::fabs(weight) < T(0.5);
  }
  const T difference = end - start;
  return small ? start + weight * difference : end - difference * (T(1) - weight);
}
template <class T>
struct LerpScalar {
  T weight;
  MT_HD explicit LerpScalar(const PointwiseParams& p) : weight(p.s[0].to<T>()) {}
  MT_HD T operator()(T start, T end) const { return lerp(start, end, weight); }
};
template <class T>
struct LerpTensor {
  MT_HD T operator()(T start, T end, T weight) const { return lerp(start, end, weight); }
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
