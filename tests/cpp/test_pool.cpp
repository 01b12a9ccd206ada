// Pooling kernels against the definition of a window, element by element, without PyTorch.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
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

// ---- Averages and their gradients ----------------------------------------------------------------------------------

struct Averaging {
  int64_t in[3], kernel[3], stride[3], pad[3];
  bool up;  // round the number of windows up
};
const Averaging kAveragings[] = {
    {{1, 9, 33}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, false}, {{1, 9, 16}, {1, 2, 3}, {1, 2, 2}, {0, 0, 0}, true},
    {{5, 6, 7}, {2, 3, 3}, {1, 2, 3}, {1, 1, 0}, false},  {{4, 5, 23}, {3, 1, 5}, {2, 1, 4}, {1, 0, 2}, true},
    {{1, 1, 90}, {1, 1, 9}, {1, 1, 1}, {0, 0, 4}, false}, {{1, 2, 2}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, false},
};

// The window of output i of dimension d, without and with its padding.
struct WindowSpan {
  int64_t start, end, full;
};
WindowSpan span_of(const PoolShape& s, const PoolWindow& w, int d, int64_t i) {
  if (w.kernel[0] == 0) {
    const int64_t start = i * s.in[d] / s.out[d], end = ((i + 1) * s.in[d] + s.out[d] - 1) / s.out[d];
    return {start, end, end - start};
  }
  const int64_t start = i * w.stride[d] - w.pad[d];
  const int64_t padded_end = std::min(start + w.kernel[d], s.in[d] + w.pad[d]);
  return {std::max<int64_t>(start, 0), std::min(padded_end, s.in[d]), padded_end - start};
}

template <class T>
void expect_average(const PoolShape& s, const PoolWindow& w, bool include_pad, int64_t divisor) {
  const int64_t in = s.in[0] * s.in[1] * s.in[2], out = s.out[0] * s.out[1] * s.out[2], planes = s.n * s.c;
  const auto x = random_of<T>(planes * in, 1), dy = random_of<T>(planes * out, 2);
  Vector<T> y(dy.size(), stored<T>(7)), dx(x.size(), stored<T>(7));
  avg_pool_kernel({dtype_of<T>, s, w, include_pad, divisor, x.data(), y.data()});
  avg_pool_backward_kernel({dtype_of<T>, s, w, include_pad, divisor, dy.data(), dx.data()});
  // Element i of plane p, in a plane of `size` elements.
  const auto at = [&](int64_t p, int64_t i, int64_t size) {
    return s.channels_last ? (p / s.c * size + i) * s.c + p % s.c : p * size + i;
  };
  TermSums slope(x.size());
  for (int64_t p = 0; p < planes; p++)
    for (int64_t o = 0; o < out; o++) {
      const int64_t place[3] = {o / (s.out[1] * s.out[2]), o / s.out[2] % s.out[1], o % s.out[2]};
      WindowSpan span[3];
      int64_t count = 1, full = 1;
      for (int d = 0; d < 3; d++) {
        span[d] = span_of(s, w, d, place[d]);
        count *= std::max<int64_t>(span[d].end - span[d].start, 0);
        full *= span[d].full;
      }
      const auto divided_by = static_cast<double>(divisor != 0 ? divisor : include_pad ? full : count);
      double sum = 0, sum_size = 0;
      for (int64_t d = span[0].start; d < span[0].end; d++)
        for (int64_t h = span[1].start; h < span[1].end; h++)
          for (int64_t v = span[2].start; v < span[2].end; v++) {
            const int64_t from = at(p, (d * s.in[1] + h) * s.in[2] + v, in);
            sum += number(x[from]);
            sum_size += std::abs(number(x[from]));
            slope.add(from, number(dy[at(p, o, out)]) / divided_by);
          }
      const double mean = count == 0 ? 0 : sum / divided_by;
      ASSERT_NEAR(number(y[at(p, o, out)]), mean,
                  allowed<T>(mean, count == 0 ? 0 : sum_size / divided_by, static_cast<double>(count) + 1))
          << p << ", " << o;
    }
  slope.expect(dx, 1);
}

TEST_F(Pool, AveragesAndTheirGradients) {
  on_each_isa([] {
    for (const Averaging& a : kAveragings)
      for (const bool last : {false, true})
        for (const bool adaptive : {false, true}) {
          PoolShape s{last, 2, 19, {a.in[0], a.in[1], a.in[2]}, {}};
          PoolWindow w{};
          for (int d = 0; d < 3; d++) {
            w.kernel[d] = adaptive ? 0 : a.kernel[d], w.stride[d] = a.stride[d], w.pad[d] = a.pad[d], w.dilation[d] = 1;
            s.out[d] = (a.in[d] + 2 * a.pad[d] - a.kernel[d] + (a.up ? a.stride[d] - 1 : 0)) / a.stride[d] + 1;
            // The last window begins inside the image or its padding before it.
            if (a.up && (s.out[d] - 1) * a.stride[d] >= a.in[d] + a.pad[d]) s.out[d]--;
          }
          for (const bool include_pad : {false, true})
            for (const int64_t divisor : {0, 5}) {
              if (adaptive && (include_pad || divisor != 0)) continue;
              expect_average<float>(s, w, include_pad, divisor);
              expect_average<BFloat16>(s, w, include_pad, divisor);
              expect_average<double>(s, w, include_pad, divisor);
            }
        }
  });
}

// ---- Windows that begin at random ----------------------------------------------------------------------------------

template <class T>
T product(T a, T b) {
  return stored<T>(static_cast<compute_t<T>>(a) * static_cast<compute_t<T>>(b));
}

// The start of window i. Every step is rounded to T, for where a window begins depends on it.
template <class T>
int64_t fractional_start(T sample, int64_t i, int64_t in, int64_t out, int64_t kernel) {
  if (i == out - 1) return in - kernel;
  using C = compute_t<T>;
  const T reach = stored<T>(static_cast<double>(in - kernel)), steps = stored<T>(static_cast<double>(out - 1));
  const T alpha = T(static_cast<C>(reach) / static_cast<C>(steps));
  const T shifted = T(static_cast<C>(stored<T>(static_cast<double>(i))) + static_cast<C>(sample));
  return static_cast<int64_t>(number(product(shifted, alpha))) - static_cast<int64_t>(number(product(sample, alpha)));
}

template <class T>
void expect_fractional(const int64_t (&in)[3], const int64_t (&out)[3], const int64_t (&kernel)[3]) {
  constexpr int64_t kPlanes = 6;
  const int64_t pixels = in[0] * in[1] * in[2], outputs = out[0] * out[1] * out[2];
  auto x = random_of<T>(kPlanes * pixels, 1);
  for (T& v : x) v = stored<T>(std::round(number(v) * 8) / 8);  // many are equal: the first of them counts
  x[static_cast<size_t>(pixels / 2)] = stored<T>(NAN);          // the largest of all
  const auto samples = random_of<T>(kPlanes * 3, 2, 0, 0.99);
  Vector<T> y(kPlanes * outputs, stored<T>(7));
  Vector<int64_t> indices(y.size(), -7);
  fractional_max_pool_kernel({.dtype = dtype_of<T>,
                              .shape = {false, 2, 3, {in[0], in[1], in[2]}, {out[0], out[1], out[2]}},
                              .kernel = {kernel[0], kernel[1], kernel[2]},
                              .samples = samples.data(),
                              .sample_count = 3,
                              .sample_index = {0, 2, 1},
                              .x = x.data(),
                              .y = y.data(),
                              .indices = indices.data()});
  for (int64_t p = 0; p < kPlanes; p++)
    for (int64_t o = 0; o < outputs; o++) {
      const int64_t place[3] = {o / (out[1] * out[2]), o / out[2] % out[1], o % out[2]};
      const int sample_of[3] = {0, 2, 1};
      int64_t start[3], best = -1;
      for (int d = 0; d < 3; d++)
        start[d] = fractional_start(samples[p * 3 + sample_of[d]], place[d], in[d], out[d], kernel[d]);
      for (int64_t d = start[0]; d < start[0] + kernel[0]; d++)
        for (int64_t h = start[1]; h < start[1] + kernel[1]; h++)
          for (int64_t w = start[2]; w < start[2] + kernel[2]; w++) {
            const int64_t i = (d * in[1] + h) * in[2] + w;
            const double value = number(x[p * pixels + i]);
            if (best < 0 || std::isnan(value) || value > number(x[p * pixels + best])) best = i;
          }
      const double found = number(y[p * outputs + o]), exact = number(x[p * pixels + best]);
      ASSERT_TRUE(found == exact || (std::isnan(found) && std::isnan(exact))) << p << ", " << o;
      ASSERT_EQ(indices[p * outputs + o], best) << p << ", " << o;
    }
}

TEST_F(Pool, FractionalWindows) {
  on_each_isa([] {
    const auto each_type = [](const int64_t (&in)[3], const int64_t (&out)[3], const int64_t (&kernel)[3]) {
      expect_fractional<float>(in, out, kernel);
      expect_fractional<BFloat16>(in, out, kernel);
      expect_fractional<double>(in, out, kernel);
    };
    each_type({1, 20, 31}, {1, 7, 12}, {1, 2, 3});
    each_type({9, 8, 7}, {4, 3, 5}, {2, 3, 2});
    each_type({1, 5, 6}, {1, 1, 6}, {1, 2, 1});  // one window, and as many as elements
  });
}

}  // namespace
}  // namespace minitorch
