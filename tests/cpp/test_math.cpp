// Elementary functions against long double or double references: errors in units in the last place over samples of all
// bit patterns, subnormals and huge values included, and special values exactly.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "isas.h"
#include "memory.h"

namespace minitorch {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// |result - exact| in units in the last place of a T as large as the exact value.
template <class T>
double ulps(T result, long double exact) {
  const T rounded = static_cast<T>(exact);
  if (std::isnan(rounded) || std::isnan(result)) return std::isnan(rounded) == std::isnan(result) ? 0 : INFINITY;
  if (std::isinf(rounded) || std::isinf(result)) return rounded == result ? 0 : INFINITY;
  const T magnitude = std::fabs(rounded);
  const long double unit =
      static_cast<long double>(std::nextafter(magnitude, std::numeric_limits<T>::infinity())) - magnitude;
  return static_cast<double>(std::fabs(static_cast<long double>(result) - exact) / unit);
}

template <class T>
Vector<T> samples() {
  Vector<T> x;
  if constexpr (sizeof(T) == 4) {
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 8191) {
      const uint32_t b = static_cast<uint32_t>(bits);
      float f;
      memcpy(&f, &b, 4);
      x.push_back(f);
    }
  } else {
    for (uint64_t i = 0; i < 200000; i++) {
      const uint64_t b = i * 92233720368547ull * 2 + i;
      double d;
      memcpy(&d, &b, 8);
      x.push_back(d);
    }
  }
  for (double base : {1.0, 0.5, 2.0, 10.0})  // densely where functions bend
    for (int i = -20000; i <= 20000; i++) x.push_back(static_cast<T>(base * i / 10000.0));
  for (int i = -750; i <= 750; i++) x.push_back(static_cast<T>(i));
  return x;
}

template <class T>
Vector<T> apply(PointwiseOp op, Vector<T>& x) {
  Vector<T> y(x.size());
  pointwise_kernel(op, flat_view(static_cast<int64_t>(x.size()), 1, {{y.data(), dtype_of<T>}, {x.data(), dtype_of<T>}}),
                   {});
  return y;
}

struct Case {
  const char* name;
  PointwiseOp op;
  std::function<long double(long double)> exact;
  double most_ulps;
  double most_ulps_on_gpu;
};

long double sigmoid_of(long double x) { return 1 / (1 + std::exp(-x)); }

// CUDA states the error of the rounded result: the exact value may lie half a unit further away.
double bound(double on_cpu, double on_gpu) { return backend().host_accessible() ? on_cpu : on_gpu + 0.5; }

// Correct rounding is 0.5; native's own functions state 1.0 for most of these. On a GPU these are CUDA's own functions,
// whose errors are those of the table in the CUDA C++ Programming Guide, "Mathematical Functions".
const Case kSingle[] = {
    {"exp", PointwiseOp::exp, [](long double x) { return std::exp(x); }, 1.0, 2.0},
    {"exp2", PointwiseOp::exp2, [](long double x) { return std::exp2(x); }, 1.1, 2.0},  // 0.8 with fused multiply-add
    {"expm1", PointwiseOp::expm1, [](long double x) { return std::expm1(x); }, 0.6, 1.0},
    {"log", PointwiseOp::log, [](long double x) { return std::log(x); }, 0.6, 1.0},
    {"log2", PointwiseOp::log2, [](long double x) { return std::log2(x); }, 0.6, 1.0},
    {"log10", PointwiseOp::log10, [](long double x) { return std::log10(x); }, 0.6, 2.0},
    {"log1p", PointwiseOp::log1p, [](long double x) { return std::log1p(x); }, 0.6, 1.0},
    {"sin", PointwiseOp::sin, [](long double x) { return std::sin(x); }, 0.6, 2.0},
    {"cos", PointwiseOp::cos, [](long double x) { return std::cos(x); }, 0.6, 2.0},
    {"tan", PointwiseOp::tan, [](long double x) { return std::tan(x); }, 0.6, 4.0},
    {"asin", PointwiseOp::asin, [](long double x) { return std::asin(x); }, 0.6, 2.0},
    {"acos", PointwiseOp::acos, [](long double x) { return std::acos(x); }, 0.6, 2.0},
    {"atan", PointwiseOp::atan, [](long double x) { return std::atan(x); }, 0.6, 2.0},
    {"sinh", PointwiseOp::sinh, [](long double x) { return std::sinh(x); }, 0.6, 3.0},
    {"cosh", PointwiseOp::cosh, [](long double x) { return std::cosh(x); }, 0.6, 2.0},
    {"tanh", PointwiseOp::tanh, [](long double x) { return std::tanh(x); }, 0.6, 2.0},
    {"asinh", PointwiseOp::asinh, [](long double x) { return std::asinh(x); }, 0.6, 3.0},
    {"acosh", PointwiseOp::acosh, [](long double x) { return std::acosh(x); }, 0.6, 4.0},
    {"atanh", PointwiseOp::atanh, [](long double x) { return std::atanh(x); }, 0.6, 3.0},
    {"erf", PointwiseOp::erf, [](long double x) { return std::erf(x); }, 0.7, 2.0},
    {"erfc", PointwiseOp::erfc, [](long double x) { return std::erfc(x); }, 0.6, 4.0},
    {"sqrt", PointwiseOp::sqrt, [](long double x) { return std::sqrt(x); }, 0.5, 0.0},
};
const Case kDouble[] = {
    {"exp", PointwiseOp::exp, [](long double x) { return std::exp(x); }, 1.0, 1.0},
    {"expm1", PointwiseOp::expm1, [](long double x) { return std::expm1(x); }, 1.0, 1.0},
    {"log", PointwiseOp::log, [](long double x) { return std::log(x); }, 1.0, 1.0},
    {"sin", PointwiseOp::sin, [](long double x) { return std::sin(x); }, 1.0, 2.0},
    {"cos", PointwiseOp::cos, [](long double x) { return std::cos(x); }, 1.0, 2.0},
    {"tanh", PointwiseOp::tanh, [](long double x) { return std::tanh(x); }, 0.8, 2.0},
    {"atanh", PointwiseOp::atanh, [](long double x) { return std::atanh(x); }, 1.1, 2.0},
    {"sinh", PointwiseOp::sinh, [](long double x) { return std::sinh(x); }, 0.8, 2.0},
    {"cosh", PointwiseOp::cosh, [](long double x) { return std::cosh(x); }, 0.9,
     1.0},  // 0.84 without fused multiply-add
    {"tan", PointwiseOp::tan, [](long double x) { return std::tan(x); }, 1.1, 2.0},
    {"asin", PointwiseOp::asin, [](long double x) { return std::asin(x); }, 0.8, 2.0},
    {"acos", PointwiseOp::acos, [](long double x) { return std::acos(x); }, 0.9, 2.0},
    {"atan", PointwiseOp::atan, [](long double x) { return std::atan(x); }, 0.9, 2.0},
    {"erf", PointwiseOp::erf, [](long double x) { return std::erf(x); }, 1.3, 2.0},
    {"erfc", PointwiseOp::erfc, [](long double x) { return std::erfc(x); }, 1.6, 5.0},
};

template <class T, size_t N>
void check(const Case (&cases)[N]) {
  Vector<T> x = samples<T>();
  on_each_isa([&] {
    for (const Case& c : cases) {
      const Vector<T> y = apply(c.op, x);
      double worst = 0;
      T where = 0;
      for (size_t i = 0; i < x.size(); i++) {
        const double error = ulps(y[i], c.exact(x[i]));
        if (!(error <= worst)) worst = error, where = x[i];
      }
      EXPECT_LE(worst, bound(c.most_ulps, c.most_ulps_on_gpu)) << c.name << " at " << where;
    }
  });
}

TEST(Math, SinglePrecisionIsNearlyCorrectlyRounded) { check<float>(kSingle); }
TEST(Math, DoublePrecisionIsWithinNativesErrors) { check<double>(kDouble); }

// 1 / (1 + exp(-x)), native's formula: three roundings, and zero once exp(-x) overflows.
template <class T>
void check_sigmoid(T lowest) {
  Vector<T> x = samples<T>();
  std::erase_if(x, [&](T f) { return !(f > lowest); });
  on_each_isa([&] {
    const Vector<T> y = apply(PointwiseOp::sigmoid, x);
    for (size_t i = 0; i < x.size(); i++) ASSERT_LE(ulps(y[i], sigmoid_of(x[i])), bound(2.5, 2.5)) << x[i];
  });
}
TEST(Math, Sigmoid) {
  check_sigmoid(-87.0f);
  check_sigmoid(-700.0);
}

TEST(Math, SpecialValuesAreC99s) {
  Vector<float> x = {0.0f, -0.0f, kInf, -kInf, kNan, 1.0f, -1.0f, 1e-45f, -1e-45f, 3e38f, -3e38f};
  on_each_isa([&] {
    for (const Case& c : kSingle) {
      const Vector<float> y = apply(c.op, x);
      for (size_t i = 0; i < x.size(); i++) {
        const float exact = static_cast<float>(c.exact(x[i]));
        if (std::isnan(exact)) {
          EXPECT_TRUE(std::isnan(y[i])) << c.name << "(" << x[i] << ") = " << y[i];
        } else {
          EXPECT_LE(ulps(y[i], c.exact(x[i])), bound(c.most_ulps, c.most_ulps_on_gpu))
              << c.name << "(" << x[i] << ") = " << y[i];
          EXPECT_EQ(std::signbit(y[i]), std::signbit(exact)) << c.name << "(" << x[i] << ")";
        }
      }
    }
  });
}

template <class T = float, class F>
void check_binary(PointwiseOp op, const F& exact, double most, double most_on_gpu) {
  Vector<T> grid = {0.0f, -0.0f, kInf,   -kInf, kNan,   1.0f,        -1.0f,       2.0f,   -2.0f,      3.0f,       -3.0f,
                    0.5f, -0.5f, 1e-40f, 1e38f, -1e38f, 16777216.0f, 16777217.0f, -7.25f, 1.0000001f, 0.99999994f};
  for (int i = 1; i < 400; i++) grid.push_back(static_cast<T>(std::sin(i * 12.9898) * std::exp2(i % 40 - 20)));
  if constexpr (sizeof(T) == 8)  // subnormals, the ends of the range, where numbers become integers and even ones
    for (double d :
         {5e-324, -5e-324, 1e-310, 1e308, -1e308, 4503599627370497.0, 9007199254740991.0, 9007199254740992.0})
      grid.push_back(d), grid.push_back(-1 / d);
  Vector<T> a, b;
  for (T p : grid)
    for (T q : grid) a.push_back(p), b.push_back(q);
  Vector<T> y(a.size());
  on_each_isa([&] {
    pointwise_kernel(op,
                     flat_view(static_cast<int64_t>(a.size()), 1,
                               {{y.data(), dtype_of<T>}, {a.data(), dtype_of<T>}, {b.data(), dtype_of<T>}}),
                     {});
    for (size_t i = 0; i < a.size(); i++) {
      const auto expected = exact(a[i], b[i]);
      ASSERT_LE(ulps(y[i], expected), most_on_gpu == 0 ? 0 : bound(most, most_on_gpu))
          << a[i] << ", " << b[i] << " gives " << y[i];
      if (expected == 0) {
        ASSERT_EQ(std::signbit(y[i]), std::signbit(expected)) << a[i] << ", " << b[i];
      }
    }
  });
}

TEST(Math, Pow) {
  check_binary(PointwiseOp::pow, [](double a, double b) { return std::pow(a, b); }, 0.6, 4.0);
}
TEST(Math, Atan2) {
  check_binary(PointwiseOp::atan2, [](double a, double b) { return std::atan2(a, b); }, 0.6, 3.0);
}
TEST(Math, PowAndAtan2InDoublePrecision) {
  check_binary<double>(PointwiseOp::pow, [](long double a, long double b) { return std::pow(a, b); }, 1.2, 2.0);
  check_binary<double>(PointwiseOp::atan2, [](long double a, long double b) { return std::atan2(a, b); }, 0.9, 2.0);
}
TEST(Math, Hypot) {
  check_binary(PointwiseOp::hypot, [](double a, double b) { return std::hypot(a, b); }, 0.6, 3.0);
}
TEST(Math, FmodIsExact) {
  check_binary(PointwiseOp::fmod, [](double a, double b) { return std::fmod(a, b); }, 0.0, 0.0);
}

}  // namespace
}  // namespace minitorch
