// The gap of two buffers against its definition.
#include "kernels/gap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/half.h"
#include "memory.h"
#include "values.h"

namespace minitorch {
namespace {

template <class T>
Gap gap(const Vector<T>& a, const Vector<T>& b) {
  Gap found;
  gap_kernel({dtype_of<T>, a.data(), b.data(), static_cast<int64_t>(a.size()), &found});
  return found;
}

template <class Bits, class T>
double steps(T a, T b) {
  Bits x, y;
  std::memcpy(&x, &a, sizeof x);
  std::memcpy(&y, &b, sizeof y);
  return std::fabs(static_cast<double>(static_cast<Bits>(x - y)));
}

template <class T, class Bits>
void check(int64_t n) {
  const Vector<double> x = random_of<double>(n, 1), y = random_of<double>(n, 2, -1e-3, 1e-3);
  Vector<T> a, b;
  for (int64_t i = 0; i < n; i++) {
    b.push_back(T(static_cast<float>(x[i])));
    a.push_back(T(static_cast<float>(x[i] + y[i] * std::fabs(x[i]))));
  }
  Gap wanted;
  for (int64_t i = 0; i < n; i++) {
    using Wide = std::conditional_t<sizeof(T) == 8, double, float>;
    wanted.steps = std::max(wanted.steps, steps<Bits>(a[i], b[i]));
    const Wide difference = static_cast<Wide>(a[i]) - static_cast<Wide>(b[i]);
    wanted.span = std::max<double>(wanted.span, std::fabs(difference));
    wanted.scale = std::max<double>(wanted.scale, std::fabs(static_cast<Wide>(b[i])));
  }
  const Gap found = gap(a, b);
  EXPECT_EQ(found.steps, wanted.steps);
  EXPECT_EQ(found.span, wanted.span);
  EXPECT_EQ(found.scale, wanted.scale);
}

TEST(Gap, IsTheLargestDifference) {
  MT_CPU_ONLY();
  for (const int64_t n : {1, 7, 513, 100'003}) {
    check<float, int32_t>(n);
    check<double, int64_t>(n);
    check<Half, int16_t>(n);
    check<BFloat16, int16_t>(n);
  }
}

TEST(Gap, OfTheSameBitsIsZero) {
  MT_CPU_ONLY();
  const Vector<float> a(1000, 1.5f);
  const Gap found = gap(a, a);
  EXPECT_EQ(found.steps, 0);
  EXPECT_EQ(found.span, 0);
  EXPECT_EQ(found.scale, 1.5);
}

TEST(Gap, OfZerosOfBothSignsIsOneOfBitsOnly) {
  MT_CPU_ONLY();
  Vector<float> a(100, 0.0f), b = a;
  b[70] = -0.0f;
  const Gap found = gap(a, b);
  EXPECT_EQ(found.steps, 0x1p31);
  EXPECT_EQ(found.span, 0);
}

TEST(Gap, ShowsValuesThatAreNotFinite) {
  MT_CPU_ONLY();
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const bool second : {false, true}) {
    for (const double value : {kInf, -kInf, kNaN, -kNaN}) {
      Vector<double> a = random_of<double>(40'000, 1), b = a;
      (second ? b : a)[33'333] = value;
      const Gap found = gap(a, b);
      EXPECT_GT(found.steps, 0);
      EXPECT_FALSE(std::isfinite(found.span));
      EXPECT_EQ(std::isfinite(found.scale), !second);
      EXPECT_EQ(std::isnan(found.span), std::isnan(value));
    }
  }
}

}  // namespace
}  // namespace minitorch
