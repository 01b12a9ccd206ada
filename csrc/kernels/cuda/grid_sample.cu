// Grid sampling on CUDA: a thread a grid point computes its taps once and serves a group of channels by them. Gradients
// of the image are added up atomically, 16-bit ones in single precision.
#include "kernels/cuda/atomic.cuh"
#include "kernels/functors/grid_sample.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace grid_sampling;

constexpr int kPointThreads = 128;

// Coordinates for the axes, the last dimension first.
template <class C>
struct Axes {
  Coordinates<C> axis[3];
  explicit Axes(const GridSampleArgs& a)
      : axis{Coordinates<C>(a, a.in[2]), Coordinates<C>(a, a.in[1]), Coordinates<C>(a, a.in[0])} {}
};

// The pixels that one point draws on.
template <class C, int K, int D>
struct PointTaps {
  static constexpr int kCount = D == 2 ? K * K : K * K * K;
  int32_t index[D][K];
  C weight[D][K], slope[D][K], scale[D];

  template <class T>
  __device__ __forceinline__ void fill(const Axes<C>& axes, const T* point) {
#pragma unroll
    for (int d = 0; d < D; d++)
      scale[d] = point_taps<C, K, 1>(axes.axis[d], convert<C>(point[d]), index[d], weight[d], slope[d]);
  }
  // In elements of a channel with these strides (depth, height, width); -1: outside.
  __device__ __forceinline__ int64_t offset(int t, const int64_t (&strides)[3]) const {
    const int ix = index[0][t % K], iy = index[1][t / K % K], iz = D == 3 ? index[D - 1][t / (K * K)] : 0;
    return ix < 0 || iy < 0 || iz < 0 ? -1 : ix * strides[2] + iy * strides[1] + (D == 3 ? iz * strides[0] : 0);
  }
  __device__ __forceinline__ C factor(int t) const {
    const C plane = weight[0][t % K] * weight[1][t / K % K];
    return D == 3 ? plane * weight[D - 1][t / (K * K)] : plane;
  }
};

template <class T, int K, int D>
__global__ void __launch_bounds__(kPointThreads)
    sample_points(const __grid_constant__ GridSampleArgs a, const __grid_constant__ Axes<compute_t<T>> axes,
                  int64_t points) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, a.n * points) {
    const int64_t n = i / points, at = i - n * points;
    PointTaps<C, K, D> taps;
    taps.fill(axes, static_cast<const T*>(a.grid) + i * D);
    for (int64_t c = blockIdx.y; c < a.c; c += gridDim.y) {
      const T* const x = static_cast<const T*>(a.x) + n * a.x_n + c * a.x_c;
      C sum = C(0);
#pragma unroll
      for (int t = 0; t < PointTaps<C, K, D>::kCount; t++) {
        const int64_t offset = taps.offset(t, a.x_strides);
        if (offset >= 0) {
          sum += taps.factor(t) * convert<C>(x[offset]);
        } else if (D == 2) {
          sum += taps.factor(t) * C(0);  // a point at NaN is NaN
        }
      }
      static_cast<T*>(a.y)[(n * a.c + c) * points + at] = convert<T>(sum);
    }
  }
}

template <class T, int K, int D>
__global__ void __launch_bounds__(kPointThreads)
    image_gradient(const __grid_constant__ GridSampleArgs a, const __grid_constant__ Axes<compute_t<T>> axes,
                   int64_t points, compute_t<T>* dx) {
  using C = compute_t<T>;
  const int64_t strides[3] = {a.in[1] * a.in[2], a.in[2], 1}, plane = a.in[0] * a.in[1] * a.in[2];
  MT_GRID_LOOP(i, a.n * points) {
    const int64_t n = i / points, at = i - n * points;
    PointTaps<C, K, D> taps;
    taps.fill(axes, static_cast<const T*>(a.grid) + i * D);
    for (int64_t c = blockIdx.y; c < a.c; c += gridDim.y) {
      const C g = convert<C>(static_cast<const T*>(a.dy)[(n * a.c + c) * points + at]);
      C* const image = dx + (n * a.c + c) * plane;
#pragma unroll
      for (int t = 0; t < PointTaps<C, K, D>::kCount; t++) {
        const int64_t offset = taps.offset(t, strides);
        if (offset >= 0) atomicAdd(image + offset, g * taps.factor(t));
      }
    }
  }
}

template <class T, int K, int D>
__global__ void __launch_bounds__(kPointThreads)
    grid_gradient(const __grid_constant__ GridSampleArgs a, const __grid_constant__ Axes<compute_t<T>> axes,
                  int64_t points) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, a.n * points) {
    const int64_t n = i / points, at = i - n * points;
    PointTaps<C, K, D> taps;
    taps.fill(axes, static_cast<const T*>(a.grid) + i * D);
    C sums[D] = {};
    for (int64_t c = 0; c < a.c; c++) {
      const T* const x = static_cast<const T*>(a.x) + n * a.x_n + c * a.x_c;
      const C g = convert<C>(static_cast<const T*>(a.dy)[(n * a.c + c) * points + at]);
#pragma unroll
      for (int d = 0; d < D; d++) {
        // Differences along the axis first: they cancel exactly where pixels agree.
        C total = C(0);
#pragma unroll
        for (int line = 0; line < PointTaps<C, K, D>::kCount / K; line++) {
          const int step = d == 0 ? 1 : d == 1 ? K : K * K;
          const int first = line / step * step * K + line % step;
          C difference = C(0), other = C(1);
#pragma unroll
          for (int k = 0; k < K; k++) {
            const int64_t offset = taps.offset(first + k * step, a.x_strides);
            difference += taps.slope[d][k] * (offset < 0 ? C(0) : convert<C>(x[offset]));
          }
          const int k[3] = {first % K, first / K % K, first / (K * K)};
#pragma unroll
          for (int e = 0; e < D; e++) other *= e == d ? C(1) : taps.weight[e][k[e]];
          total += difference * other;
        }
        sums[d] += total * g;
      }
    }
#pragma unroll
    for (int d = 0; d < D; d++) static_cast<T*>(a.dgrid)[i * D + d] = convert<T>(sums[d] * taps.scale[d]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) round_gradient(const float* from, T* to, int64_t numel) {
  MT_GRID_LOOP(i, numel) to[i] = convert<T>(from[i]);
}

// Enough groups of channels to fill the device, each as large as that leaves.
dim3 point_grid(const GridSampleArgs& a, int64_t points, bool split) {
  const int64_t blocks = std::clamp<int64_t>(ceil_div(a.n * points, kPointThreads), 1, int64_t{1} << 20);
  const int64_t groups = split ? ceil_div(int64_t{cuda::multiprocessors()} * 16, blocks) : 1;
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(std::clamp<int64_t>(std::min(groups, a.c), 1, 65535))};
}

template <class T, int K, int D>
struct Sampler {
  using C = compute_t<T>;

  static void forward(const GridSampleArgs& a, int64_t points) {
    sample_points<T, K, D>
        <<<point_grid(a, points, true), kPointThreads, 0, cuda::current_stream()>>>(a, Axes<C>(a), points);
  }
  static void backward(const GridSampleArgs& a, int64_t points) {
    const cudaStream_t stream = cuda::current_stream();
    const int64_t pixels = a.n * a.c * a.in[0] * a.in[1] * a.in[2];
    if (a.dx != nullptr && pixels > 0) {
      constexpr bool staged = !std::is_same_v<T, C>;
      const Scratch staging(staged ? pixels * static_cast<int64_t>(sizeof(C)) : 1);
      C* const dx = staged ? staging.get<C>() : static_cast<C*>(a.dx);
      cuda::check(cudaMemsetAsync(dx, 0, static_cast<size_t>(pixels) * sizeof(C), stream), "clearing a gradient");
      if (points > 0)
        image_gradient<T, K, D><<<point_grid(a, points, true), kPointThreads, 0, stream>>>(a, Axes<C>(a), points, dx);
      if constexpr (staged)
        round_gradient<<<grid_for(pixels), kThreads, 0, stream>>>(dx, static_cast<T*>(a.dx), pixels);
    }
    if (a.dgrid != nullptr && a.n * points > 0)
      grid_gradient<T, K, D><<<point_grid(a, points, false), kPointThreads, 0, stream>>>(a, Axes<C>(a), points);
  }
};

// f(a sampler) with the type and the counts that the call needs.
template <class F>
void with_sampler(const char* name, const GridSampleArgs& a, const F& f) {
  const bool done = dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool linear = a.interpolation == GridInterpolation::linear;
    if (a.dims == 3) {
      linear ? f(Sampler<T, 2, 3>{}) : f(Sampler<T, 1, 3>{});
    } else if (a.interpolation == GridInterpolation::cubic) {
      f(Sampler<T, 4, 2>{});
    } else {
      linear ? f(Sampler<T, 2, 2>{}) : f(Sampler<T, 1, 2>{});
    }
  });
  if (!done) missing_kernel(name, name_of(a.dtype));
  cuda::check_launch("launching a grid sampling");
}

void grid_sample(const GridSampleArgs& a) {
  const int64_t points = a.out[0] * a.out[1] * a.out[2];
  if (a.n * a.c * points == 0) return;
  with_sampler("grid_sample", a, [&](auto sampler) { sampler.forward(a, points); });
}
void grid_sample_backward(const GridSampleArgs& a) {
  const int64_t points = a.out[0] * a.out[1] * a.out[2];
  with_sampler("grid_sample_backward", a, [&](auto sampler) { sampler.backward(a, points); });
}

MT_REGISTER_KERNEL(grid_sample_kernel, &grid_sample);
MT_REGISTER_KERNEL(grid_sample_backward_kernel, &grid_sample_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
