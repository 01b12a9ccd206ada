// See conversions.h.
#include "bridge/conversions.h"

#include <c10/util/Exception.h>

namespace minitorch {

void check_convertible(const c10::Scalar& value, c10::ScalarType dtype) {
  switch (dtype) {
#define MT_CONVERT(T, name) \
  case c10::ScalarType::name: static_cast<void>(value.to<T>()); break;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(MT_CONVERT)
    MT_CONVERT(uint16_t, UInt16)
    MT_CONVERT(uint32_t, UInt32)
    MT_CONVERT(uint64_t, UInt64)
#undef MT_CONVERT
    default: break;
  }
}

void warn_if_imaginary_parts_go(c10::ScalarType from, c10::ScalarType to) {
  if (c10::isComplexType(from) && !c10::isComplexType(to) && to != c10::ScalarType::Bool) {
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
  }
}

}  // namespace minitorch
