// Distances on CUDA: a block makes a tile of 16 by 16 distances, reading the rows' pieces through shared memory.
// Gradients are a thread an element of x1, which goes over the other rows in order.
#include "kernels/cuda/launch.cuh"
#include "kernels/functors/distance.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace distance;

constexpr int kTile = 16;
constexpr int64_t kMostBlocks = int64_t{1} << 30;

// Where the pairs that begin with row i start, less i + 1: pair (i, j) is at pair_base + j.
__device__ __forceinline__ int64_t pair_base(int64_t i, int64_t n) { return i * (2 * n - i - 1) / 2 - i - 1; }

template <class T, class N, bool pairs>
__global__ void __launch_bounds__(kTile* kTile)
    distance_tiles(const __grid_constant__ DistanceArgs a, N norm, int64_t tiles) {
  __shared__ T rows1[kTile][kTile + 1], rows2[kTile][kTile + 1];
  const int tx = static_cast<int>(threadIdx.x) % kTile, ty = static_cast<int>(threadIdx.x) / kTile;
  const int64_t across = (a.r2 + kTile - 1) / kTile, down = (a.r1 + kTile - 1) / kTile;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t j0 = tile % across * kTile, i0 = tile / across % down * kTile, b = tile / across / down;
    if (pairs && j0 + kTile <= i0 + 1) continue;  // no pair in this tile; the same for the whole block
    const T* const x1 = static_cast<const T*>(a.x1) + b * a.r1 * a.m;
    const T* const x2 = static_cast<const T*>(pairs ? a.x1 : a.x2) + b * a.r2 * a.m;
    T sum = T(0);
    for (int64_t k0 = 0; k0 < a.m; k0 += kTile) {
      const bool inside = k0 + tx < a.m;
      rows1[ty][tx] = inside && i0 + ty < a.r1 ? x1[(i0 + ty) * a.m + k0 + tx] : T(0);
      rows2[ty][tx] = inside && j0 + ty < a.r2 ? x2[(j0 + ty) * a.m + k0 + tx] : T(0);
      __syncthreads();
      // Beyond the row both are zero, which adds nothing to any norm.
#pragma unroll
      for (int k = 0; k < kTile; k++) {
        const T d = rows1[ty][k] - rows2[tx][k];
        sum = norm.join(sum, norm.term(d < T(0) ? -d : d));
      }
      __syncthreads();
    }
    const int64_t i = i0 + ty, j = j0 + tx;
    if (i >= a.r1 || j >= a.r2 || (pairs && j <= i)) continue;
    static_cast<T*>(a.distance)[pairs ? pair_base(i, a.r1) + j : (b * a.r1 + i) * a.r2 + j] = norm.finish(sum);
  }
}

template <class T, class N, bool pairs>
__global__ void __launch_bounds__(kThreads)
    distance_gradient(const __grid_constant__ DistanceArgs a, N norm, int64_t numel) {
  const T *const distance = static_cast<const T*>(a.distance), *const dy = static_cast<const T*>(a.dy);
  MT_GRID_LOOP(at, numel) {
    const int64_t row = at / a.m, k = at - row * a.m;
    const T x = static_cast<const T*>(a.x1)[at];
    T sum = T(0);
    const auto add = [&](const T* x2, int64_t pair) {
      const T r = distance[pair];
      sum += norm.slope(x - *x2, norm.factor(dy[pair], r), r);
    };
    if constexpr (pairs) {
      const T* const column = static_cast<const T*>(a.x1) + k;
      for (int64_t j = 0; j < row; j++) add(column + j * a.m, pair_base(j, a.r1) + row);
      for (int64_t j = row + 1; j < a.r1; j++) add(column + j * a.m, pair_base(row, a.r1) + j);
    } else {
      const T* const column = static_cast<const T*>(a.x2) + row / a.r1 * a.r2 * a.m + k;
      for (int64_t j = 0; j < a.r2; j++) add(column + j * a.m, row * a.r2 + j);
    }
    static_cast<T*>(a.dx1)[at] = sum;
  }
}

template <class F>
void for_float(const char* name, const DistanceArgs& a, const F& f) {
  const bool done = dispatch(a.dtype, FloatTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_norm<T>(a.p, [&](auto norm) { f(tag, norm); });
  });
  if (!done) missing_kernel(name, name_of(a.dtype));
  cuda::check_launch("launching distances");
}

template <bool pairs>
void distances(const char* name, const DistanceArgs& a) {
  const int64_t tiles = a.batch * ceil_div(a.r1, kTile) * ceil_div(a.r2, kTile);
  if (tiles == 0) return;
  for_float(name, a, [&](auto tag, auto norm) {
    distance_tiles<typename decltype(tag)::type, decltype(norm), pairs>
        <<<static_cast<unsigned>(std::min(tiles, kMostBlocks)), kTile * kTile, 0, cuda::current_stream()>>>(a, norm,
                                                                                                            tiles);
  });
}
template <bool pairs>
void gradients(const char* name, const DistanceArgs& a) {
  const int64_t numel = a.batch * a.r1 * a.m;
  if (numel == 0) return;
  for_float(name, a, [&](auto tag, auto norm) {
    distance_gradient<typename decltype(tag)::type, decltype(norm), pairs>
        <<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, norm, numel);
  });
}

void cdist(const DistanceArgs& a) { distances<false>("cdist", a); }
void cdist_backward(const DistanceArgs& a) { gradients<false>("cdist_backward", a); }
void pdist(const DistanceArgs& a) { distances<true>("pdist", a); }
void pdist_backward(const DistanceArgs& a) { gradients<true>("pdist_backward", a); }

MT_REGISTER_KERNEL(cdist_kernel, &cdist);
MT_REGISTER_KERNEL(cdist_backward_kernel, &cdist_backward);
MT_REGISTER_KERNEL(pdist_kernel, &pdist);
MT_REGISTER_KERNEL(pdist_backward_kernel, &pdist_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
