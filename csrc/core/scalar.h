// A number passed to a kernel by value (alpha, a bound, a fill value): the torch-free twin of c10::Scalar.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace minitorch {

struct Scalar {
  enum class Kind : uint8_t { Int, Double, Complex } kind = Kind::Int;
  int64_t i = 0;         // valid when kind is Int (bool and unsigned values as their bit pattern)
  double d = 0, im = 0;  // valid when kind is Double or Complex

  Scalar() = default;
  MT_HD Scalar(int64_t value) : i(value) {}
  MT_HD Scalar(double value) : kind(Kind::Double), d(value) {}
  MT_HD Scalar(double re, double imag) : kind(Kind::Complex), d(re), im(imag) {}

  // Converts as PyTorch's Scalar::to does; integers never pass through floating point.
  template <class T>
  MT_HD T to() const {
    if constexpr (is_complex_v<T>) {
      using R = real_t<T>;
      return kind == Kind::Int ? T(static_cast<R>(i)) : T(static_cast<R>(d), static_cast<R>(im));
    } else if constexpr (is_half_v<T>) {
      return kind == Kind::Int ? T(static_cast<float>(i)) : T(static_cast<float>(d));
    } else {
      return kind == Kind::Int ? static_cast<T>(i) : static_cast<T>(d);
    }
  }
};

}  // namespace minitorch
