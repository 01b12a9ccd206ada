// Operators that rearrange elements: concatenation, triangles, padding by reflection and replication, im2col.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// Operand 0 = operand 1, of the same dtype, with any signs of the strides.
extern Kernel<void(const PointwiseView&)> flip_kernel;

// One input of a concatenation as a matrix: `rows` rows (CatArgs) of row_bytes contiguous bytes.
struct CatInput {
  const char* data;
  int64_t row_bytes;
  int64_t row_stride;  // bytes
};
// Each row of `out` is the rows of the inputs side by side.
struct CatArgs {
  const CatInput* inputs;
  int64_t count;
  int64_t rows;
  int64_t element_size;
  char* out;
  int64_t out_row_stride;  // bytes
};
extern Kernel<void(const CatArgs&)> cat_kernel;

// out = the triangle of every matrix (the last two dimensions) of `in` on and above (or below) diagonal k, zero
// elsewhere. The two may be the same memory.
struct TriangleArgs {
  TensorView in;
  TensorView out;
  int64_t k;
  bool upper;
};
extern Kernel<void(const TriangleArgs&)> triangle_kernel;

// The rows and columns (two rows of the contiguous int64 `out`, `count` long) of that triangle of a rows x columns
// matrix; k is within [-rows, columns], and the triangle is not empty.
struct TriangleIndexArgs {
  char* out;
  int64_t count;
  int64_t rows;
  int64_t columns;
  int64_t k;
  bool upper;
};

// Finds an element of such a triangle by its number. Below a diagonal come rows without elements, then rows each of
// which has one more than the row before, then full ones. Above it, counted from the end, it is the same of the matrix
// turned by half a circle.
class TriangleElements {
 public:
  struct Element {
    int64_t row, column;
  };

  MT_HD explicit TriangleElements(const TriangleIndexArgs& a)
      : count_(a.count), rows_(a.rows), columns_(a.columns), turned_(a.upper) {
    const int64_t k = a.upper ? a.columns - a.rows - a.k : a.k;
    begin_ = k < 0 ? -k : 0;
    first_ = begin_ + k + 1 < a.columns ? begin_ + k + 1 : a.columns;
    const int64_t left = a.rows - begin_, grow = a.columns - first_;
    growing_rows_ = left < grow ? left : grow;
    growing_ = before(growing_rows_);
  }

  MT_HD Element operator[](int64_t i) const {
    const Element e = below(turned_ ? count_ - 1 - i : i);
    return turned_ ? Element{rows_ - 1 - e.row, columns_ - 1 - e.column} : e;
  }

 private:
  // Elements of the first n rows that grow: first + (first + 1) + ...
  MT_HD int64_t before(int64_t n) const { return n * first_ + (n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n); }

  MT_HD Element below(int64_t i) const {
    if (i >= growing_) {
      const int64_t row = (i - growing_) / columns_;
      return {begin_ + growing_rows_ + row, i - growing_ - row * columns_};
    }
    // The root of before(n) = i; rounding puts it beside the row at most.
    const double half = static_cast<double>(first_) - 0.5;
    auto n = static_cast<int64_t>(std::sqrt(half * half + 2 * static_cast<double>(i)) - half);
    while (n > 0 && before(n) > i) n--;
    while (before(n + 1) <= i) n++;
    return {begin_ + n, i - before(n)};
  }

  int64_t count_, rows_, columns_, begin_, first_, growing_rows_, growing_;
  bool turned_;
};
extern Kernel<void(const TriangleIndexArgs&)> triangle_indices_kernel;

// out[ends[i] - repeats[i], ends[i]) = i, where `ends` is the inclusive sum of `repeats`. `dtype` (int32 or int64) is
// that of repeats and out. The caller has checked that no repeat is negative and that the last end is `total`, the
// length of out; an asynchronous device does so itself, and raises a RuntimeError at the next synchronisation.
struct RepeatArgs {
  const void* repeats;
  const int64_t* ends;
  void* out;
  int64_t count, total;
  DType dtype;
};
extern Kernel<void(const RepeatArgs&)> repeat_interleave_kernel;

// Padding of [N, C, D, H, W]; fewer spatial dimensions have sizes of 1. Strides are in elements.
struct PadArgs {
  bool reflect;  // about the edge element; otherwise the edge element is repeated
  DType dtype;
  char* in;
  char* out;
  int64_t in_sizes[5];
  int64_t in_strides[5];
  int64_t out_sizes[5];
  int64_t out_strides[5];
  int64_t before[3];  // padding before D, H and W; negative crops
};
extern Kernel<void(const PadArgs&)> pad_kernel;
// The gradient: `out` holds the gradient of the output, all of `in` is written.
extern Kernel<void(const PadArgs&)> pad_backward_kernel;

// Images [batch, channels, height, width] and the patches under a sliding window, as columns
// [batch, channels * kernel[0] * kernel[1], windows[0] * windows[1]]. Both contiguous.
struct ColumnArgs {
  DType dtype;
  char* image;
  char* columns;
  int64_t batch;
  int64_t channels;
  int64_t size[2];
  int64_t kernel[2];
  int64_t dilation[2];
  int64_t padding[2];
  int64_t stride[2];
  int64_t windows[2];
};
extern Kernel<void(const ColumnArgs&)> im2col_kernel;
// The image becomes the sum of the columns that cover each pixel.
extern Kernel<void(const ColumnArgs&)> col2im_kernel;

}  // namespace minitorch
