// Rearranging elements: flips, concatenation, triangles, repetition, padding, and patches of images, against plain
// loops. What only moves is exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "views.h"
#include "kernels/shape.h"

namespace minitorch {
namespace {

// Each element different from its neighbours.
template <class T>
Vector<T> counted(int64_t n) {
  Vector<T> v(n);
  for (int64_t i = 0; i < n; i++) v[i] = stored<T>(static_cast<double>(1 + i % 97));
  return v;
}

// ---- Flips ---------------------------------------------------------------------------------------------------------

// The strides of the input or those of the output are negative.
template <class T>
void expect_flips(int64_t columns, int64_t rows, int64_t step, bool of_input) {
  const int64_t pitch = columns * step;
  auto in = counted<T>(rows * pitch);
  for (const bool across : {false, true})
    for (const bool down : {false, true}) {
      Vector<T> out(rows * columns, stored<T>(0));
      const auto operand = [&](Vector<T>& v, int64_t along, int64_t between, bool negative) {
        const bool back = negative && across, up = negative && down;
        T* const first = v.data() + (back ? (columns - 1) * along : 0) + (up ? (rows - 1) * between : 0);
        return Operand{first, dtype_of<T>, {back ? -along : along, up ? -between : between}};
      };
      flip_kernel(pointwise_view({columns, rows}, 1,
                                 {operand(out, 1, columns, !of_input), operand(in, step, pitch, of_input)}));
      for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
          ASSERT_EQ(number(out[r * columns + c]),
                    number(in[(down ? rows - 1 - r : r) * pitch + (across ? columns - 1 - c : c) * step]))
              << columns << " x " << rows << ": " << r << ", " << c;
    }
}

TEST(Shape, FlipsGoBackwards) {
  on_each_isa([] {
    for (const int64_t columns : {1, 4, 33, 700})
      for (const int64_t rows : {1, 3, 40})
        for (const int64_t step : {1, 2})
          for (const bool of_input : {false, true}) {
            expect_flips<float>(columns, rows, step, of_input);
            expect_flips<uint8_t>(columns, rows, step, of_input);
            expect_flips<double>(columns, rows, step, of_input);
          }
  });
}

// ---- Concatenation -------------------------------------------------------------------------------------------------

// `unit` divides all lengths, and everything begins `shift` bytes after a multiple of sixteen.
void expect_cat(int64_t rows, int64_t count, int64_t unit, int64_t shift) {
  std::vector<Vector<uint8_t>> memory;
  std::vector<CatInput> inputs;
  int64_t width = 0;
  for (int64_t k = 0; k < count; k++) {
    const int64_t row_bytes = unit * (k % 5), row_stride = row_bytes + unit * (k % 3);  // some are empty
    memory.push_back(Vector<uint8_t>(rows * row_stride + shift));
    for (size_t i = 0; i < memory.back().size(); i++) memory.back()[i] = static_cast<uint8_t>(i * 7 + k);
    width += row_bytes;
    inputs.push_back({nullptr, row_bytes, row_stride});
  }
  for (int64_t k = 0; k < count; k++)
    inputs[static_cast<size_t>(k)].data = bytes(memory[static_cast<size_t>(k)], shift);
  const int64_t pitch = width + unit;
  Vector<uint8_t> out(rows * pitch + shift, 255), expected = out;
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = shift + r * pitch;
    for (size_t k = 0; k < inputs.size(); k++)
      for (int64_t i = 0; i < inputs[k].row_bytes; i++)
        expected[at++] = memory[k][static_cast<size_t>(shift + r * inputs[k].row_stride + i)];
  }
  cat_kernel({inputs.data(), count, rows, unit % 16 == 0 ? 4 : unit, bytes(out, shift), pitch});
  ASSERT_EQ(out, expected) << rows << " rows of " << count << ", unit " << unit << ", shift " << shift;
}

TEST(Shape, ConcatenationPutsRowsSideBySide) {
  on_each_isa([] {
    for (const int64_t rows : {0, 1, 7, 300})
      for (const int64_t count : {1, 4, 70})  // more than a launch on a GPU takes
        for (const int64_t unit : {1, 2, 4, 8, 16, 400})
          for (const int64_t shift : {int64_t{0}, std::min<int64_t>(unit, 4)}) expect_cat(rows, count, unit, shift);
  });
}

// ---- Triangles -----------------------------------------------------------------------------------------------------

template <class T>
void expect_triangle(int64_t batch, int64_t rows, int64_t columns, bool transposed, bool in_place) {
  const std::vector<int64_t> sizes{batch, rows, columns}, plain{rows * columns, columns, 1};
  const std::vector<int64_t> strides = transposed ? std::vector<int64_t>{rows * columns, 1, rows} : plain;
  for (const bool upper : {false, true})
    for (const int64_t k : {-rows - 1, int64_t{-2}, int64_t{0}, int64_t{1}, columns + 1}) {
      auto in = counted<T>(batch * rows * columns);
      const auto before = in;
      Vector<T> other(in.size(), stored<T>(0.5));
      Vector<T>& out = in_place ? in : other;
      const std::vector<int64_t>& out_strides = in_place ? strides : plain;
      triangle_kernel({view_of(in.data(), dtype_of<T>, sizes, strides),
                       view_of(out.data(), dtype_of<T>, sizes, out_strides), k, upper});
      for (int64_t b = 0; b < batch; b++)
        for (int64_t r = 0; r < rows; r++)
          for (int64_t c = 0; c < columns; c++) {
            const bool kept = upper ? c - r >= k : c - r <= k;
            ASSERT_EQ(number(out[b * out_strides[0] + r * out_strides[1] + c * out_strides[2]]),
                      kept ? number(before[b * strides[0] + r * strides[1] + c * strides[2]]) : 0)
                << rows << " x " << columns << ", " << k << ": " << r << ", " << c;
          }
    }
}

TEST(Shape, TrianglesKeepOneSideOfADiagonal) {
  on_each_isa([] {
    for (const auto& [batch, rows, columns] :
         std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {2, 5, 9}, {3, 33, 20}, {1, 150, 90}})
      for (const bool transposed : {false, true})
        for (const bool in_place : {false, true}) {
          expect_triangle<float>(batch, rows, columns, transposed, in_place);
          expect_triangle<BFloat16>(batch, rows, columns, transposed, in_place);
          expect_triangle<double>(batch, rows, columns, transposed, in_place);
        }
  });
}

TEST(Shape, TriangleIndicesAreInOrder) {
  on_each_isa([] {
    for (const auto& [rows, columns] : std::vector<std::array<int64_t, 2>>{{1, 1}, {5, 9}, {9, 5}, {400, 300}})
      for (const bool upper : {false, true})
        for (int64_t k = -rows; k <= columns; k += std::max<int64_t>(1, (rows + columns) / 14)) {
          Vector<int64_t> expected_rows, expected_columns;
          for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
              if (upper ? c - r >= k : c - r <= k) expected_rows.push_back(r), expected_columns.push_back(c);
          const auto count = static_cast<int64_t>(expected_rows.size());
          if (count == 0) continue;
          Vector<int64_t> out(2 * count);
          triangle_indices_kernel({bytes(out), count, rows, columns, k, upper});
          expected_rows.insert(expected_rows.end(), expected_columns.begin(), expected_columns.end());
          ASSERT_EQ(out, expected_rows) << rows << " x " << columns << ", " << k << ", " << upper;
        }
  });
}

// ---- Repetition ----------------------------------------------------------------------------------------------------

template <class T>
void expect_repeats(int64_t count, int64_t most) {
  Vector<T> repeats(count), expected;
  Vector<int64_t> ends(count);
  for (int64_t i = 0; i < count; i++) {
    repeats[i] = static_cast<T>(i * 5 % (most + 1));
    expected.insert(expected.end(), static_cast<size_t>(repeats[i]), static_cast<T>(i));
    ends[i] = static_cast<int64_t>(expected.size());
  }
  Vector<T> out(expected.size(), T(-1));
  const auto total = static_cast<int64_t>(expected.size());
  repeat_interleave_kernel({repeats.data(), ends.data(), out.data(), count, total, dtype_of<T>});
  ASSERT_EQ(out, expected) << count;
}

TEST(Shape, RepeatsEachNumber) {
  on_each_isa([] {
    for (const int64_t count : {0, 1, 50, 3000})
      for (const int64_t most : {1, 7, 100}) {
        expect_repeats<int32_t>(count, most);
        expect_repeats<int64_t>(count, most);
      }
  });
}

// ---- Padding -------------------------------------------------------------------------------------------------------

struct Padding {
  int64_t sizes[3];             // of D, H and W
  int64_t before[3], after[3];  // negative: crops
  bool reflects;                // reflection is possible: less padding than elements
};
const Padding kPaddings[] = {
    {{1, 1, 6}, {0, 0, 2}, {0, 0, 5}, true},  {{1, 5, 70}, {0, 4, 3}, {0, 1, 40}, true},
    {{3, 4, 5}, {2, 1, 4}, {1, 3, 0}, true},  {{1, 4, 6}, {0, -1, 2}, {0, 2, -3}, true},
    {{2, 1, 3}, {3, 2, 5}, {0, 4, 9}, false}, {{1, 40, 90}, {0, 7, 0}, {0, 0, 30}, true},
};
constexpr int64_t kImages = 2, kChannels = 3;

// Strides of [N, C, D, H, W]: contiguous or with the channels last.
void set_strides(int64_t (&strides)[5], const int64_t (&sizes)[5], bool channels_last) {
  const int order[2][5] = {{4, 3, 2, 1, 0}, {1, 4, 3, 2, 0}};
  int64_t step = 1;
  for (const int d : order[channels_last]) {
    strides[d] = step;
    step *= sizes[d];
  }
}
int64_t product(const int64_t (&sizes)[5]) { return sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4]; }

int64_t shown(int64_t at, int64_t before, int64_t size, bool reflect) {
  const int64_t x = at - before;
  if (!reflect) return std::clamp<int64_t>(x, 0, size - 1);
  return x < 0 ? -x : x >= size ? 2 * (size - 1) - x : x;
}

template <class T>
void expect_padding(const Padding& p, bool reflect, bool channels_last) {
  PadArgs a{.reflect = reflect, .dtype = dtype_of<T>};
  a.in_sizes[0] = a.out_sizes[0] = kImages;
  a.in_sizes[1] = a.out_sizes[1] = kChannels;
  for (int d = 0; d < 3; d++) {
    a.in_sizes[2 + d] = p.sizes[d];
    a.out_sizes[2 + d] = p.sizes[d] + p.before[d] + p.after[d];
    a.before[d] = p.before[d];
  }
  set_strides(a.in_strides, a.in_sizes, channels_last);
  set_strides(a.out_strides, a.out_sizes, channels_last);
  auto in = random_of<T>(product(a.in_sizes), 1);
  Vector<T> out(product(a.out_sizes), stored<T>(7));
  a.in = bytes(in), a.out = bytes(out);
  pad_kernel(a);
  // Calls f(offset in `in`, offset in `out`) for every element of the output.
  const auto each = [&](const auto& f) {
    int64_t at[5];
    for (int64_t i = 0; i < product(a.out_sizes); i++) {
      int64_t rest = i, from = 0, to = 0;
      for (int d = 4; d >= 0; d--) {
        at[d] = rest % a.out_sizes[d];
        rest /= a.out_sizes[d];
        to += at[d] * a.out_strides[d];
        from += (d < 2 ? at[d] : shown(at[d], a.before[d - 2], a.in_sizes[d], reflect)) * a.in_strides[d];
      }
      f(from, to);
    }
  };
  each([&](int64_t from, int64_t to) { ASSERT_EQ(number(out[to]), number(in[from])) << to; });

  auto grad = random_of<T>(product(a.out_sizes), 2);
  Vector<T> sums(in.size(), stored<T>(7));
  TermSums exact(in.size());
  each([&](int64_t from, int64_t to) { exact.add(from, number(grad[to])); });
  a.in = bytes(sums), a.out = bytes(grad);
  pad_backward_kernel(a);
  exact.expect(sums);
}

TEST(Shape, PaddingShowsEdgesAndReflections) {
  on_each_isa([] {
    for (const Padding& p : kPaddings)
      for (const bool reflect : {false, true})
        for (const bool channels_last : {false, true}) {
          if (reflect && !p.reflects) continue;
          expect_padding<float>(p, reflect, channels_last);
          expect_padding<BFloat16>(p, reflect, channels_last);
        }
  });
}

// ---- Patches as columns --------------------------------------------------------------------------------------------

struct Patches {
  int64_t size[2], kernel[2], dilation[2], padding[2], stride[2];
};
const Patches kPatches[] = {
    {{1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},  {{9, 7}, {3, 2}, {1, 1}, {1, 0}, {1, 1}},
    {{9, 30}, {3, 3}, {2, 1}, {2, 1}, {1, 2}}, {{20, 41}, {2, 5}, {1, 3}, {0, 6}, {3, 1}},
    {{5, 6}, {2, 3}, {1, 1}, {0, 0}, {2, 3}},  {{4, 4}, {1, 2}, {1, 1}, {2, 3}, {1, 1}},
};

template <class T>
void expect_columns(const Patches& p) {
  constexpr int64_t kBatch = 2;
  ColumnArgs a{.dtype = dtype_of<T>, .batch = kBatch, .channels = kChannels};
  for (int d = 0; d < 2; d++) {
    a.size[d] = p.size[d], a.kernel[d] = p.kernel[d], a.dilation[d] = p.dilation[d];
    a.padding[d] = p.padding[d], a.stride[d] = p.stride[d];
    a.windows[d] = (p.size[d] + 2 * p.padding[d] - p.dilation[d] * (p.kernel[d] - 1) - 1) / p.stride[d] + 1;
  }
  const int64_t pixels = kBatch * kChannels * a.size[0] * a.size[1];
  const int64_t elements = kBatch * kChannels * a.kernel[0] * a.kernel[1] * a.windows[0] * a.windows[1];
  auto image = random_of<T>(pixels, 1);
  Vector<T> columns(elements, stored<T>(7));
  a.image = bytes(image), a.columns = bytes(columns);
  im2col_kernel(a);
  // The pixel that an element of the columns shows, or -1 in the padding.
  const auto pixel = [&](int64_t i) {
    const int64_t ow = i % a.windows[1], oh = i / a.windows[1] % a.windows[0];
    i /= a.windows[0] * a.windows[1];
    const int64_t kw = i % a.kernel[1], kh = i / a.kernel[1] % a.kernel[0], plane = i / (a.kernel[0] * a.kernel[1]);
    const int64_t h = oh * a.stride[0] - a.padding[0] + kh * a.dilation[0];
    const int64_t w = ow * a.stride[1] - a.padding[1] + kw * a.dilation[1];
    const bool inside = h >= 0 && h < a.size[0] && w >= 0 && w < a.size[1];
    return inside ? (plane * a.size[0] + h) * a.size[1] + w : int64_t{-1};
  };
  for (int64_t i = 0; i < elements; i++) {
    const int64_t from = pixel(i);
    ASSERT_EQ(number(columns[i]), from < 0 ? 0 : number(image[from])) << i;
  }
  if (!is_floating_v<T>) return;  // only these have gradients

  auto grad = random_of<T>(elements, 2);
  Vector<T> sums(pixels, stored<T>(7));
  TermSums exact(sums.size());
  for (int64_t i = 0; i < elements; i++)
    if (const int64_t to = pixel(i); to >= 0) exact.add(to, number(grad[i]));
  a.image = bytes(sums), a.columns = bytes(grad);
  col2im_kernel(a);
  exact.expect(sums);
}

TEST(Shape, ColumnsArePatchesAndAddUpToAnImage) {
  on_each_isa([] {
    for (const Patches& p : kPatches) {
      expect_columns<float>(p);
      expect_columns<BFloat16>(p);
      expect_columns<int32_t>(p);
    }
  });
}

}  // namespace
}  // namespace minitorch
