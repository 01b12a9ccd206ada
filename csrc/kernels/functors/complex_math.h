// Elementary functions of complex arguments, next to the real ones in math.h. On the host they are the C library's
// (libcu++'s under nvcc), whose branch cuts and special cases are C99 Annex G's, as native PyTorch's are.
#pragma once
#if defined(__CUDACC__)
#include <cuda/std/complex>
#endif

#include "core/complex.h"
#include "kernels/functors/math.h"

namespace minitorch::math {
inline namespace MINITORCH_ARCH {

MT_HD float sqrt(float x) { return ::sqrtf(x); }
MT_HD double sqrt(double x) { return ::sqrt(x); }

// X(name): functions of one complex argument that the C library and libcu++ have.
#define MT_COMPLEX_UNARY(X) \
  X(exp) X(log) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(sqrt)
#if defined(__CUDACC__)
// libcu++ composes these of real functions, whose errors add up to many times native CPU's: float is computed in
// double.
#define MT_DEFINE(name)                                                         \
  template <class T>                                                            \
  MT_HD Complex<T> name(Complex<T> z) {                                         \
    const auto r = ::cuda::std::name(::cuda::std::complex<double>(z.re, z.im)); \
    return {static_cast<T>(r.real()), static_cast<T>(r.imag())};                \
  }
MT_COMPLEX_UNARY(MT_DEFINE)

template <class T>
MT_HD Complex<T> pow(Complex<T> x, Complex<T> y) {
  const auto r = ::cuda::std::pow(::cuda::std::complex<double>(x.re, x.im), ::cuda::std::complex<double>(y.re, y.im));
  return {static_cast<T>(r.real()), static_cast<T>(r.imag())};
}
#else
// GNU C's complex type is what the C library's functions take.
#define MT_C_COMPLEX(T, name, z) \
  __complex__ T name;            \
  __real__ name = z.re;          \
  __imag__ name = z.im

#define MT_DEFINE(name)                           \
  MT_HD Complex<float> name(Complex<float> z) {   \
    MT_C_COMPLEX(float, c, z);                    \
    const auto r = __builtin_c##name##f(c);       \
    return {__real__ r, __imag__ r};              \
  }                                               \
  MT_HD Complex<double> name(Complex<double> z) { \
    MT_C_COMPLEX(double, c, z);                   \
    const auto r = __builtin_c##name(c);          \
    return {__real__ r, __imag__ r};              \
  }
MT_COMPLEX_UNARY(MT_DEFINE)

MT_HD Complex<float> pow(Complex<float> x, Complex<float> y) {
  MT_C_COMPLEX(float, a, x);
  MT_C_COMPLEX(float, b, y);
  const auto r = __builtin_cpowf(a, b);
  return {__real__ r, __imag__ r};
}
MT_HD Complex<double> pow(Complex<double> x, Complex<double> y) {
  MT_C_COMPLEX(double, a, x);
  MT_C_COMPLEX(double, b, y);
  const auto r = __builtin_cpow(a, b);
  return {__real__ r, __imag__ r};
}
#undef MT_C_COMPLEX
#endif
#undef MT_DEFINE
#undef MT_COMPLEX_UNARY

template <class T>
MT_HD Complex<T> scale(Complex<T> z, T factor) {
  return {z.re * factor, z.im * factor};
}
// a / b, by a zero of whatever signs as by +0: that is native's.
template <class T>
MT_HD T quotient(T a, T b) {
  return a / b;
}
template <class T>
MT_HD Complex<T> quotient(Complex<T> a, Complex<T> b) {
  return a / (b.re == T(0) && b.im == T(0) ? Complex<T>(T(0)) : b);
}

template <class T>
MT_HD Complex<T> log2(Complex<T> z) {
  return scale(log(z), T(1.44269504088896340736));
}
template <class T>
MT_HD Complex<T> log10(Complex<T> z) {
  return scale(log(z), T(0.43429448190325182765));
}
template <class T>
MT_HD Complex<T> exp2(Complex<T> z) {
  return exp(scale(z, T(0.69314718055994530942)));
}

// log(1 + z) without losing a small z: |1+z|^2 - 1 = x (2 + x) + y^2.
template <class T>
MT_HD Complex<T> log1p(Complex<T> z) {
  const T near = z.re * (T(2) + z.re) + z.im * z.im;
  const bool small = ::fabs(z.re) < T(0.5) && ::fabs(z.im) < T(0.5);
  const Complex<T> far = log(Complex<T>(z.re + T(1), z.im));
  return {small ? T(0.5) * log1p(near) : near != near ? near : far.re, far.im};  // NaN, beside an infinity too
}

// exp(z) - 1 = expm1(x) cos(y) - 2 sin^2(y/2) + i exp(x) sin(y).
template <class T>
MT_HD Complex<T> expm1(Complex<T> z) {
  const T half = ::sin(z.im * T(0.5));
  return {expm1(z.re) * ::cos(z.im) - T(2) * half * half, exp(z.re) * ::sin(z.im)};
}

template <class T>
MT_HD T abs(Complex<T> z) {
  return hypot(z.re, z.im);
}
template <class T>
MT_HD T arg(Complex<T> z) {
  return atan2(z.im, z.re);
}
template <class T>
MT_HD Complex<T> sigmoid(Complex<T> z) {
  return Complex<T>(T(1)) / (Complex<T>(T(1)) + exp(-z));
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::math
