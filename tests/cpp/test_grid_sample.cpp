// Grid sampling: the identity, bilinear interpolation by its definition, and gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/grid_sample.h"
#include "values.h"

namespace minitorch {
namespace {

struct Problem {
  GridSampleArgs a{};
  Vector<double> x, grid, y, dy, dx, dgrid;
  Problem(int dims, GridInterpolation interpolation, GridPadding padding, bool align_corners) {
    a.dtype = DType::F64;
    a.dims = dims;
    a.interpolation = interpolation;
    a.padding = padding;
    a.align_corners = align_corners;
    a.n = 2;
    a.c = 3;
    const int64_t in[3] = {dims == 3 ? 4 : 1, 5, 7}, out[3] = {dims == 3 ? 2 : 1, 3, 6};
    for (int d = 0; d < 3; d++) {
      a.in[d] = in[d];
      a.out[d] = out[d];
    }
    const int64_t plane = in[0] * in[1] * in[2], points = out[0] * out[1] * out[2];
    a.x_n = 3 * plane;
    a.x_c = plane;
    a.x_strides[0] = in[1] * in[2];
    a.x_strides[1] = in[2];
    a.x_strides[2] = 1;
    x = random_of<double>(6 * plane, 1);
    grid = random_of<double>(2 * points * dims, 2, -1.3, 1.3);
    y.resize(6 * points);
    dy = random_of<double>(6 * points, 3);
    dx.resize(x.size());
    dgrid.resize(grid.size());
    a.x = x.data();
    a.grid = grid.data();
    a.y = y.data();
    a.dy = dy.data();
    a.dx = dx.data();
    a.dgrid = dgrid.data();
  }
  double weighted() {
    grid_sample_kernel(a);
    double sum = 0;
    for (size_t i = 0; i < y.size(); i++) sum += y[i] * dy[i];
    return sum;
  }
};

TEST(GridSample, BilinearByItsDefinition) {
  for (const int dims : {2, 3}) {
    Problem p(dims, GridInterpolation::linear, GridPadding::zeros, false);
    grid_sample_kernel(p.a);
    const int64_t points = p.a.out[0] * p.a.out[1] * p.a.out[2];
    for (int64_t n = 0; n < 2; n++)
      for (int64_t c = 0; c < 3; c++)
        for (int64_t at = 0; at < points; at++) {
          double pixel[3] = {};  // depth, height, width
          for (int d = 0; d < dims; d++)
            pixel[2 - d] = ((p.grid[(n * points + at) * dims + d] + 1) * static_cast<double>(p.a.in[2 - d]) - 1) / 2;
          double expected = 0;
          for (int64_t z = 0; z < p.a.in[0]; z++)
            for (int64_t h = 0; h < p.a.in[1]; h++)
              for (int64_t w = 0; w < p.a.in[2]; w++) {
                const auto tent = [](double d) { return std::max(0.0, 1 - std::fabs(d)); };
                const double weight = (dims == 3 ? tent(pixel[0] - static_cast<double>(z)) : 1) *
                                      tent(pixel[1] - static_cast<double>(h)) * tent(pixel[2] - static_cast<double>(w));
                expected += weight * p.x[(((n * 3 + c) * p.a.in[0] + z) * p.a.in[1] + h) * p.a.in[2] + w];
              }
          ASSERT_NEAR(p.y[(n * 3 + c) * points + at], expected, 1e-12);
        }
  }
}

TEST(GridSample, GradientsOfTheImageAreTransposesAndOfTheGridSlopes) {
  for (const int dims : {2, 3})
    for (const GridInterpolation interpolation :
         {GridInterpolation::linear, GridInterpolation::nearest, GridInterpolation::cubic})
      for (const GridPadding padding : {GridPadding::zeros, GridPadding::border, GridPadding::reflection})
        for (const bool align_corners : {false, true}) {
          if (dims == 3 && interpolation == GridInterpolation::cubic) continue;
          Problem p(dims, interpolation, padding, align_corners);
          const double outputs = p.weighted();
          grid_sample_backward_kernel(p.a);
          double inputs = 0;
          for (size_t i = 0; i < p.x.size(); i++) inputs += p.x[i] * p.dx[i];
          EXPECT_NEAR(outputs, inputs, 1e-11);
          for (size_t i = 0; i < p.grid.size(); i += short_tests() ? 20 : 5) {
            const double g0 = p.grid[i], h = 1e-7;
            p.grid[i] = g0 + h;
            const double up = p.weighted();
            p.grid[i] = g0 - h;
            const double down = p.weighted();
            p.grid[i] = g0;
            EXPECT_NEAR(p.dgrid[i], (up - down) / (2 * h), 1e-5)
                << dims << static_cast<int>(interpolation) << static_cast<int>(padding) << align_corners;
          }
        }
}

}  // namespace
}  // namespace minitorch
