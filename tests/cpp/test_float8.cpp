// Numbers of eight bits: every code, the midpoint of every pair of neighbours and what lies beside it, and everything
// beyond the largest, against values made with ldexp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "isas.h"
#include "memory.h"
#include "kernels/float8.h"

namespace minitorch {
namespace {

// The specification of a format with a sign: bits of the exponent and the mantissa, the exponent's bias, the largest
// finite code, and the code that overflow gives.
struct Format {
  Float8 name;
  int exponent_bits, mantissa_bits, bias, largest;
  uint8_t overflow;
  bool has_infinity, negative_zero;
};
const Format kFormats[] = {
    {Float8::e5m2, 5, 2, 15, 0x7b, 0x7c, true, true},
    {Float8::e4m3fn, 4, 3, 7, 0x7e, 0x7f, false, true},  // beyond the largest: NaN, or
    {Float8::e4m3fn, 4, 3, 7, 0x7e, 0x7e, false, true},  // the largest
    {Float8::e5m2fnuz, 5, 2, 16, 0x7f, 0x80, false, false},
    {Float8::e4m3fnuz, 4, 3, 8, 0x7f, 0x80, false, false},
};

double value_of(const Format& f, int code) {
  const int magnitude = code & 0x7f;
  if (!f.negative_zero && code == 0x80) return NAN;
  if (magnitude > f.largest) return f.has_infinity && magnitude == 0x7c ? (code & 0x80 ? -INFINITY : INFINITY) : NAN;
  const int exponent = magnitude >> f.mantissa_bits, mantissa = magnitude & ((1 << f.mantissa_bits) - 1);
  const double size = exponent == 0
                          ? std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits)
                          : std::ldexp((1 << f.mantissa_bits) + mantissa, exponent - f.bias - f.mantissa_bits);
  return code & 0x80 ? -size : size;
}

Vector<float> decoded(Float8 format, const Vector<uint8_t>& codes) {
  Vector<float> values(codes.size() + 1, 7.0f);
  float8_decode_kernel(format, codes.data(), values.data(), static_cast<int64_t>(codes.size()));
  EXPECT_EQ(values.back(), 7.0f);
  values.pop_back();
  return values;
}
Vector<uint8_t> encoded(Float8 format, uint8_t overflow, const Vector<float>& values) {
  Vector<uint8_t> codes(values.size() + 1, 7);
  float8_encode_kernel(format, overflow, values.data(), codes.data(), static_cast<int64_t>(values.size()));
  EXPECT_EQ(codes.back(), 7);
  codes.pop_back();
  return codes;
}

// All codes, many times over: a GPU spreads them over blocks, a CPU over vectors and what is left of one.
Vector<uint8_t> all_codes(int64_t n) {
  Vector<uint8_t> codes(n);
  for (int64_t i = 0; i < n; i++) codes[i] = static_cast<uint8_t>(i);
  return codes;
}

TEST(Float8, DecodesEveryCode) {
  on_each_isa([] {
    for (const int64_t n : {0, 1, 3, 256, 5003})
      for (const Format& f : kFormats) {
        const auto values = decoded(f.name, all_codes(n));
        for (int64_t i = 0; i < n; i++) {
          const double exact = value_of(f, static_cast<int>(i % 256));
          if (std::isnan(exact)) {
            ASSERT_TRUE(std::isnan(values[i])) << static_cast<int>(f.name) << ", " << i % 256;
          } else {
            ASSERT_EQ(values[i], exact) << static_cast<int>(f.name) << ", " << i % 256;
            ASSERT_EQ(std::signbit(values[i]), std::signbit(exact)) << i % 256;
          }
        }
      }
  });
}

TEST(Float8, EncodesToTheNearest) {
  on_each_isa([] {
    for (const Format& f : kFormats) {
      Vector<float> values;
      Vector<uint8_t> expected;
      const auto expect = [&](double value, int code) {
        const bool unsigned_zero = code == 0 && !f.negative_zero, one_nan = code == 0x80;
        values.insert(values.end(), {static_cast<float>(value), static_cast<float>(-value)});
        expected.insert(expected.end(), {static_cast<uint8_t>(code),
                                         static_cast<uint8_t>(unsigned_zero || one_nan ? code : code | 0x80)});
      };
      for (int code = 0; code <= f.largest; code++) {
        const double low = value_of(f, code);
        expect(low, code);
        // What follows the largest has the distance of the numbers before it.
        const bool last = code == f.largest;
        const double high = last ? 2 * low - value_of(f, code - 1) : value_of(f, code + 1);
        const int next = last ? f.overflow : code + 1;
        const auto middle = static_cast<float>((low + high) / 2);
        expect(std::nextafter(middle, 0.0f), code);
        expect(middle, code % 2 == 0 ? code : next);
        expect(std::nextafter(middle, INFINITY), next);
      }
      for (const float beyond : {1e6f, 3e38f, INFINITY}) expect(beyond, f.overflow);
      expect(1e-30, 0);  // a subnormal of no format
      expect(0x1p-140, 0);
      const auto codes = encoded(f.name, f.overflow, values);
      for (size_t i = 0; i < values.size(); i++)
        ASSERT_EQ(codes[i], expected[i]) << static_cast<int>(f.name) << ", " << values[i];
      for (const uint8_t code : encoded(f.name, f.overflow, {NAN, -NAN}))
        ASSERT_TRUE(std::isnan(value_of(f, code))) << static_cast<int>(f.name);
    }
  });
}

// Exponents alone: code c is 2^(c - 127). Halfway between two powers the upper one is nearest: the ratio counts.
TEST(Float8, ExponentsOnly) {
  on_each_isa([] {
    const auto values = decoded(Float8::e8m0fnu, all_codes(256));
    for (int code = 0; code < 255; code++) {
      const float power = std::ldexp(1.0f, code - 127);
      ASSERT_EQ(values[code], power) << code;
      const float below = code == 0 ? power : std::nextafter(1.5f * power, 0.0f);
      const auto codes = encoded(Float8::e8m0fnu, 0, {power, -power, below, 1.5f * power});
      ASSERT_EQ(codes, (Vector<uint8_t>{static_cast<uint8_t>(code), static_cast<uint8_t>(code),
                                        static_cast<uint8_t>(code), static_cast<uint8_t>(code + 1)}))
          << code;
    }
    ASSERT_TRUE(std::isnan(values[255]));
    ASSERT_EQ(encoded(Float8::e8m0fnu, 0, {NAN, INFINITY, 0.0f}), (Vector<uint8_t>{255, 255, 0}));
  });
}

}  // namespace
}  // namespace minitorch
