// Draws whose chances are given element by element, permutations, and categories: what must hold of every draw, and how
// often each outcome comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <array>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "views.h"
#include "kernels/random.h"

namespace minitorch {
namespace {

RandomState seeded(uint64_t seed) {
  RandomState s{};
  s.seed = seed;
  seed_engine(s.engine, seed);
  return s;
}

// Five standard deviations of how often an event of this chance comes in n draws.
double five_deviations(double n, double chance) { return 5 * std::sqrt(n * chance * (1 - chance)); }

// ---- Coins ---------------------------------------------------------------------------------------------------------

// Chances in a cycle: never, always, and two between.
template <class T, class P>
void expect_coins(int64_t columns, int64_t rows, int64_t step) {
  const double cycle[] = {0, 1, 0.25, 0.625};
  const int64_t pitch = columns * step + 1;
  Vector<P> chances(rows * pitch);
  Vector<T> out(rows * pitch, stored<T>(7));
  for (int64_t i = 0; i < rows * pitch; i++) chances[i] = stored<P>(cycle[i % 4]);
  RandomState state = seeded(11);
  bernoulli_tensor_kernel(
      state, pointwise_view({columns, rows}, 1,
                            {{out.data(), dtype_of<T>, {step, pitch}}, {chances.data(), dtype_of<P>, {step, pitch}}}));
  double drawn[4] = {}, ones[4] = {};
  for (int64_t i = 0; i < rows * pitch; i++) {
    if (i % pitch >= columns * step || i % pitch % step != 0) {
      ASSERT_EQ(number(out[i]), 7) << i;
      continue;
    }
    ASSERT_TRUE(number(out[i]) == 0 || number(out[i]) == 1) << i;
    drawn[i % 4]++;
    ones[i % 4] += number(out[i]);
  }
  for (int k = 0; k < 4; k++)
    ASSERT_NEAR(ones[k], drawn[k] * cycle[k], five_deviations(drawn[k], cycle[k])) << columns << ", " << cycle[k];
}

TEST(RandomChoice, CoinsFallAsTheirChancesSay) {
  on_each_isa([] {
    for (const int64_t step : {1, 3})
      for (const auto& [columns, rows] :
           std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 1}, {50, 7}, {20001, 2}}) {
        expect_coins<float, float>(columns, rows, step);
        expect_coins<double, double>(columns, rows, step);
        expect_coins<uint8_t, float>(columns, rows, step);
        expect_coins<BFloat16, BFloat16>(columns, rows, step);
      }
  });
}

TEST(RandomChoice, CoinsTakeOneWordOfTheStandardEngineEach) {
  MT_CPU_ONLY();
  RandomState state = seeded(5);
  std::mt19937 reference(5);
  Vector<float> chances = random_of<float>(3000, 1, 0, 1), out(3000);
  bernoulli_tensor_kernel(
      state, pointwise_view({3000}, 1, {{out.data(), DType::F32, {1}}, {chances.data(), DType::F32, {1}}}));
  for (int64_t i = 0; i < 3000; i++)
    ASSERT_EQ(out[i], (reference() & 0xffffff) * 0x1p-24 < chances[i] ? 1.0f : 0.0f) << i;
}

// ---- Permutations --------------------------------------------------------------------------------------------------

template <class T>
Vector<T> permutation(RandomState& state, int64_t n, int64_t step) {
  Vector<T> memory(n * step, stored<T>(7)), out(n);
  randperm_kernel(state, view_of(memory.data(), dtype_of<T>, {n}, {step}));
  for (int64_t i = 0; i < n * step; i++) {
    if (i % step == 0) {
      out[i / step] = memory[i];
    } else {
      EXPECT_EQ(number(memory[i]), 7) << i;
    }
  }
  return out;
}

template <class T>
void expect_permutation(int64_t n, int64_t step) {
  RandomState state = seeded(3), same = seeded(3), other = seeded(4);
  const auto drawn = permutation<T>(state, n, step), again = permutation<T>(same, n, 1);
  ASSERT_EQ(drawn, again);
  if (n > 20) {  // two draws of so many hardly ever agree
    ASSERT_NE(drawn, permutation<T>(state, n, step));
    ASSERT_NE(drawn, permutation<T>(other, n, step));
  }
  std::vector<bool> seen(static_cast<size_t>(n));
  for (const T x : drawn) {
    const double value = number(x);
    ASSERT_TRUE(value >= 0 && value < static_cast<double>(n) && !seen[static_cast<size_t>(value)]) << value;
    seen[static_cast<size_t>(value)] = true;
  }
}

TEST(RandomChoice, PermutationsHoldEveryNumberOnce) {
  on_each_isa([] {
    for (const int64_t step : {1, 2}) {
      // Keys of one word on a GPU, and of two.
      for (const int64_t n : {0, 1, 2, 200, 70001}) {
        expect_permutation<int64_t>(n, step);
        expect_permutation<int32_t>(n, step);
        expect_permutation<float>(n, step);
      }
      expect_permutation<uint8_t>(256, step);
      expect_permutation<Half>(1000, step);
    }
  });
}

TEST(RandomChoice, PermutationsAreEquallyLikely) {
  on_each_isa([] {
    RandomState state = seeded(6);
    const int draws = short_tests() ? 120 : 1200;
    std::map<std::vector<int64_t>, int> times;
    for (int i = 0; i < draws; i++) {
      const auto p = permutation<int64_t>(state, 3, 1);
      times[{p.begin(), p.end()}]++;
    }
    ASSERT_EQ(times.size(), 6u);
    for (const auto& [p, count] : times) ASSERT_NEAR(count, draws / 6.0, five_deviations(draws, 1 / 6.0));
  });
}

// ---- Categories ----------------------------------------------------------------------------------------------------

// Row r has weights in proportion to 0, 1, 2, 3, 0, 1, ... turned by r, of different sums.
template <class T>
void expect_categories(int64_t rows, int64_t categories, int64_t samples, bool transposed) {
  const std::vector<int64_t> weight_strides =
      transposed ? std::vector<int64_t>{1, rows + 1} : std::vector<int64_t>{categories + 1, 1};
  const std::vector<int64_t> result_strides =
      transposed ? std::vector<int64_t>{1, rows + 1} : std::vector<int64_t>{samples + 1, 1};
  Vector<T> weights((rows + 1) * (categories + 1), stored<T>(0));
  Vector<int64_t> result((rows + 1) * (samples + 1), -7);
  const auto weight = [&](int64_t r, int64_t c) { return static_cast<double>((r + c) % 4) * (r % 2 == 0 ? 0.5 : 4); };
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < categories; c++)
      weights[r * weight_strides[0] + c * weight_strides[1]] = stored<T>(weight(r, c));
  RandomState state = seeded(8);
  multinomial_kernel(state, view_of(result.data(), DType::I64, {rows, samples}, result_strides),
                     view_of(weights.data(), dtype_of<T>, {rows, categories}, weight_strides));
  std::vector<bool> written(result.size());
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0;
    for (int64_t c = 0; c < categories; c++) sum += weight(r, c);
    std::vector<double> times(static_cast<size_t>(categories));
    for (int64_t k = 0; k < samples; k++) {
      const int64_t at = r * result_strides[0] + k * result_strides[1], drawn = result[at];
      written[static_cast<size_t>(at)] = true;
      ASSERT_TRUE(drawn >= 0 && drawn < categories && weight(r, drawn) > 0) << r << ", " << drawn;
      times[static_cast<size_t>(drawn)]++;
    }
    if (samples < 1000) continue;
    const auto n = static_cast<double>(samples);
    for (int64_t c = 0; c < categories; c++)
      // One more than five deviations: many rare categories are looked at.
      ASSERT_NEAR(times[static_cast<size_t>(c)], n * weight(r, c) / sum, five_deviations(n, weight(r, c) / sum) + 1)
          << r << ", " << c;
  }
  for (size_t i = 0; i < result.size(); i++) {
    if (!written[i]) {
      ASSERT_EQ(result[i], -7) << i;
    }
  }
}

TEST(RandomChoice, CategoriesComeAsTheirWeightsSay) {
  on_each_isa([] {
    for (const bool transposed : {false, true}) {
      for (const auto& [rows, categories, samples] :
           std::vector<std::array<int64_t, 3>>{{1, 5, 1}, {3, 9, 20000}, {2, 700, 40000}, {5, 4, 130}}) {
        expect_categories<float>(rows, categories, samples, transposed);
        expect_categories<double>(rows, categories, samples, transposed);
        expect_categories<BFloat16>(rows, categories, samples, transposed);
      }
      // More rows than a launch on a GPU has blocks for.
      expect_categories<float>(66000, 4, 1, transposed);
    }
  });
}

TEST(RandomChoice, CategoriesNeedWeights) {
  MT_CPU_ONLY();
  for (const float bad : {-1.0f, INFINITY, NAN, 0.0f}) {
    Vector<float> weights{bad, 0.0f};
    Vector<int64_t> result(3);
    RandomState state = seeded(9);
    EXPECT_THROW(multinomial_kernel(state, view_of(result.data(), DType::I64, {1, 3}),
                                    view_of(weights.data(), DType::F32, {1, 2})),
                 std::runtime_error)
        << bad;
  }
}

}  // namespace
}  // namespace minitorch
