// Sorts, scans, runs and membership, of many short lines and few long ones, against the standard library's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "memory.h"
#include "kernels/scan.h"
#include "kernels/sort.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

struct Shape {
  int64_t lines, length;
  bool along_rows;  // elements of a line are adjacent; otherwise elements of neighbouring lines are
};
const Shape kShapes[] = {{1, 1, true},      {1, 100003, true}, {1, 40000, false}, {3, 20001, true},
                         {2, 30011, false}, {500, 7, true},    {300, 33, false},  {70, 1500, true}};

class Lines : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { backend(); }

  int dim() const { return GetParam().along_rows ? 1 : 0; }
  int64_t count() const { return GetParam().lines * GetParam().length; }
  int64_t at(int64_t line, int64_t i) const {
    const Shape& s = GetParam();
    return s.along_rows ? line * s.length + i : i * s.lines + line;
  }
  template <class T>
  TensorView view(Vector<T>& data) const {
    const Shape& s = GetParam();
    TensorView v{};
    v.data = reinterpret_cast<char*>(data.data());
    v.dtype = dtype_of<T>;
    v.ndim = 2;
    v.sizes[0] = s.along_rows ? s.lines : s.length;
    v.sizes[1] = s.along_rows ? s.length : s.lines;
    v.strides[0] = v.sizes[1];
    v.strides[1] = 1;
    v.numel = count();
    return v;
  }
  // Few different values, so that many are equal.
  template <class T>
  Vector<T> values(unsigned seed) const {
    std::mt19937 random(seed);
    Vector<T> v(count());
    for (T& x : v) x = static_cast<T>(static_cast<float>(random() % 97) - (std::is_same_v<T, uint8_t> ? 0.0f : 48.0f));
    return v;
  }
};

TEST_P(Lines, SortsAreStable) {
  const auto check = [&](auto tag, bool descending) {
    using T = decltype(tag);
    Vector<T> in = values<T>(1), sorted(count());
    if constexpr (is_floating_v<T>) {
      for (size_t i = 5; i < in.size(); i += 11) in[i] = T(NAN);
      for (size_t i = 7; i < in.size(); i += 13) in[i] = T(-0.0f);
    }
    Vector<int64_t> indices(count());
    sort_kernel(view(sorted), view(indices), view(in), dim(), descending);
    backend().synchronize_device(0);
    using C = compute_t<T>;
    const auto less = [](C a, C b) { return b != b ? a == a : a < b; };
    for (int64_t line = 0; line < GetParam().lines; line++) {
      std::vector<int64_t> expected(GetParam().length);
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(), [&](int64_t i, int64_t j) {
        const C a = in[at(line, i)], b = in[at(line, j)];
        return descending ? less(b, a) : less(a, b);
      });
      for (int64_t i = 0; i < GetParam().length; i++) {
        ASSERT_EQ(indices[at(line, i)], expected[i]) << line << ", " << i;
        const C found = sorted[at(line, i)], wanted = in[at(line, expected[i])];
        ASSERT_TRUE(found == wanted || (found != found && wanted != wanted)) << line << ", " << i;
      }
    }
  };
  for (const bool descending : {false, true}) {
    check(float(), descending);
    check(double(), descending);
    check(int64_t(), descending);
    check(uint8_t(), descending);
    check(BFloat16(), descending);
  }
}

TEST_P(Lines, SumsRun) {
  Vector<int64_t> in = values<int64_t>(2), out(count());
  scan_kernel(ScanOp::sum, view(out), view(in), dim());
  Vector<double> numbers(in.begin(), in.end());
  scan_kernel(ScanOp::sum, view(numbers), view(numbers), dim());  // in place
  backend().synchronize_device(0);
  for (int64_t line = 0; line < GetParam().lines; line++) {
    int64_t sum = 0;
    for (int64_t i = 0; i < GetParam().length; i++) {
      sum += in[at(line, i)];
      ASSERT_EQ(out[at(line, i)], sum) << line << ", " << i;
      ASSERT_EQ(numbers[at(line, i)], static_cast<double>(sum)) << line << ", " << i;
    }
  }
}

TEST_P(Lines, ExtremaRun) {
  for (const bool max : {false, true}) {
    Vector<float> in = values<float>(3), out(count());
    for (size_t i = in.size() / 2; i < in.size(); i += 5000) in[i] = NAN;
    Vector<int64_t> indices(count());
    scan_extremum_kernel(max, view(out), view(indices), view(in), dim());
    backend().synchronize_device(0);
    for (int64_t line = 0; line < GetParam().lines; line++) {
      int64_t best = 0;
      for (int64_t i = 0; i < GetParam().length; i++) {
        const float x = in[at(line, i)], held = in[at(line, best)];
        if (std::isnan(x) || (!std::isnan(held) && (max ? x >= held : x <= held))) best = i;
        ASSERT_EQ(indices[at(line, i)], best) << line << ", " << i;
        const float found = out[at(line, i)], wanted = in[at(line, best)];
        ASSERT_TRUE(found == wanted || (std::isnan(found) && std::isnan(wanted))) << line << ", " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Lines, testing::ValuesIn(kShapes));

TEST(Runs, AreNumberedAndCounted) {
  backend();
  for (const int64_t n : {int64_t{1}, int64_t{100}, int64_t{50001}}) {
    Vector<int32_t> data(n);
    std::mt19937 random(4);
    for (int64_t i = 0; i < n; i++)
      data[i] = i > 0 && random() % 3 != 0 ? data[i - 1] : static_cast<int32_t>(random() % 5);
    Vector<int64_t> number(1), starts(n + 1), inverse(n);
    runs_kernel({reinterpret_cast<char*>(data.data()), DType::I32, n, 1, nullptr, nullptr, number.data(), starts.data(),
                 inverse.data()});
    backend().synchronize_device(0);
    int64_t runs = 0;
    for (int64_t i = 0; i < n; i++) {
      if (i == 0 || data[i] != data[i - 1]) {
        ASSERT_EQ(starts[runs], i);
        runs++;
      }
      ASSERT_EQ(inverse[i], runs - 1);
    }
    ASSERT_EQ(number[0], runs);
    ASSERT_EQ(starts[runs], n);
  }
}

TEST(Membership, OfFewAndOfMany) {
  backend();
  for (const int64_t m : {int64_t{0}, int64_t{3}, int64_t{5000}}) {
    Vector<double> elements(1000), tests(m);
    for (int64_t i = 0; i < 1000; i++) elements[i] = static_cast<double>(i % 50) - 20;
    for (int64_t i = 0; i < m; i++) tests[i] = static_cast<double>(i * 7 % 31) - 10;
    elements[3] = NAN, elements[4] = -0.0;
    if (m > 3) tests[2] = NAN;
    for (const bool invert : {false, true}) {
      Vector<uint8_t> out(1000);
      membership_kernel({reinterpret_cast<bool*>(out.data()), reinterpret_cast<char*>(elements.data()),
                         reinterpret_cast<char*>(tests.data()), DType::F64, 1000, m, invert});
      backend().synchronize_device(0);
      for (int64_t i = 0; i < 1000; i++)
        ASSERT_EQ(out[i] != 0, (std::find(tests.begin(), tests.end(), elements[i]) != tests.end()) != invert) << i;
    }
  }
}

}  // namespace
}  // namespace minitorch
