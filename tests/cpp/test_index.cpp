// The index iteration space and the kernels on it, against plain loops.
#include "isas.h"
#include "memory.h"
#include "values.h"
#include "views.h"
#include "kernels/index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

class Index : public ::testing::Test {
 protected:
  void SetUp() override { backend(); }
};

// A [rows, columns] selection of rows from a contiguous float table with `columns` columns.
IndexArgs rows_of(Vector<float>& values, Vector<float>& table, const Vector<int64_t>& index, int64_t columns) {
  IndexArgs a;
  a.ndim = 2;
  a.num_indices = 1;
  a.dtype = DType::F32;
  a.numel = static_cast<int64_t>(index.size()) * columns;
  a.values = reinterpret_cast<char*>(values.data());
  a.self = reinterpret_cast<char*>(table.data());
  a.index[0] = reinterpret_cast<const char*>(index.data());
  a.indexed_size[0] = static_cast<int64_t>(table.size()) / columns;
  a.indexed_stride[0] = columns * 4;
  a.sizes[0] = columns;
  a.sizes[1] = static_cast<int64_t>(index.size());
  a.values_strides[0] = a.self_strides[0] = 4;
  a.values_strides[1] = columns * 4;
  a.self_strides[1] = 0;
  a.index_strides[0][0] = 0;
  a.index_strides[0][1] = 8;
  return a;
}

Vector<int64_t> random_indices(int64_t count, int64_t bound) {
  std::mt19937_64 engine(7);
  std::uniform_int_distribution<int64_t> pick(-bound, bound - 1);
  Vector<int64_t> index(count);
  for (auto& i : index) i = pick(engine);
  return index;
}

TEST_F(Index, SimplifyMergesAndReorders) {
  IndexArgs a;
  a.ndim = 4;  // sizes, innermost first: 3, 1, 4, 5, laid out with the last dimension fastest
  a.numel = 60;
  const int64_t sizes[] = {3, 1, 4, 5}, strides[] = {80, 8, 20, 4};
  for (int d = 0; d < 4; d++) {
    a.sizes[d] = sizes[d];
    a.values_strides[d] = strides[d];
    a.self_strides[d] = 2 * strides[d];
  }
  simplify(a);
  ASSERT_EQ(a.ndim, 1);
  EXPECT_EQ(a.sizes[0], 60);
  EXPECT_EQ(a.values_strides[0], 4);
  EXPECT_EQ(a.self_strides[0], 8);
}

TEST_F(Index, SimplifyKeepsAnIndexedDimensionApart) {
  Vector<float> values(12), table(12);
  const Vector<int64_t> index{0, 1, 2};
  IndexArgs a = rows_of(values, table, index, 4);
  simplify(a);
  ASSERT_EQ(a.ndim, 2);
  EXPECT_EQ(a.sizes[0], 4);
  EXPECT_EQ(a.sizes[1], 3);
}

TEST_F(Index, ReadsRowsAndElements) {
  for (int64_t columns : {1, 3, 700}) {
    Vector<float> table(50 * columns);
    std::iota(table.begin(), table.end(), 0.f);
    const auto index = random_indices(2000, 50);
    Vector<float> values(index.size() * columns);
    IndexArgs a = rows_of(values, table, index, columns);
    simplify(a);
    index_read_kernel(a);
    for (size_t r = 0; r < index.size(); r++)
      for (int64_t c = 0; c < columns; c++)
        ASSERT_EQ(values[r * columns + c], table[(index[r] < 0 ? index[r] + 50 : index[r]) * columns + c]);
  }
}

// Rows of bytes that begin anywhere, of any length: kernels may move them in wider pieces.
TEST_F(Index, MovesRowsOfAnyAlignment) {
  constexpr int64_t kRows = 40, kCount = 90;
  std::mt19937 engine(5);
  for (int64_t width : {1, 2, 3, 4, 8, 12, 16, 33, 64})
    for (int64_t offset : {0, 1, 2, 4, 8})
      for (int64_t gap : {0, 1, 4, 16}) {
        const int64_t pitch = width + gap;
        Vector<uint8_t> table(kRows * pitch + offset), values(kCount * width, 0);
        for (auto& x : table) x = static_cast<uint8_t>(engine());
        const auto index = random_indices(kCount, kRows);
        IndexArgs a;
        a.ndim = 2, a.num_indices = 1, a.dtype = DType::U8, a.numel = kCount * width;
        a.values = reinterpret_cast<char*>(values.data()), a.self = reinterpret_cast<char*>(table.data() + offset);
        a.index[0] = reinterpret_cast<const char*>(index.data());
        a.indexed_size[0] = kRows, a.indexed_stride[0] = pitch;
        a.sizes[0] = width, a.sizes[1] = kCount;
        a.values_strides[0] = a.self_strides[0] = 1;
        a.values_strides[1] = width, a.self_strides[1] = 0;
        a.index_strides[0][0] = 0, a.index_strides[0][1] = 8;
        index_read_kernel(a);
        const auto row = [&](int64_t r) { return offset + (index[r] < 0 ? index[r] + kRows : index[r]) * pitch; };
        for (int64_t r = 0; r < kCount; r++)
          for (int64_t c = 0; c < width; c++) ASSERT_EQ(values[r * width + c], table[row(r) + c]) << width << offset;
        // Each row gets what it has: nothing else may change.
        const Vector<uint8_t> before = table;
        for (int64_t r = 0; r < kCount; r++)
          for (int64_t c = 0; c < width; c++) values[r * width + c] = table[row(r) + c];
        index_write_kernel(a, IndexWrite::assign);
        ASSERT_EQ(table, before);
      }
}

TEST_F(Index, AccumulationDoesNotDependOnThreads) {
  MT_CPU_ONLY();
  for (int64_t columns : {1, 2, 400}) {
    std::mt19937 engine(3);
    std::normal_distribution<float> normal;
    const auto index = random_indices(40000, 50);
    Vector<float> values(index.size() * columns), expected(50 * columns), table(50 * columns);
    for (auto& v : values) v = normal(engine);
    for (size_t r = 0; r < index.size(); r++)
      for (int64_t c = 0; c < columns; c++)
        expected[(index[r] < 0 ? index[r] + 50 : index[r]) * columns + c] += values[r * columns + c];
    for (int threads : {1, 2, 5}) {
      omp_set_num_threads(threads);
      std::fill(table.begin(), table.end(), 0.f);
      IndexArgs a = rows_of(values, table, index, columns);
      simplify(a);
      index_write_kernel(a, IndexWrite::add);
      ASSERT_EQ(table, expected) << columns << " columns, " << threads << " threads";
    }
    omp_set_num_threads(2);
  }
}

TEST_F(Index, LastAssignmentWins) {
  MT_CPU_ONLY();
  const auto index = random_indices(100000, 30);
  Vector<float> values(index.size()), table(30, -1.f), expected(30, -1.f);
  std::iota(values.begin(), values.end(), 0.f);
  for (size_t i = 0; i < index.size(); i++) expected[index[i] < 0 ? index[i] + 30 : index[i]] = values[i];
  IndexArgs a = rows_of(values, table, index, 1);
  simplify(a);
  index_write_kernel(a, IndexWrite::assign);
  EXPECT_EQ(table, expected);
}

TEST_F(Index, BadIndexIsReportedBeforeAnythingIsWritten) {
  MT_CPU_ONLY();
  auto index = random_indices(100000, 30);
  index[99999] = 30;
  Vector<float> values(index.size(), 1.f), table(30, -1.f);
  const Vector<float> before = table;
  IndexArgs a = rows_of(values, table, index, 1);
  simplify(a);
  try {
    index_write_kernel(a, IndexWrite::assign);
    FAIL() << "no exception";
  } catch (const IndexOutOfRange& error) {
    EXPECT_EQ(error.index, 30);
    EXPECT_EQ(error.which, 0);
    EXPECT_EQ(error.size, 30);
  }
  EXPECT_EQ(table, before);
  index[99999] = -1;
  a.allow_negative = false;
  EXPECT_THROW(index_write_kernel(a, IndexWrite::assign), IndexOutOfRange);
}

TEST_F(Index, ExtremesPropagateNan) {
  const float nan = NAN;
  Vector<float> values{nan, 1.f, 5.f, -2.f}, table{3.f, nan, 3.f, 3.f};
  const Vector<int64_t> index{0, 1, 2, 3};
  IndexArgs a = rows_of(values, table, index, 1);
  simplify(a);
  index_write_kernel(a, IndexWrite::maximum);
  EXPECT_TRUE(std::isnan(table[0]) && std::isnan(table[1]));
  EXPECT_EQ(table[2], 5.f);
  EXPECT_EQ(table[3], 3.f);
}

TEST_F(Index, NonzeroFindsCoordinatesInOrder) {
  std::mt19937 engine(5);
  Vector<int32_t> data(70 * 1000 * 3);
  for (auto& x : data) x = engine() % 3 == 0 ? static_cast<int32_t>(engine()) | 1 : 0;
  const TensorView input = view_of(data.data(), DType::I32, {70, 1000, 3});
  NonzeroPlan plan;
  nonzero_plan_kernel(input, plan);
  const int64_t total = plan.before[plan.chunks];
  Vector<int64_t> found(total * 3), expected;
  for (int64_t i = 0; i < 70; i++)
    for (int64_t j = 0; j < 1000; j++)
      for (int64_t k = 0; k < 3; k++)
        if (data[(i * 1000 + j) * 3 + k] != 0) expected.insert(expected.end(), {i, j, k});
  ASSERT_EQ(static_cast<size_t>(total * 3), expected.size());
  nonzero_kernel(input, plan, view_of(found.data(), DType::I64, {total, 3}));
  EXPECT_EQ(found, expected);

  Vector<int64_t> few(10 * 3);
  nonzero_kernel(input, plan, view_of(few.data(), DType::I64, {10, 3}));
  EXPECT_EQ(few, Vector<int64_t>(expected.begin(), expected.begin() + 30));
}

TEST_F(Index, MaskedSelectAndScatterAreInverse) {
  std::mt19937 engine(9);
  Vector<double> data(90001);
  Vector<uint8_t> mask(data.size());
  for (size_t i = 0; i < data.size(); i++) {
    data[i] = static_cast<double>(i);
    mask[i] = engine() & 1;
  }
  const TensorView input = view_of(data.data(), DType::F64, {90001});
  const TensorView flags = view_of(mask.data(), DType::Bool, {90001});
  NonzeroPlan plan;
  nonzero_plan_kernel(flags, plan);
  const int64_t total = plan.before[plan.chunks];
  Vector<double> selected(total), scattered(data.size(), -1.0);
  masked_select_kernel(input, flags, plan, view_of(selected.data(), DType::F64, {total}));
  masked_scatter_kernel(view_of(scattered.data(), DType::F64, {90001}), flags, plan,
                        view_of(selected.data(), DType::F64, {total}));
  for (size_t i = 0; i < data.size(); i++) ASSERT_EQ(scattered[i], mask[i] ? data[i] : -1.0);
}

// Rows with gaps; the mask lies as they do, or its rows are all one row.
template <class T>
void expect_masked_fill(const Scalar& value, int64_t columns, int64_t rows, int64_t step, bool one_row) {
  const int64_t pitch = columns * step + 3;
  Vector<T> self(rows * pitch);
  Vector<uint8_t> mask(rows * pitch);
  for (size_t i = 0; i < self.size(); i++) self[i] = T(static_cast<real_t<T>>(static_cast<float>(i % 50)));
  const Vector<T> before = self;
  std::mt19937 engine(6);
  for (auto& m : mask) m = engine() % 3 == 0;
  const int64_t mask_pitch = one_row ? 0 : pitch;
  const PointwiseView view = pointwise_view(
      {columns, rows}, 1, {{self.data(), dtype_of<T>, {step, pitch}}, {mask.data(), DType::Bool, {step, mask_pitch}}});
  masked_fill_kernel(view, value);
  Vector<T> element(1, value.to<T>());
  const Vector<T> filled_with_number = self;
  self = before;
  masked_fill_with_element_kernel(view, reinterpret_cast<const char*>(element.data()));
  ASSERT_TRUE(std::equal(self.begin(), self.end(), filled_with_number.begin()));
  for (int64_t i = 0; i < rows * pitch; i++) {
    const int64_t row = i / pitch, at = i % pitch;
    const bool filled = at % step == 0 && at < columns * step && mask[row * mask_pitch + at] != 0;
    const T expected = filled ? value.to<T>() : before[i];
    ASSERT_TRUE(self[i] == expected) << columns << " x " << rows << ", " << i;
  }
}

TEST_F(Index, MaskedFillWritesWhereTheMaskIs) {
  on_each_isa([] {
    for (const int64_t columns : {0, 1, 37, 5000})
      for (const int64_t rows : {1, 9})
        for (const int64_t step : {1, 2})
          for (const bool one_row : {false, true}) {
            expect_masked_fill<float>(-1.5, columns, rows, step, one_row);
            expect_masked_fill<BFloat16>(0.375, columns, rows, step, one_row);
            expect_masked_fill<uint8_t>(int64_t{200}, columns, rows, step, one_row);
            expect_masked_fill<int64_t>((int64_t{1} << 60) + 1, columns, rows, step, one_row);
            expect_masked_fill<Complex<double>>(Scalar(2.0, -3.0), columns, rows, step, one_row);
          }
  });
}

template <class T>
bool is_refused(T value) {
  Vector<T> element(1, value);
  try {
    expect_nonzero_kernel(reinterpret_cast<const char*>(element.data()), dtype_of<T>, "it is zero");
  } catch (const std::runtime_error& error) {
    return std::string(error.what()).rfind("it is zero", 0) == 0;
  }
  return false;
}

TEST_F(Index, ZeroIsNotWhatIsExpected) {
  EXPECT_TRUE(is_refused(0.f) && is_refused(-0.0) && is_refused(int64_t{0}) && is_refused(uint8_t{0}));
  EXPECT_TRUE(is_refused(BFloat16(0.f)) && is_refused(Complex<float>(0, 0)));
  EXPECT_FALSE(is_refused(0.5f) || is_refused(1e-300) || is_refused(int64_t{1} << 40) || is_refused(uint8_t{4}));
  EXPECT_FALSE(is_refused(BFloat16(0.5f)) || is_refused(Complex<float>(0, 1)) || is_refused(std::nanf("")));
}

// Folds of the middle dimension of [outer, length, inner]; their gradient is [outer, folds, inner, size], contiguous or
// with its dimensions the other way round.
template <class T>
void expect_unfold_gradient(int64_t length, int64_t size, int64_t step, bool reversed) {
  constexpr int64_t kOuter = 3, kInner = 5;
  const int64_t folds = (length - size) / step + 1;
  const std::vector<int64_t> sizes{kOuter, folds, kInner, size};
  const std::vector<int64_t> strides = reversed
                                           ? std::vector<int64_t>{1, kOuter, kOuter * folds, kOuter * folds * kInner}
                                           : std::vector<int64_t>{folds * kInner * size, kInner * size, size, 1};
  auto grad = random_of<T>(kOuter * folds * kInner * size, 1, std::is_integral_v<T> ? 0 : -1, 9);
  Vector<T> out(kOuter * length * kInner, stored<T>(0));
  unfold_backward_kernel({view_of(out.data(), dtype_of<T>, {kOuter, length, kInner}),
                          view_of(grad.data(), dtype_of<T>, sizes, strides), 1, size, step});
  TermSums sums(out.size());
  for (int64_t o = 0; o < kOuter; o++)
    for (int64_t f = 0; f < folds; f++)
      for (int64_t i = 0; i < kInner; i++)
        for (int64_t k = 0; k < size; k++)
          sums.add((o * length + f * step + k) * kInner + i,
                   number(grad[o * strides[0] + f * strides[1] + i * strides[2] + k * strides[3]]));
  for (size_t i = 0; i < out.size(); i++)
    ASSERT_NEAR(number(out[i]), sums.value[i],
                std::is_integral_v<T> ? 0 : allowed<T>(sums.value[i], sums.size[i], sums.terms[i]))
        << length << ", " << size << ", " << step << ": " << i;
}

TEST_F(Index, GradientOfUnfoldSumsOverlappingFolds) {
  on_each_isa([] {
    for (const int64_t length : {1, 10, 3000})
      for (const int64_t size : {1, 3, 10})
        for (const int64_t step : {1, 2, 4})  // overlapping, side by side, and with gaps
          for (const bool reversed : {false, true}) {
            if (size > length) continue;
            expect_unfold_gradient<float>(length, size, step, reversed);
            expect_unfold_gradient<BFloat16>(length, size, step, reversed);
            expect_unfold_gradient<int64_t>(length, size, step, reversed);
          }
  });
}

}  // namespace
}  // namespace minitorch
