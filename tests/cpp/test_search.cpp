// What works on sorted data: searches, the values of runs, and lexicographic order, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "views.h"
#include "kernels/sort.h"

namespace minitorch {
namespace {

// Whole numbers of which many are equal.
template <class T>
Vector<T> few_values(int64_t n, unsigned seed, int64_t different) {
  std::mt19937 random(seed);
  const double lowest = std::is_unsigned_v<T> ? 0 : static_cast<double>(-different / 2);
  Vector<T> v(n);
  for (T& x : v) x = stored<T>(static_cast<double>(random() % static_cast<unsigned>(different)) + lowest);
  return v;
}

// ---- Searches ------------------------------------------------------------------------------------------------------

template <class T, class Output>
void expect_search(int64_t length, int64_t sequences, int64_t n, bool right, bool sorted_apart) {
  const int64_t per_sequence = (n + sequences - 1) / sequences;
  auto elements = few_values<T>(length * sequences, 1, 90), values = few_values<T>(n, 2, 100);
  if constexpr (is_floating_v<T>)
    for (int64_t i = 3; i < n; i += 50) values[i] = stored<T>(NAN);
  const auto compare = [](T a, T b) { return number(a) < number(b); };
  Vector<int64_t> sorter(elements.size());
  for (int64_t r = 0; r < sequences; r++) {
    const int64_t first = r * length;
    int64_t* const order = sorter.data() + first;
    std::iota(order, order + length, int64_t{0});
    if (sorted_apart) {
      std::sort(order, order + length,
                [&](int64_t i, int64_t j) { return compare(elements[first + i], elements[first + j]); });
    } else {
      std::sort(elements.data() + first, elements.data() + first + length, compare);
    }
  }
  Vector<Output> out(n + 1, Output(-7));
  search_kernel({bytes(elements), bytes(values), dtype_of<T>, sorted_apart ? sorter.data() : nullptr, bytes(out),
                 dtype_of<Output>, length, n, per_sequence, right});
  for (int64_t i = 0; i < n; i++) {
    const int64_t first = i / per_sequence * length;
    const double value = number(values[i]);
    int64_t low = 0, high = length;  // all before `low` belong before the value
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      const double x = number(elements[first + sorter[first + middle]]);
      const bool before = std::isnan(value) || x < value || (right && x == value);
      if (before) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    ASSERT_EQ(out[i], static_cast<Output>(low)) << length << ", " << i << ", " << value;
  }
  ASSERT_EQ(out[n], Output(-7));
}

TEST(Search, FindsWhereValuesBelong) {
  on_each_isa([] {
    for (const int64_t length : {0, 1, 7, 64, 1000})
      for (const int64_t sequences : {1, 5})
        for (const int64_t n : {0, 1, 3000})
          for (const bool right : {false, true})
            for (const bool sorted_apart : {false, true}) {
              expect_search<float, int64_t>(length, sequences, n, right, sorted_apart);
              expect_search<BFloat16, int32_t>(length, sequences, n, right, sorted_apart);
              expect_search<uint8_t, int64_t>(length, sequences, n, right, sorted_apart);
            }
  });
}

// Neighbours that no double tells apart.
TEST(Search, IntegersBeyondDoublesAreExact) {
  on_each_isa([] {
    constexpr int64_t kLarge = int64_t{1} << 60;
    Vector<int64_t> elements{-kLarge - 1, -kLarge, kLarge, kLarge + 1}, values{-kLarge, kLarge - 1, kLarge + 1}, out(3);
    search_kernel({bytes(elements), bytes(values), DType::I64, nullptr, bytes(out), DType::I64, 4, 3, 3, false});
    EXPECT_EQ(out, (Vector<int64_t>{1, 2, 3}));
  });
}

// ---- The values of runs --------------------------------------------------------------------------------------------

template <class T>
void expect_run_values(int64_t n, int64_t offset, bool with_nan) {
  auto data = few_values<T>(n + offset, 3, 4);
  std::mt19937 random(4);
  for (int64_t i = offset + 1; i < n + offset; i++)
    if (random() % 3 != 0) data[i] = data[i - 1];
  if constexpr (is_floating_v<T>)
    if (with_nan)
      for (int64_t i = offset; i < n + offset; i += 3 + i % 2) data[i] = stored<T>(NAN);  // equals nothing
  std::vector<double> expected;
  for (int64_t i = offset; i < n + offset; i++)
    if (i == offset || !(number(data[i]) == number(data[i - 1]))) expected.push_back(number(data[i]));
  const auto runs = static_cast<int64_t>(expected.size());
  Vector<int64_t> count(1, -7);
  Vector<T> values(n + 1, stored<T>(77));
  run_values_kernel(bytes(data, offset), dtype_of<T>, n, count.data(), nullptr);
  ASSERT_EQ(count[0], runs);
  count[0] = -7;
  run_values_kernel(bytes(data, offset), dtype_of<T>, n, count.data(), bytes(values));
  ASSERT_EQ(count[0], runs);
  for (int64_t r = 0; r < runs; r++) {
    const double found = number(values[r]), exact = expected[static_cast<size_t>(r)];
    ASSERT_TRUE(found == exact || (std::isnan(found) && std::isnan(exact))) << n << ", " << r;
  }
  ASSERT_EQ(number(values[n]), 77);
}

TEST(Runs, ValuesOfEach) {
  on_each_isa([] {
    for (const int64_t n : {0, 1, 3, 100, 4097, 50001})
      for (const int64_t offset : {0, 1}) {
        expect_run_values<float>(n, offset, false);
        expect_run_values<float>(n, offset, true);
        expect_run_values<BFloat16>(n, offset, true);
        expect_run_values<uint8_t>(n, offset, false);
        expect_run_values<int64_t>(n, offset, false);
      }
  });
}

// ---- Lexicographic order -------------------------------------------------------------------------------------------

template <class T>
void expect_lexicographic(int64_t n, int64_t width) {
  auto data = few_values<T>(n * width, 5, 5);
  if constexpr (is_floating_v<T>)
    for (size_t i = 2; i < data.size(); i += 7) data[i] = stored<T>(-0.0);  // equals 0
  std::vector<int64_t> expected(static_cast<size_t>(n));
  std::iota(expected.begin(), expected.end(), int64_t{0});
  std::stable_sort(expected.begin(), expected.end(), [&](int64_t i, int64_t j) {
    for (int64_t k = 0; k < width; k++) {
      const double a = number(data[i * width + k]), b = number(data[j * width + k]);
      if (a != b) return a < b;
    }
    return false;
  });
  Vector<int64_t> order(n + 1, -7);
  lexicographic_order_kernel(order.data(), bytes(data), dtype_of<T>, n, width);
  for (int64_t i = 0; i < n; i++) ASSERT_EQ(order[i], expected[static_cast<size_t>(i)]) << n << " x " << width;
  ASSERT_EQ(order[n], -7);
}

TEST(Lexicographic, OrderIsStable) {
  on_each_isa([] {
    for (const int64_t n : {0, 1, 2, 1000, 20011})
      for (const int64_t width : {1, 2, 5}) {
        if (short_tests() && width == 5) continue;
        expect_lexicographic<float>(n, width);
        expect_lexicographic<BFloat16>(n, width);
        expect_lexicographic<uint8_t>(n, width);
        expect_lexicographic<int64_t>(n, width);
      }
  });
}

}  // namespace
}  // namespace minitorch
