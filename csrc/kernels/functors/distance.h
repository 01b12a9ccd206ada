// The norms of distances and their derivatives, for host and device.
#pragma once
#include <cmath>

#include "core/macros.h"
#include "kernels/distance.h"
#include "kernels/functors/math.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace distance {

// |d|^p for d >= 0. In single precision through the logarithm in double, which vectorises.
MT_HD float power(float d, float p) {
  using namespace math::detail;
  const double value = exp_single(static_cast<double>(p) * log_any<Precision::single>(static_cast<double>(d)));
  return static_cast<float>(d == 0.0f ? 0.0 : value);
}
MT_HD double power(double d, double p) { return ::pow(d, p); }

// A norm: how an absolute difference counts, how counts combine, and the distance in the end; for a distance r with
// gradient g a factor common to the whole row, and from it the gradient by the difference d.
template <class T>
struct CountNorm {
  MT_HD explicit CountNorm(T) {}
  MT_HD T term(T d) const { return d != d ? d : T(d != T(0)); }
  MT_HD T join(T a, T b) const { return a + b; }
  MT_HD T finish(T sum) const { return sum; }
  MT_HD T factor(T, T) const { return T(0); }
  MT_HD T slope(T, T, T) const { return T(0); }
};
template <class T>
MT_HD T sign(T d) {
  return T(d > T(0)) - T(d < T(0));
}
template <class T>
struct OneNorm {
  MT_HD explicit OneNorm(T) {}
  MT_HD T term(T d) const { return d; }
  MT_HD T join(T a, T b) const { return a + b; }
  MT_HD T finish(T sum) const { return sum; }
  MT_HD T factor(T g, T) const { return g; }
  MT_HD T slope(T d, T f, T) const { return f * sign(d); }
};
template <class T>
struct TwoNorm {
  MT_HD explicit TwoNorm(T) {}
  MT_HD T term(T d) const { return d * d; }
  MT_HD T join(T a, T b) const { return a + b; }
  MT_HD T finish(T sum) const { return std::sqrt(sum); }
  MT_HD T factor(T g, T r) const { return r == T(0) ? T(0) : g / r; }
  MT_HD T slope(T d, T f, T) const { return f * d; }
};
template <class T>
struct LargestNorm {
  MT_HD explicit LargestNorm(T) {}
  MT_HD T term(T d) const { return d; }
  MT_HD T join(T a, T b) const { return b > a ? b : a; }  // passes over NaN, as native
  MT_HD T finish(T most) const { return most; }
  MT_HD T factor(T g, T) const { return g; }
  MT_HD T slope(T d, T f, T r) const { return (d < T(0) ? -d : d) == r ? f * sign(d) : T(0); }
};
template <class T>
struct PNorm {
  T p;
  MT_HD explicit PNorm(T p) : p(p) {}
  MT_HD T term(T d) const { return power(d, p); }
  MT_HD T join(T a, T b) const { return a + b; }
  MT_HD T finish(T sum) const { return std::pow(sum, T(1) / p); }
  MT_HD T factor(T g, T r) const { return r == T(0) ? T(0) : g / std::pow(r, p - T(1)); }
  MT_HD T slope(T d, T f, T) const {
    const T size = d < T(0) ? -d : d;
    const T value = p < T(2) ? sign(d) * power(size, p - T(1)) : d * power(size, p - T(2));
    return p < T(1) && d == T(0) ? T(0) : value * f;
  }
};

template <class T, class F>
void with_norm(double p, const F& f) {
  if (p == 0.0) {
    f(CountNorm<T>(T(0)));
  } else if (p == 1.0) {
    f(OneNorm<T>(T(1)));
  } else if (p == 2.0) {
    f(TwoNorm<T>(T(2)));
  } else if (std::isinf(p)) {
    f(LargestNorm<T>(T(0)));
  } else {
    f(PNorm<T>(static_cast<T>(p)));
  }
}

}  // namespace distance
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
