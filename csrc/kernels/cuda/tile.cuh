// A blocked matrix product over loaders: C[i, j] = sum over k of A[i, k] B[k, j], where a Problem says how elements are
// found and what becomes of a result. Matrix products read strided matrices, convolutions compute the address of a
// pixel from i and k (implicit GEMM: no patch matrix in memory), so all of them are this file.
//
// A Problem has
//   m, n, k, batch;  a_along_k, b_along_k: whether memory runs along k, so that neighbouring threads load neighbours;
//   S a(batch, i, k), S b(batch, k, j): elements of the storage type, called inside the bounds only;
//   void store(batch, i, j, sum): called once for every element of C.
//
// Two forms: plain arithmetic for any type, and tensor cores for 16-bit floats with float sums. When C has few tiles, k
// is split over blocks and the partial sums are added in order by a second launch.
#pragma once
#include <mma.h>

#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace tile {

// The type of the sums.
template <class S>
using sum_t = compute_t<S>;

template <class C>
__device__ __forceinline__ C multiply_add(C a, C b, C sum) {
  if constexpr (std::is_integral_v<C> && !std::is_same_v<C, bool>) {
    using U = std::conditional_t<sizeof(C) < 8, uint32_t, uint64_t>;
    return static_cast<C>(static_cast<U>(a) * static_cast<U>(b) + static_cast<U>(sum));
  } else if constexpr (std::is_same_v<C, bool>) {
    return (a && b) || sum;
  } else {
    return a * b + sum;
  }
}

struct Split {
  int64_t splits;     // blocks that share a tile
  int64_t per_split;  // of k, a multiple of the depth of a tile
  void* partial;      // [splits][batch][m][n] sums, when there is more than one
};

template <class C, class P>
__device__ __forceinline__ void emit(const P& p, const Split& split, int64_t part, int64_t batch, int64_t i, int64_t j,
                                     C sum) {
  if (i >= p.m || j >= p.n) return;
  if (split.splits == 1) {
    p.store(batch, i, j, sum);
  } else {
    reinterpret_cast<C*>(split.partial)[((part * p.batch + batch) * p.m + i) * p.n + j] = sum;
  }
}

// Tiles are numbered along m first, in bands of columns, so that blocks that run together share operands in cache.
struct TileOrder {
  int64_t rows, columns;
};

constexpr int kSide = 64, kDepth = 16;  // plain tiles; 256 threads, 4 x 4 results each

template <class S, class P>
__global__ void __launch_bounds__(256) plain_kernel(const __grid_constant__ P p, TileOrder order, Split split) {
  using C = sum_t<S>;
  __shared__ C as[kDepth][kSide + 1], bs[kDepth][kSide + 1];
  const int t = static_cast<int>(threadIdx.x);
  const int64_t i0 = static_cast<int64_t>(blockIdx.x) % order.rows * kSide,
                j0 = static_cast<int64_t>(blockIdx.x) / order.rows * kSide;
  const int64_t part = blockIdx.y;
  const int64_t begin = part * split.per_split, end = min(begin + split.per_split, p.k);
  for (int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    C sums[4][4];
#pragma unroll
    for (int x = 0; x < 4; x++)
#pragma unroll
      for (int y = 0; y < 4; y++) sums[x][y] = C(0);
    for (int64_t k0 = begin; k0 < end; k0 += kDepth) {
      __syncthreads();
#pragma unroll
      for (int e = 0; e < kSide * kDepth / 256; e++) {
        const int at = t + e * 256;
        const int ak = p.a_along_k ? at % kDepth : at / kSide, ai = p.a_along_k ? at / kDepth : at % kSide;
        const int bk = p.b_along_k ? at % kDepth : at / kSide, bj = p.b_along_k ? at / kDepth : at % kSide;
        as[ak][ai] = i0 + ai < p.m && k0 + ak < end ? convert<C>(p.a(batch, i0 + ai, k0 + ak)) : C(0);
        bs[bk][bj] = j0 + bj < p.n && k0 + bk < end ? convert<C>(p.b(batch, k0 + bk, j0 + bj)) : C(0);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kDepth; k++) {
        C a[4], b[4];
#pragma unroll
        for (int x = 0; x < 4; x++) {
          a[x] = as[k][t / 16 + x * 16];
          b[x] = bs[k][t % 16 + x * 16];
        }
#pragma unroll
        for (int x = 0; x < 4; x++)
#pragma unroll
          for (int y = 0; y < 4; y++) sums[x][y] = multiply_add(a[x], b[y], sums[x][y]);
      }
    }
#pragma unroll
    for (int x = 0; x < 4; x++)
#pragma unroll
      for (int y = 0; y < 4; y++) emit(p, split, part, batch, i0 + t / 16 + x * 16, j0 + t % 16 + y * 16, sums[x][y]);
  }
}

// Tensor cores: tiles of 128 x 128 x 32, eight warps of 64 x 32 results.
constexpr int kTensorSide = 128, kTensorDepth = 32;

template <class S>
struct TensorType;
template <>
struct TensorType<Half> {
  using type = __half;
};
template <>
struct TensorType<BFloat16> {
  using type = __nv_bfloat16;
};

template <class S, class P>
__global__ void __launch_bounds__(256) tensor_kernel(const __grid_constant__ P p, TileOrder order, Split split) {
  using namespace nvcuda;
  using E = typename TensorType<S>::type;
  constexpr int kPadA = kTensorDepth + 8, kPadB = kTensorSide + 8, kPadC = 16 + 4;
  __shared__ alignas(32) uint16_t as[kTensorSide][kPadA];
  __shared__ alignas(32) uint16_t bs[kTensorDepth][kPadB];
  __shared__ alignas(32) float cs[8][16][kPadC];
  const int t = static_cast<int>(threadIdx.x), warp = t / 32, lane = t % 32;
  const int wi = warp / 4 * 64, wj = warp % 4 * 32;
  const int64_t i0 = static_cast<int64_t>(blockIdx.x) % order.rows * kTensorSide,
                j0 = static_cast<int64_t>(blockIdx.x) / order.rows * kTensorSide;
  const int64_t part = blockIdx.y;
  const int64_t begin = part * split.per_split, end = min(begin + split.per_split, p.k);
  for (int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4][2];
#pragma unroll
    for (int x = 0; x < 4; x++)
#pragma unroll
      for (int y = 0; y < 2; y++) wmma::fill_fragment(sums[x][y], 0.0f);
    for (int64_t k0 = begin; k0 < end; k0 += kTensorDepth) {
      constexpr int kLoads = kTensorSide * kTensorDepth / 256;
      uint16_t a[kLoads], b[kLoads];
#pragma unroll
      for (int e = 0; e < kLoads; e++) {
        const int at = t + e * 256;
        const int ak = p.a_along_k ? at % kTensorDepth : at / kTensorSide;
        const int ai = p.a_along_k ? at / kTensorDepth : at % kTensorSide;
        const int bk = p.b_along_k ? at % kTensorDepth : at / kTensorSide;
        const int bj = p.b_along_k ? at / kTensorDepth : at % kTensorSide;
        a[e] = i0 + ai < p.m && k0 + ak < end ? p.a(batch, i0 + ai, k0 + ak).bits : uint16_t{0};
        b[e] = j0 + bj < p.n && k0 + bk < end ? p.b(batch, k0 + bk, j0 + bj).bits : uint16_t{0};
      }
      __syncthreads();
#pragma unroll
      for (int e = 0; e < kLoads; e++) {
        const int at = t + e * 256;
        as[p.a_along_k ? at / kTensorDepth : at % kTensorSide][p.a_along_k ? at % kTensorDepth : at / kTensorSide] =
            a[e];
        bs[p.b_along_k ? at % kTensorDepth : at / kTensorSide][p.b_along_k ? at / kTensorDepth : at % kTensorSide] =
            b[e];
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kTensorDepth; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, E, wmma::row_major> fa[4];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, E, wmma::row_major> fb[2];
#pragma unroll
        for (int x = 0; x < 4; x++)
          wmma::load_matrix_sync(fa[x], reinterpret_cast<const E*>(&as[wi + x * 16][k]), kPadA);
#pragma unroll
        for (int y = 0; y < 2; y++)
          wmma::load_matrix_sync(fb[y], reinterpret_cast<const E*>(&bs[k][wj + y * 16]), kPadB);
#pragma unroll
        for (int x = 0; x < 4; x++)
#pragma unroll
          for (int y = 0; y < 2; y++) wmma::mma_sync(sums[x][y], fa[x], fb[y], sums[x][y]);
      }
    }
#pragma unroll
    for (int x = 0; x < 4; x++) {
#pragma unroll
      for (int y = 0; y < 2; y++) {
        __syncwarp();
        wmma::store_matrix_sync(&cs[warp][0][0], sums[x][y], kPadC, wmma::mem_row_major);
        __syncwarp();
#pragma unroll
        for (int e = 0; e < 8; e++) {
          const int at = lane + e * 32;
          emit(p, split, part, batch, i0 + wi + x * 16 + at / 16, j0 + wj + y * 16 + at % 16,
               cs[warp][at / 16][at % 16]);
        }
      }
    }
    __syncthreads();
  }
}

template <class C, class P>
__global__ void __launch_bounds__(kThreads) add_splits(const __grid_constant__ P p, Split split) {
  const int64_t size = p.batch * p.m * p.n;
  MT_GRID_LOOP(at, size) {
    C sum = C(0);
    for (int64_t s = 0; s < split.splits; s++)
      sum = multiply_add(C(1), reinterpret_cast<const C*>(split.partial)[s * size + at], sum);
    const int64_t row = at / p.n;
    p.store(row / p.m, row % p.m, at % p.n, sum);
  }
}

// The definition, one result a thread: what the tiled kernels are tested against.
template <class S, class P>
__global__ void __launch_bounds__(kThreads) reference_kernel(const __grid_constant__ P p) {
  using C = sum_t<S>;
  MT_GRID_LOOP(at, p.batch * p.m * p.n) {
    const int64_t j = at % p.n, i = at / p.n % p.m, batch = at / (p.n * p.m);
    C sum = C(0);
    for (int64_t k = 0; k < p.k; k++)
      sum = multiply_add(convert<C>(p.a(batch, i, k)), convert<C>(p.b(batch, k, j)), sum);
    p.store(batch, i, j, sum);
  }
}

template <class S, class P>
void run(const P& p) {
  using C = sum_t<S>;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  constexpr bool tensor = is_half_v<S>;
  constexpr int64_t side = tensor ? kTensorSide : kSide, depth = tensor ? kTensorDepth : kDepth;
  const TileOrder order{ceil_div(p.m, side), ceil_div(p.n, side)};
  const int64_t tiles = order.rows * order.columns, wanted = int64_t{cuda::multiprocessors()} * 2;
  Split split{1, std::max<int64_t>(p.k, 1), nullptr};
  if (tiles * p.batch < wanted && p.k >= 4 * depth * 2) {
    const int64_t splits = std::clamp<int64_t>(std::min(wanted / (tiles * p.batch), p.k / (depth * 4)), 1, 64);
    split.per_split = ceil_div(ceil_div(p.k, splits), depth) * depth;
    split.splits = ceil_div(p.k, split.per_split);
  }
  const Scratch partial(split.splits > 1 ? split.splits * p.batch * p.m * p.n * static_cast<int64_t>(sizeof(C)) : 0);
  split.partial = partial.get();
  if (tiles >= (int64_t{1} << 31)) throw std::runtime_error("minitorch: matrix product too large for one launch");
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(split.splits),
                  static_cast<unsigned>(std::min<int64_t>(p.batch, 65535)));
  const cudaStream_t stream = cuda::current_stream();
  if constexpr (tensor) {
    tensor_kernel<S, P><<<grid, 256, 0, stream>>>(p, order, split);
  } else {
    plain_kernel<S, P><<<grid, 256, 0, stream>>>(p, order, split);
  }
  if (split.splits > 1) add_splits<C, P><<<grid_for(p.batch * p.m * p.n), kThreads, 0, stream>>>(p, split);
}

}  // namespace tile
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
