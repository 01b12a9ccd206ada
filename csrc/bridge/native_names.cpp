// See native_names.h.
#include "bridge/native_names.h"

#include <cstdint>
#include <cstring>

namespace minitorch {

namespace {
// Sets of dtypes, a bit each, under native's names.
#define MT_SET(_, name) constexpr uint64_t name = uint64_t{1} << static_cast<int>(c10::ScalarType::name);
AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(MT_SET)
#undef MT_SET
constexpr uint64_t Float8 = Float8_e4m3fn | Float8_e4m3fnuz | Float8_e5m2 | Float8_e5m2fnuz | Float8_e8m0fnu;
constexpr uint64_t Unsigned = UInt16 | UInt32 | UInt64;
constexpr uint64_t Integers = Byte | Char | Short | Int | Long;
constexpr uint64_t Complex = ComplexFloat | ComplexDouble;
constexpr uint64_t Halves = Half | BFloat16;
constexpr uint64_t Floats = Float | Double;

struct Refusal {
  const char* op;
  const char* name;
  uint64_t dtypes;
};
constexpr Refusal kRefusals[] = {
#include "bridge/native_refusals.inc"
};
}  // namespace

const char* native_refusal(const char* op, c10::ScalarType dtype) {
  const uint64_t bit = uint64_t{1} << static_cast<int>(dtype);
  for (const Refusal& r : kRefusals)
    if ((r.dtypes & bit) != 0 && std::strcmp(r.op, op) == 0) return r.name;
  return nullptr;
}

}  // namespace minitorch
