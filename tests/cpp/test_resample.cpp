// Resampling: weights that sum to one, gradients that are the forward pass's transpose, layouts, bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/resample.h"
#include "values.h"

namespace minitorch {
namespace {

constexpr ResampleMode kModes[] = {ResampleMode::nearest,   ResampleMode::nearest_exact, ResampleMode::linear,
                                   ResampleMode::cubic,     ResampleMode::linear_aa,     ResampleMode::cubic_aa,
                                   ResampleMode::lanczos_aa};

ResampleArgs image(ResampleMode mode, int64_t height, int64_t width, int64_t to_height, int64_t to_width) {
  ResampleArgs a{};
  a.dtype = DType::F64;
  a.mode = mode;
  a.n = 2;
  a.c = 3;
  a.axis[0] = {1, 1, 0, false};
  a.axis[1] = {height, to_height, 0, true};
  a.axis[2] = {width, to_width, 0, true};
  return a;
}

TEST(Resample, BilinearIsTheTextbooks) {
  ResampleArgs a = image(ResampleMode::linear, 5, 7, 11, 4);
  const Vector<double> x = random_of<double>(6 * 5 * 7, 1);
  Vector<double> y(6 * 11 * 4);
  a.x = x.data();
  a.y = y.data();
  resample_kernel(a);
  for (int64_t image = 0; image < 6; image++)
    for (int64_t oh = 0; oh < 11; oh++)
      for (int64_t ow = 0; ow < 4; ow++) {
        const double h = std::max(0.0, 5.0 / 11 * (oh + 0.5) - 0.5), w = std::max(0.0, 7.0 / 4 * (ow + 0.5) - 0.5);
        const int64_t h0 = static_cast<int64_t>(h), w0 = static_cast<int64_t>(w);
        const auto at = [&](int64_t r, int64_t c) {
          return x[(image * 5 + std::min<int64_t>(r, 4)) * 7 + std::min<int64_t>(c, 6)];
        };
        const double t = h - static_cast<double>(h0), u = w - static_cast<double>(w0);
        const double expected = (1 - t) * ((1 - u) * at(h0, w0) + u * at(h0, w0 + 1)) +
                                t * ((1 - u) * at(h0 + 1, w0) + u * at(h0 + 1, w0 + 1));
        EXPECT_NEAR(y[(image * 11 + oh) * 4 + ow], expected, 1e-12);
      }
}

TEST(Resample, KeepsConstantsAndGradientsAreTransposes) {
  for (const ResampleMode mode : kModes)
    for (const bool channels_last : {false, true})
      for (const auto [height, width] : {std::pair<int64_t, int64_t>{13, 3}, {4, 20}}) {
        ResampleArgs a = image(mode, 6, 9, height, width);
        a.channels_last = channels_last;
        Vector<double> ones(6 * 6 * 9, 1.0), y(6 * height * width), dx(6 * 6 * 9);
        a.x = ones.data();
        a.y = y.data();
        resample_kernel(a);
        for (const double v : y) ASSERT_NEAR(v, 1.0, 1e-12) << static_cast<int>(mode);
        const Vector<double> x = random_of<double>(6 * 6 * 9, 2), g = random_of<double>(6 * height * width, 3);
        a.x = x.data();
        resample_kernel(a);
        a.backward = true;
        a.x = g.data();
        a.y = dx.data();
        resample_kernel(a);
        double outputs = 0, inputs = 0;
        for (size_t i = 0; i < y.size(); i++) outputs += y[i] * g[i];
        for (size_t i = 0; i < x.size(); i++) inputs += x[i] * dx[i];
        EXPECT_NEAR(outputs, inputs, 1e-10) << static_cast<int>(mode);
      }
}

TEST(Resample, LayoutsAgree) {
  for (const ResampleMode mode : kModes) {
    ResampleArgs a = image(mode, 6, 9, 10, 5);
    const Vector<double> x = random_of<double>(6 * 6 * 9, 4);
    Vector<double> moved(x.size()), y(6 * 50), z(6 * 50);
    for (int64_t n = 0; n < 2; n++)
      for (int64_t c = 0; c < 3; c++)
        for (int64_t i = 0; i < 54; i++) moved[(n * 54 + i) * 3 + c] = x[(n * 3 + c) * 54 + i];
    a.x = x.data();
    a.y = y.data();
    resample_kernel(a);
    a.channels_last = true;
    a.x = moved.data();
    a.y = z.data();
    resample_kernel(a);
    for (int64_t n = 0; n < 2; n++)
      for (int64_t c = 0; c < 3; c++)
        for (int64_t i = 0; i < 50; i++)
          ASSERT_NEAR(z[(n * 50 + i) * 3 + c], y[(n * 3 + c) * 50 + i], 1e-13) << static_cast<int>(mode);
  }
}

TEST(Resample, BytesAreNearTheRealNumbers) {
  for (const ResampleMode mode : {ResampleMode::linear, ResampleMode::linear_aa}) {
    ResampleArgs a = image(mode, 8, 9, 5, 21);
    Vector<uint8_t> x(6 * 72), y(6 * 105);
    Vector<double> real(x.size()), expected(y.size());
    std::mt19937 random(5);
    for (size_t i = 0; i < x.size(); i++) real[i] = x[i] = static_cast<uint8_t>(random());
    a.x = real.data();
    a.y = expected.data();
    resample_kernel(a);
    a.dtype = DType::U8;
    a.x = x.data();
    a.y = y.data();
    resample_kernel(a);
    for (size_t i = 0; i < y.size(); i++)
      ASSERT_NEAR(y[i], std::min(255.0, std::max(0.0, expected[i])), 2.0) << static_cast<int>(mode);
  }
}

}  // namespace
}  // namespace minitorch
