// Softmax over rows, column tiles and masked rows, against double arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "memory.h"
#include "kernels/softmax.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

class Softmax : public testing::TestWithParam<SoftmaxShape> {
 protected:
  void SetUp() override { backend(); }
};

template <class T>
SoftmaxOperand operand(Vector<T>& v) {
  return {reinterpret_cast<char*>(v.data()), dtype_of<T>};
}

TEST_P(Softmax, ForwardAndBackwardMatchDouble) {
  const SoftmaxShape s = GetParam();
  const int64_t numel = s.outer * s.dim * s.inner;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 3);
  Vector<float> x(numel), y(numel), g(numel), dx(numel);
  for (float& v : x) v = normal(random);
  for (float& v : g) v = normal(random);
  for (SoftmaxOp op : {SoftmaxOp::softmax, SoftmaxOp::log_softmax}) {
    softmax_kernel(op, s, operand(y), operand(x), {});
    softmax_backward_kernel(op, s, operand(dx), operand(g), operand(y), {});
    const bool log = op == SoftmaxOp::log_softmax;
    for (int64_t o = 0; o < s.outer; o++) {
      for (int64_t i = 0; i < s.inner; i++) {
        auto at = [&](int64_t d) { return (o * s.dim + d) * s.inner + i; };
        double sum = 0, dot = 0, size = 0;  // size: of what dot is summed from, to which its rounding is in proportion
        for (int64_t d = 0; d < s.dim; d++) sum += std::exp(double(x[at(d)]));
        for (int64_t d = 0; d < s.dim; d++) {
          const double p = std::exp(double(x[at(d)])) / sum;
          const double term = log ? g[at(d)] : g[at(d)] * p;
          dot += term;
          size += std::abs(term);
        }
        for (int64_t d = 0; d < s.dim; d++) {
          const double p = std::exp(double(x[at(d)])) / sum;
          const double value = log ? x[at(d)] - std::log(sum) : p;
          // A log-probability near 0 is a difference of numbers of x's size, so its error is theirs.
          EXPECT_NEAR(y[at(d)], value, 2e-6 * std::abs(value) + (log ? 3e-6 : 1e-12));
          const double grad = log ? g[at(d)] - p * dot : (g[at(d)] - dot) * p;
          const double terms = log ? std::abs(g[at(d)]) + std::abs(p * dot) : (std::abs(g[at(d)]) + std::abs(dot)) * p;
          EXPECT_NEAR(dx[at(d)], grad, 5e-6 * terms + 2e-7 * p * size + 1e-12);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Softmax,
                         testing::Values(SoftmaxShape{37, 1000, 1}, SoftmaxShape{1, 20000, 1}, SoftmaxShape{300, 7, 1},
                                         SoftmaxShape{3, 50, 70}, SoftmaxShape{1, 4000, 33}, SoftmaxShape{2, 1, 5},
                                         SoftmaxShape{5, 3, 2}));

TEST(SoftmaxMasked, LeavesMaskedElementsOut) {
  backend();
  const int64_t rows = 6, n = 40;
  Vector<float> x(rows * n), y(rows * n), g(rows * n, 1.0f), dx(rows * n);
  std::mt19937 random(5);
  for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(random() % 100) / 10, g[i] = x[i] - 3;
  Vector<char> masked(3 * n);
  bool* const mask = reinterpret_cast<bool*>(masked.data());
  for (int64_t i = 0; i < 3 * n; i++) mask[i] = i >= 2 * n || random() % 3 == 0;
  const SoftmaxMask m{mask, 2, 3};
  const SoftmaxShape s{rows, n, 1};
  softmax_kernel(SoftmaxOp::softmax, s, operand(y), operand(x), m);
  softmax_backward_kernel(SoftmaxOp::softmax, s, operand(dx), operand(g), operand(y), m);
  for (int64_t r = 0; r < rows; r++) {
    const bool* row = mask + r / 2 * n;
    double sum = 0, dot = 0;
    for (int64_t i = 0; i < n; i++) sum += row[i] ? 0 : std::exp(double(x[r * n + i]));
    for (int64_t i = 0; i < n; i++) dot += row[i] ? 0 : y[r * n + i] * g[r * n + i];
    for (int64_t i = 0; i < n; i++) {
      if (r / 2 == 2) {
        EXPECT_TRUE(std::isnan(y[r * n + i]));
        EXPECT_EQ(dx[r * n + i], 0);
        continue;
      }
      EXPECT_NEAR(y[r * n + i], row[i] ? 0 : std::exp(double(x[r * n + i])) / sum, 1e-6);
      EXPECT_NEAR(dx[r * n + i], row[i] ? 0 : (g[r * n + i] - dot) * y[r * n + i], 1e-5);
    }
  }
}

}  // namespace
}  // namespace minitorch
