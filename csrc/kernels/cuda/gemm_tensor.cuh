// Matrix products of 16-bit floats on tensor cores: a block computes 128 x kColumns results, a warp 64 x 64 of them,
// from panels of 64 along k that asynchronous copies bring in three stages ahead (the multistage scheme of NVIDIA's
// CUTLASS for sm_80). Memory may run along k or across it in either operand.
#pragma once
#include "kernels/cuda/gemm_problem.cuh"
#include "kernels/cuda/mma.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace tensor {

constexpr int kRows = 128, kDepth = 64, kStages = 3;

// One operand's panel: lines along its rows (m or n) if memory runs along k, else along k.
template <bool AlongK, int Rows>
using OperandPanel = std::conditional_t<AlongK, mma::Panel<Rows, kDepth>, mma::Panel<kDepth, Rows>>;

template <bool AlongK, int Rows, int Threads>
__device__ __forceinline__ void fill_panel(uint32_t to, const uint16_t* data, int64_t pitch, int64_t row, int64_t rows,
                                           int64_t k, int64_t k_end, bool vectors) {
  using P = OperandPanel<AlongK, Rows>;
  if constexpr (AlongK) {
    P::template fill<Threads>(to, data + row * pitch + k, pitch, rows - row, k_end - k, vectors);
  } else {
    P::template fill<Threads>(to, data + k * pitch + row, pitch, k_end - k, rows - row, vectors);
  }
}

template <class S, int Columns, bool AK, bool BK>
__global__ void __launch_bounds__(Columns, Columns == 128 ? 2 : 1)
    multistage_kernel(const __grid_constant__ Strided<S> p, BandOrder order, tile::Split split) {
  constexpr int kWarpsAcross = Columns / 64, kThreadCount = Columns;
  using PanelA = OperandPanel<AK, kRows>;
  using PanelB = OperandPanel<BK, Columns>;
  constexpr int kStageBytes = PanelA::kBytes + PanelB::kBytes;
  extern __shared__ __align__(128) char memory[];
  const uint32_t base = mma::shared_address(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int wi = warp / kWarpsAcross * 64, wj = warp % kWarpsAcross * 64;
  const auto [tile_i, tile_j] = order.place(blockIdx.x);
  const int64_t i0 = tile_i * kRows, j0 = tile_j * Columns;
  const int64_t part = blockIdx.y;
  const int64_t begin = part * split.per_split, end = min(begin + split.per_split, p.k);
  const int steps = static_cast<int>((end - begin + kDepth - 1) / kDepth);

  for (int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    const uint16_t* const a = reinterpret_cast<const uint16_t*>(p.a_view.data) + batch * p.a_view.batch;
    const uint16_t* const b = reinterpret_cast<const uint16_t*>(p.b_view.data) + batch * p.b_view.batch;
    const auto fill = [&](int step, int stage) {
      const uint32_t to = base + stage * kStageBytes;
      const int64_t k = begin + int64_t{step} * kDepth;
      fill_panel<AK, kRows, kThreadCount>(to, a, AK ? p.a_view.row : p.a_view.col, i0, p.m, k, end, p.a_vectors);
      fill_panel<BK, Columns, kThreadCount>(to + PanelA::kBytes, b, BK ? p.b_view.col : p.b_view.row, j0, p.n, k, end,
                                            p.b_vectors);
    };
    float sums[4][8][4];
#pragma unroll
    for (int x = 0; x < 4; x++)
#pragma unroll
      for (int y = 0; y < 8; y++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums[x][y][e] = 0;
    mma::pipeline<kStages>(steps, fill, [&](int stage) {
      const uint32_t panel_a = base + stage * kStageBytes, panel_b = panel_a + PanelA::kBytes;
      uint32_t fa[2][4][4], fb[2][4][4];
      const auto load = [&](int k, int slot) {
#pragma unroll
        for (int x = 0; x < 4; x++) mma::load_a<PanelA, AK>(fa[slot][x], panel_a, wi + x * 16, k);
#pragma unroll
        for (int y = 0; y < 4; y++) mma::load_b<PanelB, BK>(fb[slot][y], panel_b, wj + y * 16, k);
      };
      load(0, 0);
#pragma unroll
      for (int k = 0; k < kDepth / 16; k++) {
        if (k + 1 < kDepth / 16) load((k + 1) * 16, (k + 1) % 2);
#pragma unroll
        for (int x = 0; x < 4; x++)
#pragma unroll
          for (int y = 0; y < 8; y++)
            mma::multiply<S>(sums[x][y], fa[k % 2][x], fb[k % 2][y / 2][y % 2 * 2], fb[k % 2][y / 2][y % 2 * 2 + 1]);
      }
    });
    __syncthreads();
#pragma unroll
    for (int x = 0; x < 4; x++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int64_t i = i0 + wi + x * 16 + half * 8 + lane / 4;
        if (i >= p.m) continue;
#pragma unroll
        for (int y = 0; y < 8; y++)
          emit_pack(p, split, part, batch, i, j0 + wj + y * 8 + lane % 4 * 2,
                    {sums[x][y][half * 2], sums[x][y][half * 2 + 1]});
      }
    }
  }
}

}  // namespace tensor
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
