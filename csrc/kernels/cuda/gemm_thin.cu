// Matrix products of float with at most 64 rows or columns, in plain arithmetic. What counts is how fast the large
// operand streams in: a block has 64 rows of it and 8, 16 or 32 columns of the result, and asynchronous copies bring
// panels of 32 along k three ahead, as they lie in memory. Long sums are split over blocks.
#include "kernels/cuda/gemm_problem.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kRows = 64, kDepth = 32, kStages = 4, kThreadCount = 128;

__device__ __forceinline__ void copy_word(uint32_t to, const float* from, bool live) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(live ? 4 : 0) : "memory");
}

// AK: A runs along k. Panels of A lie as A does, panels of B along k if those of A do. Lines are padded by four.
template <bool AK, int Columns>
struct Panels {
  static constexpr int kPitchA = (AK ? kDepth : kRows) + 4, kPitchB = AK ? kDepth + 4 : Columns;
  static constexpr int kFloatsA = (AK ? kRows : kDepth) * kPitchA, kFloatsB = (AK ? Columns : kDepth) * kPitchB;
  static constexpr int kBytes = (kFloatsA + kFloatsB) * 4;

  static __device__ __forceinline__ int a(int row, int k) { return AK ? row * kPitchA + k : k * kPitchA + row; }
  static __device__ __forceinline__ int b(int k, int column) {
    return AK ? column * kPitchB + k : k * kPitchB + column;
  }
};

template <bool AK, int Columns>
__global__ void __launch_bounds__(kThreadCount)
    thin_kernel(const __grid_constant__ Strided<float> p, BandOrder order, tile::Split split) {
  using P = Panels<AK, Columns>;
  constexpr int kAcross = Columns / 8;
  extern __shared__ __align__(16) float memory[];
  const uint32_t base = mma::shared_address(memory);
  const int t = static_cast<int>(threadIdx.x), rows = t / 8, columns = t % 8;
  const auto [tile_i, tile_j] = order.place(blockIdx.x);
  const int64_t i0 = tile_i * kRows, j0 = tile_j * Columns;
  const int64_t part = blockIdx.y;
  const int64_t begin = part * split.per_split, end = min(begin + split.per_split, p.k);
  const int steps = static_cast<int>((end - begin + kDepth - 1) / kDepth);
  const int64_t pitch_a = AK ? p.a_view.row : p.a_view.col;
  for (int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    const float* const a = reinterpret_cast<const float*>(p.a_view.data) + batch * p.a_view.batch;
    const float* const b = reinterpret_cast<const float*>(p.b_view.data) + batch * p.b_view.batch;
    const auto fill = [&](int step, int stage) {
      const int64_t k0 = begin + int64_t{step} * kDepth;
      const uint32_t to_a = base + stage * P::kBytes, to_b = to_a + P::kFloatsA * 4;
      constexpr int kAlong = AK ? kDepth : kRows;  // elements of a line
#pragma unroll
      for (int e = 0; e < kRows * kDepth / 4 / kThreadCount; e++) {
        const int at = (t + e * kThreadCount) * 4, line = at / kAlong, c = at % kAlong;
        const int row = AK ? line : c, k = AK ? c : line;
        const bool live = AK ? i0 + row < p.m : k0 + k < end;
        const int64_t rest = live ? (AK ? end - k0 - k : p.m - i0 - row) : 0;
        const float* const from = a + (AK ? (i0 + row) * pitch_a + k0 + k : (k0 + k) * pitch_a + i0 + row);
        const uint32_t to = to_a + P::a(row, k) * 4;
        if (p.a_vectors) {
          mma::copy_async(to, rest > 0 ? from : a, rest >= 4 ? 16 : rest > 0 ? static_cast<int>(rest) * 4 : 0);
        } else {
#pragma unroll
          for (int w = 0; w < 4; w++) copy_word(to + w * 4, w < rest ? from + w : a, w < rest);
        }
      }
#pragma unroll
      for (int e = 0; e < Columns * kDepth / kThreadCount; e++) {
        const int at = t + e * kThreadCount;
        const int k = p.b_along_k ? at % kDepth : at / Columns, j = p.b_along_k ? at / kDepth : at % Columns;
        const bool live = k0 + k < end && j0 + j < p.n;
        copy_word(to_b + P::b(k, j) * 4, live ? b + (k0 + k) * p.b_view.row + (j0 + j) * p.b_view.col : b, live);
      }
    };
    float sums[4][kAcross];
#pragma unroll
    for (int x = 0; x < 4; x++)
#pragma unroll
      for (int y = 0; y < kAcross; y++) sums[x][y] = 0;
    mma::pipeline<kStages>(steps, fill, [&](int stage) {
      const float* const as = memory + stage * (P::kBytes / 4);
      const float* const bs = as + P::kFloatsA;
#pragma unroll
      for (int k = 0; k < kDepth; k += 4) {
        // Four of k: along memory if A runs along k, one after the other if not.
        float fa[4][4], fb[kAcross][4];
#pragma unroll
        for (int x = 0; x < 4; x++) {
          const float4 v =
              *reinterpret_cast<const float4*>(AK ? &as[P::a(rows + x * 16, k)] : &as[P::a(rows * 4, k + x)]);
          const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
          for (int w = 0; w < 4; w++) (AK ? fa[x][w] : fa[w][x]) = values[w];
        }
#pragma unroll
        for (int y = 0; y < kAcross; y++) {
          if constexpr (AK) {
            const float4 v = *reinterpret_cast<const float4*>(&bs[P::b(k, columns + y * 8)]);
            fb[y][0] = v.x, fb[y][1] = v.y, fb[y][2] = v.z, fb[y][3] = v.w;
          } else {
#pragma unroll
            for (int w = 0; w < 4; w++) fb[y][w] = bs[P::b(k + w, columns + y * 8)];
          }
        }
#pragma unroll
        for (int w = 0; w < 4; w++)
#pragma unroll
          for (int x = 0; x < 4; x++)
#pragma unroll
            for (int y = 0; y < kAcross; y++) sums[x][y] += fa[x][w] * fb[y][w];
      }
    });
    __syncthreads();
#pragma unroll
    for (int x = 0; x < 4; x++)
#pragma unroll
      for (int y = 0; y < kAcross; y++)
        tile::emit<float>(p, split, part, batch, i0 + (AK ? rows + x * 16 : rows * 4 + x), j0 + columns + y * 8,
                          sums[x][y]);
  }
}

template <bool AK, int Columns>
void launch(const Strided<float>& p) {
  launch_tiles(&thin_kernel<AK, Columns>, p,
               {kRows, Columns, kDepth, kThreadCount, Panels<AK, Columns>::kBytes * kStages, 4});
}

template <int Columns>
void by_layout(const Strided<float>& p) {
  p.a_along_k ? launch<true, Columns>(p) : launch<false, Columns>(p);
}

}  // namespace

bool gemm_thin(const GemmArgs& g) {
  if (g.dtype != DType::F32 || std::min(g.m, g.n) > 64 || !has_unit_strides(g)) return false;
  const Strided<float> p = strided_problem<float>(g.m < g.n ? transposed(g) : g);
  if (p.n <= 8) {
    by_layout<8>(p);
  } else if (p.n <= 16) {
    by_layout<16>(p);
  } else {
    by_layout<32>(p);
  }
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
