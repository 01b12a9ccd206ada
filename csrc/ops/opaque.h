// Dtypes that are bits to us and to native: they can be moved, and the few operators that native has for them besides
// work on integers of the same size.
#pragma once
#include <c10/core/ScalarType.h>

#include <optional>

namespace minitorch {

// The integers that stand for such a dtype; none for dtypes with arithmetic.
inline std::optional<c10::ScalarType> integers_for(c10::ScalarType dtype) {
  using c10::ScalarType;
  if (dtype == ScalarType::Bits16) return ScalarType::Short;
  const bool narrow = (dtype >= ScalarType::UInt1 && dtype <= ScalarType::UInt7) ||
                      (dtype >= ScalarType::Int1 && dtype <= ScalarType::Int7);
  if (narrow || c10::isBitsType(dtype) || dtype == ScalarType::Float4_e2m1fn_x2) return ScalarType::Byte;
  return std::nullopt;
}

}  // namespace minitorch
