// Plans of Fourier transforms and the two ways to run them: many lines at once (one line a vector lane), and one long
// line. Both keep real and imaginary parts apart. A plan is made once for each length and cached.
#pragma once
#include "core/dtype.h"
#include "kernels/cpu/gemm_core.h"
#include "kernels/cpu/gemm_transpose.h"
#include "kernels/cpu/scratch.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace fft {

template <class R>
using Vector = gemm::Vector<R>;
// Lines that are transformed together.
template <class R>
inline constexpr int64_t kWidth = gemm::kLanes<R>;

// The square of kWidth vectors at `from`, rows `pitch` elements apart, transposed in place of `square`.
template <class R>
MT_INLINE void load_transposed(Vector<R>* square, const R* from, int64_t pitch) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kWidth<R>; r++) square[r] = gemm::load_vector(from + r * pitch);
  gemm::transpose<static_cast<int>(kWidth<R>)>(square);
}

inline constexpr int kLargestRadix = 31;  // lengths with larger prime factors go through a convolution
inline constexpr int kMaxPasses = 48;

// Real and imaginary parts of a line, `stride` elements from one value to the next. Exchanging `re` and `im` of input
// and output turns a forward transform into a backward one.
template <class R>
struct Line {
  R* re;
  R* im;
  int64_t stride;
};

template <class R>
struct Plan {
  int64_t n;
  Plan* next = nullptr;  // in the cache
  bool cached = false;
  bool smooth = true;
  // Stockham passes over lengths n, n / radix[0], ...: twiddles[pass] + 2 * ((radix - 1) * p + (k - 1)) holds
  // exp(-2 pi i p k / length).
  int passes = 0;
  int radix[kMaxPasses];
  int64_t twiddle_offset[kMaxPasses];
  R* twiddles = nullptr;
  // One long line as a matrix of rows x columns: transforms of the columns, factors, transforms of the rows.
  int64_t rows = 1, columns = 1;
  const Plan* row_plan = nullptr;     // of length `columns`
  const Plan* column_plan = nullptr;  // of length `rows`
  R* grid = nullptr;                  // factors exp(-2 pi i r c / n), rows x columns: real parts, then imaginary ones
  // Lengths that are not smooth: a cyclic convolution of length `padded`, in double precision.
  int64_t padded = 0;
  const Plan<double>* convolution = nullptr;
  double* chirp = nullptr;     // exp(-pi i j^2 / n), interleaved
  int32_t* order = nullptr;    // instead of a chirp: the powers of a primitive root modulo n = padded + 1
  double* spectrum = nullptr;  // the transform of what is convolved with, interleaved, divided by `padded`
  // exp(-2 pi i k / (2 n)) for k <= n / 2 + 1, interleaved: what the transform of 2 n real numbers needs.
  R* half = nullptr;
};

// A plan for length n, for single lines if `line` and for many at once if not. Plans live in the cache while that has
// room; give every plan back with release().
template <class R>
const Plan<R>* acquire(int64_t n, bool line);
template <class R>
void release(const Plan<R>* plan);

bool is_smooth(int64_t n);
// exp(-2 pi i k / n), 0 <= k.
Complex<double> root(int64_t k, int64_t n);

// The two ways for lengths that are not smooth, which the functions below choose.
template <class R>
void convolve_lines(const Plan<R>& plan, R* re, R* im);
template <class R>
void convolve_line(const Plan<R>& plan, Line<const R> in, Line<R> out, R scale, bool threads);

// In place of re and im, [n][kWidth]; work has room for as much. Returns true if the result is in work instead.
template <class R>
bool transform_lines(const Plan<R>& plan, R* re, R* im, R* work_re, R* work_im);

// out = scale * the forward transform of in. In and out may be the same line. Uses threads when `threads`.
template <class R>
void transform_line(const Plan<R>& plan, Line<const R> in, Line<R> out, R scale, bool threads);

}  // namespace fft
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
