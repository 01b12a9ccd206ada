// The blocked matrix product against the textbook one, over shapes that reach every path and edge.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "memory.h"
#include "kernels/gemm.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

// How a matrix lies in memory.
enum class Layout { rows, columns, padded_rows, strided };
constexpr Layout kLayouts[] = {Layout::rows, Layout::columns, Layout::padded_rows, Layout::strided};

template <class T>
T random_value(std::mt19937& gen) {
  std::uniform_int_distribution<int> d(-8, 8);
  if constexpr (is_complex_v<T>) {
    const float re = static_cast<float>(d(gen)) / 4, im = static_cast<float>(d(gen)) / 4;
    return T(re, im);
  } else if constexpr (is_floating_v<T>) {
    return T(static_cast<float>(d(gen)) / 4);
  } else {
    return static_cast<T>(d(gen));
  }
}

template <class T>
struct Matrix {
  Vector<T> memory;
  MatrixView view;
  int64_t rows, cols, batch;

  Matrix(int64_t batch, int64_t rows, int64_t cols, Layout layout, std::mt19937& gen)
      : rows(rows), cols(cols), batch(batch) {
    switch (layout) {
      case Layout::rows: view.row = cols, view.col = 1; break;
      case Layout::columns: view.row = 1, view.col = rows; break;
      case Layout::padded_rows: view.row = cols + 3, view.col = 1; break;
      case Layout::strided: view.row = 2 * cols + 1, view.col = 2; break;
    }
    view.batch = rows * cols * 2 + rows + 3 * (rows + cols) + 5;
    memory.resize(static_cast<size_t>(view.batch * batch + 16));
    for (T& x : memory) x = random_value<T>(gen);
    view.data = reinterpret_cast<char*>(memory.data());
  }
};

// Small multiples of 1/16 are exact in float while sums stay below 2^20, so results must agree to the last bit, in
// 16-bit types after one rounding; anything outside C must be untouched.
template <class T>
void check(int64_t batch, int64_t m, int64_t n, int64_t k, Layout la, Layout lb, Layout lc, Scalar alpha, Scalar beta,
           bool conj = false, bool tf32 = false) {
  std::mt19937 gen(static_cast<unsigned>(m * 31 + n * 17 + k));
  Matrix<T> a(batch, m, k, la, gen), b(batch, k, n, lb, gen), c(batch, m, n, lc, gen);
  Vector<T> expected = c.memory;
  GemmArgs args;
  args.dtype = dtype_of<T>;
  args.batch = batch, args.m = m, args.n = n, args.k = k;
  args.a = a.view, args.b = b.view, args.c = args.d = c.view;
  args.a.conj = conj, args.b.conj = conj && n % 2 == 0;
  args.alpha = alpha, args.beta = beta;
  args.tf32 = tf32;
  gemm_kernel(args);
  args.c.data = args.d.data = reinterpret_cast<char*>(expected.data());
  gemm_reference_kernel(args);
  for (size_t i = 0; i < expected.size(); i++)
    ASSERT_EQ(std::memcmp(&c.memory[i], &expected[i], sizeof(T)), 0)
        << name_of(args.dtype) << " batch " << batch << " m " << m << " n " << n << " k " << k << " layouts "
        << static_cast<int>(la) << static_cast<int>(lb) << static_cast<int>(lc) << " element " << i;
}

template <class T>
class Gemm : public testing::Test {};
using AllTypes = testing::Types<float, double, BFloat16, Half, Complex<float>, Complex<double>, uint8_t, int8_t,
                                int16_t, int32_t, int64_t>;
TYPED_TEST_SUITE(Gemm, AllTypes);

TYPED_TEST(Gemm, EveryLayout) {
  for (Layout la : kLayouts)
    for (Layout lb : kLayouts)
      for (Layout lc : kLayouts)
        for (auto [m, n, k] : {std::array<int64_t, 3>{29, 35, 18}, {3, 70, 33}, {40, 2, 37}}) {
          if (short_tests() && m == 3) continue;
          check<TypeParam>(1, m, n, k, la, lb, lc, Scalar(int64_t{2}), Scalar(int64_t{3}));
        }
}

TYPED_TEST(Gemm, SizesAroundThePanels) {
  std::vector<int64_t> sizes = {1, 2, 5, 7, 13, 14, 15, 16, 17, 31, 32, 33, 64};
  if (short_tests()) sizes = {1, 7, 16, 33, 64};
  for (int64_t m : sizes)
    for (int64_t n : sizes) {
      check<TypeParam>(1, m, n, 19, Layout::rows, Layout::rows, Layout::rows, Scalar(int64_t{1}), Scalar(int64_t{0}));
      check<TypeParam>(1, m, n, 64, Layout::rows, Layout::columns, Layout::rows, Scalar(int64_t{1}),
                       Scalar(int64_t{1}));
    }
}

TYPED_TEST(Gemm, DepthsAroundTheBlocks) {
  for (int64_t k : {0, 1, 3, 15, 16, 17, 255, 256, 257, 513, 700})
    for (int64_t m : {1, 4, 20})
      for (Layout lb : {Layout::rows, Layout::columns})
        check<TypeParam>(1, m, 37, k, Layout::rows, lb, Layout::rows, Scalar(int64_t{1}), Scalar(int64_t{1}));
}

TYPED_TEST(Gemm, Batches) {
  for (int64_t batch : {0, 1, 2, 5})
    check<TypeParam>(batch, 9, 20, 21, Layout::rows, Layout::columns, Layout::rows, Scalar(int64_t{1}),
                     Scalar(int64_t{2}));
}

TYPED_TEST(Gemm, Conjugates) {
  if constexpr (is_complex_v<TypeParam>)
    for (int64_t n : {1, 2, 33, 34})
      for (int64_t m : {1, 21})
        for (Layout l : kLayouts)
          check<TypeParam>(2, m, n, 40, l, l, Layout::rows, Scalar(1.0, 2.0), Scalar(0.0, 1.0), true);
}

TEST(GemmFloat, LargeEnoughForThreadsAndSeveralBlocks) {
  check<float>(1, 700, 530, 300, Layout::rows, Layout::rows, Layout::rows, Scalar(int64_t{1}), Scalar(int64_t{1}));
  check<BFloat16>(1, 330, 280, 600, Layout::columns, Layout::columns, Layout::rows, Scalar(int64_t{1}),
                  Scalar(int64_t{1}));
  check<double>(3, 200, 90, 300, Layout::rows, Layout::columns, Layout::columns, Scalar(int64_t{1}),
                Scalar(int64_t{0}));
  check<float>(1, 1, 1, 600000, Layout::rows, Layout::columns, Layout::rows, Scalar(int64_t{1}), Scalar(int64_t{0}));
  check<float>(1, 2, 9000, 64, Layout::rows, Layout::rows, Layout::rows, Scalar(int64_t{1}), Scalar(int64_t{0}));
}

// Few rows or columns, and long sums of them.
TEST(GemmFloat, ThinProducts) {
  for (Layout la : kLayouts)
    for (Layout lb : kLayouts)
      for (auto [m, n, k] : {std::array<int64_t, 3>{300, 1, 700}, {257, 9, 130}, {20, 500, 900}, {64, 64, 3000}})
        check<float>(2, m, n, k, la, lb, Layout::rows, Scalar(int64_t{1}), Scalar(int64_t{1}));
}

// Of these values, rounding takes nothing away.
TEST(GemmFloat, RoundedFactors) {
  for (Layout la : kLayouts)
    for (Layout lb : kLayouts)
      for (Layout lc : kLayouts)
        for (auto [m, n, k] : {std::array<int64_t, 3>{70, 135, 50}, {300, 80, 600}})
          check<float>(2, m, n, k, la, lb, lc, Scalar(int64_t{2}), Scalar(int64_t{3}), false, true);
}

TEST(GemmFloat, HalfInWholeLinesAndParts) {
  for (Layout la : kLayouts)
    for (auto [m, n, k] : {std::array<int64_t, 3>{136, 264, 80}, {72, 136, 2000}})
      check<Half>(2, m, n, k, la, Layout::rows, Layout::rows, Scalar(int64_t{1}), Scalar(int64_t{1}));
}

// Sums of whole vectors are rounded as they leave the registers.
TEST(GemmFloat, SixteenBitsInOneAndSeveralPasses) {
  for (int64_t k : {64, 500, 1200})
    check<BFloat16>(3, 30, 96, k, Layout::rows, Layout::rows, Layout::rows, Scalar(int64_t{1}), Scalar(int64_t{0}));
}

TEST(GemmFloat, EveryNanIsOne) {
  Vector<BFloat16> a(16 * 64, BFloat16(1.0f)), b(64 * 32, BFloat16(1.0f)), c(16 * 32);
  a[3].bits = 0xffa5;  // a NaN of another sign and payload
  GemmArgs args;
  args.dtype = DType::BF16;
  args.m = 16, args.n = 32, args.k = 64;
  args.a = {reinterpret_cast<char*>(a.data()), 64, 1, 0};
  args.b = {reinterpret_cast<char*>(b.data()), 32, 1, 0};
  args.c = {reinterpret_cast<char*>(c.data()), 32, 1, 0};
  gemm_kernel(args);
  const int nan = backend().host_accessible() ? 0x7fc0 : 0x7fff;  // of the instruction that rounds on a GPU
  for (size_t i = 0; i < c.size(); i++) ASSERT_EQ(c[i].bits, i < 32 ? nan : BFloat16(64.0f).bits) << i;
}

// Lines that begin anywhere in memory.
TEST(GemmFloat, SixteenBitsOffTheirWords) {
  for (Layout la : kLayouts)
    for (Layout lb : kLayouts)
      for (Layout lc : {Layout::rows, Layout::padded_rows, Layout::strided}) {
        check<BFloat16>(2, 130, 141, 133, la, lb, lc, Scalar(int64_t{1}), Scalar(int64_t{1}));
        check<Half>(1, 131, 70, 600, la, lb, lc, Scalar(int64_t{2}), Scalar(int64_t{0}));
      }
}

// More parts of k than results have blocks.
TEST(GemmFloat, ManyParts) {
  for (auto [m, n] : {std::array<int64_t, 2>{64, 64}, {33, 5}, {150, 140}}) {
    check<float>(1, m, n, 30000, Layout::columns, Layout::rows, Layout::rows, Scalar(int64_t{1}), Scalar(int64_t{0}));
    check<BFloat16>(1, m, n, 30000, Layout::rows, Layout::rows, Layout::rows, Scalar(int64_t{1}), Scalar(int64_t{0}));
  }
}

TEST(GemmFloat, BetaZeroDoesNotReadTheAddend) {
  for (int64_t k : {0, 40}) {
    Vector<float> a(40, 1.f), b(40 * 3, 1.f), c(3, std::numeric_limits<float>::quiet_NaN());
    GemmArgs args;
    args.m = 1, args.n = 3, args.k = k;
    args.a = {reinterpret_cast<char*>(a.data()), 40, 1};
    args.b = {reinterpret_cast<char*>(b.data()), 3, 1};
    args.c = args.d = {reinterpret_cast<char*>(c.data()), 3, 1};
    gemm_kernel(args);
    for (float x : c) EXPECT_EQ(x, static_cast<float>(k));
  }
}

template <class T>
void check_alpha_zero(int64_t size) {
  Vector<T> nan(size * size, T(std::numeric_limits<float>::quiet_NaN())), c(size * size, T(3.f));
  GemmArgs args;
  args.dtype = dtype_of<T>;
  args.m = args.n = args.k = size;
  args.a = args.b = {reinterpret_cast<char*>(nan.data()), size, 1};
  args.c = args.d = {reinterpret_cast<char*>(c.data()), size, 1};
  args.alpha = Scalar(int64_t{0});
  args.beta = Scalar(int64_t{2});
  gemm_kernel(args);
  for (const T& x : c) ASSERT_EQ(static_cast<float>(x), 6.f) << size;
}

TEST(GemmFloat, AlphaZeroDoesNotReadTheFactors) {
  for (int64_t size : {3, 40, 200, 256}) {
    check_alpha_zero<float>(size);
    check_alpha_zero<double>(size);
    check_alpha_zero<BFloat16>(size);
    check_alpha_zero<Half>(size);
  }
}

TEST(GemmFloat, BroadcastAddend) {
  Vector<float> a(20 * 8, 1.f), b(8 * 40, 1.f), bias(40), c(20 * 40);
  for (int i = 0; i < 40; i++) bias[i] = static_cast<float>(i);
  GemmArgs args;
  args.m = 20, args.n = 40, args.k = 8;
  args.a = {reinterpret_cast<char*>(a.data()), 8, 1};
  args.b = {reinterpret_cast<char*>(b.data()), 40, 1};
  args.c = {reinterpret_cast<char*>(c.data()), 40, 1};
  args.d = {reinterpret_cast<char*>(bias.data()), 0, 1};
  args.beta = Scalar(int64_t{1});
  gemm_kernel(args);
  for (int i = 0; i < 20; i++)
    for (int j = 0; j < 40; j++) ASSERT_EQ(c[i * 40 + j], 8.f + static_cast<float>(j));
}

}  // namespace
}  // namespace minitorch
