// Pooling kernels against the definition of a window, element by element, without PyTorch.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "memory.h"
#include "kernels/pool.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

class Pool : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { backend(); }
};

struct Expected {
  float max, sum;
  int64_t index;
};

// The window of output (h, w) of one plane.
Expected window_of(const Vector<float>& x, const PoolShape& s, const PoolWindow& p, int64_t plane, int64_t h,
                   int64_t w) {
  Expected e{-std::numeric_limits<float>::infinity(), 0, -1};
  for (int64_t i = 0; i < p.kernel[1]; i++)
    for (int64_t j = 0; j < p.kernel[2]; j++) {
      const int64_t y = h * p.stride[1] - p.pad[1] + i * p.dilation[1];
      const int64_t z = w * p.stride[2] - p.pad[2] + j * p.dilation[2];
      if (y < 0 || z < 0 || y >= s.in[1] || z >= s.in[2]) continue;
      const float v = x[(plane * s.in[1] + y) * s.in[2] + z];
      e.sum += v;
      if (v > e.max) {
        e.max = v;
        e.index = y * s.in[2] + z;
      }
    }
  return e;
}

TEST_F(Pool, EveryWindowGeometryInBothLayouts) {
  std::mt19937 engine(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const int64_t n = 2, c = 3, height = 9;
  for (const int64_t width : {1, 5, 16, 33, 70})
    for (const int64_t kernel : {1, 2, 3})
      for (const int64_t stride : {1, 2, 3})
        for (const int64_t pad : {int64_t{0}, kernel / 2})
          for (const int64_t dilation : {1, 2}) {
            const int64_t reach = dilation * (kernel - 1) + 1;
            if (width + 2 * pad < reach) continue;
            PoolShape s{false, n, c, {1, height, width}, {1, 0, 0}};
            const PoolWindow p{{1, kernel, kernel}, {1, stride, stride}, {0, pad, pad}, {1, dilation, dilation}};
            s.out[1] = (height + 2 * pad - reach) / stride + 1;
            s.out[2] = (width + 2 * pad - reach) / stride + 1;
            Vector<float> x(n * c * height * width), last(x.size());
            for (float& v : x) v = uniform(engine);
            for (int64_t i = 0; i < n; i++)
              for (int64_t j = 0; j < c; j++)
                for (int64_t k = 0; k < height * width; k++)
                  last[(i * height * width + k) * c + j] = x[(i * c + j) * height * width + k];
            const int64_t out = s.out[1] * s.out[2];
            Vector<float> y(n * c * out), z(y.size()), mean(y.size());
            Vector<int64_t> index(y.size()), index_last(y.size());
            max_pool_kernel({DType::F32, s, p, x.data(), y.data(), index.data()});
            s.channels_last = true;
            max_pool_kernel({DType::F32, s, p, last.data(), z.data(), index_last.data()});
            s.channels_last = false;
            if (dilation == 1) avg_pool_kernel({DType::F32, s, p, true, kernel * kernel, x.data(), mean.data()});
            for (int64_t plane = 0; plane < n * c; plane++)
              for (int64_t o = 0; o < out; o++) {
                const Expected e = window_of(x, s, p, plane, o / s.out[2], o % s.out[2]);
                const int64_t first = plane * out + o, other = (plane / c * out + o) * c + plane % c;
                ASSERT_EQ(y[first], e.max);
                if (e.index >= 0) ASSERT_EQ(index[first], e.index);  // a dilated window may miss the image
                ASSERT_EQ(z[other], e.max);
                if (e.index >= 0) ASSERT_EQ(index_last[other], e.index);
                if (dilation == 1) ASSERT_NEAR(mean[first], e.sum / (kernel * kernel), 1e-6);
              }
          }
}

TEST_F(Pool, ScatterReportsABadIndexAndWritesTheRest) {
  MT_CPU_ONLY();
  const PoolShape s{false, 1, 1, {1, 2, 2}, {1, 1, 3}};
  const Vector<float> x{1, 2, 4};
  const Vector<int64_t> index{3, 9, 3};
  Vector<float> y(4, -1);
  bool failed = false;
  int64_t bad = 0;
  pool_scatter_kernel({DType::F32, s, true, x.data(), index.data(), y.data(), &failed, &bad});
  EXPECT_TRUE(failed);
  EXPECT_EQ(bad, 9);
  EXPECT_EQ(y, (Vector<float>{0, 0, 0, 5}));
}

}  // namespace
}  // namespace minitorch
