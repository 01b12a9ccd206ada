// CPU softmax. A slice is read once from memory; the further passes (maximum, exponentials and their sum, scaling) find
// it in cache. Along the last dimension a thread works row by row; along another one it takes a tile of neighbouring
// columns and vectorises over them. Float and double are computed in place, 16-bit floats in a float buffer.
#include <cmath>
#include <limits>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/softmax_rows.h"
#include "kernels/functors/math.h"
#include "core/parallel.h"
#include "kernels/softmax.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kSumBlock = 4096;  // terms added in the compute type before the total moves on in double

// Sum of term(i) over i < n; `term` may also store.
template <class T, class F>
MT_INLINE double sum_of(int64_t n, const F& term) {
  double total = 0;
  for (int64_t b = 0; b < n; b += kSumBlock) {
    const int64_t end = std::min(n, b + kSumBlock);
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = b; i < end; i++) sum += term(i);
    total += static_cast<double>(sum);
  }
  return total;
}

// A slice per column j < w of an n x w tile; rows of each operand are `stride` elements apart.
template <class T>
struct Columns {
  T* data;
  int64_t stride;
  MT_INLINE T* row(int64_t r) const { return data + r * stride; }
};

constexpr int64_t kMaxTile = 256;
constexpr int64_t kSumRows = 64;

// sum[j] = the sum over the n rows of what add(part, r) adds to part[j]; in two levels, for the sake of rounding.
template <class T, class F>
MT_INLINE void sum_rows(T* sum, int64_t n, int64_t w, const F& add) {
  for (int64_t j = 0; j < w; j++) sum[j] = 0;
  for (int64_t b = 0; b < n; b += kSumRows) {
    T part[kMaxTile];
    for (int64_t j = 0; j < w; j++) part[j] = 0;
    for (int64_t r = b; r < std::min(n, b + kSumRows); r++) add(part, r);
    for (int64_t j = 0; j < w; j++) sum[j] += part[j];
  }
}

template <class T>
void softmax_columns(SoftmaxOp op, const Columns<T>& y, const Columns<T>& x, int64_t n, int64_t w) {
  T m[kMaxTile], sum[kMaxTile];
  for (int64_t j = 0; j < w; j++) m[j] = -std::numeric_limits<T>::infinity();
  for (int64_t r = 0; r < n; r++) {
    const T* a = x.row(r);
    for (int64_t j = 0; j < w; j++) m[j] = a[j] > m[j] ? a[j] : m[j];
  }
  const bool log = op == SoftmaxOp::log_softmax;
  sum_rows(sum, n, w, [&](T* part, int64_t r) __attribute__((always_inline)) {
    const T* a = x.row(r);
    T* b = y.row(r);
    if (log) {
      for (int64_t j = 0; j < w; j++) part[j] += exp_nonpositive<T>(a[j] - m[j]);
    } else {
#pragma GCC ivdep
      for (int64_t j = 0; j < w; j++) {
        const T e = exp_nonpositive<T>(a[j] - m[j]);
        b[j] = e;
        part[j] += e;
      }
    }
  });
  if (log)
    for (int64_t j = 0; j < w; j++) sum[j] = math::log(sum[j]);
  else
    for (int64_t j = 0; j < w; j++) sum[j] = 1 / sum[j];
  for (int64_t r = 0; r < n; r++) {
    const T* a = x.row(r);
    T* b = y.row(r);
    if (log) {
#pragma GCC ivdep
      for (int64_t j = 0; j < w; j++) b[j] = a[j] - m[j] - sum[j];
    } else {
#pragma GCC ivdep
      for (int64_t j = 0; j < w; j++) b[j] *= sum[j];
    }
  }
}

template <class T>
void softmax_backward_columns(SoftmaxOp op, const Columns<T>& dx, const Columns<T>& dy, const Columns<T>& y, int64_t n,
                              int64_t w) {
  T sum[kMaxTile];
  const bool log = op == SoftmaxOp::log_softmax;
  sum_rows(sum, n, w, [&](T* part, int64_t r) __attribute__((always_inline)) {
    const T *g = dy.row(r), *v = y.row(r);
    if (log)
      for (int64_t j = 0; j < w; j++) part[j] += g[j];
    else
      for (int64_t j = 0; j < w; j++) part[j] += g[j] * v[j];
  });
  for (int64_t r = 0; r < n; r++) {
    const T *g = dy.row(r), *v = y.row(r);
    T* d = dx.row(r);
    if (log) {
#pragma GCC ivdep
      for (int64_t j = 0; j < w; j++) d[j] = g[j] - exp_nonpositive<T>(v[j]) * sum[j];
    } else {
#pragma GCC ivdep
      for (int64_t j = 0; j < w; j++) d[j] = (g[j] - sum[j]) * v[j];
    }
  }
}

// An operand of a row-wise pass: in place when it holds T, otherwise through a buffer.
template <class T>
class RowOperand {
 public:
  RowOperand(const SoftmaxOperand& operand, int64_t buffer_size)
      : data_(operand.data),
        dtype_(operand.dtype),
        size_(static_cast<int64_t>(size_of(operand.dtype))),
        direct_(operand.dtype == dtype_of<T>),
        buffer_(direct_ ? 0 : buffer_size) {}

  // n x w elements at `offset`, rows `pitch` elements apart, loaded for reading.
  Columns<T> load(int64_t offset, int64_t n, int64_t w, int64_t pitch) const {
    const Columns<T> c = place(offset, w, pitch);
    if (!direct_)
      for (int64_t r = 0; r < n; r++)
        load_fn(dtype_, dtype_of<T>)(c.row(r), data_ + (offset + r * pitch) * size_, size_, w);
    return c;
  }
  // The same place for writing, and its way back to memory.
  Columns<T> place(int64_t offset, int64_t w, int64_t pitch) const {
    return direct_ ? Columns<T>{reinterpret_cast<T*>(data_) + offset, pitch} : Columns<T>{buffer_.get(), w};
  }
  void store(int64_t offset, int64_t n, int64_t w, int64_t pitch) const {
    if (!direct_)
      for (int64_t r = 0; r < n; r++)
        store_fn(dtype_of<T>, dtype_)(data_ + (offset + r * pitch) * size_, size_, buffer_.get() + r * w, w);
  }

 private:
  char* data_;
  DType dtype_;
  int64_t size_;
  bool direct_;
  Scratch<T> buffer_;
};

// Rows of at most a vector's elements are turned: a tile of them is worked on as columns.
constexpr int64_t kTurned = 64;
template <class T>
MT_INLINE bool is_turned(const SoftmaxShape& s, const SoftmaxMask& mask) {
  return s.inner == 1 && s.dim <= Lane<T>::count && mask.data == nullptr;
}
template <class T>
struct Turned {
  alignas(64) T data[Lane<T>::count * kTurned];

  Columns<T> columns() { return {data, kTurned}; }
  void read(const T* rows, int64_t n, int64_t w) {
    for (int64_t j = 0; j < w; j++)
      for (int64_t r = 0; r < n; r++) data[r * kTurned + j] = rows[j * n + r];
  }
  void write(T* rows, int64_t n, int64_t w) const {
    for (int64_t j = 0; j < w; j++)
      for (int64_t r = 0; r < n; r++) rows[j * n + r] = data[r * kTurned + j];
  }
};

// Calls tile(offset, width) for each slice (inner == 1) or tile of slices, in parallel; each thread makes its own Tile
// from the number of elements it must be able to buffer.
template <class Make>
void for_each_tile(const SoftmaxShape& s, bool turned, const Make& make) {
  if (turned) {
    const int64_t tiles = (s.outer + kTurned - 1) / kTurned;
    parallel_for(tiles, grain_of(4 * s.dim * kTurned), [&](int64_t begin, int64_t end) {
      const auto tile = make(s.dim * kTurned);
      for (int64_t t = begin; t < end; t++) tile(t * kTurned * s.dim, std::min(kTurned, s.outer - t * kTurned));
    });
    return;
  }
  const bool rows = s.inner == 1;
  // A tile of columns stays in L2 over the passes, but is at least a cache line wide.
  const int64_t width = rows ? 1 : std::min(s.inner, std::clamp<int64_t>(32768 / s.dim, 16, kMaxTile));
  const int64_t tiles = (s.inner + width - 1) / width;
  const int64_t grain = grain_of(4 * s.dim * width);
  parallel_for(s.outer * tiles, grain, [&](int64_t begin, int64_t end) {
    const auto tile = make(s.dim * width);
    for (int64_t t = begin; t < end; t++) {
      const int64_t first = t % tiles * width;
      tile(t / tiles * s.dim * s.inner + first, std::min(width, s.inner - first));
    }
  });
}

template <class T>
void masked_row(T* y, const T* x, const bool* mask, int64_t n) {
  T m = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < n; i++) m = !mask[i] && x[i] > m ? x[i] : m;
  const double total = sum_of<T>(n, [&](int64_t i) __attribute__((always_inline)) {
    return y[i] = mask[i] ? T(0) : exp_nonpositive<T>(x[i] - m);
  });
  const T scale = static_cast<T>(1 / total);
  for (int64_t i = 0; i < n; i++) y[i] *= scale;
}

template <class T>
void masked_backward_row(T* dx, const T* dy, const T* y, const bool* mask, int64_t n) {
  const T dot = static_cast<T>(
      sum_of<T>(n, [&](int64_t i) __attribute__((always_inline)) { return mask[i] ? T(0) : dy[i] * y[i]; }));
  for (int64_t i = 0; i < n; i++) dx[i] = mask[i] ? T(0) : (dy[i] - dot) * y[i];
}

struct Arguments {
  SoftmaxOp op;
  const SoftmaxShape& shape;
  const SoftmaxMask& mask;

  const bool* mask_row(int64_t offset) const {
    return mask.data + offset / shape.dim / mask.repeat % mask.rows * shape.dim;
  }
};

template <class T>
struct ForwardTile {
  const Arguments& a;
  RowOperand<T> output, input;

  void operator()(int64_t offset, int64_t w) const {
    const int64_t n = a.shape.dim, inner = a.shape.inner;
    if (inner > 1) {
      softmax_columns(a.op, output.place(offset, w, inner), input.load(offset, n, w, inner), n, w);
      output.store(offset, n, w, inner);
      return;
    }
    if (is_turned<T>(a.shape, a.mask)) {
      Turned<T> turned;
      turned.read(input.load(offset, 1, n * w, n * w).data, n, w);
      softmax_columns(a.op, turned.columns(), turned.columns(), n, w);
      turned.write(output.place(offset, n * w, n * w).data, n, w);
      output.store(offset, 1, n * w, n * w);
      return;
    }
    const T* x = input.load(offset, 1, n, n).data;
    T* y = output.place(offset, n, n).data;
    if (a.mask.data != nullptr)
      masked_row(y, x, a.mask_row(offset), n);
    else if (a.op == SoftmaxOp::softmax)
      softmax_row(y, x, n);
    else
      log_softmax_row(y, x, n);
    output.store(offset, 1, n, n);
  }
};

template <class T>
struct BackwardTile {
  const Arguments& a;
  RowOperand<T> grad_input, grad, output;

  void operator()(int64_t offset, int64_t w) const {
    const int64_t n = a.shape.dim, inner = a.shape.inner;
    if (inner > 1) {
      softmax_backward_columns(a.op, grad_input.place(offset, w, inner), grad.load(offset, n, w, inner),
                               output.load(offset, n, w, inner), n, w);
      grad_input.store(offset, n, w, inner);
      return;
    }
    const T* dy = grad.load(offset, 1, n, n).data;
    const T* y = output.load(offset, 1, n, n).data;
    T* dx = grad_input.place(offset, n, n).data;
    if (a.mask.data != nullptr)
      masked_backward_row(dx, dy, y, a.mask_row(offset), n);
    else if (a.op == SoftmaxOp::softmax)
      softmax_backward_row(dx, dy, y, n);
    else
      log_softmax_backward_row(dx, dy, y, n);
    grad_input.store(offset, 1, n, n);
  }
};

void softmax(SoftmaxOp op, const SoftmaxShape& shape, const SoftmaxOperand& output, const SoftmaxOperand& input,
             const SoftmaxMask& mask) {
  const Arguments arguments{op, shape, mask};
  const bool known = dispatch(compute_dtype(input.dtype), FloatTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_tile(shape, is_turned<T>(shape, mask), [&](int64_t elements) {
      return ForwardTile<T>{arguments, RowOperand<T>(output, elements), RowOperand<T>(input, elements)};
    });
  });
  if (!known) missing_kernel(softmax_kernel.name(), name_of(input.dtype));
}

void softmax_backward(SoftmaxOp op, const SoftmaxShape& shape, const SoftmaxOperand& grad_input,
                      const SoftmaxOperand& grad, const SoftmaxOperand& output, const SoftmaxMask& mask) {
  const Arguments arguments{op, shape, mask};
  const bool known = dispatch(compute_dtype(output.dtype), FloatTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_tile(shape, false, [&](int64_t elements) {
      return BackwardTile<T>{arguments, RowOperand<T>(grad_input, elements), RowOperand<T>(grad, elements),
                             RowOperand<T>(output, elements)};
    });
  });
  if (!known) missing_kernel(softmax_backward_kernel.name(), name_of(output.dtype));
}

MT_REGISTER_KERNEL(softmax_kernel, &softmax);
MT_REGISTER_KERNEL(softmax_backward_kernel, &softmax_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
