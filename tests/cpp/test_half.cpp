// Conversions between 16-bit floats and float, for all bit patterns and around every rounding boundary.
#include <cmath>
#include <cstring>
#include <vector>

#include "isas.h"
#include "memory.h"

namespace minitorch {
namespace {

// The value of a 16-bit float with the given exponent bits, computed with ldexp.
double value_of(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

template <class T>
void convert(void* to, DType to_type, void* from, DType from_type, size_t n) {
  copy_kernel(flat_view(static_cast<int64_t>(n), 1, {{to, to_type}, {from, from_type}}));
}

template <class T>
void check_all(int exponent_bits) {
  on_each_isa([&] {
    Vector<uint16_t> bits(65536), back(65536);
    Vector<float> wide(65536);
    for (int i = 0; i < 65536; i++) bits[i] = static_cast<uint16_t>(i);
    convert<T>(wide.data(), DType::F32, bits.data(), dtype_of<T>, 65536);
    convert<T>(back.data(), dtype_of<T>, wide.data(), DType::F32, 65536);
    for (int i = 0; i < 65536; i++) {
      const double exact = value_of(bits[i], exponent_bits);
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(value_of(back[i], exponent_bits))) << i;
      } else {
        ASSERT_EQ(wide[i], exact) << i;
        ASSERT_EQ(back[i], bits[i]) << i;
      }
    }
    // The midpoint of every pair of neighbours rounds to the even one, its own neighbours to the nearer.
    Vector<float> around;
    Vector<uint16_t> expected;
    for (int i = 0; i + 1 < 0x8000; i++) {
      const double low = value_of(static_cast<uint16_t>(i), exponent_bits);
      double high = value_of(static_cast<uint16_t>(i + 1), exponent_bits);
      if (!std::isfinite(low)) break;
      if (std::isinf(high)) high = 2 * low - value_of(static_cast<uint16_t>(i - 1), exponent_bits);
      const float middle = static_cast<float>((low + high) / 2);
      if (middle != (low + high) / 2) continue;  // bf16 subnormals: the midpoint is no float
      const uint16_t even = static_cast<uint16_t>(i % 2 ? i + 1 : i);
      around.insert(around.end(), {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY), -middle});
      expected.insert(expected.end(), {even, static_cast<uint16_t>(i), static_cast<uint16_t>(i + 1),
                                       static_cast<uint16_t>(even | 0x8000)});
    }
    Vector<uint16_t> rounded(around.size());
    convert<T>(rounded.data(), dtype_of<T>, around.data(), DType::F32, around.size());
    for (size_t i = 0; i < around.size(); i++) ASSERT_EQ(rounded[i], expected[i]) << around[i];
  });
}

TEST(Half, Float16) { check_all<Half>(5); }
TEST(Half, BFloat16) { check_all<BFloat16>(8); }

}  // namespace
}  // namespace minitorch
