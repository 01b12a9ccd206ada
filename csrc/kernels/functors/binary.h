// Functions of two arguments beyond arithmetic: number theory, polar forms, logarithms of sums.
#pragma once
#include "kernels/functors/pointwise.h"

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

// Euclid's algorithm on magnitudes; like PyTorch's, the result wraps for the most negative integer.
template <class T>
MT_HD T gcd_of(T a, T b) {
  a = Abs<T>{}(a);
  b = Abs<T>{}(b);
  while (a != T(0)) {
    const T rest = static_cast<T>(b % a);
    b = a;
    a = rest;
  }
  return b;
}
MT_BINARY_FUNCTOR(Gcd, gcd_of(a, b))
template <class T>
struct Lcm {
  MT_HD T operator()(T a, T b) const {
    const T g = gcd_of(a, b);
    return g == T(0) ? T(0) : Abs<T>{}(times(static_cast<T>(a / g), b));
  }
};

MT_BINARY_FUNCTOR(Heaviside, a == T(0) ? b : static_cast<T>(a > T(0)))  // x, value at zero
MT_BINARY_FUNCTOR(Atan2, math::atan2(a, b))
MT_BINARY_FUNCTOR(Hypot, math::hypot(a, b))
MT_BINARY_FUNCTOR(Copysign, ::copysign(a, b))

// The neighbour in the storage type itself, so it is built for the 16-bit floats too.
template <class T>
struct Nextafter {
  MT_HD T operator()(T a, T b) const {
    if constexpr (is_half_v<T>) {
      const float from = a, to = b;
      if (from != from || to != to) return T(from + to);
      if (from == to) return b;
      T r;
      r.bits = from == 0.0f ? static_cast<uint16_t>((b.bits & 0x8000u) | 1u)
                            : static_cast<uint16_t>(a.bits + ((from < to) == (from > 0.0f) ? 1 : -1));
      return r;
    } else {
#if defined(__CUDA_ARCH__)
      return ::nextafter(a, b);
#else
      // One unit up or down in the bits of the magnitude.
      using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
      constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();
      const Bits bits = math::detail::bit_cast<Bits>(a);
      const bool away = (a < b) == (a > T(0));
      T r = math::detail::bit_cast<T>(static_cast<Bits>(bits + (away ? Bits{1} : Bits{-1})));
      r = (bits & kMagnitude) == 0 ? ::copysign(std::numeric_limits<T>::denorm_min(), b) : r;
      r = a == b ? b : r;
      return (a != a) | (b != b) ? a + b : r;
#endif
    }
  }
};

template <class T>
struct Ldexp {
  MT_HD T operator()(T x, int32_t exponent) const { return static_cast<T>(::ldexp(static_cast<double>(x), exponent)); }
};

// log(exp(a) + exp(b)), from the larger of the two.
template <class T>
struct Logaddexp {
  MT_HD T operator()(T a, T b) const {
    if constexpr (is_complex_v<T>) {
      // Ordered by real part; equal infinities add up to themselves, as in PyTorch.
      const bool nan = a.re != a.re || a.im != a.im || b.re != b.re || b.im != b.im;
      if (nan) return T(NAN, NAN);
      const T low = a.re < b.re ? a : b, high = a.re < b.re ? b : a;
      if (::fabs(high.re) == INFINITY && low.re == high.re) {
        if (high.re < 0) return high;
        return math::log(math::exp(low) + math::exp(high));
      }
      return math::log1p(math::exp(low - high)) + high;
    } else {
      const T m = Maximum<T>{}(a, b), difference = ::fabs(a - b);
      const bool same_infinity = (a == b) & (::fabs(a) == T(INFINITY));
      return same_infinity ? a : m + math::log1p(math::exp(-difference));
    }
  }
};
template <class T>
struct Logaddexp2 {
  MT_HD T operator()(T a, T b) const {
    const T m = Maximum<T>{}(a, b), difference = ::fabs(a - b);
    const bool same_infinity = (a == b) & (::fabs(a) == T(INFINITY));
    return same_infinity ? a : m + math::log1p(math::exp2(-difference)) * T(1.44269504088896340736);
  }
};

// a * log(b), zero where a is zero, whatever b (but for NaN).
MT_BINARY_FUNCTOR(Xlogy, b != b ? b : (a == T(0) ? T(0) : a * math::log(b)))
MT_BINARY_FUNCTOR(Xlog1py, b != b ? b : (a == T(0) ? T(0) : a * math::log1p(b)))

template <class T>
struct MakeComplex {
  MT_HD Complex<T> operator()(T re, T im) const { return {re, im}; }
};
template <class T>
struct Polar {
  MT_HD Complex<T> operator()(T magnitude, T angle) const {
    return {magnitude * static_cast<T>(::cos(static_cast<double>(angle))),
            magnitude * static_cast<T>(::sin(static_cast<double>(angle)))};
  }
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
