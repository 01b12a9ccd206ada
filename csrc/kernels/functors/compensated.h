// Numbers as unevaluated sums of two doubles, for the last steps of functions in double precision: what roundings lose
// is kept and put back at the end (T. Dekker, "A floating-point technique for extending the available precision",
// 1971). Host only.
#pragma once
#include "kernels/functors/polynomials.h"

#if !defined(__CUDA_ARCH__)
namespace minitorch::math {
inline namespace MINITORCH_ARCH {
namespace detail {

struct DoubleDouble {
  double high, low;
  MT_HD double join() const { return high + low; }
};

// a + b without error where a is zero or has the larger exponent.
MT_HD DoubleDouble fast_sum(double a, double b) {
  const double sum = a + b;
  return {sum, (a - sum) + b};
}

// a b without error. Both results are used, so the compiler keeps the product when it contracts expressions. Without
// fused multiply-add, which would be a call, by halves of the factors; both are below 2^970.
struct Product : DoubleDouble {
  MT_HD Product(double a, double b) {
    high = a * b;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    low = __builtin_fma(a, b, -high);
#else
    const double wide_a = 134217729.0 * a, wide_b = 134217729.0 * b;
    const double a1 = wide_a - (wide_a - a), a2 = a - a1, b1 = wide_b - (wide_b - b), b2 = b - b1;
    low = a2 * b2 - (((high - a1 * b1) - a2 * b1) - a1 * b2);
#endif
  }
};

// above - quotient below, exactly, for a rounded quotient.
MT_HD double remainder(double above, double quotient, double below) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fma(-quotient, below, above);
#else
  const Product p(quotient, below);
  return (above - p.high) - p.low;
#endif
}

// a / b, given 1 / b.high within a few units in its last place. The second part is as large as such units.
MT_HD DoubleDouble quotient(DoubleDouble a, DoubleDouble b, double inverse) {
  const double q = a.high * inverse;
  return {q, (remainder(a.high, q, b.high) + (a.low - q * b.low)) * inverse};
}
MT_HD DoubleDouble quotient(DoubleDouble a, DoubleDouble b) { return quotient(a, b, 1.0 / b.high); }

// c + a for a constant and a number that is not negative.
MT_HD DoubleDouble add_to(double c, DoubleDouble a) {
  const double sum = c + a.high, lost = a.high > c ? (a.high - sum) + c : (c - sum) + a.high;
  return {sum, lost + a.low};
}
MT_HD DoubleDouble times(DoubleDouble a, double b) {
  DoubleDouble p = Product(a.high, b);
  p.low += a.low * b;
  return p;
}
MT_HD DoubleDouble times(DoubleDouble a, DoubleDouble b) {
  DoubleDouble p = Product(a.high, b.high);
  p.low += a.high * b.low + a.low * b.high;
  return p;
}

// exp(r + low) of a reduction.
MT_HD DoubleDouble exp_sum(const ExpReduction& e) {
  const DoubleDouble head = fast_sum(1.0, e.r);
  return fast_sum(head.high, head.low + (expm1_tail<Precision::full>(e.r) + e.low));
}
// x 2^n for an integer n beyond the range of exponents, in two steps.
MT_HD double scaled(double x, double n) {
  const double half = (n * 0.5 + kRound) - kRound;
  return (x * exp2_integer(half)) * exp2_integer(n - half);
}
// x between -most and most; NaN stays.
MT_HD double limited(double x, double most) {
  x = x > most ? most : x;
  return x < -most ? -most : x;
}

}  // namespace detail
}  // namespace MINITORCH_ARCH
}  // namespace minitorch::math
#endif
