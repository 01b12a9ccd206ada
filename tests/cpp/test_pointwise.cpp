// The pointwise engine: layouts, dtypes and sizes against a loop that follows the strides; errors before writes.
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "memory.h"
#include "isas.h"

namespace minitorch {
namespace {

// Calls f(byte offset of each operand) for every element of the view, in a fixed order.
template <class F>
void for_each_element(const PointwiseView& v, const F& f) {
  Vector<int64_t> index(v.ndim, 0), offset(v.num_operands, 0);
  for (int64_t i = 0; i < v.numel; i++) {
    for (int k = 0; k < v.num_operands; k++) {
      offset[k] = 0;
      for (int d = 0; d < v.ndim; d++) offset[k] += index[d] * v.strides[k][d];
    }
    f(offset);
    for (int d = 0; d < v.ndim; d++) {
      if (++index[d] < v.sizes[d]) break;
      index[d] = 0;
    }
  }
}

PointwiseView strided(Vector<int64_t> sizes, Vector<std::pair<Vector<float>*, Vector<int64_t>>> operands) {
  PointwiseView v{};
  v.ndim = static_cast<int>(sizes.size());
  v.num_outputs = 1;
  v.num_operands = static_cast<int>(operands.size());
  v.compute = DType::F32;
  v.numel = 1;
  for (int d = 0; d < v.ndim; d++) v.numel *= v.sizes[d] = sizes[d];
  for (int k = 0; k < v.num_operands; k++) {
    v.data[k] = reinterpret_cast<char*>(operands[k].first->data());
    v.dtype[k] = DType::F32;
    for (int d = 0; d < v.ndim; d++) v.strides[k][d] = operands[k].second[d] * 4;
  }
  return v;
}

Vector<float> random_floats(size_t n) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Vector<float> x(n);
  for (float& f : x) f = normal(random);
  return x;
}

TEST(Pointwise, EveryLayout) {
  struct Layout {
    Vector<int64_t> sizes, out, a, b;
  };
  const Layout layouts[] = {
      {{}, {}, {}, {}},
      {{0}, {1}, {1}, {1}},
      {{1}, {1}, {1}, {1}},
      {{513}, {1}, {1}, {1}},
      {{1000}, {2}, {3}, {1}},
      {{1000}, {1}, {0}, {1}},  // broadcast
      {{1000}, {1}, {0}, {0}},
      {{100}, {1}, {-1}, {1}},             // flipped (data points at the last element below)
      {{7, 33}, {1, 7}, {33, 1}, {1, 7}},  // transposed
      {{64, 50, 3}, {1, 64, 3200}, {1, 0, 64}, {0, 1, 50}},
      {{300, 301}, {1, 300}, {301, 1}, {0, 1}},  // enough for two threads
      {{3, 5, 7, 2}, {1, 3, 15, 105}, {70, 14, 2, 1}, {1, 3, 15, 105}},
  };
  on_each_isa([&] {
    for (const Layout& l : layouts) {
      Vector<float> a = random_floats(100000), b = random_floats(100000), out(100000, -1), expected = out;
      PointwiseView v = strided(l.sizes, {{&out, l.out}, {&a, l.a}, {&b, l.b}});
      for (int k = 0; k < 3; k++)
        for (int d = 0; d < v.ndim; d++)
          if (v.strides[k][d] < 0) v.data[k] -= (v.sizes[d] - 1) * v.strides[k][d];
      for_each_element(v, [&](const Vector<int64_t>& o) {
        const auto at = [&](int k) { return *reinterpret_cast<float*>(v.data[k] + o[k]); };
        expected[(v.data[0] + o[0] - reinterpret_cast<char*>(out.data())) / 4] = at(1) * at(2);
      });
      pointwise_kernel(PointwiseOp::mul, v, {});
      EXPECT_EQ(out, expected);
    }
  });
}

TEST(Pointwise, LargeResultsAroundTheCache) {
  const int64_t n = (32 << 20) / 4 + 13;
  Vector<float> a(n + 1), out(n + 3, -1);
  std::iota(a.begin(), a.end(), 0.0f);
  on_each_isa([&] {
    std::fill(out.begin(), out.end(), -1.0f);
    pointwise_kernel(PointwiseOp::neg, flat_view(n, 1, {{out.data() + 1, DType::F32}, {a.data() + 1, DType::F32}}), {});
    EXPECT_EQ(out[0], -1.0f);
    EXPECT_EQ(out[n + 1], -1.0f);
    int64_t wrong = 0;
    for (int64_t i = 1; i <= n; i++) wrong += out[i] != -a[i];
    EXPECT_EQ(wrong, 0);
  });
}

TEST(Pointwise, MixedDtypesComputeInTheCommonOne) {
  on_each_isa([&] {
    Vector<int64_t> a = {1, -2, int64_t{1} << 60};
    Vector<int8_t> b = {3, -5, 1};
    Vector<int64_t> out(3);
    PointwiseView v = flat_view(3, 1, {{out.data(), DType::I64}, {a.data(), DType::I64}, {b.data(), DType::I8}});
    pointwise_kernel(PointwiseOp::plain_add, v, {});
    EXPECT_EQ(out, (Vector<int64_t>{4, -7, (int64_t{1} << 60) + 1}));
    // Beside a 16-bit float another dtype is rounded to 16 bits first, as a cast to the common dtype does.
    Vector<float> wide = {1.00390625f};
    Vector<BFloat16> half = {BFloat16(1.0f)};
    Vector<uint8_t> equal(1);
    v = flat_view(1, 1, {{equal.data(), DType::Bool}, {half.data(), DType::BF16}, {wide.data(), DType::F32}});
    v.compute = DType::BF16;
    pointwise_kernel(PointwiseOp::eq, v, {});
    EXPECT_EQ(equal[0], 1);
  });
}

TEST(Pointwise, IntegerDivisionByZeroWritesNothing) {
  MT_CPU_ONLY();
  on_each_isa([&] {
    Vector<int32_t> a(2000, 7), b(2000, 2), out(2000, -1);
    b[1999] = 0;
    for (PointwiseOp op : {PointwiseOp::div_floor, PointwiseOp::div_trunc, PointwiseOp::remainder, PointwiseOp::fmod}) {
      const PointwiseView v =
          flat_view(2000, 1, {{out.data(), DType::I32}, {a.data(), DType::I32}, {b.data(), DType::I32}});
      EXPECT_THROW(pointwise_kernel(op, v, {}), std::runtime_error);
      EXPECT_EQ(out, Vector<int32_t>(2000, -1));
    }
  });
}

template <class T>
void check_transpose(int64_t rows, int64_t columns, int64_t batch) {
  Vector<T> in(rows * columns * batch), out(in.size());
  for (size_t i = 0; i < in.size(); i++)
    memset(&in[i], static_cast<int>(i % 251 + 1), sizeof(T)), memcpy(&in[i], &i, 1);
  const int64_t size = sizeof(T);
  const DType dtype = size == 1   ? DType::U8
                      : size == 2 ? DType::I16
                      : size == 4 ? DType::I32
                      : size == 8 ? DType::I64
                                  : DType::C128;
  PointwiseView v = flat_view(0, 1, {{out.data(), dtype}, {in.data(), dtype}});
  v.ndim = 3;
  v.numel = rows * columns * batch;
  const int64_t sizes[] = {rows, columns, batch};
  const int64_t to[] = {size, rows * size, rows * columns * size},
                from[] = {columns * size, size, rows * columns * size};
  for (int d = 0; d < 3; d++) v.sizes[d] = sizes[d], v.strides[0][d] = to[d], v.strides[1][d] = from[d];
  copy_kernel(v);
  for (int64_t n = 0; n < batch; n++)
    for (int64_t c = 0; c < columns; c++)
      for (int64_t r = 0; r < rows; r++)
        ASSERT_EQ(memcmp(&out[(n * columns + c) * rows + r], &in[(n * rows + r) * columns + c], size), 0)
            << n << c << r;
}

TEST(Pointwise, TransposedCopies) {
  on_each_isa([&] {
    for (const auto [rows, columns, batch] :
         {std::tuple{8, 8, 1}, {64, 64, 2}, {129, 70, 3}, {9, 300, 2}, {257, 8, 1}}) {
      check_transpose<uint8_t>(rows, columns, batch);
      check_transpose<uint16_t>(rows, columns, batch);
      check_transpose<uint32_t>(rows, columns, batch);
      check_transpose<uint64_t>(rows, columns, batch);
      check_transpose<Complex<double>>(rows, columns, batch);
    }
  });
}

}  // namespace
}  // namespace minitorch
