// Embedding tables: the gradient of a lookup, bags of rows and their gradients, renormalisation, against the
// definitions in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "views.h"
#include "kernels/embedding.h"

namespace minitorch {
namespace {

Vector<int64_t> random_rows(int64_t count, int64_t rows, unsigned seed) {
  std::mt19937_64 engine(seed);
  Vector<int64_t> v(count);
  for (auto& x : v) x = static_cast<int64_t>(engine() % static_cast<uint64_t>(rows));
  return v;
}

// ---- The gradient of a table ---------------------------------------------------------------------------------------

struct TableCase {
  int64_t rows, dim, count;
};
// Rows named by more positions than a block of them holds, and by none; rows longer than a block; a table whose row
// numbers take three bytes to sort; one position, and none.
const TableCase kTables[] = {{5, 3, 7}, {7, 33, 1000}, {40, 600, 90}, {70000, 2, 300}, {3, 1, 1}, {4, 8, 0}};

template <class T>
void expect_table_gradient(const TableCase& s, bool bags, bool by_frequency) {
  const int64_t grad_stride = s.dim + 3, grad_rows = bags ? std::max<int64_t>(s.count / 3, 1) : s.count;
  const auto grad = random_of<T>(std::max<int64_t>(grad_rows, 1) * grad_stride, 1), factors = random_of<T>(s.count, 2);
  auto indices = random_rows(s.count, s.rows, 3), source = random_rows(s.count, grad_rows + (bags ? 0 : 1), 4);
  Vector<int64_t> sizes(grad_rows);
  for (int64_t i = 0; i < grad_rows; i++) sizes[i] = 1 + i % 5;
  if (s.count > 5) {  // what does not count
    indices[1] = -1, indices[4] = s.rows;
    if (bags) source[2] = grad_rows, source[3] = -1;
  }
  const int64_t padding = s.rows / 2;
  Vector<T> out(s.rows * s.dim, stored<T>(7));
  embedding_backward_kernel({.dtype = dtype_of<T>,
                             .grad = reinterpret_cast<const char*>(grad.data()),
                             .grad_stride = grad_stride,
                             .grad_rows = grad_rows,
                             .indices = indices.data(),
                             .count = s.count,
                             .source = bags ? source.data() : nullptr,
                             .sample_weights = bags ? reinterpret_cast<const char*>(factors.data()) : nullptr,
                             .bag_sizes = bags ? sizes.data() : nullptr,
                             .scale_by_frequency = by_frequency,
                             .padding_idx = padding,
                             .out = bytes(out),
                             .rows = s.rows,
                             .dim = s.dim});
  Vector<double> sum(out.size()), size(out.size());
  Vector<int64_t> named(s.rows);
  for (int64_t i = 0; i < s.count; i++) {
    const int64_t r = indices[i], from = bags ? source[i] : i;
    if (r < 0 || r >= s.rows || r == padding || from < 0 || from >= grad_rows) continue;
    named[r]++;
    const double factor = bags ? number(factors[i]) / static_cast<double>(sizes[from]) : 1;
    for (int64_t d = 0; d < s.dim; d++) {
      const double term = factor * number(grad[from * grad_stride + d]);
      sum[r * s.dim + d] += term;
      size[r * s.dim + d] += std::abs(term);
    }
  }
  for (int64_t at = 0; at < s.rows * s.dim; at++) {
    const int64_t times = named[at / s.dim];
    const double scale = by_frequency && times > 0 ? 1 / static_cast<double>(times) : 1;
    ASSERT_NEAR(number(out[at]), sum[at] * scale,
                allowed<T>(sum[at] * scale, size[at] * scale, static_cast<double>(times) + 4))
        << s.rows << " x " << s.dim << ", " << at;
  }
}

TEST(Embedding, GradientSumsWhatNamesARow) {
  on_each_isa([] {
    for (const TableCase& s : kTables)
      for (const bool bags : {false, true})
        for (const bool by_frequency : {false, true}) {
          expect_table_gradient<float>(s, bags, by_frequency);
          expect_table_gradient<BFloat16>(s, bags, by_frequency);
        }
  });
}

// ---- Bags ----------------------------------------------------------------------------------------------------------

struct Bags {
  int64_t rows, padding, end;
  Vector<int64_t> indices, offsets;

  // Bags of 0 to 40 positions, the last one short of the positions' end.
  Bags(int64_t table, int64_t bags) : rows(table), padding(table / 2) {
    std::mt19937 engine(5);
    int64_t at = 0;
    for (int64_t b = 0; b < bags; b++) {
      offsets.push_back(at);
      at += b % 4 == 1 ? 0 : engine() % (b % 3 == 0 ? 41 : 4);
    }
    end = at;
    indices = random_rows(at + 2, table, 6);
    for (int64_t i = offsets[bags - 1]; i < end; i++) indices[i] = padding;  // a bag that looks empty
  }
  int64_t count() const { return static_cast<int64_t>(indices.size()); }
  int64_t bags() const { return static_cast<int64_t>(offsets.size()); }
  // The positions of a bag that count.
  std::vector<int64_t> members(int64_t b) const {
    std::vector<int64_t> found;
    for (int64_t i = offsets[b]; i < (b + 1 < bags() ? offsets[b + 1] : end); i++)
      if (indices[i] != padding) found.push_back(i);
    return found;
  }
};

template <class T>
void expect_bags(BagMode mode, int64_t dim, bool along_rows, bool weighted) {
  Bags bags(11, 23);
  const int64_t strides[] = {along_rows ? dim + 5 : 1, along_rows ? 1 : bags.rows + 1};
  const auto table = random_of<T>((bags.rows + 1) * (dim + 5) + 1, 7), factors = random_of<T>(bags.count(), 8);
  const T* const weight = table.data() + 1;  // off a multiple of sixteen bytes
  Vector<T> out(bags.bags() * dim, stored<T>(7));
  Vector<int64_t> position_bag(bags.count(), -7), sizes(bags.bags(), -7), winners(bags.bags() * dim, -7);
  embedding_bag_kernel({.dtype = dtype_of<T>,
                        .mode = mode,
                        .weight = reinterpret_cast<const char*>(weight),
                        .weight_strides = {strides[0], strides[1]},
                        .rows = bags.rows,
                        .dim = dim,
                        .indices = bags.indices.data(),
                        .count = bags.count(),
                        .offsets = bags.offsets.data(),
                        .bags = bags.bags(),
                        .end = bags.end,
                        .padding_idx = bags.padding,
                        .sample_weights = weighted ? reinterpret_cast<const char*>(factors.data()) : nullptr,
                        .out = bytes(out),
                        .position_bag = position_bag.data(),
                        .bag_sizes = sizes.data(),
                        .max_indices = mode == BagMode::max ? winners.data() : nullptr});
  for (int64_t b = 0; b < bags.bags(); b++) {
    const auto members = bags.members(b);
    ASSERT_EQ(sizes[b], static_cast<int64_t>(members.size()));
    for (int64_t i = bags.offsets[b]; i < (b + 1 < bags.bags() ? bags.offsets[b + 1] : bags.end); i++)
      ASSERT_EQ(position_bag[i], b);
    for (int64_t d = 0; d < dim; d++) {
      const auto element = [&](int64_t i) { return number(weight[bags.indices[i] * strides[0] + d * strides[1]]); };
      if (mode == BagMode::max) {
        int64_t best = -1;
        for (const int64_t i : members)
          if (best < 0 || element(i) > element(best)) best = i;
        ASSERT_EQ(number(out[b * dim + d]), best < 0 ? 0 : element(best)) << b << ", " << d;
        ASSERT_EQ(winners[b * dim + d], best < 0 ? 0 : bags.indices[best]) << b << ", " << d;
        continue;
      }
      double sum = 0, size = 0;
      for (const int64_t i : members) {
        const double term = (weighted ? number(factors[i]) : 1) * element(i);
        sum += term;
        size += std::abs(term);
      }
      const double divisor = mode == BagMode::mean ? std::max<double>(1, static_cast<double>(members.size())) : 1;
      ASSERT_NEAR(number(out[b * dim + d]), sum / divisor,
                  allowed<T>(sum / divisor, size / divisor, static_cast<double>(members.size()) + 2))
          << b << ", " << d;
    }
  }
  for (int64_t i = bags.end; i < bags.count(); i++) ASSERT_EQ(position_bag[i], -7);
}

TEST(EmbeddingBag, IsTheSumMeanOrMaximumOfItsRows) {
  on_each_isa([] {
    for (const int64_t dim : {1, 3, 70, 1100})
      for (const bool along_rows : {true, false})
        for (const bool weighted : {false, true})
          for (const BagMode mode : {BagMode::sum, BagMode::mean, BagMode::max}) {
            if (weighted && mode != BagMode::sum) continue;  // only sums have weights
            expect_bags<float>(mode, dim, along_rows, weighted);
            expect_bags<BFloat16>(mode, dim, along_rows, weighted);
          }
  });
}

TEST(EmbeddingBag, NamesWhatIsOutOfRangeAndWritesNothing) {
  MT_CPU_ONLY();
  Vector<float> weight(6, 1.0f), out(4, 7.0f);
  Vector<int64_t> indices{0, 1, 2}, offsets{0, 1};
  EmbeddingBagArgs a{.dtype = DType::F32,
                     .mode = BagMode::sum,
                     .weight = bytes(weight),
                     .weight_strides = {2, 1},
                     .rows = 3,
                     .dim = 2,
                     .indices = indices.data(),
                     .count = 3,
                     .offsets = offsets.data(),
                     .bags = 2,
                     .end = 3,
                     .padding_idx = -1,
                     .sample_weights = nullptr,
                     .out = bytes(out),
                     .position_bag = nullptr,
                     .bag_sizes = nullptr,
                     .max_indices = nullptr};
  indices[2] = 3;
  EXPECT_THROW(embedding_bag_kernel(a), IndexOutOfRange);
  indices[2] = 2, offsets[1] = 4;
  EXPECT_THROW(embedding_bag_kernel(a), OffsetOutOfRange);
  offsets[1] = 1, a.end = 0;
  EXPECT_THROW(embedding_bag_kernel(a), OffsetOutOfRange);
  EXPECT_EQ(out, Vector<float>(4, 7.0f));
}

template <class T>
void expect_max_gradient(int64_t bags, int64_t dim) {
  constexpr int64_t kRows = 9;
  const auto grad = random_of<T>(bags * dim, 1);
  auto winners = random_rows(bags * dim, kRows, 2);
  Vector<int64_t> sizes(bags);
  for (int64_t b = 0; b < bags; b++) sizes[b] = b % 3;
  for (int64_t at = 0; at < bags * dim; at += 17) winners[at] = at % 2 == 0 ? -1 : kRows;  // ignored
  Vector<T> out(kRows * dim, stored<T>(0));
  embedding_bag_max_backward_kernel({dtype_of<T>, reinterpret_cast<const char*>(grad.data()), winners.data(),
                                     sizes.data(), bags, dim, bytes(out), kRows});
  TermSums sums(out.size());
  for (int64_t at = 0; at < bags * dim; at++) {
    if (sizes[at / dim] == 0 || winners[at] < 0 || winners[at] >= kRows) continue;
    sums.add(winners[at] * dim + at % dim, number(grad[at]));
  }
  // Sums are kept in the table, so each addition rounds to its type.
  for (size_t i = 0; i < out.size(); i++)
    ASSERT_NEAR(number(out[i]), sums.value[i], sums.terms[i] * rounding<T>() * sums.size[i])
        << bags << " x " << dim << ", " << i;
}

TEST(EmbeddingBag, GradientOfAMaximumGoesToItsRow) {
  on_each_isa([] {
    for (const int64_t bags : {0, 1, 50})
      for (const int64_t dim : {1, 5, 300}) {
        expect_max_gradient<float>(bags, dim);
        expect_max_gradient<BFloat16>(bags, dim);
      }
  });
}

template <class T>
void expect_weight_gradient(int64_t dim, bool transposed) {
  constexpr int64_t kRows = 9, kBags = 6, kCount = 300, kPadding = 4;
  const auto grad = random_of<T>((kBags + 1) * (dim + 1), 1), weight = random_of<T>((kRows + 1) * (dim + 1), 2);
  const auto indices = random_rows(kCount, kRows, 3), bags = random_rows(kCount, kBags, 4);
  const int64_t grad_strides[] = {transposed ? 1 : dim + 1, transposed ? kBags + 1 : 1};
  const int64_t weight_strides[] = {transposed ? 1 : dim + 1, transposed ? kRows + 1 : 1};
  Vector<T> out(kCount, stored<T>(7));
  sample_weights_backward_kernel({.dtype = dtype_of<T>,
                                  .grad = reinterpret_cast<const char*>(grad.data()),
                                  .grad_strides = {grad_strides[0], grad_strides[1]},
                                  .weight = reinterpret_cast<const char*>(weight.data()),
                                  .weight_strides = {weight_strides[0], weight_strides[1]},
                                  .rows = kRows,
                                  .dim = dim,
                                  .indices = indices.data(),
                                  .bags = bags.data(),
                                  .count = kCount,
                                  .padding_idx = kPadding,
                                  .out = bytes(out),
                                  .grad_rows = kBags});
  for (int64_t i = 0; i < kCount; i++) {
    double sum = 0, size = 0;
    for (int64_t d = 0; d < dim && indices[i] != kPadding; d++) {
      const double term = number(grad[bags[i] * grad_strides[0] + d * grad_strides[1]]) *
                          number(weight[indices[i] * weight_strides[0] + d * weight_strides[1]]);
      sum += term;
      size += std::abs(term);
    }
    ASSERT_NEAR(number(out[i]), sum, allowed<T>(sum, size, static_cast<double>(dim))) << dim << ", " << i;
  }
}

TEST(EmbeddingBag, GradientOfWeightsIsADotProduct) {
  on_each_isa([] {
    for (const int64_t dim : {1, 15, 33, 200})
      for (const bool transposed : {false, true}) {
        expect_weight_gradient<float>(dim, transposed);
        expect_weight_gradient<BFloat16>(dim, transposed);
      }
  });
}

// ---- Renormalisation -----------------------------------------------------------------------------------------------

double norm_of(const std::vector<double>& row, double p) {
  double sum = std::isinf(p) && p < 0 ? INFINITY : 0;
  for (const double value : row) {
    const double x = std::abs(value);
    if (std::isinf(p)) {
      sum = p > 0 ? std::max(sum, x) : std::min(sum, x);
    } else {
      sum += p == 0 ? (x != 0 ? 1 : 0) : std::pow(x, p);
    }
  }
  return std::isinf(p) || p == 0 ? sum : std::pow(sum, 1 / p);
}

template <class T>
void expect_renorm(int64_t dim, double p, bool transposed) {
  constexpr int64_t kRows = 7;
  const std::vector<int64_t> strides =
      transposed ? std::vector<int64_t>{1, kRows + 2} : std::vector<int64_t>{dim + 2, 1};
  auto table = random_of<T>((kRows + 2) * (dim + 2), 1, 0.1, 1);
  for (int64_t d = 0; d < dim; d++) table[2 * strides[0] + d * strides[1]] = stored<T>(0.001);  // stays as it is
  const Vector<T> before = table;
  const Vector<int64_t> indices{5, 0, 5, 2, 5};  // a row is scaled once
  const double most = 0.05;
  embedding_renorm_kernel({view_of(table.data(), dtype_of<T>, {kRows, dim}, strides), indices.data(), 5, most, p});
  Vector<T> expected = before;
  for (const int64_t r : {0, 2, 5}) {
    std::vector<double> row;
    for (int64_t d = 0; d < dim; d++) row.push_back(number(before[r * strides[0] + d * strides[1]]));
    const double norm = norm_of(row, p);
    for (int64_t d = 0; d < dim; d++) {
      const int64_t at = r * strides[0] + d * strides[1];
      if (norm <= most) continue;
      const double scaled = row[d] * most / (norm + 1e-7);
      // The norm, the scale and the product each round once.
      ASSERT_NEAR(number(table[at]), scaled, allowed<T>(scaled, scaled, 4)) << dim << ", " << p << ", " << r;
      expected[at] = table[at];
    }
  }
  for (size_t i = 0; i < table.size(); i++) ASSERT_EQ(number(table[i]), number(expected[i])) << i;  // nothing else
}

TEST(Embedding, RenormScalesRowsDown) {
  on_each_isa([] {
    for (const int64_t dim : {1, 3, 300})
      for (const double p : {2.0, 1.0, 3.0, 0.0, double{INFINITY}, -double{INFINITY}})
        for (const bool transposed : {false, true}) {
          expect_renorm<float>(dim, p, transposed);
          expect_renorm<BFloat16>(dim, p, transposed);
        }
  });
}

}  // namespace
}  // namespace minitorch
