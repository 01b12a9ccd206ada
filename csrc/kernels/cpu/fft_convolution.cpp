// Fourier transforms of lengths with large prime factors, as cyclic convolutions. A prime n whose n - 1 is smooth: the
// elements but the first, in the order of the powers of a primitive root, convolved with the roots of unity in that
// order (C. M. Rader, "Discrete Fourier transforms when the number of data samples is prime", Proc. IEEE 1968). Other
// lengths: a convolution with a chirp (L. I. Bluestein, "A linear filtering approach to the computation of discrete
// Fourier transform", IEEE Trans. Audio Electroacoust. 1970). In double precision, which keeps the error of float below
// that of a direct transform.
#include "kernels/cpu/fft_plan.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace fft {

template <class R>
void convolve_line(const Plan<R>& plan, Line<const R> in, Line<R> out, R scale, bool threads) {
  const int64_t n = plan.n, padded = plan.padded;
  const auto* const chirp = reinterpret_cast<const Complex<double>*>(plan.chirp);
  const auto* const spectrum = reinterpret_cast<const Complex<double>*>(plan.spectrum);
  Scratch<Complex<double>> memory(padded);
  for (int64_t j = 0; j < n; j++) memory[j] = Complex<double>(in.re[j * in.stride], in.im[j * in.stride]) * chirp[j];
  for (int64_t j = n; j < padded; j++) memory[j] = Complex<double>(0);
  double* const p = reinterpret_cast<double*>(memory.get());
  transform_line<double>(*plan.convolution, {p, p + 1, 2}, {p, p + 1, 2}, 1.0, threads);
  for (int64_t j = 0; j < padded; j++) memory[j] = memory[j] * spectrum[j];
  transform_line<double>(*plan.convolution, {p + 1, p, 2}, {p + 1, p, 2}, 1.0, threads);
  for (int64_t k = 0; k < n; k++) {
    const Complex<double> y = memory[k] * chirp[k];
    out.re[k * out.stride] = static_cast<R>(y.re * static_cast<double>(scale));
    out.im[k * out.stride] = static_cast<R>(y.im * static_cast<double>(scale));
  }
}

namespace {

// Complex numbers of kWidth<double> lines, from and to lanes of R.
template <class R>
struct Lanes {
  typedef R Part __attribute__((vector_size(kWidth<double> * sizeof(R)), aligned(sizeof(R)), may_alias));
  using V = Vector<double>;
  static MT_INLINE V load(const R* p) { return __builtin_convertvector(*reinterpret_cast<const Part*>(p), V); }
  static MT_INLINE void store(R* p, V x) { *reinterpret_cast<Part*>(p) = __builtin_convertvector(x, Part); }
};

MT_INLINE void multiply(Vector<double>& re, Vector<double>& im, const double* factor) {
  const Vector<double> x = re * factor[0] - im * factor[1];
  im = re * factor[1] + im * factor[0];
  re = x;
}

}  // namespace

template <class R>
void convolve_lines(const Plan<R>& plan, R* re, R* im) {
  using V = Vector<double>;
  using L = Lanes<R>;
  constexpr int64_t W = kWidth<R>, D = kWidth<double>;
  const int64_t n = plan.n, length = plan.padded;
  double* const memory = gemm::scratch<double>(gemm::Scratch::staged, 4 * length * D);
  const auto vector = [](double* p, int64_t i) -> V& { return *reinterpret_cast<V*>(p + i * kWidth<double>); };
  for (int64_t first = 0; first < W; first += D) {
    double *a = memory, *b = a + length * D, *work_a = b + length * D, *work_b = work_a + length * D;
    R *const x = re + first, *const y = im + first;
    const V first_re = L::load(x), first_im = L::load(y);
    if (plan.order != nullptr) {
      for (int64_t i = 0; i < length; i++) {
        vector(a, i) = L::load(x + plan.order[i] * W);
        vector(b, i) = L::load(y + plan.order[i] * W);
      }
    } else {
      for (int64_t i = 0; i < n; i++) {
        V u = L::load(x + i * W), v = L::load(y + i * W);
        multiply(u, v, plan.chirp + 2 * i);
        vector(a, i) = u, vector(b, i) = v;
      }
      for (int64_t i = n; i < length; i++) vector(a, i) = vector(b, i) = V{};
    }
    if (transform_lines(*plan.convolution, a, b, work_a, work_b)) std::swap(a, work_a), std::swap(b, work_b);
    const V sum_re = vector(a, 0), sum_im = vector(b, 0);
    for (int64_t i = 0; i < length; i++) multiply(vector(a, i), vector(b, i), plan.spectrum + 2 * i);
    if (transform_lines(*plan.convolution, b, a, work_b, work_a)) std::swap(a, work_a), std::swap(b, work_b);
    if (plan.order != nullptr) {
      L::store(x, first_re + sum_re), L::store(y, first_im + sum_im);
      for (int64_t i = 0; i < length; i++) {
        const int64_t to = plan.order[i == 0 ? 0 : length - i];
        L::store(x + to * W, first_re + vector(a, i));
        L::store(y + to * W, first_im + vector(b, i));
      }
    } else {
      for (int64_t i = 0; i < n; i++) {
        multiply(vector(a, i), vector(b, i), plan.chirp + 2 * i);
        L::store(x + i * W, vector(a, i)), L::store(y + i * W, vector(b, i));
      }
    }
  }
}

#define MT_FFT_TEMPLATES(R)                                                             \
  template void convolve_line(const Plan<R>&, Line<const R>, Line<R>, R, bool threads); \
  template void convolve_lines(const Plan<R>&, R*, R*);
MT_FFT_TEMPLATES(float)
MT_FFT_TEMPLATES(double)

}  // namespace fft
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
