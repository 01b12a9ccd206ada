// Fourier transforms on CUDA. Lines that fit in shared memory are transformed there in one pass over global memory, by
// T. G. Stockham's self-sorting form ("High-speed convolution and correlation", AFIPS 1966) with one radix a step.
// Longer ones are seen as a matrix, whose columns and then rows are such lines with a factor between (the four-step
// method: D. H. Bailey, "FFTs in external or hierarchical memory", J. Supercomputing 1990). Lengths with a large prime
// factor become a convolution of a power of two (L. I. Bluestein, IEEE Trans. Audio Electroacoust. 1970). Transforms of
// real numbers are those of complex ones with half of the numbers not read or not written.
#include "kernels/fft.h"

#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kMaxRadix = 13, kMaxSteps = 24;
constexpr int64_t kSharedBytes = 96 << 10;  // two copies of the lines of a block; every GPU since sm_80 has so much
constexpr int64_t kBlockElements = 2048;    // so many elements make a block worth it

enum class Numbers : uint8_t { complex, real, half };  // half: the first n / 2 + 1 of a Hermitian sequence

// Sequences of n numbers in memory, one for each item of the batch.
struct Sequence {
  void* data;
  int64_t stride;
  Numbers numbers;
};

template <class R>
__device__ __forceinline__ Complex<R> read_number(const Sequence& s, int64_t start, int64_t i, int64_t n) {
  if (s.numbers == Numbers::real) return {static_cast<const R*>(s.data)[start + i * s.stride], R(0)};
  const auto* const p = static_cast<const Complex<R>*>(s.data) + start;
  if (s.numbers == Numbers::complex) return p[i * s.stride];
  const bool mirrored = 2 * i > n;
  Complex<R> z = p[(mirrored ? n - i : i) * s.stride];
  if (i == 0 || 2 * i == n) z.im = R(0);
  return mirrored ? conj(z) : z;
}
template <class R>
__device__ __forceinline__ void write_number(const Sequence& s, int64_t start, int64_t i, int64_t n, Complex<R> z) {
  if (s.numbers == Numbers::real) {
    static_cast<R*>(s.data)[start + i * s.stride] = z.re;
  } else if (s.numbers == Numbers::complex || 2 * i <= n) {
    static_cast<Complex<R>*>(s.data)[start + i * s.stride] = z;
  }
}
template <class R>
__device__ __forceinline__ Complex<R> scaled(Complex<R> z, R by) {
  return {z.re * by, z.im * by};
}

// A pass over lines of `length` elements. Line l belongs to item l / period of the batch; with column c = l % period
// its element e is number c * pitch + e * step of the item's sequence.
template <class R>
struct Pass {
  Joint<2> batch;
  Sequence in, out;
  int64_t n, lines, period, pitch_in, step_in, pitch_out, step_out;
  const Complex<R>* roots;  // exp(-2 pi i k / n)
  int length, steps, lines_per_block;
  int radix[kMaxSteps];
  bool adjacent_in, adjacent_out;  // neighbouring lines, rather than elements of one, are adjacent in memory
  bool twiddle;                    // element e of the result is multiplied with root c * e
  bool conj_in, conj_out;
  R scale;
};

// One step: values that lie length / Rx apart, times roots, become Rx values of the transforms of length joined * Rx.
template <class R, int Rx>
__device__ __forceinline__ void butterflies(const Pass<R>& a, int lines, int joined, const Complex<R>* from,
                                            Complex<R>* to) {
  using C = Complex<R>;
  const int apart = a.length / Rx;
  const int64_t root = a.n / (static_cast<int64_t>(joined) * Rx), turn = a.n / Rx;
  for (int at = threadIdx.x; at < lines * apart; at += blockDim.x) {
    const int line = at / apart, t = at - line * apart, k = t % joined;
    const C* const x = from + line * a.length + t;
    C* const y = to + line * a.length + (t - k) * Rx + k;
    C v[Rx];
#pragma unroll
    for (int q = 0; q < Rx; q++) v[q] = q == 0 || k == 0 ? x[q * apart] : x[q * apart] * a.roots[q * k * root];
    if constexpr (Rx == 2) {
      y[0] = v[0] + v[1];
      y[joined] = v[0] - v[1];
    } else if constexpr (Rx == 4) {
      const C s = v[0] + v[2], d = v[0] - v[2], p = v[1] + v[3], m = v[1] - v[3], turned{m.im, -m.re};
      y[0] = s + p;
      y[joined] = d + turned;
      y[2 * joined] = s - p;
      y[3 * joined] = d - turned;
    } else {
      // Roots q and Rx - q are conjugate: sums of opposite values meet the real parts, differences the imaginary ones.
      constexpr int half = (Rx - 1) / 2;
      C w[Rx], sums[half], differences[half], first = v[0];
#pragma unroll
      for (int q = 1; q < Rx; q++) w[q] = a.roots[q * turn];
#pragma unroll
      for (int q = 1; q <= half; q++) {
        sums[q - 1] = v[q] + v[Rx - q], differences[q - 1] = v[q] - v[Rx - q];
        first += sums[q - 1];
      }
      y[0] = first;
#pragma unroll
      for (int p = 1; p <= half; p++) {
        C even = v[0], odd(R(0));
#pragma unroll
        for (int q = 1; q <= half; q++) {
          even += scaled(sums[q - 1], w[p * q % Rx].re);
          odd += scaled(differences[q - 1], w[p * q % Rx].im);
        }
        y[p * joined] = {even.re - odd.im, even.im + odd.re};
        y[(Rx - p) * joined] = {even.re + odd.im, even.im - odd.re};
      }
    }
  }
}

template <class R>
__global__ void __launch_bounds__(kThreads) transform_lines(const __grid_constant__ Pass<R> a) {
  using C = Complex<R>;
  extern __shared__ __align__(16) char shared_bytes[];
  C* from = reinterpret_cast<C*>(shared_bytes);
  C* to = from + static_cast<int64_t>(a.lines_per_block) * a.length;
  const int64_t first = blockIdx.x * int64_t{a.lines_per_block};
  const int lines = static_cast<int>(min(int64_t{a.lines_per_block}, a.lines - first)), count = lines * a.length;

  // Calls f(line within the block, element, offsets of the item, column) for all elements.
  const auto each = [&](bool adjacent, const auto& f) {
    for (int at = threadIdx.x; at < count; at += blockDim.x) {
      const int line = adjacent ? at % lines : at / a.length, e = adjacent ? at / lines : at - line * a.length;
      const int64_t item = (first + line) / a.period, column = (first + line) - item * a.period;
      int64_t offsets[2];
      a.batch.offsets(item, offsets);
      f(line, e, offsets, column);
    }
  };
  each(a.adjacent_in, [&](int line, int e, const int64_t (&offsets)[2], int64_t column) {
    const C z = read_number<R>(a.in, offsets[0], column * a.pitch_in + e * a.step_in, a.n);
    from[line * a.length + e] = a.conj_in ? conj(z) : z;
  });
  int joined = 1;
  for (int s = 0; s < a.steps; s++) {
    __syncthreads();
    switch (a.radix[s]) {
      case 2: butterflies<R, 2>(a, lines, joined, from, to); break;
      case 3: butterflies<R, 3>(a, lines, joined, from, to); break;
      case 4: butterflies<R, 4>(a, lines, joined, from, to); break;
      case 5: butterflies<R, 5>(a, lines, joined, from, to); break;
      case 7: butterflies<R, 7>(a, lines, joined, from, to); break;
      case 11: butterflies<R, 11>(a, lines, joined, from, to); break;
      default: butterflies<R, 13>(a, lines, joined, from, to);
    }
    joined *= a.radix[s];
    C* const done = to;
    to = from, from = done;
  }
  __syncthreads();
  each(a.adjacent_out, [&](int line, int e, const int64_t (&offsets)[2], int64_t column) {
    C z = from[line * a.length + e];
    if (a.twiddle) z = z * a.roots[column * e];
    if (a.conj_out) z = conj(z);
    write_number<R>(a.out, offsets[1], column * a.pitch_out + e * a.step_out, a.n, scaled(z, a.scale));
  });
}

// exp(-2 pi i k / n) for 0 <= k < n, from the angle to the nearest quarter turn: the error of the quotient is relative
// to the angle, which is at most an eighth of a turn.
template <class R>
__device__ __forceinline__ Complex<R> root_of_unity(int64_t k, int64_t n) {
  const int64_t quarters = (8 * k + n) / (2 * n), rest = 4 * k - quarters * n;
  double s, c;
  sincospi(static_cast<double>(rest) / static_cast<double>(2 * n), &s, &c);
  const bool odd = quarters % 2 != 0, back = quarters % 4 == 2 || quarters % 4 == 3;
  const double re = odd ? -s : c, im = odd ? -c : -s;
  return {static_cast<R>(back ? -re : re), static_cast<R>(back ? -im : im)};
}

template <class R>
__global__ void __launch_bounds__(kThreads) fill_roots(Complex<R>* roots, int64_t n) {
  MT_GRID_LOOP(k, n) roots[k] = root_of_unity<R>(k, n);
}

// What a transform works on; `batch` gives the items' offsets in `in` and `out`.
struct Problem {
  Joint<2> batch;
  Sequence in, out;
  int64_t n;
  bool backward;
  double scale;
};

bool factor(int64_t n, int* radix, int& steps) {
  steps = 0;
  for (const int r : {4, 2, 3, 5, 7, 11, kMaxRadix})
    for (; n % r == 0 && n > 1; n /= r) {
      if (steps == kMaxSteps) return false;
      radix[steps++] = r;
    }
  return n == 1;
}

template <class R>
constexpr int64_t longest() {
  return kSharedBytes / static_cast<int64_t>(2 * sizeof(Complex<R>));
}

template <class R>
void run_pass(Pass<R> a) {
  factor(a.length, a.radix, a.steps);
  const int64_t wanted = std::max<int64_t>(ceil_div(kBlockElements, a.length), a.adjacent_in || a.adjacent_out ? 8 : 1);
  a.lines_per_block = static_cast<int>(std::max<int64_t>(1, std::min({wanted, longest<R>() / a.length, a.lines})));
  const int64_t bytes = 2 * int64_t{a.lines_per_block} * a.length * static_cast<int64_t>(sizeof(Complex<R>));
  launch_kernel(&transform_lines<R>, static_cast<unsigned>(ceil_div(a.lines, a.lines_per_block)), kThreads, bytes, a);
}

Joint<2> joint_of(int64_t count, int64_t stride_in, int64_t stride_out) {
  return Joint<2>(1, &count, {&stride_in, &stride_out});
}

// The number of columns of the matrix that a long sequence is seen as: the divisor nearest to the square root. 0: there
// is none for which both sides fit.
int64_t columns_for(int64_t n, int64_t most) {
  for (int64_t columns = static_cast<int64_t>(std::sqrt(static_cast<double>(n))); columns >= 1; columns--)
    if (n % columns == 0) return n / columns <= most ? columns : 0;
  return 0;
}

bool has_small_factors(int64_t n) {
  int radix[kMaxSteps], steps;
  return factor(n, radix, steps);
}

// Number k of each item's transform from row k % rows, column k / rows of its matrix.
template <class R>
__global__ void __launch_bounds__(kThreads)
    store_transposed(const __grid_constant__ Joint<2> batch, Sequence out, int64_t n, int64_t rows, bool conjugate,
                     R scale, const Complex<R>* in) {
  MT_GRID_LOOP(at, batch.numel * n) {
    const int64_t item = at / n, k = at - item * n;
    int64_t offsets[2];
    batch.offsets(item, offsets);
    const Complex<R> z = scaled(in[item * n + k % rows * (n / rows) + k / rows], scale);
    write_number<R>(out, offsets[1], k, n, conjugate ? conj(z) : z);
  }
}

// n has small factors only.
template <class R>
void run_direct(const Problem& p) {
  using C = Complex<R>;
  const int64_t n = p.n;
  const Scratch table(n * static_cast<int64_t>(sizeof(C)));
  fill_roots<R><<<grid_for(n), kThreads, 0, cuda::current_stream()>>>(table.get<C>(), n);
  Pass<R> a{p.batch, p.in, p.out};
  a.n = n, a.roots = table.get<C>();
  a.scale = static_cast<R>(p.scale);
  a.conj_in = a.conj_out = p.backward;
  if (n <= longest<R>()) {
    a.lines = p.batch.numel, a.length = static_cast<int>(n);
    a.period = a.pitch_in = a.step_in = a.pitch_out = a.step_out = 1;
    a.adjacent_in = std::abs(p.in.stride) > 1 && n > 1, a.adjacent_out = std::abs(p.out.stride) > 1 && n > 1;
    return run_pass(a);
  }
  int64_t columns = columns_for(n, longest<R>());
  const bool long_rows = columns == 0;
  if (long_rows) {
    int64_t rows = longest<R>();
    while (n % rows != 0) rows--;
    columns = n / rows;
  }
  const int64_t rows = n / columns, count = p.batch.numel;
  const Scratch between(count * n * static_cast<int64_t>(sizeof(C)));
  const Sequence middle{between.get(), 1, Numbers::complex};
  // Columns, in place but for the move to contiguous memory.
  Pass<R> first = a;
  int64_t together = n;
  for (int d = 0; d < first.batch.space.ndim; d++) {
    first.batch.strides[1][d] = together;
    together *= first.batch.space.sizes[d];
  }
  first.out = middle;
  first.lines = count * columns, first.length = static_cast<int>(rows);
  first.period = columns, first.pitch_in = first.pitch_out = 1, first.step_in = first.step_out = columns;
  first.adjacent_in = first.adjacent_out = true;
  first.twiddle = true, first.conj_out = false, first.scale = R(1);
  run_pass(first);
  if (long_rows) {
    run_direct<R>({joint_of(count * rows, columns, columns), middle, middle, columns, false, 1.0});
    store_transposed<R><<<grid_for(count * n), kThreads, 0, cuda::current_stream()>>>(
        p.batch, p.out, n, rows, p.backward, a.scale, between.get<C>());
    return;
  }
  // Rows, which go to columns of the transposed matrix.
  Pass<R> second = a;
  for (int d = 0; d < second.batch.space.ndim; d++) second.batch.strides[0][d] = first.batch.strides[1][d];
  second.in = middle;
  second.lines = count * rows, second.length = static_cast<int>(columns);
  second.period = rows, second.pitch_in = columns, second.step_in = 1, second.pitch_out = 1, second.step_out = rows;
  second.adjacent_out = true;
  second.conj_in = false;
  run_pass(second);
}

// ---- Any length ----------------------------------------------------------------------------------------------------

// exp(-pi i k^2 / n)
template <class R>
__device__ __forceinline__ Complex<R> chirp(int64_t k, int64_t n) {
  const auto square = static_cast<uint64_t>(k) * static_cast<uint64_t>(k) % static_cast<uint64_t>(2 * n);
  return root_of_unity<R>(static_cast<int64_t>(square), 2 * n);
}

// The factor of the convolution: the conjugated chirp for -n < k < n, around 0.
template <class R>
__global__ void __launch_bounds__(kThreads) fill_chirp(Complex<R>* out, int64_t n, int64_t m) {
  MT_GRID_LOOP(i, m) {
    const int64_t k = i < n ? i : m - i;
    out[i] = k < n ? conj(chirp<R>(k, n)) : Complex<R>(R(0));
  }
}
template <class R>
__global__ void __launch_bounds__(kThreads) load_chirped(const __grid_constant__ Joint<2> batch, Sequence in,
                                                         bool backward, int64_t n, int64_t m, Complex<R>* out) {
  MT_GRID_LOOP(at, batch.numel * m) {
    const int64_t item = at / m, i = at - item * m;
    if (i >= n) {
      out[at] = Complex<R>(R(0));
      continue;
    }
    int64_t offsets[2];
    batch.offsets(item, offsets);
    const Complex<R> z = read_number<R>(in, offsets[0], i, n);
    out[at] = (backward ? conj(z) : z) * chirp<R>(i, n);
  }
}
template <class R>
__global__ void __launch_bounds__(kThreads)
    multiply_lines(Complex<R>* a, const Complex<R>* b, int64_t count, int64_t m) {
  MT_GRID_LOOP(at, count * m) a[at] = a[at] * b[at % m];
}
template <class R>
__global__ void __launch_bounds__(kThreads)
    store_chirped(const __grid_constant__ Joint<2> batch, Sequence out, bool backward, int64_t n, int64_t m, R scale,
                  const Complex<R>* in) {
  MT_GRID_LOOP(at, batch.numel * n) {
    const int64_t item = at / n, k = at - item * n;
    int64_t offsets[2];
    batch.offsets(item, offsets);
    const Complex<R> z = scaled(in[item * m + k] * chirp<R>(k, n), scale);
    write_number<R>(out, offsets[1], k, n, backward ? conj(z) : z);
  }
}

template <class R>
void run_convolution(const Problem& p) {
  using C = Complex<R>;
  const cudaStream_t stream = cuda::current_stream();
  const int64_t n = p.n, count = p.batch.numel;
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  const Scratch memory((count + 1) * m * static_cast<int64_t>(sizeof(C)));
  C *const lines = memory.get<C>(), *const factor = lines + count * m;
  const auto transform = [&](C* data, int64_t items, bool backward) {
    const Sequence in_place{data, 1, Numbers::complex};
    run_direct<R>({joint_of(items, m, m), in_place, in_place, m, backward, 1.0});
  };
  fill_chirp<R><<<grid_for(m), kThreads, 0, stream>>>(factor, n, m);
  load_chirped<R><<<grid_for(count * m), kThreads, 0, stream>>>(p.batch, p.in, p.backward, n, m, lines);
  transform(factor, 1, false);
  transform(lines, count, false);
  multiply_lines<R><<<grid_for(count * m), kThreads, 0, stream>>>(lines, factor, count, m);
  transform(lines, count, true);
  store_chirped<R><<<grid_for(count * n), kThreads, 0, stream>>>(
      p.batch, p.out, p.backward, n, m, static_cast<R>(p.scale / static_cast<double>(m)), lines);
}

template <class R>
void run(const FftArgs& args) {
  const int last = args.in.ndim - 1;
  const Joint<2> batch(last, args.in.sizes, {args.in.strides, args.out.strides});
  if (batch.numel == 0 || args.n == 0) return;
  const auto sequence = [&](const TensorView& v, Numbers numbers) {
    return Sequence{v.data, v.strides[last], numbers};
  };
  const Problem p{batch,
                  sequence(args.in, args.kind == FftKind::real_to_complex   ? Numbers::real
                                    : args.kind == FftKind::complex_to_real ? Numbers::half
                                                                            : Numbers::complex),
                  sequence(args.out, args.kind == FftKind::real_to_complex   ? Numbers::half
                                     : args.kind == FftKind::complex_to_real ? Numbers::real
                                                                             : Numbers::complex),
                  args.n,
                  !args.forward,
                  args.scale};
  has_small_factors(args.n) ? run_direct<R>(p) : run_convolution<R>(p);
  cuda::check_launch("launching a Fourier transform");
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

// ---- The other half of a real sequence's transform ------------------------------------------------------------------

struct Mirror {
  int ndim;
  int64_t sizes[kMaxDims], strides[kMaxDims];
  uint64_t mirrored;
  int64_t count;
};

template <class C>
__global__ void __launch_bounds__(kThreads) mirror_lines(const __grid_constant__ Mirror a, C* out) {
  const int last = a.ndim - 1;
  const int64_t n = a.sizes[last], first = n / 2 + 1, width = n - first;
  MT_GRID_LOOP(i, a.count) {
    int64_t to = 0, from = 0, rest = i / width;
    const int64_t k = first + (i - rest * width);
    for (int d = last - 1; d >= 0; d--) {
      const int64_t at = rest % a.sizes[d];
      rest /= a.sizes[d];
      to += at * a.strides[d];
      from += (a.mirrored >> d & 1 ? (at == 0 ? 0 : a.sizes[d] - at) : at) * a.strides[d];
    }
    out[to + k * a.strides[last]] = conj(out[from + (n - k) * a.strides[last]]);
  }
}

void mirror(const TensorView& out, uint64_t mirrored) {
  Mirror a{};
  a.ndim = out.ndim, a.mirrored = mirrored;
  for (int d = 0; d < out.ndim; d++) a.sizes[d] = out.sizes[d], a.strides[d] = out.strides[d];
  const int64_t n = out.sizes[out.ndim - 1], width = n - (n / 2 + 1);
  if (width <= 0 || out.numel == 0) return;
  a.count = out.numel / n * width;
  dispatch(out.dtype, ComplexTypes{}, [&](auto tag) {
    using C = typename decltype(tag)::type;
    mirror_lines<C><<<grid_for(a.count), kThreads, 0, cuda::current_stream()>>>(a, out.ptr<C>());
  });
  cuda::check_launch("launching the mirror of a Fourier transform");
}

MT_REGISTER_KERNEL(fft_kernel, &transform);
MT_REGISTER_KERNEL(fft_mirror_kernel, &mirror);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
