// Conversion of one element between any two dtypes, for host and device.
#pragma once
#include <type_traits>

#include "core/dtype.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// PyTorch's conversion rules: complex to real drops the imaginary part, anything to bool tests against zero, floating
// point to uint8 goes through int64.
template <class To, class From>
MT_HD To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (is_complex_v<From>) {
    if constexpr (is_complex_v<To>) {
      return To(convert<real_t<To>>(x.re), convert<real_t<To>>(x.im));
    } else if constexpr (std::is_same_v<To, bool>) {
      return x.re != real_t<From>(0) || x.im != real_t<From>(0);
    } else {
      return convert<To>(x.re);
    }
  } else if constexpr (is_complex_v<To>) {
    return To(convert<real_t<To>>(x));
  } else if constexpr (is_half_v<From>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (is_half_v<To>) {
    return To(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_same_v<To, uint8_t> && std::is_floating_point_v<From>) {
    return static_cast<uint8_t>(static_cast<int64_t>(x));
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
