// CPU scans. A line passes block by block through a buffer of the accumulation type (double for float, int64 for the
// integers, float for 16-bit floats, as in PyTorch). Where memory runs across the lines, rows of many lines are
// accumulated at once. A few very long lines are cut into chunks: first their totals, then the scans from there.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/lines.h"
#include "kernels/cpu/scratch.h"
#include "kernels/functors/binary.h"
#include "kernels/scan.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // 64-byte vectors never cross a call: what takes them is inlined

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kBlockElements = 512;
constexpr int64_t kGroup = 32;      // of a running maximum, that are looked at together
constexpr int64_t kChunk = 131072;  // elements of a long line that one thread scans

template <class T>
struct Add {
  static constexpr bool vector = !is_complex_v<T>;
  static T identity() { return T(0); }
  template <class V>
  static MT_INLINE V apply(V a, V b) {
    return a + b;
  }
};

template <class T>
struct Multiply {
  static constexpr bool vector = !is_complex_v<T>;
  static T identity() { return T(1); }
  template <class V>
  static MT_INLINE V apply(V a, V b) {
    return a * b;
  }
};

// log(exp(a) + exp(b)) without overflow; equal infinities stay what they are.
template <class T>
struct LogAddExp {
  static constexpr bool vector = false;
  static T identity() { return -std::numeric_limits<T>::infinity(); }
  static T apply(T a, T b) {
    if (a != a || b != b) return a + b;
    const T low = b < a ? b : a, high = b < a ? a : b;
    if (low == high && std::isinf(low)) return low;
    return high + std::log1p(std::exp(low - high));
  }
};

template <class T>
struct LogAddExp<Complex<T>> {
  static constexpr bool vector = false;
  static Complex<T> identity() { return {-std::numeric_limits<T>::infinity(), T(0)}; }
  static Complex<T> apply(Complex<T> a, Complex<T> b) { return functors::Logaddexp<Complex<T>>{}(a, b); }
};

// Inclusive scan of v[0..n) that starts from `carry`; returns the last value. Eight elements at a time: three shifted
// steps inside the vector (W. D. Hillis, G. L. Steele, "Data parallel algorithms", 1986), then the carry.
template <class F, class T>
T scan_block(T* v, int64_t n, T carry) {
  int64_t i = 0;
  if constexpr (F::vector && sizeof(T) == 8) {
    typedef T V __attribute__((vector_size(64), aligned(8), may_alias));
    typedef int64_t M __attribute__((vector_size(64)));
    const V fill = V{} + F::identity();
    V before = V{} + carry;  // in all lanes: broadcasting from a vector takes one step, through a scalar three
    for (; i + 8 <= n; i += 8) {
      V x = *reinterpret_cast<V*>(v + i);
      x = F::apply(x, __builtin_shuffle(fill, x, M{0, 8, 9, 10, 11, 12, 13, 14}));
      x = F::apply(x, __builtin_shuffle(fill, x, M{0, 1, 8, 9, 10, 11, 12, 13}));
      x = F::apply(x, __builtin_shuffle(fill, x, M{0, 1, 2, 3, 8, 9, 10, 11}));
      x = F::apply(x, before);
      *reinterpret_cast<V*>(v + i) = x;
      before = __builtin_shuffle(x, M{7, 7, 7, 7, 7, 7, 7, 7});
    }
    carry = before[0];
  }
  for (; i < n; i++) {
    carry = F::apply(carry, v[i]);
    v[i] = carry;
  }
  return carry;
}

// What a line needs to reach memory.
struct Access {
  LoadFn load;
  StoreFn store;
  int64_t in_step, out_step;
};

template <class F, class T>
T scan_line(const Access& a, char* out, const char* in, int64_t begin, int64_t end, T carry) {
  alignas(64) T buffer[kBlockElements];
  for (int64_t i = begin; i < end; i += kBlockElements) {
    const int64_t n = std::min(kBlockElements, end - i);
    a.load(buffer, in + i * a.in_step, a.in_step, n);
    carry = scan_block<F>(buffer, n, carry);
    if (out != nullptr) a.store(out + i * a.out_step, a.out_step, buffer, n);
  }
  return carry;
}

template <class F, class T>
void scan_long_line(const Access& a, char* out, const char* in, int64_t length) {
  const int64_t chunks = (length + kChunk - 1) / kChunk;
  Scratch<T> carry(chunks + 1);
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c++)
      carry[c + 1] = scan_line<F, T>(a, nullptr, in, c * kChunk, std::min(length, (c + 1) * kChunk), F::identity());
  });
  carry[0] = F::identity();
  for (int64_t c = 1; c <= chunks; c++) carry[c] = F::apply(carry[c - 1], carry[c]);
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c++)
      scan_line<F, T>(a, out, in, c * kChunk, std::min(length, (c + 1) * kChunk), carry[c]);
  });
}

template <class F, class T>
void scan_lines(const TensorView& output, const TensorView& input, int dim) {
  const TensorView* tensors[] = {&output, &input};
  const Lines lines(tensors, 2, dim);
  const Access a{load_fn(input.dtype, dtype_of<T>), store_fn(dtype_of<T>, output.dtype), lines.step(1), lines.step(0)};
  const int64_t length = lines.length();
  if (lines.across()) {
    lines.for_each(kBlockElements, 1, [&](char* const* p, int64_t width) {
      alignas(64) T sum[kBlockElements], row[kBlockElements];
      for (int64_t j = 0; j < width; j++) sum[j] = F::identity();
      for (int64_t r = 0; r < length; r++) {
        a.load(row, p[1] + r * a.in_step, lines.pitch(1), width);
        for (int64_t j = 0; j < width; j++) sum[j] = F::apply(sum[j], row[j]);
        a.store(p[0] + r * a.out_step, lines.pitch(0), sum, width);
      }
    });
  } else if (F::vector && lines.count() < 4 && length >= 4 * kChunk && num_threads() > 1) {
    lines.for_each(1, 0, [&](char* const* p, int64_t) { scan_long_line<F, T>(a, p[0], p[1], length); });
  } else {
    lines.for_each(1, 1, [&](char* const* p, int64_t) { scan_line<F, T>(a, p[0], p[1], 0, length, F::identity()); });
  }
}

DType accumulation_dtype(DType d) {
  if (is_integral(d) || d == DType::Bool) return DType::I64;
  if (d == DType::F32) return DType::F64;
  if (d == DType::C32 || d == DType::C64) return DType::C128;
  return compute_dtype(d);
}

void scan(ScanOp op, const TensorView& output, const TensorView& input, int dim) {
  const DType acc = accumulation_dtype(output.dtype);
  bool known = false;
  if (op == ScanOp::logsumexp) {
    known = dispatch(acc, Types<float, double, Complex<double>>{}, [&](auto tag) {
      using T = typename decltype(tag)::type;
      scan_lines<LogAddExp<T>, T>(output, input, dim);
    });
  } else {
    known = dispatch(acc, Types<float, double, int64_t, Complex<double>>{}, [&](auto tag) {
      using T = typename decltype(tag)::type;
      op == ScanOp::sum ? scan_lines<Add<T>, T>(output, input, dim) : scan_lines<Multiply<T>, T>(output, input, dim);
    });
  }
  if (!known) missing_kernel(scan_kernel.name(), name_of(output.dtype));
}

// True if x takes over from the running value: at least as good, or NaN. Of a running NaN no number is that.
template <class T>
MT_INLINE bool takes_over(T x, T value, bool max) {
  return (x != x) | (max ? x >= value : x <= value);
}

// Whether one of n elements does. Along a line of random numbers that becomes rare (once in n / k at element k), and
// what holds for a group is written as vectors; element by element each waits for the one before.
template <class T, bool max>
MT_INLINE bool any_takes_over(const T* x, int64_t n, T value) {
  unsigned found = 0;
  if (n == kGroup) {
    for (int64_t i = 0; i < kGroup; i++) found |= static_cast<unsigned>(takes_over(x[i], value, max));
  } else {
    for (int64_t i = 0; i < n; i++) found |= static_cast<unsigned>(takes_over(x[i], value, max));
  }
  return found != 0;
}

template <class T, bool max>
void scan_extremum_lines(const TensorView& values, const TensorView& indices, const TensorView& input, int dim) {
  const TensorView* tensors[] = {&values, &indices, &input};
  const Lines lines(tensors, 3, dim);
  const LoadFn load = load_fn(input.dtype, dtype_of<T>);
  const StoreFn store = store_fn(dtype_of<T>, values.dtype), store_index = store_fn(DType::I64, indices.dtype);
  const int64_t length = lines.length(), step = lines.step(2);
  if (lines.across()) {
    lines.for_each(kBlockElements, 1, [&](char* const* p, int64_t width) {
      alignas(64) T best[kBlockElements], row[kBlockElements];
      alignas(64) int64_t at[kBlockElements];
      load(best, p[2], lines.pitch(2), width);
      for (int64_t j = 0; j < width; j++) at[j] = 0;
      for (int64_t r = 0; r < length; r++) {
        load(row, p[2] + r * step, lines.pitch(2), width);
        for (int64_t j = 0; j < width; j++) {
          const bool better = takes_over(row[j], best[j], max);
          best[j] = better ? row[j] : best[j];
          at[j] = better ? r : at[j];
        }
        store(p[0] + r * lines.step(0), lines.pitch(0), best, width);
        store_index(p[1] + r * lines.step(1), lines.pitch(1), at, width);
      }
    });
    return;
  }
  lines.for_each(1, 1, [&](char* const* p, int64_t) {
    alignas(64) T block[kBlockElements];
    alignas(64) int64_t at[kBlockElements];
    T best;
    load(&best, p[2], step, 1);
    int64_t position = 0;
    for (int64_t i = 0; i < length; i += kBlockElements) {
      const int64_t n = std::min(kBlockElements, length - i);
      load(block, p[2] + i * step, step, n);
      for (int64_t k = 0; k < n; k += kGroup) {
        const int64_t end = std::min(n, k + kGroup);
        if (!any_takes_over<T, max>(block + k, end - k, best)) {
          std::fill(block + k, block + end, best);
          std::fill(at + k, at + end, position);
          continue;
        }
        for (int64_t j = k; j < end; j++) {
          if (takes_over(block[j], best, max)) best = block[j], position = i + j;
          block[j] = best;
          at[j] = position;
        }
      }
      store(p[0] + i * lines.step(0), lines.step(0), block, n);
      store_index(p[1] + i * lines.step(1), lines.step(1), at, n);
    }
  });
}

void scan_extremum(bool max, const TensorView& values, const TensorView& indices, const TensorView& input, int dim) {
  const DType d = input.dtype;
  const bool small = d == DType::Bool || d == DType::U8 || d == DType::I8 || d == DType::I16;
  const bool known =
      dispatch(small ? DType::I32 : compute_dtype(d), Types<float, double, int32_t, int64_t>{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        max ? scan_extremum_lines<T, true>(values, indices, input, dim)
            : scan_extremum_lines<T, false>(values, indices, input, dim);
      });
  if (!known) missing_kernel(scan_extremum_kernel.name(), name_of(d));
}

MT_REGISTER_KERNEL(scan_kernel, &scan);
MT_REGISTER_KERNEL(scan_extremum_kernel, &scan_extremum);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
