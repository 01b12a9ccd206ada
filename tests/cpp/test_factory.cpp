// Sequences and constant tensors against their definitions in double.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "views.h"
#include "kernels/factory.h"

namespace minitorch {
namespace {

// None, one, less than a vector, and more than a thread of a GPU takes at once.
const int64_t kCounts[] = {0, 1, 2, 7, 1000, 70001};

SequenceArgs sequence(char* out, DType dtype, int64_t count, Scalar first, Scalar last_or_step, double base = 10) {
  return {out, dtype, count, first, last_or_step, last_or_step, base};
}

template <class T>
void expect_arange(Scalar first, Scalar step) {
  for (const int64_t count : kCounts) {
    Vector<T> out(count + 1, stored<T>(7));
    arange_kernel(sequence(bytes(out), dtype_of<T>, count, first, step));
    for (int64_t i = 0; i < count; i++) {
      if constexpr (std::is_integral_v<T>) {
        ASSERT_EQ(out[i], static_cast<T>(first.i + step.i * i)) << i;
      } else {
        // 16-bit floats step in float, the others in double.
        using P = std::conditional_t<is_half_v<T>, float, double>;
        const double moved = step.to<double>() * static_cast<double>(i), exact = first.to<double>() + moved;
        const double size = std::abs(first.to<double>()) + 2 * std::abs(moved);
        ASSERT_NEAR(number(out[i]), exact, 2 * rounding<P>() * size + rounding<T>() * std::abs(exact)) << i;
      }
    }
    ASSERT_EQ(number(out[count]), 7) << count;
  }
}

TEST(Factory, ArangeIsItsFormula) {
  on_each_isa([] {
    expect_arange<float>(0.1, 0.3);
    expect_arange<double>(-2.5, -0.7);
    expect_arange<BFloat16>(1.0, 0.25);
    expect_arange<int64_t>(int64_t{1} << 60, int64_t{3});  // no double counts so
    expect_arange<uint8_t>(int64_t{5}, int64_t{7});        // wraps
  });
}

// What the formula's operations may cost: each result is one end and a multiple of the step, which has two roundings.
template <class T>
double error_of_linspace(double value, double first, double last) {
  return rounding<T>() * (3 * std::abs(last - first) + std::abs(value));
}

template <class T>
void expect_linspace(double first, double last) {
  for (const int64_t count : kCounts) {
    if (count == 1) continue;  // has no step
    Vector<T> out(count + 1, stored<T>(7));
    linspace_kernel(sequence(bytes(out), dtype_of<T>, count, first, last));
    for (int64_t i = 0; i < count; i++) {
      const double exact = first + (last - first) * static_cast<double>(i) / static_cast<double>(count - 1);
      if constexpr (std::is_integral_v<T>) {
        // A whole number may come out just below itself before its fraction is cut off.
        const double near = std::round(exact);
        ASSERT_TRUE(number(out[i]) == std::trunc(exact) ||
                    (std::abs(exact - near) < 1e-9 && std::abs(number(out[i]) - near) <= 1))
            << count << ", " << i;
      } else {
        ASSERT_NEAR(number(out[i]), exact, error_of_linspace<T>(exact, first, last)) << count << ", " << i;
      }
    }
    if (count > 1) {
      ASSERT_EQ(number(out[0]), number(stored<T>(first)));
      ASSERT_EQ(number(out[count - 1]), number(stored<T>(last)));
    }
    ASSERT_EQ(number(out[count]), 7) << count;
  }
}

TEST(Factory, LinspaceHasBothEnds) {
  on_each_isa([] {
    expect_linspace<float>(-1.7, 3.1);
    expect_linspace<double>(5, -11);
    expect_linspace<BFloat16>(0.5, 2);
    expect_linspace<int64_t>(-1000, 7000);
    expect_linspace<uint8_t>(0, 255);
  });
}

TEST(Factory, LinspaceOfComplexNumbers) {
  on_each_isa([] {
    for (const int64_t count : {2, 9, 3001}) {
      Vector<Complex<float>> out(count);
      linspace_kernel(sequence(bytes(out), DType::C64, count, Scalar(-1.0, 2.0), Scalar(3.0, -0.5)));
      for (int64_t i = 0; i < count; i++) {
        const double part = static_cast<double>(i) / static_cast<double>(count - 1);
        ASSERT_NEAR(out[i].re, -1 + 4 * part, error_of_linspace<float>(3, -1, 3)) << i;
        ASSERT_NEAR(out[i].im, 2 - 2.5 * part, error_of_linspace<float>(2, 2, -0.5)) << i;
      }
    }
  });
}

template <class T>
void expect_logspace(double first, double last, double base) {
  using C = compute_t<T>;
  for (const int64_t count : kCounts) {
    if (count == 1) continue;
    Vector<T> out(count + 1, stored<T>(7));
    logspace_kernel(sequence(bytes(out), dtype_of<T>, count, first, last, base));
    const double from = number(stored<T>(first)), to = number(stored<T>(last));
    for (int64_t i = 0; i < count; i++) {
      const double exponent = from + (to - from) * static_cast<double>(i) / static_cast<double>(count - 1);
      const double exact = std::pow(base, exponent);
      // An error of the exponent is one of the value, times its logarithm; the base is rounded, the power good to 3.
      const double of_exponent = error_of_linspace<C>(exponent, from, to) * std::log(base);
      ASSERT_NEAR(number(out[i]), exact,
                  exact * (of_exponent + rounding<C>() * (std::abs(exponent) + 6)) + rounding<T>() * exact)
          << count << ", " << i;
    }
    ASSERT_EQ(number(out[count]), 7) << count;
  }
}

TEST(Factory, LogspaceIsAPower) {
  on_each_isa([] {
    expect_logspace<float>(-2, 3, 10);
    expect_logspace<double>(4, -4, 2.7);
    expect_logspace<BFloat16>(-2, 5, 2);
    // base^(x + iy) = base^x (cos(y log base) + i sin(y log base))
    Vector<Complex<double>> out(500);
    logspace_kernel(sequence(bytes(out), DType::C128, 500, Scalar(-1.0, 0.0), Scalar(1.0, 3.0), 10));
    for (int64_t i = 0; i < 500; i++) {
      const double part = static_cast<double>(i) / 499, size = std::pow(10, -1 + 2 * part);
      const double angle = 3 * part * std::log(10);
      ASSERT_NEAR(out[i].re, size * std::cos(angle), 1e-14 * size) << i;
      ASSERT_NEAR(out[i].im, size * std::sin(angle), 1e-14 * size) << i;
    }
  });
}

template <class T>
bool same(T a, T b) {
  return a == b;
}

// Rows with a gap between them, which stays; from a place that need not be a multiple of sixteen bytes.
template <class T>
void expect_fill(Scalar value) {
  for (const int64_t columns : {0, 1, 5, 4099})
    for (const int64_t rows : {1, 17})
      for (const int64_t offset : {0, 1})
        for (const int64_t step : {1, 2}) {
          const int64_t pitch = columns * step + 3;
          const T rest = T(9);
          Vector<T> out(rows * pitch + offset + 1, rest);
          fill_kernel(pointwise_view({columns, rows}, 1, {{out.data() + offset, dtype_of<T>, {step, pitch}}}), value);
          for (int64_t i = 0; i < static_cast<int64_t>(out.size()); i++) {
            const int64_t row = (i - offset) / pitch, at = (i - offset) % pitch;
            const bool filled = i >= offset && row < rows && at % step == 0 && at < columns * step;
            ASSERT_TRUE(same(out[i], filled ? value.to<T>() : rest)) << columns << ", " << rows << ", " << i;
          }
        }
}

TEST(Factory, FillLeavesGapsAlone) {
  on_each_isa([] {
    expect_fill<float>(-1.25);
    expect_fill<uint8_t>(int64_t{200});
    expect_fill<BFloat16>(0.5);
    expect_fill<int64_t>((int64_t{1} << 60) + 1);  // does not pass through a float
    expect_fill<Complex<double>>(Scalar(2.0, -3.0));
  });
}

}  // namespace
}  // namespace minitorch
