// Scalar mathematics of the pointwise operators, for host and device. Plain and branch free: the CPU compiler
// vectorises the loop around a functor, CUDA runs one element a lane.
//
// A functor is a class template over its compute type with `operator()`. One with scalar arguments has a constructor
// from PointwiseParams.
#pragma once
#include <cmath>

#include "core/dtype.h"
#include "kernels/functors/math.h"
#include "kernels/view.h"

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

template <class T>
struct Neg {
  MT_HD T operator()(T x) const { return -x; }
};

template <class T>
struct Exp {
  MT_HD T operator()(T x) const { return math::exp(x); }
};

template <class T>
struct Add {  // a + alpha * b
  T alpha;
  MT_HD explicit Add(const PointwiseParams& p) : alpha(p.s[0].to<T>()) {}
  MT_HD T operator()(T a, T b) const { return a + alpha * b; }
};

template <class T>
struct Mul {
  MT_HD T operator()(T a, T b) const { return a * b; }
};

template <class F>
MT_HD F make_functor(const PointwiseParams& params) {
  if constexpr (std::is_constructible_v<F, const PointwiseParams&>) {
    return F(params);
  } else {
    return F{};
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
