// Scalar mathematics of the pointwise losses and their gradients, for host and device. Operands of a gradient:
// prediction, target, gradient of the loss; `norm` is 1 / elements for a mean.
#pragma once
#include "kernels/functors/pointwise.h"

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

template <class T>
struct MseBackward {
  T norm;
  MT_HD explicit MseBackward(const PointwiseParams& p) : norm(p.s[0].to<T>()) {}
  MT_HD T operator()(T x, T y, T g) const { return norm * (x - y) * g; }
};

template <class T>
struct SmoothL1Backward {
  T norm, beta;
  MT_HD explicit SmoothL1Backward(const PointwiseParams& p) : norm(p.s[0].to<T>()), beta(p.s[1].to<T>()) {}
  MT_HD T operator()(T x, T y, T g) const {
    const T d = x - y;
    return d <= -beta ? -norm * g : d >= beta ? norm * g : norm * d * g / beta;
  }
};

template <class T>
struct HuberBackward {
  T norm, delta;
  MT_HD explicit HuberBackward(const PointwiseParams& p) : norm(p.s[0].to<T>()), delta(p.s[1].to<T>()) {}
  MT_HD T operator()(T x, T y, T g) const {
    const T d = x - y;
    return d <= -delta ? -norm * g * delta : d >= delta ? norm * g * delta : norm * d * g;
  }
};

// -(y log x + (1 - y) log(1 - x)), each logarithm at least -100. x must be in [0, 1].
template <class T>
struct BinaryCrossEntropy {
  MT_HD T operator()(T x, T y) const {
    const T log_x = math::log(x), log_1mx = math::log1p(-x);
    const T a = log_1mx < T(-100) ? T(-100) : log_1mx, b = log_x < T(-100) ? T(-100) : log_x;
    return (y - T(1)) * a - y * b;
  }
};
template <class T>
struct BinaryCrossEntropyBackward {
  MT_HD T operator()(T x, T y, T g) const {
    const T variance = (T(1) - x) * x;
    return g * (x - y) / (variance > T(1e-12f) ? variance : T(1e-12f));
  }
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
