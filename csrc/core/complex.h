// Complex numbers for host and device, laid out as two adjacent components like std::complex and c10::complex.
// Arithmetic is the textbook one, branch free; transcendental functions live with the functors.
#pragma once
#include "core/macros.h"

namespace minitorch {

template <class T>
struct alignas(2 * sizeof(T)) Complex {
  T re, im;
  Complex() = default;
  MT_HD constexpr Complex(T real, T imag = T(0)) : re(real), im(imag) {}
  template <class U>
  MT_HD constexpr explicit Complex(const Complex<U>& other)
      : re(static_cast<T>(other.re)), im(static_cast<T>(other.im)) {}

  MT_HD Complex& operator+=(Complex o) { return *this = *this + o; }
  MT_HD Complex& operator-=(Complex o) { return *this = *this - o; }
  MT_HD Complex& operator*=(Complex o) { return *this = *this * o; }
  MT_HD Complex& operator/=(Complex o) { return *this = *this / o; }

  friend MT_HD Complex operator+(Complex a, Complex b) { return {T(a.re + b.re), T(a.im + b.im)}; }
  friend MT_HD Complex operator-(Complex a, Complex b) { return {T(a.re - b.re), T(a.im - b.im)}; }
  friend MT_HD Complex operator-(Complex a) { return {T(-a.re), T(-a.im)}; }
  friend MT_HD Complex operator*(Complex a, Complex b) {
    return {T(a.re * b.re - a.im * b.im), T(a.re * b.im + a.im * b.re)};
  }
  // Scales by the larger component of b first, so that the squared norm neither overflows nor vanishes (R. L. Smith,
  // "Algorithm 116: Complex division", CACM 1962).
  friend MT_HD Complex operator/(Complex a, Complex b) {
    const T abs_re = b.re < T(0) ? -b.re : b.re, abs_im = b.im < T(0) ? -b.im : b.im;
    if (abs_re >= abs_im) {
      if (abs_re == T(0) && abs_im == T(0)) return {T(a.re / abs_re), T(a.im / abs_im)};
      const T ratio = b.im / b.re, scale = T(1) / (b.re + b.im * ratio);
      return {T((a.re + a.im * ratio) * scale), T((a.im - a.re * ratio) * scale)};
    }
    const T ratio = b.re / b.im, scale = T(1) / (b.re * ratio + b.im);
    return {T((a.re * ratio + a.im) * scale), T((a.im * ratio - a.re) * scale)};
  }
  friend MT_HD bool operator==(Complex a, Complex b) { return a.re == b.re && a.im == b.im; }
  friend MT_HD bool operator!=(Complex a, Complex b) { return !(a == b); }
};

template <class T>
MT_HD Complex<T> conj(Complex<T> z) {
  return {z.re, T(-z.im)};
}

}  // namespace minitorch
