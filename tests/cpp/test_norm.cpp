// Normalisation kernels against plain loops in double, without PyTorch.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "memory.h"
#include "kernels/norm.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

class Norm : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { backend(); }
};

Vector<float> noise(size_t n, float mean, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(mean, 1.0f);
  Vector<float> v(n);
  for (float& x : v) x = normal(engine);
  return v;
}

TEST_F(Norm, LayerNormMatchesDouble) {
  for (const int64_t cols : {1, 7, 16, 63, 64, 65, 1024, 5000}) {
    const int64_t rows = 5;
    const auto x = noise(rows * cols, 10, 1), w = noise(cols, 1, 2), b = noise(cols, 0, 3);
    Vector<float> y(x.size()), mean(rows), rstd(rows);
    layer_norm_kernel({DType::F32, DType::F32, DType::F32, true, rows, cols, 1e-5, x.data(), w.data(), b.data(),
                       y.data(), mean.data(), rstd.data()});
    for (int64_t r = 0; r < rows; r++) {
      double m = 0, v = 0;
      for (int64_t i = 0; i < cols; i++) m += x[r * cols + i];
      m /= cols;
      for (int64_t i = 0; i < cols; i++) v += (x[r * cols + i] - m) * (x[r * cols + i] - m);
      const double s = 1 / std::sqrt(v / cols + 1e-5);
      EXPECT_NEAR(mean[r], m, 2e-6 * std::abs(m));
      for (int64_t i = 0; i < cols; i++)
        ASSERT_NEAR(y[r * cols + i], (x[r * cols + i] - m) * s * w[i] + b[i], cols == 1 ? 1e-2 : 2e-5) << cols;
    }
  }
}

template <class S>
void expect_layer_norm_gradient(int64_t rows, int64_t cols, bool centered, double tolerance) {
  const auto x32 = noise(rows * cols, 1, 1), dy32 = noise(rows * cols, 0, 2), w = noise(cols, 1, 3);
  Vector<S> x(x32.begin(), x32.end()), dy(dy32.begin(), dy32.end()), dx(x.size());
  Vector<float> mean(rows), rstd(rows), dw(cols), db(cols);
  Vector<double> expected_dw(cols, 0.0), expected_db(cols, 0.0), expected_dx(x.size());
  for (int64_t r = 0; r < rows; r++) {
    const auto at = [&](const Vector<S>& v, int64_t i) {
      return static_cast<double>(static_cast<float>(v[r * cols + i]));
    };
    double m = 0, v = 0, g_sum = 0, product_sum = 0;
    for (int64_t i = 0; i < cols; i++) m += at(x, i);
    m = centered ? m / cols : 0;
    for (int64_t i = 0; i < cols; i++) v += (at(x, i) - m) * (at(x, i) - m);
    mean[r] = m;
    rstd[r] = 1 / std::sqrt(v / cols + 1e-5);
    const auto normalised = [&](int64_t i) { return (at(x, i) - mean[r]) * rstd[r]; };
    for (int64_t i = 0; i < cols; i++) {
      g_sum += centered ? at(dy, i) * w[i] : 0;
      product_sum += at(dy, i) * w[i] * normalised(i);
      expected_dw[i] += at(dy, i) * normalised(i);
      expected_db[i] += at(dy, i);
    }
    for (int64_t i = 0; i < cols; i++)
      expected_dx[r * cols + i] = (at(dy, i) * w[i] - g_sum / cols - normalised(i) * product_sum / cols) * rstd[r];
  }
  layer_norm_backward_kernel({dtype_of<S>, DType::F32, DType::F32, centered, rows, cols, dy.data(), x.data(), w.data(),
                              centered ? mean.data() : nullptr, rstd.data(), dx.data(), dw.data(),
                              centered ? db.data() : nullptr});
  for (size_t i = 0; i < x.size(); i++)
    ASSERT_NEAR(static_cast<float>(dx[i]), expected_dx[i], tolerance * (1 + std::abs(expected_dx[i])))
        << rows << " x " << cols;
  for (int64_t i = 0; i < cols; i++) {
    ASSERT_NEAR(dw[i], expected_dw[i], 1e-5 * (std::sqrt(rows) + std::abs(expected_dw[i]))) << rows << " x " << cols;
    if (centered) ASSERT_NEAR(db[i], expected_db[i], 1e-5 * (std::sqrt(rows) + std::abs(expected_db[i])));
  }
}

TEST_F(Norm, LayerNormGradientMatchesDouble) {
  for (const int64_t rows : {1, 3, 200})
    for (const int64_t cols : {7, 8, 72, 256, 264, 1000, 6144, 6152})
      for (const bool centered : {true, false}) {
        expect_layer_norm_gradient<float>(rows, cols, centered, 2e-5);
        expect_layer_norm_gradient<BFloat16>(rows, cols, centered, 5e-3);
      }
}

// A float sum over so many equal terms would stop growing; the kernel's must not.
TEST_F(Norm, LongSumsKeepTheirPrecision) {
  const int64_t cols = int64_t{1} << 25;
  Vector<float> x(cols, 1.0f), y(cols);
  x[0] = 3.0f;
  Vector<float> mean(1), rstd(1);
  layer_norm_kernel({DType::F32, DType::F32, DType::F32, true, 1, cols, 0, x.data(), nullptr, nullptr, y.data(),
                     mean.data(), rstd.data()});
  EXPECT_FLOAT_EQ(mean[0], 1.0f + 2.0f / cols);
  EXPECT_NEAR(rstd[0], std::sqrt(cols) / 2, std::sqrt(cols) * 1e-4);
}

TEST_F(Norm, BatchNormLayoutsAgree) {
  const int64_t n = 3, c = 21, hw = 37;
  const auto x = noise(n * c * hw, 2, 4), w = noise(c, 1, 5), b = noise(c, 0, 6);
  Vector<float> last(x.size());
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < c; j++)
      for (int64_t k = 0; k < hw; k++) last[(i * hw + k) * c + j] = x[(i * c + j) * hw + k];
  Vector<float> y(x.size()), z(x.size()), mean(c, 0.5f), var(c, 2.0f), mean2 = mean, var2 = var, stats(4 * c);
  BatchNormArgs a{DType::F32,
                  DType::F32,
                  false,
                  true,
                  false,
                  n,
                  c,
                  hw,
                  0.3,
                  1e-5,
                  x.data(),
                  w.data(),
                  b.data(),
                  mean.data(),
                  var.data(),
                  stats.data(),
                  stats.data() + c,
                  y.data()};
  batch_norm_kernel(a);
  a.channels_last = true;
  a.x = last.data();
  a.y = z.data();
  a.running_mean = mean2.data();
  a.running_var = var2.data();
  a.save_mean = stats.data() + 2 * c;
  a.save_invstd = stats.data() + 3 * c;
  batch_norm_kernel(a);
  for (int64_t j = 0; j < c; j++) {
    double m = 0, v = 0;
    for (int64_t i = 0; i < n; i++)
      for (int64_t k = 0; k < hw; k++) m += x[(i * c + j) * hw + k];
    m /= n * hw;
    for (int64_t i = 0; i < n; i++)
      for (int64_t k = 0; k < hw; k++) v += std::pow(x[(i * c + j) * hw + k] - m, 2);
    EXPECT_NEAR(mean[j], 0.7 * 0.5 + 0.3 * m, 1e-6);
    EXPECT_NEAR(var[j], 0.7 * 2 + 0.3 * v / (n * hw - 1), 1e-6);
    EXPECT_NEAR(mean2[j], mean[j], 1e-6);
    EXPECT_NEAR(var2[j], var[j], 1e-6);
    for (int64_t i = 0; i < n; i++)
      for (int64_t k = 0; k < hw; k++) ASSERT_NEAR(y[(i * c + j) * hw + k], z[(i * hw + k) * c + j], 1e-5);
  }
}

// A channel's first element, from which kernels may take deviations, is far from the others.
TEST_F(Norm, BatchNormSurvivesAnOutlierInFront) {
  const int64_t n = 64, c = 8, hw = 1024, count = n * hw;
  auto x = noise(n * c * hw, 256, 4);
  for (const bool last : {false, true}) {
    const auto place = [&](int64_t i, int64_t j, int64_t k) {
      return last ? (i * hw + k) * c + j : (i * c + j) * hw + k;
    };
    for (int64_t j = 0; j < c; j++) x[place(0, j, 0)] = 0;
    Vector<float> mean(c, 0.0f), var(c, 0.0f), stats(2 * c), y(x.size());
    batch_norm_kernel({DType::F32, DType::F32, last, true, false, n, c, hw, 1.0, 1e-5, x.data(), nullptr, nullptr,
                       mean.data(), var.data(), stats.data(), stats.data() + c, y.data()});
    for (int64_t j = 0; j < c; j++) {
      double m = 0, v = 0;
      for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < hw; k++) m += x[place(i, j, k)];
      m /= count;
      for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < hw; k++) v += (x[place(i, j, k)] - m) * (x[place(i, j, k)] - m);
      EXPECT_NEAR(mean[j], m, 1e-6 * m);
      EXPECT_NEAR(var[j], v / (count - 1), 2e-4 * v / count);
    }
  }
}

}  // namespace
}  // namespace minitorch
