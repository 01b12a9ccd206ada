// The two nonlinearities of recurrent cells, branch free, so that loops over them vectorise.
#pragma once
#include "kernels/cpu/softmax_rows.h"
#include "kernels/functors/math.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// Both through exp of a number that is not positive, in T's own precision, where the functors compute float in double.
template <class T>
MT_INLINE T logistic(T x) {
  const T e = exp_nonpositive<T>(x < T(0) ? x : -x);
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

MT_INLINE double hyperbolic_tangent(double x) { return math::tanh(x); }
// Where the quotient would cancel, the polynomial of Cephes (S. Moshier): relative error below 1.5e-7.
MT_INLINE float hyperbolic_tangent(float x) {
  const float a = x < 0 ? -x : x, z = x * x;
  const float e = exp_nonpositive<float>(-2.0f * a), quotient = (1.0f - e) / (1.0f + e);
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near_zero = x + x * z * p;
  return a < 0.625f ? near_zero : (x < 0 ? -quotient : quotient);
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
