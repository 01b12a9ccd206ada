// The Mersenne twister against published values, and kernels that draw from it or reduce in lanes against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "memory.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/hash.h"
#include "kernels/random.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

class Random : public testing::Test {
 protected:
  static void SetUpTestSuite() { backend(); }
};

RandomState seeded(uint64_t seed) {
  RandomState s{};
  s.seed = seed;
  seed_engine(s.engine, seed);
  return s;
}

PointwiseView row(void* data, DType dtype, int64_t n, int64_t stride_bytes) {
  PointwiseView v{};
  v.ndim = 1;
  v.num_outputs = v.num_operands = 1;
  v.numel = v.sizes[0] = n;
  v.data[0] = static_cast<char*>(data);
  v.dtype[0] = v.compute = dtype;
  v.strides[0][0] = stride_bytes;
  return v;
}

TEST_F(Random, DrawsTheWordsOfTheStandardEngine) {
  MT_CPU_ONLY();
  // integers over a range of 2^27 shows the low 27 bits of each word.
  for (const uint64_t seed : {uint64_t{5489}, uint64_t{0}, uint64_t{123456789}}) {
    RandomState s = seeded(seed);
    std::mt19937 reference(static_cast<uint32_t>(seed));
    Vector<int64_t> words(10000);
    distribution_kernel(s, Distribution::integers_range, row(words.data(), DType::I64, 10000, 8),
                        {.range = uint64_t{1} << 27, .base = 0});
    for (const int64_t w : words) ASSERT_EQ(w, reference() & ((1u << 27) - 1));
  }
}

TEST_F(Random, PiecesContinueEachOther) {
  MT_CPU_ONLY();
  RandomState whole = seeded(1), pieces = seeded(1);
  Vector<float> a(2000), b(2000);
  distribution_kernel(whole, Distribution::uniform, row(a.data(), DType::F32, 2000, 4), {.a = -1, .b = 3});
  int64_t at = 0;
  for (int64_t n = 1; at < 2000; n = n * 2 + 1) {
    const int64_t m = std::min<int64_t>(n, 2000 - at);
    distribution_kernel(pieces, Distribution::uniform, row(b.data() + at, DType::F32, m, 4), {.a = -1, .b = 3});
    at += m;
  }
  EXPECT_EQ(a, b);
  for (const float x : a) EXPECT_TRUE(x >= -1 && x < 3);
}

TEST_F(Random, NormalHasItsMoments) {
  RandomState s = seeded(2);
  constexpr int64_t n = 200001;
  Vector<float> x(n);
  normal_fill_kernel(s, reinterpret_cast<char*>(x.data()), DType::F32, n, 2.0, 3.0);
  double mean = 0, square = 0;
  for (const float v : x) mean += v / static_cast<double>(n);
  for (const float v : x) square += (v - mean) * (v - mean) / n;
  EXPECT_NEAR(mean, 2.0, 0.03);
  EXPECT_NEAR(std::sqrt(square), 3.0, 0.03);
}

TEST_F(Random, DropoutDrawsTheSameMaskAgain) {
  RandomState s = seeded(3);
  constexpr int64_t n = 1500;
  Vector<float> x(n, 1.0f), y(n), again(n);
  Vector<char> saved(kDropoutStateBytes);
  const auto view = [&](Vector<float>& out) {
    PointwiseView v = row(out.data(), DType::F32, n, 4);
    v.num_operands = 2;
    v.data[1] = reinterpret_cast<char*>(x.data());
    v.dtype[1] = DType::F32;
    v.strides[1][0] = 4;
    return v;
  };
  dropout_kernel(s, view(y), 0.25, 4.0, saved.data());
  dropout_again_kernel(saved.data(), view(again), 0.25, 4.0);
  EXPECT_EQ(y, again);
  int64_t kept = 0;
  for (const float v : y) {
    EXPECT_TRUE(v == 0.0f || v == 4.0f);
    kept += v != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / n, 0.25, 0.05);
}

// Dense tensors, results with gaps and tensors that begin off a multiple of sixteen bytes take ways of their own.
TEST_F(Random, DropoutDrawsTheSameMaskInEveryLayout) {
  for (const int64_t n : {1500, 1501, 1502, 70000}) {
    RandomState first = seeded(3), second = seeded(3);
    Vector<float> x(n + 1, 1.0f), y(n), gaps(2 * n), shifted(n + 1);
    Vector<char> saved(kDropoutStateBytes), other(kDropoutStateBytes);
    const auto view = [&](float* out, const float* in, int64_t step) {
      PointwiseView v = row(out, DType::F32, n, step * 4);
      v.num_operands = 2;
      v.data[1] = const_cast<char*>(reinterpret_cast<const char*>(in));
      v.dtype[1] = DType::F32;
      v.strides[1][0] = 4;
      return v;
    };
    dropout_kernel(first, view(y.data(), x.data(), 1), 0.25, 4.0, saved.data());
    dropout_kernel(second, view(gaps.data(), x.data(), 2), 0.25, 4.0, other.data());
    for (int64_t i = 0; i < n; i++) ASSERT_EQ(gaps[2 * i], y[i]) << n << " " << i;
    for (const Vector<char>& state : {saved, other}) {
      dropout_again_kernel(state.data(), view(shifted.data() + 1, x.data() + 1, 1), 0.25, 4.0);
      for (int64_t i = 0; i < n; i++) ASSERT_EQ(shifted[i + 1], y[i]) << n << " " << i;
      dropout_again_kernel(state.data(), view(shifted.data(), x.data(), 1), 0.25, 4.0);
      for (int64_t i = 0; i < n; i++) ASSERT_EQ(shifted[i], y[i]) << n << " " << i;
    }
  }
}

// Mean and variance of a sampler whose parameters are the same for all elements.
std::pair<double, double> moments(Sampler sampler, double first, double second) {
  RandomState s = seeded(6);
  constexpr int64_t n = 100000;
  Vector<double> out(n), a(n, first), b(n, second);
  PointwiseView v = row(out.data(), DType::F64, n, 8);
  v.num_operands = sampler == Sampler::binomial ? 3 : 2;
  const Vector<double>* const operands[] = {&a, &b};
  for (int k = 1; k < v.num_operands; k++) {
    v.data[k] = const_cast<char*>(reinterpret_cast<const char*>(operands[k - 1]->data()));
    v.dtype[k] = DType::F64;
    v.strides[k][0] = 8;
  }
  sampler_kernel(s, sampler, v);
  double mean = 0, variance = 0;
  for (const double x : out) mean += x / n;
  for (const double x : out) variance += (x - mean) * (x - mean) / n;
  return {mean, variance};
}

TEST_F(Random, SamplersHaveTheirMoments) {
  const auto expect = [](std::pair<double, double> got, double mean, double variance) {
    EXPECT_NEAR(got.first, mean, 5 * std::sqrt(variance / 100000));
    EXPECT_NEAR(got.second, variance, 0.05 * variance);
  };
  for (const double rate : {0.3, 4.0, 30.0, 1000.0}) expect(moments(Sampler::poisson, rate, 0), rate, rate);
  for (const double alpha : {0.4, 1.0, 7.0}) expect(moments(Sampler::gamma, alpha, 0), alpha, alpha);
  for (const auto [n, p] : {std::pair<double, double>{5, 0.3}, {40, 0.9}, {100, 0.5}, {10000, 0.2}})
    expect(moments(Sampler::binomial, n, p), n * p, n * p * (1 - p));
  EXPECT_EQ(moments(Sampler::poisson, 0, 0).second, 0);
  EXPECT_NEAR(moments(Sampler::binomial, 9, 1).first, 9, 1e-9);
}

TEST_F(Random, RandomReluLeaksWhereItMust) {
  RandomState s = seeded(7);
  constexpr int64_t n = 10001;
  Vector<float> x(n), noise(n), y(n);
  for (int64_t i = 0; i < n; i++) x[static_cast<size_t>(i)] = static_cast<float>(i % 7 - 3);
  random_relu_kernel(s, {DType::F32, n, 0.25, 0.75, x.data(), noise.data(), y.data()});
  double sum = 0, leaks = 0;
  for (size_t i = 0; i < n; i++) {
    EXPECT_EQ(y[i], x[i] * noise[i]);
    if (x[i] > 0) {
      EXPECT_EQ(noise[i], 1.0f);
    } else {
      EXPECT_TRUE(noise[i] >= 0.25f && noise[i] <= 0.75f);
      sum += noise[i], leaks++;
    }
  }
  EXPECT_NEAR(sum / leaks, 0.5, 0.01);
}

TEST_F(Random, HashesJoinBits) {
  constexpr int64_t rows = 37, columns = 50;
  Vector<int32_t> x(rows * columns);
  for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<int32_t>(i * 2654435761u);
  Vector<uint64_t> all(1, 99), each(rows, 99);
  PointwiseView v{};
  v.ndim = 2, v.num_outputs = 1, v.num_operands = 2, v.numel = rows * columns;
  v.sizes[0] = columns, v.sizes[1] = rows;
  v.data[0] = reinterpret_cast<char*>(all.data()), v.data[1] = reinterpret_cast<char*>(x.data());
  v.dtype[0] = DType::U64, v.dtype[1] = DType::I32;
  v.strides[1][0] = 4, v.strides[1][1] = 4 * columns;
  xor_hash_kernel(v);
  v.data[0] = reinterpret_cast<char*>(each.data());
  v.strides[0][1] = 8;
  xor_hash_kernel(v);
  uint64_t total = 0;
  for (int64_t i = 0; i < rows; i++) {
    uint64_t line = 0;
    for (int64_t j = 0; j < columns; j++)
      line ^= static_cast<uint64_t>(int64_t{x[static_cast<size_t>(i * columns + j)]});
    EXPECT_EQ(each[static_cast<size_t>(i)], line) << i;
    total ^= line;
  }
  EXPECT_EQ(all[0], total);
}

TEST_F(Random, CrossEntropyAgreesWithItsDefinition) {
  for (const int64_t classes : {1, 15, 16, 33, 700}) {
    constexpr int64_t rows = 3;
    std::mt19937 engine(4);
    std::normal_distribution<float> normal(0, 3);
    Vector<float> x(rows * classes), losses(rows), lse(rows);
    for (float& v : x) v = normal(engine);
    Vector<int64_t> target = {0, classes - 1, -100};
    Vector<float> total_weight(1);
    const CrossEntropyArgs args{.rows = rows,
                                .classes = classes,
                                .dtype = DType::F32,
                                .logits = reinterpret_cast<char*>(x.data()),
                                .logits_stride = classes,
                                .target = target.data(),
                                .target_stride = 1,
                                .weight = nullptr,
                                .ignore_index = -100,
                                .smoothing = 0,
                                .lse = reinterpret_cast<char*>(lse.data()),
                                .total_weight = reinterpret_cast<char*>(total_weight.data())};
    cross_entropy_kernel(args, LossReduction::none, reinterpret_cast<char*>(losses.data()));
    for (int64_t i = 0; i < 2; i++) {
      double sum = 0;
      for (int64_t c = 0; c < classes; c++) sum += std::exp(static_cast<double>(x[i * classes + c]));
      EXPECT_NEAR(lse[i], std::log(sum), 1e-5);
      EXPECT_NEAR(losses[i], std::log(sum) - x[i * classes + target[i]], 1e-5);
    }
    EXPECT_EQ(losses[2], 0.0f);
    EXPECT_EQ(total_weight[0], 2.0f);
    if (!backend().host_accessible()) continue;  // a GPU reports it at the next synchronisation
    target[1] = classes;
    EXPECT_THROW(cross_entropy_kernel(args, LossReduction::none, reinterpret_cast<char*>(losses.data())),
                 TargetOutOfRange);
  }
}

}  // namespace
}  // namespace minitorch
