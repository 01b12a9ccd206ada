// Numbers that the dense factorisations take apart, real or complex, for host and device.
#pragma once
#include <cmath>

#include "core/complex.h"
#include "core/dtype.h"
#include "core/macros.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {

using LinalgTypes = Types<float, double, Complex<float>, Complex<double>>;

template <class T>
MT_HD T conj_if(T x, bool yes) {
  if constexpr (is_complex_v<T>) {
    return yes ? conj(x) : x;
  } else {
    return x;
  }
}
template <class T>
MT_HD real_t<T> real_part(T x) {
  if constexpr (is_complex_v<T>) {
    return x.re;
  } else {
    return x;
  }
}
template <class T>
MT_HD real_t<T> imag_part(T x) {
  if constexpr (is_complex_v<T>) {
    return x.im;
  } else {
    return real_t<T>(0);
  }
}
// |re| + |im|: the size that pivoting goes by.
template <class T>
MT_HD real_t<T> size1(T x) {
  if constexpr (is_complex_v<T>) {
    return std::abs(x.re) + std::abs(x.im);
  } else {
    return std::abs(x);
  }
}
template <class T>
MT_HD T scaled(T x, real_t<T> s) {
  if constexpr (is_complex_v<T>) {
    return {x.re * s, x.im * s};
  } else {
    return x * s;
  }
}

}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
