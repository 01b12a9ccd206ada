// Grid sampling on the CPU. A block of grid points is turned into taps (offset and weight of each pixel that a point
// draws on) once, in loops over points that vectorise; every channel then gathers by them. Gradients of the image
// scatter by the same taps, one channel's plane at a time, so threads never share an element.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/scratch.h"
#include "core/parallel.h"
#include "kernels/functors/grid_sample.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace grid_sampling;

constexpr int kPoints = 64;  // grid points in a block

// Along one axis, for each point of a block: pixel indices (-1: outside), weights, their derivatives by the pixel
// coordinate, and that coordinate's derivative by the one that the grid has.
template <class C, int K>
struct AxisTaps {
  alignas(64) int32_t index[K][kPoints];
  alignas(64) C weight[K][kPoints];
  alignas(64) C slope[K][kPoints];
  alignas(64) C scale[kPoints];
};

template <class C, int K>
void fill_axis(const GridSampleArgs& a, int64_t extent, const C* x, int n, AxisTaps<C, K>& taps) {
  const Coordinates<C> c(a, extent);
  for (int j = 0; j < n; j++)
    taps.scale[j] = point_taps<C, K, kPoints>(c, x[j], taps.index[0] + j, taps.weight[0] + j, taps.slope[0] + j);
}

// All pixels that the points of a block draw on: the products of the axes' taps.
template <class C, int K, int D, class Index>
struct BlockTaps {
  static constexpr int kCount = D == 2 ? K * K : K * K * K;
  alignas(64) Index offset[kCount][kPoints];  // in elements of one channel of x; -1: outside
  alignas(64) C weight[kCount][kPoints];
  AxisTaps<C, K> axis[D];  // width, height, depth

  template <class T>
  void fill(const GridSampleArgs& a, const int64_t (&strides)[3], const T* grid, int n) {
    C x[kPoints];
    for (int d = 0; d < D; d++) {
      for (int j = 0; j < n; j++) x[j] = static_cast<C>(grid[j * D + d]);
      fill_axis(a, a.in[2 - d], x, n, axis[d]);
    }
    for (int t = 0; t < kCount; t++) {
      const int kx = t % K, ky = t / K % K, kz = t / (K * K);
      const int32_t *ix = axis[0].index[kx], *iy = axis[1].index[ky], *iz = axis[D - 1].index[D == 3 ? kz : 0];
      const C *wx = axis[0].weight[kx], *wy = axis[1].weight[ky], *wz = axis[D - 1].weight[D == 3 ? kz : 0];
      const auto sx = static_cast<Index>(strides[2]), sy = static_cast<Index>(strides[1]),
                 sz = static_cast<Index>(strides[0]);
      for (int j = 0; j < n; j++) {
        const bool outside = ix[j] < 0 || iy[j] < 0 || (D == 3 && iz[j] < 0);
        const Index at = ix[j] * sx + iy[j] * sy + (D == 3 ? iz[j] * sz : 0);
        offset[t][j] = outside ? Index(-1) : at;
        weight[t][j] = D == 3 ? wx[j] * wy[j] * wz[j] : wx[j] * wy[j];
      }
    }
  }
};

template <class T>
MT_INLINE compute_t<T> pixel_at(const T* x, int64_t offset) {
  return offset < 0 ? compute_t<T>(0) : static_cast<compute_t<T>>(x[offset]);
}

// f(sample, first point, number of points) for all blocks of points of all samples, in parallel.
template <class F>
void for_blocks(const GridSampleArgs& a, int64_t work, const F& f) {
  const int64_t points = a.out[0] * a.out[1] * a.out[2], blocks = (points + kPoints - 1) / kPoints;
  parallel_for(a.n * blocks, grain_of(4 * kPoints * work), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) {
      const int64_t first = b % blocks * kPoints;
      f(b / blocks, first, static_cast<int>(std::min<int64_t>(kPoints, points - first)));
    }
  });
}

template <class T, int K, int D, class Index>
struct Sampler {
  using C = compute_t<T>;
  using Block = BlockTaps<C, K, D, Index>;

  static void forward(const GridSampleArgs& a) {
    const int64_t points = a.out[0] * a.out[1] * a.out[2];
    for_blocks(a, a.c * Block::kCount, [&](int64_t n, int64_t first, int count) {
      Block taps;
      taps.fill(a, a.x_strides, static_cast<const T*>(a.grid) + (n * points + first) * D, count);
      for (int64_t c = 0; c < a.c; c++) {
        const T* x = static_cast<const T*>(a.x) + n * a.x_n + c * a.x_c;
        C sum[kPoints] = {};
        for (int t = 0; t < Block::kCount; t++)
          for (int j = 0; j < count; j++) {
            if constexpr (D == 2) {  // a point at NaN is NaN
              sum[j] += taps.weight[t][j] * pixel_at(x, taps.offset[t][j]);
            } else {
              const C product = taps.weight[t][j] * pixel_at(x, taps.offset[t][j]);
              sum[j] += taps.offset[t][j] < 0 ? C(0) : product;
            }
          }
        T* y = static_cast<T*>(a.y) + (n * a.c + c) * points + first;
        for (int j = 0; j < count; j++) y[j] = static_cast<T>(sum[j]);
      }
    });
  }

  static void grid_gradient(const GridSampleArgs& a) {
    const int64_t points = a.out[0] * a.out[1] * a.out[2];
    for_blocks(a, a.c * Block::kCount * D, [&](int64_t n, int64_t first, int count) {
      Block taps;
      taps.fill(a, a.x_strides, static_cast<const T*>(a.grid) + (n * points + first) * D, count);
      C sums[D][kPoints] = {};
      for (int64_t c = 0; c < a.c; c++) {
        const T* x = static_cast<const T*>(a.x) + n * a.x_n + c * a.x_c;
        const T* dy = static_cast<const T*>(a.dy) + (n * a.c + c) * points + first;
        C values[Block::kCount][kPoints];
        for (int t = 0; t < Block::kCount; t++)
          for (int j = 0; j < count; j++) values[t][j] = pixel_at(x, taps.offset[t][j]);
        for (int d = 0; d < D; d++) add_slopes(taps, d, values, dy, count, sums[d]);
      }
      T* dgrid = static_cast<T*>(a.dgrid) + (n * points + first) * D;
      for (int d = 0; d < D; d++)
        for (int j = 0; j < count; j++) dgrid[j * D + d] = static_cast<T>(sums[d][j] * taps.axis[d].scale[j]);
    });
  }

  // sum[j] += dy[j] * derivative of the interpolated value along axis d: differences along that axis first, which
  // cancel exactly where pixels agree, then the weights of the other axes.
  MT_INLINE static void add_slopes(const Block& taps, int d, const C (&values)[Block::kCount][kPoints], const T* dy,
                                   int count, C* sum) {
    const int step = d == 0 ? 1 : d == 1 ? K : K * K;
    const AxisTaps<C, K>&own = taps.axis[d], &low = taps.axis[d == 0 ? 1 : 0],
                      &high = taps.axis[D == 3 && d < 2 ? 2 : 1];
    C total[kPoints] = {};
    for (int line = 0; line < Block::kCount / K; line++) {
      // The line's position along the other axes, the nearer to the last dimension first.
      const int k0 = line % K, k1 = line / K;
      const int first = (line / step) * step * K + line % step;
      for (int j = 0; j < count; j++) {
        C difference = C(0);
        for (int k = 0; k < K; k++) difference += own.slope[k][j] * values[first + k * step][j];
        const C weight = D == 3 ? low.weight[k0][j] * high.weight[k1][j] : low.weight[k0][j];
        total[j] += difference * weight;
      }
    }
    for (int j = 0; j < count; j++) sum[j] += total[j] * static_cast<C>(dy[j]);
  }

  static void image_gradient(const GridSampleArgs& a) {
    constexpr bool staged = !std::is_same_v<T, C>;
    const int64_t points = a.out[0] * a.out[1] * a.out[2], plane = a.in[0] * a.in[1] * a.in[2];
    const int64_t strides[3] = {a.in[1] * a.in[2], a.in[2], 1};
    // Taps serve a group of channels; groups are as large as leaves work for every thread.
    const int64_t groups = std::min(a.c, std::max<int64_t>(1, (num_threads() + a.n - 1) / std::max<int64_t>(1, a.n)));
    parallel_for(a.n * groups, 1, [&](int64_t begin, int64_t end) {
      Scratch<Block> scratch(1);
      Block& taps = scratch[0];
      for (int64_t task = begin; task < end; task++) {
        const int64_t n = task / groups, group = task % groups;
        const int64_t c0 = a.c * group / groups, c1 = a.c * (group + 1) / groups;
        Scratch<C> staging(staged ? (c1 - c0) * plane : 0);
        T* const dx = static_cast<T*>(a.dx) + (n * a.c + c0) * plane;
        C* target;
        if constexpr (staged) {
          target = staging.get();
        } else {
          target = dx;
        }
        std::memset(static_cast<void*>(target), 0, static_cast<size_t>((c1 - c0) * plane) * sizeof(C));
        for (int64_t first = 0; first < points; first += kPoints) {
          const int count = static_cast<int>(std::min<int64_t>(kPoints, points - first));
          taps.fill(a, strides, static_cast<const T*>(a.grid) + (n * points + first) * D, count);
          for (int64_t c = c0; c < c1; c++) {
            const T* dy = static_cast<const T*>(a.dy) + (n * a.c + c) * points + first;
            C* image = target + (c - c0) * plane;
            for (int j = 0; j < count; j++) {
              const C g = static_cast<C>(dy[j]);
              for (int t = 0; t < Block::kCount; t++)
                if (taps.offset[t][j] >= 0) image[taps.offset[t][j]] += g * taps.weight[t][j];
            }
          }
        }
        if constexpr (staged)
          for (int64_t i = 0; i < (c1 - c0) * plane; i++) dx[i] = static_cast<T>(target[i]);
      }
    });
  }

  static void backward(const GridSampleArgs& a) {
    if (a.dx != nullptr) image_gradient(a);
    if (a.dgrid != nullptr) grid_gradient(a);
  }
};

// f(a sampler) with the types and counts that the call needs.
template <class T, class F>
void with_sampler(const GridSampleArgs& a, const F& f) {
  int64_t reach = 0;
  for (int d = 0; d < 3; d++)
    reach += (a.in[d] - 1) * std::max<int64_t>(a.x_strides[d], a.in[0] * a.in[1] * a.in[2] / a.in[d]);
  const bool narrow = reach < (int64_t{1} << 31);
  const auto run = [&](auto k, auto d) {
    constexpr int K = decltype(k)::value, D = decltype(d)::value;
    narrow ? f(Sampler<T, K, D, int32_t>{}) : f(Sampler<T, K, D, int64_t>{});
  };
  using std::integral_constant;
  const bool linear = a.interpolation == GridInterpolation::linear;
  if (a.dims == 3) {
    linear ? run(integral_constant<int, 2>{}, integral_constant<int, 3>{})
           : run(integral_constant<int, 1>{}, integral_constant<int, 3>{});
  } else if (a.interpolation == GridInterpolation::cubic) {
    run(integral_constant<int, 4>{}, integral_constant<int, 2>{});
  } else {
    linear ? run(integral_constant<int, 2>{}, integral_constant<int, 2>{})
           : run(integral_constant<int, 1>{}, integral_constant<int, 2>{});
  }
}

void grid_sample(const GridSampleArgs& a) {
  const bool done = dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
    with_sampler<typename decltype(tag)::type>(a, [&](auto sampler) { sampler.forward(a); });
  });
  if (!done) missing_kernel("grid_sample", name_of(a.dtype));
}
void grid_sample_backward(const GridSampleArgs& a) {
  const bool done = dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
    with_sampler<typename decltype(tag)::type>(a, [&](auto sampler) { sampler.backward(a); });
  });
  if (!done) missing_kernel("grid_sample_backward", name_of(a.dtype));
}

MT_REGISTER_KERNEL(grid_sample_kernel, &grid_sample);
MT_REGISTER_KERNEL(grid_sample_backward_kernel, &grid_sample_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
