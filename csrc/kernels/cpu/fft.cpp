// Fourier transforms of batches of lines: gathers kWidth lines at a time, or takes a long line alone; real lines of
// even length are transformed as complex ones of half the length.
#include "kernels/fft.h"

#include <cmath>

#include "core/parallel.h"
#include "kernels/cpu/fft_plan.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace fft {
namespace {

constexpr int64_t kLongLine = 4096;  // longer lines are transformed alone: a group of them would leave the L2 cache
constexpr int64_t kLongConvolution = 2048;  // the same for lines that are convolved

// Where lines start, in elements of the real type. Line numbers run fastest along the dimension with the smallest
// strides.
struct Starts {
  int ndim = 0;
  int64_t count = 1;
  int64_t sizes[kMaxDims], in[kMaxDims], out[kMaxDims];

  Starts(const FftArgs& args, int64_t in_unit, int64_t out_unit) {
    for (int d = 0; d + 1 < args.in.ndim; d++) {
      count *= args.in.sizes[d];
      if (args.in.sizes[d] == 1) continue;
      const int64_t size = args.in.sizes[d], a = args.in.strides[d] * in_unit, b = args.out.strides[d] * out_unit;
      int at = ndim++;
      const auto reach = [](int64_t x, int64_t y) { return (x < 0 ? -x : x) + (y < 0 ? -y : y); };
      for (; at > 0 && reach(in[at - 1], out[at - 1]) > reach(a, b); at--)
        sizes[at] = sizes[at - 1], in[at] = in[at - 1], out[at] = out[at - 1];
      sizes[at] = size, in[at] = a, out[at] = b;
    }
  }
  MT_INLINE void at(int64_t line, int64_t& from, int64_t& to) const {
    from = to = 0;
    for (int d = 0; d < ndim; d++) {
      const int64_t i = line % sizes[d];
      line /= sizes[d];
      from += i * in[d], to += i * out[d];
    }
  }
};

// Strides along a line, in elements of the real type: from one complex number (or pair of reals) to the next, and from
// the real part to the imaginary one, if there is one.
struct Along {
  int64_t step, imag;
  bool complex = true;
};

template <class R>
struct Call {
  FftKind kind;
  int64_t n;       // of the call
  int64_t length;  // of the complex transform that does it
  bool packed;     // real lines as complex ones of half the length
  bool backward;
  R scale;
  const R* in;
  R* out;
  Along from, to;
};

// ---- Lines in groups: arrays [row][kWidth] ----

// Lines that are contiguous themselves are read and written a square of kWidth numbers of kWidth lines at a time, which
// is turned in registers. Return the number of rows done.
template <class R>
int64_t load_squares(int64_t rows, const R* base, const int64_t* starts, int64_t width, R* re, R* im) {
  constexpr int64_t W = kWidth<R>;
  int64_t i = 0;
  for (; i + W <= rows; i += W) {
    Vector<R> a[W], b[W];
    for (int64_t w = 0; w < W; w++) {  // lanes without a line repeat the last one
      const R* const p = base + starts[gemm::min64(w, width - 1)] + 2 * i;
      gemm::split_pairs(a[w], b[w], gemm::load_vector(p), gemm::load_vector(p + W));
    }
    gemm::transpose<static_cast<int>(W)>(a);
    gemm::transpose<static_cast<int>(W)>(b);
    for (int64_t w = 0; w < W; w++) {
      gemm::store_vector(re + (i + w) * W, a[w]);
      gemm::store_vector(im + (i + w) * W, b[w]);
    }
  }
  return i;
}
template <class R>
int64_t store_squares(int64_t rows, R* base, const int64_t* starts, int64_t width, const R* re, const R* im) {
  constexpr int64_t W = kWidth<R>;
  int64_t i = 0;
  for (; i + W <= rows; i += W) {
    Vector<R> a[W], b[W];
    load_transposed(a, re + i * W, W);
    load_transposed(b, im + i * W, W);
    for (int64_t w = 0; w < width; w++) {
      R* const p = base + starts[w] + 2 * i;
      Vector<R> low, high;
      gemm::join_pairs(low, high, a[w], b[w]);
      gemm::store_vector(p, low);
      gemm::store_vector(p + W, high);
    }
  }
  return i;
}

template <class R>
void load_rows(int64_t rows, const R* base, const int64_t* starts, int64_t width, Along along, R* re, R* im) {
  constexpr int64_t W = kWidth<R>;
  bool pairs = width == W && along.complex && along.imag == 1, adjacent = width == W;
  for (int64_t w = 1; w < width; w++) {
    pairs &= starts[w] == starts[0] + 2 * w;
    adjacent &= starts[w] == starts[0] + w;
  }
  if (pairs) {
    for (int64_t i = 0; i < rows; i++) {
      const R* const p = base + starts[0] + i * along.step;
      for (int64_t w = 0; w < W; w++) re[i * W + w] = p[2 * w], im[i * W + w] = p[2 * w + 1];
    }
  } else if (adjacent) {
    for (int64_t i = 0; i < rows; i++) {
      const R* const p = base + starts[0] + i * along.step;
      for (int64_t w = 0; w < W; w++) re[i * W + w] = p[w];
      for (int64_t w = 0; w < W; w++) im[i * W + w] = along.complex ? p[along.imag + w] : R(0);
    }
  } else {
    const bool dense = along.complex && along.imag == 1 && along.step == 2;
    const int64_t first = dense ? load_squares(rows, base, starts, width, re, im) : 0;
    for (int64_t w = 0; w < W; w++) {
      const R* const p = base + (w < width ? starts[w] : 0);
      for (int64_t i = first; i < rows; i++) {
        re[i * W + w] = w < width ? p[i * along.step] : R(0);
        im[i * W + w] = w < width && along.complex ? p[i * along.step + along.imag] : R(0);
      }
    }
  }
}

template <class R>
void store_rows(int64_t rows, R* base, const int64_t* starts, int64_t width, Along along, const R* re, const R* im) {
  constexpr int64_t W = kWidth<R>;
  bool pairs = width == W && along.complex && along.imag == 1, adjacent = width == W;
  for (int64_t w = 1; w < width; w++) {
    pairs &= starts[w] == starts[0] + 2 * w;
    adjacent &= starts[w] == starts[0] + w;
  }
  if (pairs) {
    for (int64_t i = 0; i < rows; i++) {
      R* const p = base + starts[0] + i * along.step;
      for (int64_t w = 0; w < W; w++) p[2 * w] = re[i * W + w], p[2 * w + 1] = im[i * W + w];
    }
  } else if (adjacent) {
    for (int64_t i = 0; i < rows; i++) {
      R* const p = base + starts[0] + i * along.step;
      for (int64_t w = 0; w < W; w++) p[w] = re[i * W + w];
      if (!along.complex) continue;
      for (int64_t w = 0; w < W; w++) p[along.imag + w] = im[i * W + w];
    }
  } else {
    const bool dense = along.complex && along.imag == 1 && along.step == 2;
    const int64_t first = dense ? store_squares(rows, base, starts, width, re, im) : 0;
    for (int64_t w = 0; w < width; w++) {
      R* const p = base + starts[w];
      for (int64_t i = first; i < rows; i++) {
        p[i * along.step] = re[i * W + w];
        if (along.complex) p[i * along.step + along.imag] = im[i * W + w];
      }
    }
  }
}

// From the transform z of x[2 j] + i x[2 j + 1], h values, to the first h + 1 values of the transform of x; the spectra
// of the even and the odd elements are (z[k] +- conj(z[h - k])) / 2. `half` holds exp(-pi i k / h). `Value` is a number
// or a vector of them. In place; z has room for h + 1 rows. The middle, whose factor is -i, is its own partner: taken
// apart it would make NaN of an infinity.
template <class Value, class R, class Re, class Im>
MT_INLINE void unpack_real(int64_t h, const R* half, R scale, const Re& re, const Im& im) {
  const Value r0 = *re(0), i0 = *im(0);
  *re(0) = (r0 + i0) * scale, *im(0) = Value{};
  *re(h) = (r0 - i0) * scale, *im(h) = Value{};
  for (int64_t k = 1; 2 * k < h; k++) {
    const Value a = *re(k), b = *im(k), c = *re(h - k), d = *im(h - k);
    const Value even_re = (a + c) * R(0.5), even_im = (b - d) * R(0.5);
    const Value odd_re = (b + d) * R(0.5), odd_im = (c - a) * R(0.5);
    const R wr = half[2 * k], wi = half[2 * k + 1];
    const Value tr = odd_re * wr - odd_im * wi, ti = odd_re * wi + odd_im * wr;
    *re(k) = (even_re + tr) * scale, *im(k) = (even_im + ti) * scale;
    *re(h - k) = (even_re - tr) * scale, *im(h - k) = (ti - even_im) * scale;
  }
  if (h % 2 == 0) *re(h / 2) = *re(h / 2) * scale, *im(h / 2) = *im(h / 2) * -scale;
}

// The reverse: from h + 1 values of the spectrum of real x to z, whose backward transform is x[2 j] + i x[2 j + 1].
template <class Value, class R, class Re, class Im>
MT_INLINE void pack_real(int64_t h, const R* half, R scale, const Re& re, const Im& im) {
  const Value first = *re(0), last = *re(h);
  *re(0) = (first + last) * scale, *im(0) = (first - last) * scale;
  for (int64_t k = 1; 2 * k < h; k++) {
    const Value a = *re(k), b = *im(k), c = *re(h - k), d = *im(h - k);
    const Value even_re = a + c, even_im = b - d, diff_re = a - c, diff_im = b + d;
    const R wr = half[2 * k], wi = half[2 * k + 1];
    // odd = diff * conj(w)
    const Value odd_re = diff_re * wr + diff_im * wi, odd_im = diff_im * wr - diff_re * wi;
    *re(k) = (even_re - odd_im) * scale, *im(k) = (even_im + odd_re) * scale;
    *re(h - k) = (even_re + odd_im) * scale, *im(h - k) = (odd_re - even_im) * scale;
  }
  if (h % 2 == 0) *re(h / 2) = *re(h / 2) * (2 * scale), *im(h / 2) = *im(h / 2) * (-2 * scale);
}

template <class R>
void run_groups(const Call<R>& call, const Plan<R>& plan, const Starts& starts) {
  using V = Vector<R>;
  constexpr int64_t W = kWidth<R>;
  const int64_t groups = gemm::ceil_div(starts.count, W), rows = call.length + 2;
  const int64_t half_rows = call.n / 2 + 1, length = call.length;
  parallel_for(groups, gemm::max64(1, 16384 / (call.n * W)), [&](int64_t begin, int64_t end) {
    Scratch<R> memory(4 * rows * W);
    R* const base = memory.get();
    for (int64_t g = begin; g < end; g++) {
      R *re = base, *im = base + rows * W, *work_re = im + rows * W, *work_im = work_re + rows * W;
      const auto row = [](R* p) { return [p](int64_t i) { return reinterpret_cast<V*>(p + i * kWidth<R>); }; };
      int64_t from[W], to[W];
      const int64_t width = gemm::min64(W, starts.count - g * W);
      for (int64_t w = 0; w < width; w++) starts.at(g * W + w, from[w], to[w]);
      const int64_t in_rows = call.kind == FftKind::complex_to_real ? half_rows : length;
      load_rows(in_rows, call.in, from, width, call.from, re, im);
      R scale = call.scale;
      if (call.kind == FftKind::complex_to_real) {
        if (call.packed) {
          pack_real<V>(length, plan.half, scale, row(re), row(im));
          scale = 1;
        } else {
          for (int64_t w = 0; w < W; w++) im[w] = 0;
          for (int64_t k = 1; k < half_rows; k++)
            for (int64_t w = 0; w < W; w++) {
              re[(length - k) * W + w] = re[k * W + w];
              im[(length - k) * W + w] = -im[k * W + w];
            }
        }
      }
      const bool moved = call.backward ? transform_lines(plan, im, re, work_im, work_re)
                                       : transform_lines(plan, re, im, work_re, work_im);
      if (moved) re = work_re, im = work_im;
      int64_t out_rows = length;
      if (call.kind == FftKind::real_to_complex) {
        if (call.packed) {
          unpack_real<V>(length, plan.half, scale, row(re), row(im));
          scale = 1;
        } else {
          for (int64_t w = 0; w < W; w++) im[w] = 0;
        }
        out_rows = half_rows;
      }
      if (scale != R(1))
        for (int64_t i = 0; i < out_rows * W; i++) re[i] *= scale, im[i] *= scale;
      store_rows(out_rows, call.out, to, width, call.to, re, im);
    }
  });
}

// ---- Lines alone ----

template <class R>
void run_line(const Call<R>& call, const Plan<R>& plan, const R* in, R* out, bool threads) {
  const int64_t length = call.length, half_rows = call.n / 2 + 1;
  const auto line = [](auto* p, Along along) {
    return Line<std::remove_reference_t<decltype(*p)>>{p, p + along.imag, along.step};
  };
  const auto turned = [](auto l) { return decltype(l){l.im, l.re, l.stride}; };
  if (call.kind == FftKind::complex) {
    const auto from = line(in, call.from);
    const auto to = line(out, call.to);
    return transform_line<R>(plan, call.backward ? turned(from) : from, call.backward ? turned(to) : to, call.scale,
                             threads);
  }
  Scratch<R> memory(2 * (call.n + 2));
  R* const z = memory.get();
  const auto re = [z](int64_t i) { return z + 2 * i; };
  const auto im = [z](int64_t i) { return z + 2 * i + 1; };
  const Line<R> temporary{z, z + 1, 2};
  const Line<const R> given{z, z + 1, 2};
  if (call.kind == FftKind::real_to_complex) {
    if (call.packed) {
      transform_line<R>(plan, line(in, call.from), temporary, R(1), threads);
      unpack_real<R>(length, plan.half, call.scale, re, im);
    } else {
      for (int64_t i = 0; i < length; i++) *re(i) = in[i * call.from.step], *im(i) = 0;
      transform_line<R>(plan, given, temporary, call.scale, threads);
      *im(0) = 0;
    }
    for (int64_t k = 0; k < half_rows; k++) {
      out[k * call.to.step] = *re(k);
      out[k * call.to.step + call.to.imag] = *im(k);
    }
    return;
  }
  for (int64_t k = 0; k < half_rows; k++)
    *re(k) = in[k * call.from.step], *im(k) = in[k * call.from.step + call.from.imag];
  if (call.packed) {
    pack_real<R>(length, plan.half, call.scale, re, im);
    return transform_line<R>(plan, turned(given), turned(line(out, call.to)), R(1), threads);
  }
  *im(0) = 0;
  for (int64_t k = 1; k < half_rows; k++) *re(length - k) = *re(k), *im(length - k) = -*im(k);
  transform_line<R>(plan, turned(given), turned(temporary), call.scale, threads);
  for (int64_t i = 0; i < length; i++) out[i * call.to.step] = *re(i);
}

template <class R>
void run(const FftArgs& args) {
  const bool real_in = args.kind == FftKind::real_to_complex, real_out = args.kind == FftKind::complex_to_real;
  const Starts starts(args, real_in ? 1 : 2, real_out ? 1 : 2);
  if (starts.count == 0 || args.n == 0) return;
  const int64_t from = args.in.strides[args.in.ndim - 1], to = args.out.strides[args.out.ndim - 1];
  Call<R> call{};
  call.kind = args.kind, call.n = args.n;
  call.packed = args.kind != FftKind::complex && args.n % 2 == 0;
  call.length = call.packed ? args.n / 2 : args.n;
  call.backward = !args.forward, call.scale = static_cast<R>(args.scale);
  call.in = args.in.ptr<R>(), call.out = args.out.ptr<R>();
  call.from = real_in ? (call.packed ? Along{2 * from, from} : Along{from, 0, false}) : Along{2 * from, 1};
  call.to = real_out ? (call.packed ? Along{2 * to, to} : Along{to, 0, false}) : Along{2 * to, 1};
  const int64_t longest = is_smooth(call.length) ? kLongLine : kLongConvolution;
  const bool alone = call.length > longest || (starts.count <= kWidth<R> / 2 && call.length >= 2 * kWidth<R>);
  const Plan<R>* const plan = acquire<R>(call.length, alone);
  if (!alone) {
    run_groups(call, *plan, starts);
  } else if (starts.count < num_threads()) {
    for (int64_t i = 0; i < starts.count; i++) {
      int64_t a, b;
      starts.at(i, a, b);
      run_line(call, *plan, call.in + a, call.out + b, true);
    }
  } else {
    parallel_for(starts.count, gemm::max64(1, 16384 / call.length), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        int64_t a, b;
        starts.at(i, a, b);
        run_line(call, *plan, call.in + a, call.out + b, false);
      }
    });
  }
  release(plan);
}

void transform(const FftArgs& args) {
  const DType dtype = args.kind == FftKind::real_to_complex ? args.out.dtype : args.in.dtype;
  if (dtype == DType::C64) {
    run<float>(args);
  } else if (dtype == DType::C128) {
    run<double>(args);
  } else {
    missing_kernel("fft", name_of(dtype));
  }
}

void mirror(const TensorView& out, uint64_t mirrored) {
  const int last = out.ndim - 1;
  const int64_t n = out.sizes[last], first = n / 2 + 1;
  if (n <= first || out.numel == 0) return;
  const auto fill = [&](auto tag) {
    using C = typename decltype(tag)::type;
    parallel_for(out.numel / n, grain_of(n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        int64_t to = 0, from = 0, rest = i;
        for (int d = last - 1; d >= 0; d--) {
          const int64_t at = rest % out.sizes[d];
          rest /= out.sizes[d];
          to += at * out.strides[d];
          from += (mirrored >> d & 1 ? (out.sizes[d] - at) % out.sizes[d] : at) * out.strides[d];
        }
        for (int64_t k = first; k < n; k++)
          out.ptr<C>()[to + k * out.strides[last]] = conj(out.ptr<C>()[from + (n - k) * out.strides[last]]);
      }
    });
  };
  dispatch(out.dtype, ComplexTypes{}, fill);
}

MT_REGISTER_KERNEL(fft_kernel, &transform);
MT_REGISTER_KERNEL(fft_mirror_kernel, &mirror);

}  // namespace
}  // namespace fft
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
