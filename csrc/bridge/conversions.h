// Conversions that native refuses, or warns of.
#pragma once
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

namespace minitorch {

// Throws native's "value cannot be converted to type T without overflow" when the number is beyond the dtype's range.
void check_convertible(const c10::Scalar& value, c10::ScalarType dtype);
// The number as a tensor of the dtype holds it, where a kernel would not know: 2j is true.
inline c10::Scalar held_by(c10::ScalarType dtype, const c10::Scalar& value) {
  return dtype == c10::ScalarType::Bool ? c10::Scalar(value.toBool()) : value;
}
// Native's warning, once a process, when complex numbers become numbers that are not.
void warn_if_imaginary_parts_go(c10::ScalarType from, c10::ScalarType to);

}  // namespace minitorch
