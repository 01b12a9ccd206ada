// Matrix products of float in plain arithmetic: a block computes 128 x 128 results, a thread 8 x 8 of them, from panels
// of 8 along k. The next panel is on its way from memory while one is multiplied. Where tiles fill the matrices
// exactly, a form of the kernel without questions about edges does it: those cost registers, and with them a quarter of
// the speed. Where k is split, the blocks of a cluster add their parts in shared memory before anything is written.
#include "kernels/cuda/gemm_problem.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kSide = 128, kDepth = 8, kPitch = kSide + 4;

// A thread's share of a panel: four elements along memory.
template <bool AlongK>
struct PanelLoad {
  float4 held;

  // Row and k of the first one, within the panel.
  static __device__ __forceinline__ int row() {
    const int t = static_cast<int>(threadIdx.x);
    return AlongK ? t / (kDepth / 4) : t % (kSide / 4) * 4;
  }
  static __device__ __forceinline__ int k() {
    const int t = static_cast<int>(threadIdx.x);
    return AlongK ? t % (kDepth / 4) * 4 : t / (kSide / 4);
  }

  // `from` is this thread's first element; rows and depth are what is left of the matrix from the panel's first on.
  template <bool Whole>
  __device__ __forceinline__ void fetch(const float* from, int64_t rows, int64_t depth, bool vectors) {
    if constexpr (Whole) {
      held = *reinterpret_cast<const float4*>(from);
      return;
    }
    const bool live = AlongK ? row() < rows : k() < depth;
    const int64_t rest = AlongK ? depth - k() : rows - row();
    if (live && rest >= 4 && vectors) {
      held = *reinterpret_cast<const float4*>(from);
    } else {
      held.x = live && rest > 0 ? from[0] : 0.0f;
      held.y = live && rest > 1 ? from[1] : 0.0f;
      held.z = live && rest > 2 ? from[2] : 0.0f;
      held.w = live && rest > 3 ? from[3] : 0.0f;
    }
  }
  __device__ __forceinline__ void place(float (*panel)[kPitch]) const {
    if constexpr (AlongK) {
      panel[k()][row()] = held.x;
      panel[k() + 1][row()] = held.y;
      panel[k() + 2][row()] = held.z;
      panel[k() + 3][row()] = held.w;
    } else {
      *reinterpret_cast<float4*>(&panel[k()][row()]) = held;
    }
  }
};

// Four neighbours of a row of C; Whole: inside of the matrix.
template <bool Whole>
__device__ __forceinline__ void emit_four(const Strided<float>& p, const tile::Split& split, int64_t part,
                                          int64_t batch, int64_t i, int64_t j, const float (&sums)[4]) {
  if constexpr (!Whole) return emit_pack(p, split, part, batch, i, j, sums);
  if (split.splits > 1) {
    float* const to = static_cast<float*>(split.partial) + ((part * p.batch + batch) * p.m + i) * p.n + j;
    *reinterpret_cast<float4*>(to) = make_float4(sums[0], sums[1], sums[2], sums[3]);
    return;
  }
  float x[4];
#pragma unroll
  for (int e = 0; e < 4; e++) x[e] = p.alpha * sums[e];
  if (p.adds) {
    const float* from =
        reinterpret_cast<const float*>(p.d_view.data) + batch * p.d_view.batch + i * p.d_view.row + j * p.d_view.col;
#pragma unroll
    for (int e = 0; e < 4; e++, from += p.d_view.col) x[e] += p.beta * *from;
  }
  float* const to = reinterpret_cast<float*>(p.c_view.data) + batch * p.c_view.batch + i * p.c_view.row + j;
  *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
}

// Adds the tiles that the blocks of a cluster hold, in their order; each block emits a share of the result.
template <bool Whole>
__device__ __forceinline__ void emit_cluster(const Strided<float>& p, const tile::Split& split, int64_t part,
                                             int64_t batch, int64_t i0, int64_t j0, const float* own) {
  const uint32_t blocks = cluster::blocks();
  for (uint32_t at = cluster::rank() * 256 + threadIdx.x; at < kSide * kSide / 4; at += blocks * 256) {
    float sums[4] = {};
#pragma unroll 4
    for (uint32_t other = 0; other < blocks; other++) {
      const float4 x = cluster::load(own + at * 4, other);
      sums[0] += x.x, sums[1] += x.y, sums[2] += x.z, sums[3] += x.w;
    }
    const int64_t i = i0 + at / (kSide / 4), j = j0 + at % (kSide / 4) * 4;
    if (Whole || i < p.m) emit_four<Whole>(p, split, part, batch, i, j, sums);
  }
}

template <bool AK, bool BK, bool Whole, bool Clusters>
__global__ void __launch_bounds__(256, 2)
    float_kernel(const __grid_constant__ Strided<float> p, BandOrder order, tile::Split split) {
  extern __shared__ __align__(16) float sums_of_block[];  // [kSide][kSide], in a cluster
  __shared__ __align__(16) float as[2][kDepth][kPitch], bs[2][kDepth][kPitch];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  // A warp has 32 x 64 results; a thread four rows and columns of each half of them.
  const int ti = warp / 2 * 32 + lane / 8 * 4, tj = warp % 2 * 64 + lane % 8 * 4;
  const auto [tile_i, tile_j] = order.place(blockIdx.x);
  const int64_t i0 = tile_i * kSide, j0 = tile_j * kSide;
  const int64_t part = blockIdx.y;
  const int64_t begin = part * split.per_split, end = min(begin + split.per_split, p.k);
  for (int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    const int64_t pitch_a = AK ? p.a_view.row : p.a_view.col, pitch_b = BK ? p.b_view.col : p.b_view.row;
    PanelLoad<AK> load_a;
    PanelLoad<BK> load_b;
    const int64_t ai = i0 + load_a.row(), ak = begin + load_a.k(), bj = j0 + load_b.row(), bk = begin + load_b.k();
    const float* a = reinterpret_cast<const float*>(p.a_view.data) + batch * p.a_view.batch +
                     (AK ? ai * pitch_a + ak : ak * pitch_a + ai);
    const float* b = reinterpret_cast<const float*>(p.b_view.data) + batch * p.b_view.batch +
                     (BK ? bj * pitch_b + bk : bk * pitch_b + bj);
    const auto fetch = [&](int64_t k) {
      load_a.template fetch<Whole>(a, p.m - i0, end - k, p.a_vectors);
      load_b.template fetch<Whole>(b, p.n - j0, end - k, p.b_vectors);
      a += AK ? kDepth : kDepth * pitch_a;
      b += BK ? kDepth : kDepth * pitch_b;
    };
    float sums[8][8];
#pragma unroll
    for (int x = 0; x < 8; x++)
#pragma unroll
      for (int y = 0; y < 8; y++) sums[x][y] = 0;
    if (begin < end) {
      fetch(begin);
      load_a.place(as[0]);
      load_b.place(bs[0]);
    }
    __syncthreads();
    int current = 0;
#pragma unroll 1
    for (int64_t k = begin; k < end; k += kDepth) {
      const bool more = k + kDepth < end;
      if (more) fetch(k + kDepth);
#pragma unroll
      for (int kk = 0; kk < kDepth; kk++) {
        float fa[8], fb[8];
#pragma unroll
        for (int h = 0; h < 2; h++) {
          *reinterpret_cast<float4*>(&fa[h * 4]) = *reinterpret_cast<const float4*>(&as[current][kk][ti + h * 16]);
          *reinterpret_cast<float4*>(&fb[h * 4]) = *reinterpret_cast<const float4*>(&bs[current][kk][tj + h * 32]);
        }
#pragma unroll
        for (int x = 0; x < 8; x++)
#pragma unroll
          for (int y = 0; y < 8; y++) sums[x][y] += fa[x] * fb[y];
      }
      if (more) {
        load_a.place(as[current ^ 1]);
        load_b.place(bs[current ^ 1]);
      }
      __syncthreads();
      current ^= 1;
    }
    if constexpr (Clusters) {
#pragma unroll
      for (int x = 0; x < 8; x++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          *reinterpret_cast<float4*>(&sums_of_block[(ti + x / 4 * 16 + x % 4) * kSide + tj + h * 32]) =
              make_float4(sums[x][h * 4], sums[x][h * 4 + 1], sums[x][h * 4 + 2], sums[x][h * 4 + 3]);
      cluster::sync();
      emit_cluster<Whole>(p, split, part / cluster::blocks(), batch, i0, j0, sums_of_block);
      cluster::sync();  // the others have read
    } else {
#pragma unroll
      for (int x = 0; x < 8; x++) {
        const int64_t i = i0 + ti + x / 4 * 16 + x % 4;
        if (!Whole && i >= p.m) continue;
#pragma unroll
        for (int h = 0; h < 2; h++)
          emit_four<Whole>(p, split, part, batch, i, j0 + tj + h * 32,
                           {sums[x][h * 4], sums[x][h * 4 + 1], sums[x][h * 4 + 2], sums[x][h * 4 + 3]});
      }
    }
  }
}

template <bool AK, bool BK>
void launch(const Strided<float>& p) {
  const bool whole =
      p.m % kSide == 0 && p.n % kSide == 0 && p.k % kDepth == 0 && p.a_vectors && p.b_vectors && p.c_packs;
  const auto alone = whole ? &float_kernel<AK, BK, true, false> : &float_kernel<AK, BK, false, false>;
  const auto together = whole ? &float_kernel<AK, BK, true, true> : &float_kernel<AK, BK, false, true>;
  static const cluster::Room room(together, 256, kSide * kSide * 4);
  const Clustered<float> clustered{together, room};
  launch_tiles(alone, p, {kSide, kSide, kDepth, 256, 0, 2}, &clustered);
}

}  // namespace

bool gemm_float(const GemmArgs& g) {
  if (g.dtype != DType::F32 || !has_unit_strides(g)) return false;
  const Strided<float> p = strided_problem<float>(g.c.col != 1 && g.c.row == 1 ? transposed(g) : g);
  if (p.a_along_k) {
    p.b_along_k ? launch<true, true>(p) : launch<true, false>(p);
  } else {
    p.b_along_k ? launch<false, true>(p) : launch<false, false>(p);
  }
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
