// Fourier transforms against their definition in double precision: small and mixed radices, prime lengths, lengths that
// take several passes, every kind, direction and layout; long ones by transforming back.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "isas.h"
#include "memory.h"
#include "kernels/fft.h"

namespace minitorch {
namespace {

using Z = Complex<double>;

// count x n, with the elements of a line next to each other or `count` apart.
TensorView lines(void* data, DType dtype, int64_t count, int64_t n, bool adjacent) {
  TensorView v{};
  v.data = static_cast<char*>(data);
  v.dtype = dtype;
  v.ndim = 2;
  v.numel = count * n;
  v.sizes[0] = count, v.sizes[1] = n;
  v.strides[0] = adjacent ? n : 1, v.strides[1] = adjacent ? 1 : count;
  return v;
}
template <class T>
Vector<T> noise(int64_t n) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Vector<T> x(static_cast<size_t>(n));
  for (T& v : x) {
    if constexpr (is_complex_v<T>) {
      v.re = static_cast<real_t<T>>(uniform(engine)), v.im = static_cast<real_t<T>>(uniform(engine));
    } else {
      v = static_cast<T>(uniform(engine));
    }
  }
  return x;
}
Z root(int64_t k, int64_t n, bool forward) {
  const double angle = 2 * M_PI * static_cast<double>(k % n) / static_cast<double>(n);
  return {std::cos(angle), forward ? -std::sin(angle) : std::sin(angle)};
}

template <class R>
class Fft : public testing::Test {};
using FftTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Fft, FftTypes);

TYPED_TEST(Fft, AgreesWithTheDefinition) {
  using R = TypeParam;
  using C = Complex<R>;
  const double unit = static_cast<double>(std::numeric_limits<R>::epsilon());
  on_each_isa([&] {
    for (const int64_t n : {1, 2, 3, 4, 7, 8, 12, 17, 30, 64, 121, 143, 202, 360, 1024, 1031})
      for (const bool adjacent : {true, false})
        for (const bool forward : {true, false}) {
          const int64_t count = 5, half = n / 2 + 1;
          const double close = 10 * unit * static_cast<double>(n);
          const auto at = [&](int64_t line, int64_t i, int64_t length) {
            return static_cast<size_t>(adjacent ? line * length + i : i * count + line);
          };
          const auto expect_near = [&](Z got, Z expected, const char* kind) {
            EXPECT_NEAR(got.re, expected.re, close) << kind << " " << n;
            EXPECT_NEAR(got.im, expected.im, close) << kind << " " << n;
          };
          Vector<C> in = noise<C>(count * n), out(static_cast<size_t>(count * n));
          fft_kernel({lines(in.data(), dtype_of<C>, count, n, adjacent),
                      lines(out.data(), dtype_of<C>, count, n, !adjacent), FftKind::complex, n, forward, 0.5});
          for (int64_t k = 0; k < n; k += 1 + n / 50) {
            Z sum(0.0);
            for (int64_t j = 0; j < n; j++) sum += Z(in[at(3, j, n)]) * root(j * k, n, forward);
            const size_t there = static_cast<size_t>(adjacent ? k * count + 3 : 3 * n + k);
            expect_near(Z(out[there]), sum * Z(0.5), "complex");
          }
          if (forward) {
            Vector<R> real = noise<R>(count * n);
            Vector<C> spectrum(static_cast<size_t>(count * half));
            fft_kernel({lines(real.data(), dtype_of<R>, count, n, adjacent),
                        lines(spectrum.data(), dtype_of<C>, count, half, adjacent), FftKind::real_to_complex, n, true,
                        1});
            for (int64_t k = 0; k < half; k += 1 + n / 50) {
              Z sum(0.0);
              for (int64_t j = 0; j < n; j++) sum += Z(real[at(2, j, n)]) * root(j * k, n, true);
              expect_near(Z(spectrum[at(2, k, half)]), sum, "real to complex");
            }
          } else {
            Vector<C> spectrum = noise<C>(count * half);
            Vector<R> real(static_cast<size_t>(count * n));
            fft_kernel({lines(spectrum.data(), dtype_of<C>, count, half, adjacent),
                        lines(real.data(), dtype_of<R>, count, n, adjacent), FftKind::complex_to_real, n, false, 2});
            for (int64_t j = 0; j < n; j += 1 + n / 50) {
              double sum = spectrum[at(4, 0, half)].re;
              for (int64_t k = 1; k < half; k++) {
                const Z z(spectrum[at(4, k, half)]);
                sum += 2 * k == n ? z.re * root(j * k, n, false).re : 2 * (z * root(j * k, n, false)).re;
              }
              EXPECT_NEAR(real[at(4, j, n)], 2 * sum, 2 * close) << "complex to real " << n;
            }
          }
        }
  });
}

TYPED_TEST(Fft, LongLinesComeBack) {
  using R = TypeParam;
  using C = Complex<R>;
  on_each_isa([] {
    for (const int64_t n :
         {int64_t{1} << 15, int64_t{3} * 5 * 7 * 11 * 13, int64_t{1} << 18, int64_t{16411}, int64_t{99990}}) {
      const int64_t count = 2, half = n / 2 + 1;
      Vector<C> x = noise<C>(count * n), y(static_cast<size_t>(count * n));
      fft_kernel({lines(x.data(), dtype_of<C>, count, n, true), lines(y.data(), dtype_of<C>, count, n, true),
                  FftKind::complex, n, true, 1});
      for (const int64_t k : {int64_t{0}, int64_t{1}, n / 3, n - 1}) {
        Z sum(0.0);
        for (int64_t j = 0; j < n; j++) sum += Z(x[static_cast<size_t>(n + j)]) * root(j * k, n, true);
        EXPECT_NEAR(y[static_cast<size_t>(n + k)].re, sum.re, 1e-3 * std::sqrt(static_cast<double>(n))) << n;
        EXPECT_NEAR(y[static_cast<size_t>(n + k)].im, sum.im, 1e-3 * std::sqrt(static_cast<double>(n))) << n;
      }
      fft_kernel({lines(y.data(), dtype_of<C>, count, n, true), lines(y.data(), dtype_of<C>, count, n, true),
                  FftKind::complex, n, false, 1.0 / static_cast<double>(n)});
      Vector<R> real = noise<R>(count * n), again(static_cast<size_t>(count * n));
      Vector<C> spectrum(static_cast<size_t>(count * half));
      fft_kernel({lines(real.data(), dtype_of<R>, count, n, true),
                  lines(spectrum.data(), dtype_of<C>, count, half, true), FftKind::real_to_complex, n, true, 1});
      fft_kernel({lines(spectrum.data(), dtype_of<C>, count, half, true),
                  lines(again.data(), dtype_of<R>, count, n, true), FftKind::complex_to_real, n, false,
                  1.0 / static_cast<double>(n)});
      double worst = 0, worst_real = 0;
      for (size_t i = 0; i < x.size(); i++) {
        worst = std::max({worst, std::abs(double{x[i].re} - y[i].re), std::abs(double{x[i].im} - y[i].im)});
        worst_real = std::max(worst_real, std::abs(double{real[i]} - again[i]));
      }
      const double close = 50 * static_cast<double>(std::numeric_limits<R>::epsilon());
      EXPECT_LE(worst, close) << n;
      EXPECT_LE(worst_real, close) << n;
    }
  });
}

TEST(FftMirror, FillsTheOtherHalf) {
  on_each_isa([] {
    constexpr int64_t m = 3, n = 6;
    Vector<Z> x = noise<Z>(m * n);
    const Vector<Z> given = x;
    fft_mirror_kernel(lines(x.data(), DType::C128, m, n, true), 1);
    for (int64_t i = 0; i < m; i++)
      for (int64_t k = 0; k < n; k++) {
        const Z expected = k <= n / 2 ? given[static_cast<size_t>(i * n + k)]
                                      : conj(given[static_cast<size_t>((m - i) % m * n + n - k)]);
        EXPECT_EQ(x[static_cast<size_t>(i * n + k)], expected) << i << " " << k;
      }
  });
}

}  // namespace
}  // namespace minitorch
