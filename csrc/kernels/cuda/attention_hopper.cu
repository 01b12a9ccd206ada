// Attention of 16-bit floats, forward, on Hopper's matrix units: one warp brings tiles of keys and values through the
// copy engine, two warpgroups have 64 queries each and alternate between the matrix units and the exponentials (after
// J. Shah et al., "FlashAttention-3", 2024). For heads of 64 and 128 columns without a mask.
#include "kernels/cuda/attention_half.cuh"
#include "kernels/cuda/attention_half.h"
#include "kernels/cuda/hopper.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kConsumers = 2, kQueries = 64 * kConsumers, kKeys = 128, kStages = 2;
constexpr int kThreadCount = 128 * (kConsumers + 1), kLine = 128;

// Operands are panels of 64 columns: `lines` lines of 128 bytes each.
template <int D>
constexpr int panel_bytes(int lines) {
  return lines * D * 2;
}
template <int D>
constexpr int shared_bytes() {
  return panel_bytes<D>(kQueries) + kStages * 2 * panel_bytes<D>(kKeys) + 1024 + (1 + 2 * kStages) * 8;
}

template <class S, int D>
__global__ void __launch_bounds__(kThreadCount, 1)
    hopper_forward(const __grid_constant__ AttentionArgs a, const __grid_constant__ CUtensorMap q_map,
                   const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                   const __grid_constant__ AttentionOperand out, float* lse) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace attention;
  extern __shared__ char memory[];
  const uint32_t qs = (mma::shared_address(memory) + 1023) / 1024 * 1024;
  const uint32_t ks = qs + panel_bytes<D>(kQueries), vs = ks + kStages * panel_bytes<D>(kKeys);
  const uint32_t q_full = vs + kStages * panel_bytes<D>(kKeys), full = q_full + 8, empty = full + kStages * 8;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int64_t head = blockIdx.y % a.heads, batch = blockIdx.y / a.heads;
  // Under a causal mask the last queries have the most work: they start first.
  const int64_t q0 = int64_t{gridDim.x - 1 - blockIdx.x} * kQueries;
  const int64_t keys = a.causal ? min(a.keys, q0 + kQueries) : a.keys;
  const int steps = static_cast<int>((keys + kKeys - 1) / kKeys);
  if (threadIdx.x == 0) {
    hopper::barrier_init(q_full, 1);
    for (int s = 0; s < kStages; s++) {
      hopper::barrier_init(full + s * 8, 1);
      hopper::barrier_init(empty + s * 8, kConsumers * 4);
    }
    hopper::barrier_init_done();
  }
  __syncthreads();
  if (group == 0) {
    hopper::registers_shrink<24>();
    if (threadIdx.x != 0) return;
    const int kv_head = static_cast<int>(head / (a.heads / a.kv_heads)), sample = static_cast<int>(batch);
    hopper::barrier_expect(q_full, panel_bytes<D>(kQueries));
#pragma unroll
    for (int c = 0; c < D; c += 64)
      hopper::copy_box(qs + c / 64 * kQueries * kLine, q_map, c, static_cast<int>(q0), static_cast<int>(head), sample,
                       q_full);
    for (int step = 0; step < steps; step++) {
      const int stage = step % kStages;
      const uint32_t barrier = full + stage * 8, to = stage * panel_bytes<D>(kKeys);
      hopper::barrier_wait(empty + stage * 8, (step / kStages & 1) ^ 1);
      hopper::barrier_expect(barrier, 2 * panel_bytes<D>(kKeys));
#pragma unroll
      for (int c = 0; c < D; c += 64) {
        hopper::copy_box(ks + to + c / 64 * kKeys * kLine, k_map, c, step * kKeys, kv_head, sample, barrier);
        hopper::copy_box(vs + to + c / 64 * kKeys * kLine, v_map, c, step * kKeys, kv_head, sample, barrier);
      }
    }
  } else {
    hopper::registers_grow<240>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t first_row = q0 + (group - 1) * 64, query = first_row + warp * 16 + lane / 4;
    const float scale = a.scale * kLog2E;
    float result[D / 2], high[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int e = 0; e < D / 2; e++) result[e] = 0;
    hopper::barrier_wait(q_full, 0);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      const int stage = step % kStages;
      const uint32_t kp = ks + stage * panel_bytes<D>(kKeys), vp = vs + stage * panel_bytes<D>(kKeys);
      hopper::barrier_wait(full + stage * 8, step / kStages & 1);
      float score[kKeys / 2];
      hopper::products_begin();
#pragma unroll
      for (int k = 0; k < D; k += 16) {
        const uint64_t left =
            hopper::descriptor(qs + k / 64 * kQueries * kLine + (group - 1) * 64 * kLine + k % 64 * 2, 0, 8 * kLine);
        const uint64_t right = hopper::descriptor(kp + k / 64 * kKeys * kLine + k % 64 * 2, 0, 8 * kLine);
        hopper::product<S, true, true>(score, left, right, k > 0);
      }
      hopper::products_commit();
      hopper::products_wait<0>();
#pragma unroll
      for (int e = 0; e < kKeys / 2; e++) hopper::settled(score[e]);
      const int64_t first = int64_t{step} * kKeys;
      const bool edge = first + kKeys > a.keys || (a.causal && first + kKeys > first_row + 1);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        if (edge) {
          const int64_t end = a.causal ? min(a.keys, query + h * 8 + 1) : a.keys;
          const int limit = static_cast<int>(min(end - first, int64_t{kKeys})) - lane % 4 * 2;
#pragma unroll
          for (int y = 0; y < kKeys / 8; y++) {
            if (y * 8 >= limit) score[y * 4 + h * 2] = -INFINITY;
            if (y * 8 + 1 >= limit) score[y * 4 + h * 2 + 1] = -INFINITY;
          }
        }
        float highest = high[h];
#pragma unroll
        for (int y = 0; y < kKeys / 8; y++)
          highest = fmaxf(highest, fmaxf(score[y * 4 + h * 2], score[y * 4 + h * 2 + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
        // A row that has met nothing yet: its exponentials are zeros, not exp(-inf + inf).
        const float reference = highest == -INFINITY ? 0.0f : highest * scale;
        const float shrink = power_of_two(high[h] * scale - reference);
        high[h] = highest;
        float total = 0;
#pragma unroll
        for (int y = 0; y < kKeys / 8; y++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float& s = score[y * 4 + h * 2 + e];
            s = power_of_two(s * scale - reference);
            total += s;
          }
        }
        sum[h] = sum[h] * shrink + total;
#pragma unroll
        for (int y = 0; y < D / 8; y++) {
          result[y * 4 + h * 2] *= shrink;
          result[y * 4 + h * 2 + 1] *= shrink;
        }
      }
      uint32_t weights[kKeys / 16][4];
#pragma unroll
      for (int k = 0; k < kKeys / 16; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) weights[k][e] = mma::pack_pair<S>(score[k * 8 + e * 2], score[k * 8 + e * 2 + 1]);
      hopper::products_begin();
#pragma unroll
      for (int k = 0; k < kKeys / 16; k++)
        hopper::product_left<S, false>(result, weights[k],
                                       hopper::descriptor(vp + k * 16 * kLine, kKeys * kLine, 8 * kLine));
      hopper::products_commit();
      hopper::products_wait<0>();
#pragma unroll
      for (int e = 0; e < D / 2; e++) hopper::settled(result[e]);
      if (lane == 0) hopper::barrier_arrive(empty + stage * 8);
      __syncwarp();
    }
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float total = sum[h];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      factor[h] = total == 0.0f ? 0.0f : 1.0f / total;
      if (lane % 4 == 0 && query + h * 8 < a.queries)
        lse[(batch * a.heads + head) * a.queries + query + h * 8] =
            total == 0.0f ? -INFINITY : high[h] * scale * kLn2 + ::logf(total);
    }
    float tiles[D / 8][4];
#pragma unroll
    for (int e = 0; e < D / 2; e++) tiles[e / 4][e % 4] = result[e];
    put_rows<S>(out, batch, head, query, a.queries, a.value_dim, tiles, factor);
  }
#endif
}

bool mappable(const AttentionOperand& o) {
  return o.column == 1 && o.row > 0 && o.head > 0 && o.batch > 0 &&
         ((o.row | o.head | o.batch) % 8 | reinterpret_cast<uintptr_t>(o.data) % 16) == 0;
}

template <class S, int D>
bool launch(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  const auto kernel = &hopper_forward<S, D>;
  static const bool built = hopper::usable(kernel);
  if (!built) return false;
  CUtensorMap q, k, v;
  const auto map = [&](CUtensorMap* to, const AttentionOperand& o, int64_t rows, int64_t heads, int lines) {
    return hopper::make_map<4>(to, dtype_of<S>, o.data, {D, rows, heads, a.batch}, {o.row, o.head, o.batch}, lines);
  };
  if (!map(&q, a.q, a.queries, a.heads, kQueries) || !map(&k, a.k, a.keys, a.kv_heads, kKeys) ||
      !map(&v, a.v, a.keys, a.kv_heads, kKeys))
    return false;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<D>()),
              "asking for shared memory");
  const dim3 grid(static_cast<unsigned>(ceil_div(a.queries, kQueries)), static_cast<unsigned>(a.batch * a.heads));
  kernel<<<grid, kThreadCount, shared_bytes<D>(), cuda::current_stream()>>>(a, q, k, v, out, lse);
  return true;
}

}  // namespace

bool attention_hopper_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  const bool shape = a.head_dim == a.value_dim && (a.head_dim == 64 || a.head_dim == 128) && a.keys > 0 &&
                     std::max(a.queries, a.keys) < int64_t{1} << 30;
  if (!shape || a.mask.data != nullptr || !(a.scale > 0.0f) || !mappable(a.q) || !mappable(a.k) || !mappable(a.v))
    return false;
  bool done = false;
  dispatch(a.dtype, Types<BFloat16, Half>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    done = a.head_dim == 64 ? launch<S, 64>(a, out, lse) : launch<S, 128>(a, out, lse);
  });
  return done;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
