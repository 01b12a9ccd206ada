// The passes of a Fourier transform. Many lines at once: the self-sorting algorithm of T. G. Stockham ("High-speed
// convolution and correlation", AFIPS 1966) in mixed radix, each number of the textbook being a vector of kWidth lines.
// One long line: the four-step algorithm of D. H. Bailey ("FFTs in external or hierarchical memory", J. Supercomput.
// 1990), whose two steps are such transforms of many lines. Lengths with large prime factors become convolutions
// (fft_convolution.cpp).
#include "core/parallel.h"
#include "kernels/cpu/fft_plan.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace fft {
namespace {

template <class R>
struct Roots {
  R cosine[kLargestRadix], sine[kLargestRadix];  // of 2 pi k / r
  explicit Roots(int r) {
    for (int k = 0; k < r; k++) {
      const Complex<double> w = root(k, r);
      cosine[k] = static_cast<R>(w.re), sine[k] = static_cast<R>(-w.im);
    }
  }
};

// b[k] = sum of a[t] exp(-2 pi i t k / r), in place. Radix 0 stands for an odd radix known at run time.
template <class R, int Radix>
MT_INLINE void butterfly(Vector<R>* re, Vector<R>* im, int radix, const Roots<R>& roots) {
  using V = Vector<R>;
  if constexpr (Radix == 2) {
    const V r = re[1], i = im[1];
    re[1] = re[0] - r, im[1] = im[0] - i;
    re[0] += r, im[0] += i;
  } else if constexpr (Radix == 4) {
    const V sr = re[0] + re[2], si = im[0] + im[2], dr = re[0] - re[2], di = im[0] - im[2];
    const V tr = re[1] + re[3], ti = im[1] + im[3], er = re[1] - re[3], ei = im[1] - im[3];
    re[0] = sr + tr, im[0] = si + ti;
    re[2] = sr - tr, im[2] = si - ti;
    re[1] = dr + ei, im[1] = di - er;
    re[3] = dr - ei, im[3] = di + er;
  } else {
    const int r = Radix == 0 ? radix : Radix, h = (r - 1) / 2;
    constexpr int most = Radix == 0 ? kLargestRadix : Radix;
    V sr[most / 2 + 1], si[most / 2 + 1], dr[most / 2 + 1], di[most / 2 + 1];
    V total_re = re[0], total_im = im[0];
    for (int t = 1; t <= h; t++) {
      sr[t] = re[t] + re[r - t], si[t] = im[t] + im[r - t];
      dr[t] = re[t] - re[r - t], di[t] = im[t] - im[r - t];
      total_re += sr[t], total_im += si[t];
    }
    for (int k = 1; k <= h; k++) {
      V even_re = re[0], even_im = im[0], odd_re{}, odd_im{};
      for (int t = 1, at = k; t <= h; t++) {
        even_re += roots.cosine[at] * sr[t], even_im += roots.cosine[at] * si[t];
        odd_re += roots.sine[at] * dr[t], odd_im += roots.sine[at] * di[t];
        at += k;
        if (at >= r) at -= r;
      }
      re[k] = even_re + odd_im, im[k] = even_im - odd_re;
      re[r - k] = even_re - odd_im, im[r - k] = even_im + odd_re;
    }
    re[0] = total_re, im[0] = total_im;
  }
}

// One pass: y[q + s (r p + k)] = exp(-2 pi i p k / (r m)) sum over t of x[q + s (p + m t)] exp(-2 pi i t k / r).
template <class R, int Radix>
void pass(int radix, int64_t m, int64_t s, const R* twiddles, const R* xr, const R* xi, R* yr, R* yi) {
  using V = Vector<R>;
  constexpr int64_t W = kWidth<R>;
  constexpr int most = Radix == 0 ? kLargestRadix : Radix;
  const int r = Radix == 0 ? radix : Radix;
  const Roots<R> roots(Radix == 2 || Radix == 4 ? 1 : r);
  for (int64_t p = 0; p < m; p++) {
    const R* const w = twiddles + 2 * (r - 1) * p;
    for (int64_t q = 0; q < s; q++) {
      V re[most], im[most];
      for (int t = 0; t < r; t++) {
        re[t] = *reinterpret_cast<const V*>(xr + (q + s * (p + m * t)) * W);
        im[t] = *reinterpret_cast<const V*>(xi + (q + s * (p + m * t)) * W);
      }
      butterfly<R, Radix>(re, im, r, roots);
      R* const out_re = yr + (q + s * r * p) * W;
      R* const out_im = yi + (q + s * r * p) * W;
      *reinterpret_cast<V*>(out_re) = re[0];
      *reinterpret_cast<V*>(out_im) = im[0];
      for (int k = 1; k < r; k++) {
        const R c = w[2 * k - 2], d = w[2 * k - 1];
        V& to_re = *reinterpret_cast<V*>(out_re + s * k * W);
        V& to_im = *reinterpret_cast<V*>(out_im + s * k * W);
        // A product with a part that is zero would make NaN of an infinity.
        if (d == R(0)) {
          to_re = re[k] * c, to_im = im[k] * c;
        } else if (c == R(0)) {
          to_re = im[k] * -d, to_im = re[k] * d;
        } else {
          to_re = re[k] * c - im[k] * d, to_im = re[k] * d + im[k] * c;
        }
      }
    }
  }
}

}  // namespace

template <class R>
bool transform_lines(const Plan<R>& plan, R* re, R* im, R* work_re, R* work_im) {
  if (!plan.smooth) {
    convolve_lines(plan, re, im);
    return false;
  }
  int64_t m = plan.n, s = 1;
  bool swapped = false;
  for (int i = 0; i < plan.passes; i++) {
    const int r = plan.radix[i];
    const R* const twiddles = plan.twiddles + plan.twiddle_offset[i];
    R* const from_re = swapped ? work_re : re;
    R* const from_im = swapped ? work_im : im;
    R* const to_re = swapped ? re : work_re;
    R* const to_im = swapped ? im : work_im;
    m /= r;
    switch (r) {
      case 2: pass<R, 2>(r, m, s, twiddles, from_re, from_im, to_re, to_im); break;
      case 3: pass<R, 3>(r, m, s, twiddles, from_re, from_im, to_re, to_im); break;
      case 4: pass<R, 4>(r, m, s, twiddles, from_re, from_im, to_re, to_im); break;
      case 5: pass<R, 5>(r, m, s, twiddles, from_re, from_im, to_re, to_im); break;
      case 7: pass<R, 7>(r, m, s, twiddles, from_re, from_im, to_re, to_im); break;
      default: pass<R, 0>(r, m, s, twiddles, from_re, from_im, to_re, to_im); break;
    }
    s *= r;
    swapped = !swapped;
  }
  return swapped;
}

namespace {

template <class R>
void four_step(const Plan<R>& plan, Line<const R> in, Line<R> out, R scale, bool threads) {
  using V = Vector<R>;
  constexpr int64_t W = kWidth<R>;
  const int64_t rows = plan.rows, columns = plan.columns;
  const int64_t row_groups = gemm::ceil_div(rows, W), column_groups = gemm::ceil_div(columns, W);
  const int64_t row_pitch = row_groups * W, column_pitch = column_groups * W;
  // The transform of the columns, transposed: [columns][row_pitch].
  Scratch<R> turned(2 * columns * row_pitch);
  R* const turned_re = turned.get();
  R* const turned_im = turned_re + columns * row_pitch;
  const int64_t alone = threads ? 1 : INT64_MAX;
  const int64_t grain_columns = threads ? gemm::max64(1, 16384 / (rows * W)) : alone;
  const int64_t grain_rows = threads ? gemm::max64(1, 16384 / (columns * W)) : alone;
  parallel_for(column_groups, grain_columns, [&](int64_t begin, int64_t end) {
    Scratch<R> memory(4 * rows * W);
    R* const re = memory.get();
    R *const im = re + rows * W, *const work_re = im + rows * W, *const work_im = work_re + rows * W;
    for (int64_t g = begin; g < end; g++) {
      const int64_t first = g * W, width = gemm::min64(W, columns - first);
      for (int64_t r = 0; r < rows; r++) {
        const R* const from_re = in.re + (r * columns + first) * in.stride;
        const R* const from_im = in.im + (r * columns + first) * in.stride;
        if (width == W && in.stride == 2) {
          for (int64_t w = 0; w < W; w++) re[r * W + w] = from_re[2 * w], im[r * W + w] = from_im[2 * w];
        } else {
          for (int64_t w = 0; w < W; w++) {
            re[r * W + w] = w < width ? from_re[w * in.stride] : R(0);
            im[r * W + w] = w < width ? from_im[w * in.stride] : R(0);
          }
        }
      }
      const bool moved = transform_lines(*plan.column_plan, re, im, work_re, work_im);
      R* const done_re = moved ? work_re : re;
      R* const done_im = moved ? work_im : im;
      for (int64_t r = 0; r < rows; r++) {
        const V c = gemm::load_vector(plan.grid + r * column_pitch + first);
        const V d = gemm::load_vector(plan.grid + (rows + r) * column_pitch + first);
        const V x = gemm::load_vector(done_re + r * W), y = gemm::load_vector(done_im + r * W);
        gemm::store_vector(done_re + r * W, x * c - y * d);
        gemm::store_vector(done_im + r * W, x * d + y * c);
      }
      int64_t turned_rows = 0;
      for (; turned_rows + W <= rows; turned_rows += W) {
        V x[W], y[W];
        load_transposed(x, done_re + turned_rows * W, W);
        load_transposed(y, done_im + turned_rows * W, W);
        for (int64_t w = 0; w < width; w++) {
          gemm::store_vector(turned_re + (first + w) * row_pitch + turned_rows, x[w]);
          gemm::store_vector(turned_im + (first + w) * row_pitch + turned_rows, y[w]);
        }
      }
      for (int64_t w = 0; w < width; w++) {
        R* const to_re = turned_re + (first + w) * row_pitch;
        R* const to_im = turned_im + (first + w) * row_pitch;
        for (int64_t r = turned_rows; r < rows; r++) to_re[r] = done_re[r * W + w], to_im[r] = done_im[r * W + w];
        for (int64_t r = rows; r < row_pitch; r++) to_re[r] = to_im[r] = R(0);
      }
    }
  });
  parallel_for(row_groups, grain_rows, [&](int64_t begin, int64_t end) {
    Scratch<R> memory(4 * columns * W);
    R* const re = memory.get();
    R *const im = re + columns * W, *const work_re = im + columns * W, *const work_im = work_re + columns * W;
    for (int64_t g = begin; g < end; g++) {
      const int64_t first = g * W, width = gemm::min64(W, rows - first);
      for (int64_t c = 0; c < columns; c++) {
        gemm::store_vector(re + c * W, gemm::load_vector(turned_re + c * row_pitch + first));
        gemm::store_vector(im + c * W, gemm::load_vector(turned_im + c * row_pitch + first));
      }
      const bool moved = transform_lines(*plan.row_plan, re, im, work_re, work_im);
      const R* const done_re = moved ? work_re : re;
      const R* const done_im = moved ? work_im : im;
      for (int64_t c = 0; c < columns; c++) {
        R* const to_re = out.re + (c * rows + first) * out.stride;
        R* const to_im = out.im + (c * rows + first) * out.stride;
        if (width == W && out.stride == 2) {
          for (int64_t w = 0; w < W; w++)
            to_re[2 * w] = done_re[c * W + w] * scale, to_im[2 * w] = done_im[c * W + w] * scale;
        } else {
          for (int64_t w = 0; w < width; w++) {
            to_re[w * out.stride] = done_re[c * W + w] * scale;
            to_im[w * out.stride] = done_im[c * W + w] * scale;
          }
        }
      }
    }
  });
}

}  // namespace

template <class R>
void transform_line(const Plan<R>& plan, Line<const R> in, Line<R> out, R scale, bool threads) {
  if (plan.smooth) {
    four_step(plan, in, out, scale, threads);
  } else {
    convolve_line(plan, in, out, scale, threads);
  }
}

#define MT_FFT_TEMPLATES(R)                                      \
  template bool transform_lines(const Plan<R>&, R*, R*, R*, R*); \
  template void transform_line(const Plan<R>&, Line<const R>, Line<R>, R, bool);
MT_FFT_TEMPLATES(float)
MT_FFT_TEMPLATES(double)

}  // namespace fft
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
