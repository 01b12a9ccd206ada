// Classical orthogonal polynomials of order n at x, by their three-term recurrences (M. Abramowitz, I. Stegun,
// "Handbook of Mathematical Functions", 22.7), or for high orders of Chebyshev's inside (-1, 1) by the trigonometric
// forms 22.3. In double whatever the compute type. Where native has conventions of its own (n < 0 is 0, NaN beyond an
// order of Hermite's) they are kept.
#pragma once
#include "kernels/functors/pointwise.h"

namespace minitorch::orthogonal {
inline namespace MINITORCH_ARCH {

// A floating-point order as an integer; negative for one that is not finite.
MT_HD int64_t order_of(double n) {
  if (!(n > -9e18)) return -1;
  return n < 9e18 ? static_cast<int64_t>(n) : (n == INFINITY ? -1 : int64_t{9000000000000000000});
}
MT_HD double parity(int64_t n) { return n % 2 == 0 ? 1.0 : -1.0; }

// p_k = 2 x p_(k-1) - p_(k-2) from p_0 = 1 and p_1.
MT_HD double chebyshev_recurrence(double x, int64_t n, double p1) {
  if (n == 0) return 1.0;
  double p = 1.0, q = p1;
  for (int64_t k = 2; k <= n && q == q; k++) {
    const double r = (x + x) * q - p;
    p = q;
    q = r;
  }
  return q;
}

enum class Chebyshev { T, U, V, W };

// First to fourth kind. From `high` on, inside (-1, 1), the trigonometric form.
MT_HD double chebyshev(Chebyshev kind, double x, int64_t n) {
  if (n < 0) return 0.0;
  const auto m = static_cast<double>(n);
  if (x == 1.0) return kind == Chebyshev::T || kind == Chebyshev::V ? 1.0 : kind == Chebyshev::U ? m + 1 : 2 * m + 1;
  if (x == -1.0) {
    const double size = kind == Chebyshev::T || kind == Chebyshev::W ? 1.0 : kind == Chebyshev::U ? m + 1 : 2 * m + 1;
    return parity(n) * size;
  }
  const int64_t high = kind == Chebyshev::T ? 6 : 8;
  if (n > high && ::fabs(x) < 1.0) {
    const double angle = ::acos(x);
    switch (kind) {
      case Chebyshev::T: return ::cos(m * angle);
      case Chebyshev::U: return ::sin((m + 1) * angle) / ::sin(angle);
      case Chebyshev::V: return ::cos((m + 0.5) * angle) / ::cos(0.5 * angle);
      case Chebyshev::W: return ::sin((m + 0.5) * angle) / ::sin(0.5 * angle);
    }
  }
  const double shift = kind == Chebyshev::V ? -1.0 : kind == Chebyshev::W ? 1.0 : 0.0;
  return chebyshev_recurrence(x, n, kind == Chebyshev::T ? x : x + x + shift);
}

// Physicists' (step 2) and probabilists' (step 1) Hermite polynomials; NaN above the order `limit`.
MT_HD double hermite(double x, int64_t n, int step, int64_t limit) {
  if (n < 0) return 0.0;
  if (n == 0) return 1.0;
  const double slope = step * x;
  if (n > 1 && n > limit) return NAN;
  double p = 1.0, q = slope;
  for (int64_t k = 1; k < n; k++) {
    const double r = slope * q - static_cast<double>(step * k) * p;
    p = q;
    q = r;
  }
  return q;
}

MT_HD double laguerre(double x, int64_t n) {
  if (n < 0) return 0.0;
  if (n == 0 || x == 0.0) return 1.0;
  double p = 1.0, q = 1.0 - x;
  for (int64_t k = 1; k < n && q == q; k++) {
    const auto d = static_cast<double>(k);
    const double r = ((d + d + (1.0 - x)) * q - d * p) / (d + 1);
    p = q;
    q = r;
  }
  return q;
}

MT_HD double legendre(double x, int64_t n) {
  if (n < 0) return 0.0;
  if (n == 0 || x == 1.0) return 1.0;
  if (x == -1.0) return parity(n);
  double p = 1.0, q = x;
  for (int64_t k = 1; k < n && q == q; k++) {
    const auto d = static_cast<double>(k);
    const double r = ((d + d + 1) * x * q - d * p) / (d + 1);
    p = q;
    q = r;
  }
  return q;
}

template <class T>
inline constexpr int64_t hermite_limit = sizeof(T) == 4 ? 128 : 512;

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::orthogonal

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

#define MT_CHEBYSHEV_FUNCTORS(kind)                                                                                 \
  MT_BINARY_FUNCTOR(Chebyshev##kind,                                                                                \
                    static_cast<T>(orthogonal::chebyshev(orthogonal::Chebyshev::kind, a, orthogonal::order_of(b)))) \
  MT_BINARY_FUNCTOR(ShiftedChebyshev##kind,                                                                         \
                    static_cast<T>(orthogonal::chebyshev(                                                           \
                        orthogonal::Chebyshev::kind, 2.0 * static_cast<double>(a) - 1.0, orthogonal::order_of(b))))
MT_CHEBYSHEV_FUNCTORS(T)
MT_CHEBYSHEV_FUNCTORS(U)
MT_CHEBYSHEV_FUNCTORS(V)
MT_CHEBYSHEV_FUNCTORS(W)
#undef MT_CHEBYSHEV_FUNCTORS
MT_BINARY_FUNCTOR(HermiteH,
                  static_cast<T>(orthogonal::hermite(a, orthogonal::order_of(b), 2, orthogonal::hermite_limit<T>)))
MT_BINARY_FUNCTOR(HermiteHe,
                  static_cast<T>(orthogonal::hermite(a, orthogonal::order_of(b), 1, orthogonal::hermite_limit<T>)))
MT_BINARY_FUNCTOR(LaguerreL, static_cast<T>(orthogonal::laguerre(a, orthogonal::order_of(b))))
MT_BINARY_FUNCTOR(LegendreP, static_cast<T>(orthogonal::legendre(a, orthogonal::order_of(b))))

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
