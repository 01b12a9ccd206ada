// Comparisons, logic, extremes and clamps.
#pragma once
#include "kernels/functors/functor.h"

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

// NaN wins in maximum, minimum and the clamps; it loses in fmax and fmin.
#define MT_EXTREMUM(Name, bits, ...)           \
  template <class T>                           \
  struct Name {                                \
    MT_HD T operator()(T a, T b) const {       \
      if constexpr (std::is_same_v<T, bool>) { \
        return bits;                           \
      } else {                                 \
        return __VA_ARGS__;                    \
      }                                        \
    }                                          \
  };
MT_EXTREMUM(Maximum, a | b, a != a ? a : ((b > a) | (b != b) ? b : a))
MT_EXTREMUM(Minimum, a& b, a != a ? a : ((b < a) | (b != b) ? b : a))
MT_EXTREMUM(Fmax, a | b, a != a ? b : (b > a ? b : a))
MT_EXTREMUM(Fmin, a& b, a != a ? b : (b < a ? b : a))
#undef MT_EXTREMUM

template <class T>
struct Clamp {  // s[0], s[1]: bounds
  T low, high;
  MT_HD explicit Clamp(const PointwiseParams& p) : low(p.s[0].to<T>()), high(p.s[1].to<T>()) {}
  MT_HD T operator()(T x) const {
    const T raised = x < low ? low : x;
    return raised > high ? high : raised;
  }
};
template <class T>
struct ClampMin {
  T low;
  MT_HD explicit ClampMin(const PointwiseParams& p) : low(p.s[0].to<T>()) {}
  MT_HD T operator()(T x) const { return x < low ? low : x; }
};
template <class T>
struct ClampMax {
  T high;
  MT_HD explicit ClampMax(const PointwiseParams& p) : high(p.s[0].to<T>()) {}
  MT_HD T operator()(T x) const { return x > high ? high : x; }
};
template <class T>
struct ClampTensor {
  MT_HD T operator()(T x, T low, T high) const { return Minimum<T>{}(Maximum<T>{}(x, low), high); }
};

MT_COMPARISON(Eq, a == b)
MT_COMPARISON(Ne, a != b)
MT_COMPARISON(Lt, a < b)
MT_COMPARISON(Le, a <= b)
MT_COMPARISON(Gt, a > b)
MT_COMPARISON(Ge, a >= b)
MT_COMPARISON(LogicalAnd, (a != T(0)) & (b != T(0)))
MT_COMPARISON(LogicalOr, (a != T(0)) | (b != T(0)))
MT_COMPARISON(LogicalXor, (a != T(0)) != (b != T(0)))

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
