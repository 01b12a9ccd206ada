// Counts of integers and of points between edges, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "views.h"
#include "kernels/sort.h"

namespace minitorch {
namespace {

template <class T>
void expect_counts(int64_t n, int64_t bins, int64_t lowest) {
  std::mt19937 random(1);
  Vector<T> elements(n);
  Vector<int64_t> counts(bins + 1, -7), expected(bins + 1, 0);
  for (T& x : elements) {
    // One bin is met far more often than the others.
    const int64_t bin = random() % 3 == 0 ? bins / 2 : static_cast<int64_t>(random() % static_cast<unsigned>(bins));
    x = static_cast<T>(lowest + bin);
    expected[bin]++;
  }
  expected[bins] = -7;
  count_kernel({counts.data(), bytes(elements), dtype_of<T>, n, bins, lowest});
  ASSERT_EQ(counts, expected) << n << " in " << bins;
}

TEST(Count, OfIntegers) {
  on_each_isa([] {
    for (const int64_t n : {0, 1, 1000, short_tests() ? 9001 : 100003}) {
      for (const int64_t bins : {1, 9, 200}) {
        expect_counts<uint8_t>(n, bins, 3);
        expect_counts<int8_t>(n, std::min<int64_t>(bins, 100), -70);
      }
      // More bins than the tables of a CPU's threads, and than the memory that a block of a GPU shares.
      for (const int64_t bins : {1, 300, 2500, 20000}) expect_counts<int64_t>(n, bins, (int64_t{1} << 60) - 5);
    }
  });
}

// The bins are half open but for the last, and -1 is outside.
template <class T>
int64_t bin_of(double x, const Vector<T>& edges) {
  const auto bins = static_cast<int64_t>(edges.size()) - 1;
  if (!(x >= number(edges[0]) && x <= number(edges[bins]))) return -1;
  int64_t bin = 0;
  while (bin + 1 < bins && number(edges[bin + 1]) <= x) bin++;
  return bin;
}

// Equal bins from -4 to 12, a power of two of them, and points on a grid that shares their edges: then the number of a
// bin is exact in every type, however it is found.
constexpr double kLow = -4, kHigh = 12, kGrid = 0.25;

template <class T>
void expect_histogram(int64_t n, const std::vector<int64_t>& bins, BinSearch search, bool weighted) {
  const auto dims = static_cast<int64_t>(bins.size());
  std::mt19937 random(2);
  std::vector<Vector<T>> edges;
  for (const int64_t count : bins) {
    Vector<T> e(count + 1);
    for (int64_t k = 0; k <= count; k++)
      e[k] = stored<T>(kLow + (kHigh - kLow) * static_cast<double>(k) / static_cast<double>(count));
    if (search == BinSearch::binary)  // any edges
      for (int64_t k = 1; k < count; k++) e[k] = stored<T>(number(e[k]) + 0.4 * (number(e[k + 1]) - number(e[k])));
    edges.push_back(e);
  }
  Vector<T> points(n * dims);
  for (T& x : points) x = stored<T>(std::floor((kLow - 1) / kGrid + static_cast<double>(random() % 73)) * kGrid);
  for (size_t i = 5; i < points.size(); i += 101) points[i] = stored<T>(i % 2 == 0 ? NAN : INFINITY);
  const auto weights = random_of<T>(n, 3);
  int64_t total = 1;
  std::vector<const char*> edge_data;
  for (int64_t d = 0; d < dims; d++) {
    total *= bins[static_cast<size_t>(d)];
    edge_data.push_back(bytes(edges[static_cast<size_t>(d)]));
  }
  Vector<T> hist(total + 1, stored<T>(77));
  histogram_kernel({.points = bytes(points),
                    .weights = weighted ? const_cast<char*>(reinterpret_cast<const char*>(weights.data())) : nullptr,
                    .hist = bytes(hist),
                    .dtype = dtype_of<T>,
                    .n = n,
                    .dims = dims,
                    .edges = edge_data.data(),
                    .bins = bins.data(),
                    .search = search});
  Vector<double> sum(total), size(total);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = 0;
    for (int64_t d = 0; d < dims && at >= 0; d++) {
      const int64_t bin = bin_of(number(points[i * dims + d]), edges[static_cast<size_t>(d)]);
      at = bin < 0 ? -1 : at * bins[static_cast<size_t>(d)] + bin;
    }
    if (at < 0) continue;
    const double weight = weighted ? number(weights[i]) : 1;
    sum[at] += weight;
    size[at] += std::abs(weight);
  }
  for (int64_t b = 0; b < total; b++) {
    // Sums are made in double, in any order, and rounded once to the compute type and once to their own.
    const double of_order = rounding<double>() * static_cast<double>(n) * size[b];
    ASSERT_NEAR(number(hist[b]), sum[b],
                weighted ? allowed<T>(sum[b], std::abs(sum[b]), 1) + of_order : rounding<T>() * sum[b])
        << n << ", " << b;
  }
  ASSERT_EQ(number(hist[total]), 77);
}

TEST(Histogram, CountsPointsBetweenEdges) {
  on_each_isa([] {
    // In one dimension and in several; few bins, and more than the memory that a block of a GPU shares.
    const std::vector<std::vector<int64_t>> shapes{{1}, {32}, {16, 4}, {2, 8, 16}, {128, 64, 2}};
    for (const int64_t n : {0, 1, 700, short_tests() ? 9001 : 30001})
      for (const auto& bins : shapes)
        for (const BinSearch search : {BinSearch::linear, BinSearch::nearby, BinSearch::binary})
          for (const bool weighted : {false, true}) {
            expect_histogram<float>(n, bins, search, weighted);
            expect_histogram<BFloat16>(n, bins, search, weighted);
          }
  });
}

}  // namespace
}  // namespace minitorch
