// Attention of 16-bit floats, forward, on Hopper's matrix units: one warp brings tiles of keys and values through the
// copy engine, two warpgroups have 64 queries each, and each takes the exponentials of one tile while the matrix units
// weigh the values of the tile before (after J. Shah et al., "FlashAttention-3", 2024). For heads of 64 and 128 columns
// without a mask. What dropout needs of random numbers is drawn while the scores are multiplied.
#include "kernels/cuda/attention_hopper.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace attention;

constexpr int kConsumers = 2, kQueries = 64 * kConsumers, kKeys = 128, kStages = 3;
constexpr int kThreadCount = 128 * (kConsumers + 1);

template <int D>
constexpr int shared_bytes() {
  return panel_bytes<D>(kQueries) + kStages * 2 * panel_bytes<D>(kKeys) + 1024 + (1 + 2 * kStages) * 8;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// What a lane knows of its two rows.
struct Rows {
  float high[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};  // the sum of this lane's columns
  float shrink[2];                                          // what the last tile did to the sums before it
};

// Scores of the keys from `first` on become exponentials, and those of before shrink to the same reference.
__device__ __forceinline__ void exponentials(float (&score)[kKeys / 2], Rows& rows, const AttentionArgs& a,
                                             int64_t first, int64_t first_row, float scale) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t query = first_row + warp * 16 + lane / 4;
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
    float highest = rows.high[h];
#pragma unroll
    for (int y = 0; y < kKeys / 8; y++) highest = fmaxf(highest, fmaxf(score[y * 4 + h * 2], score[y * 4 + h * 2 + 1]));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
    // A row that has met nothing yet: its exponentials are zeros, not exp(-inf + inf).
    const float reference = highest == -INFINITY ? 0.0f : highest * scale;
    // Rounded as the reference was: what a fused product leaves of equal ones would add up from step to step.
    rows.shrink[h] = power_of_two(__fmul_rn(rows.high[h], scale) - reference);
    rows.high[h] = highest;
    float total[2] = {0, 0};
#pragma unroll
    for (int y = 0; y < kKeys / 8; y++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float& s = score[y * 4 + h * 2 + e];
        s = power_of_two(s * scale - reference);
        total[e] += s;
      }
    }
    rows.sum[h] = rows.sum[h] * rows.shrink[h] + (total[0] + total[1]);
  }
}
#endif

template <class S, int D, bool Drops>
__global__ void __launch_bounds__(kThreadCount, 1)
    hopper_forward(const __grid_constant__ AttentionArgs a, const __grid_constant__ CUtensorMap q_map,
                   const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                   const __grid_constant__ AttentionOperand out, float* lse) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
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
    copy_rows<D, kQueries>(qs, q_map, static_cast<int>(q0), static_cast<int>(head), sample, q_full);
    for (int step = 0; step < steps; step++) {
      const int stage = step % kStages;
      const uint32_t barrier = full + stage * 8, to = stage * panel_bytes<D>(kKeys);
      hopper::barrier_wait(empty + stage * 8, (step / kStages & 1) ^ 1);
      hopper::barrier_expect(barrier, 2 * panel_bytes<D>(kKeys));
      copy_rows<D, kKeys>(ks + to, k_map, step * kKeys, kv_head, sample, barrier);
      copy_rows<D, kKeys>(vs + to, v_map, step * kKeys, kv_head, sample, barrier);
    }
  } else {
    hopper::registers_grow<240>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t first_row = q0 + (group - 1) * 64, query = first_row + warp * 16 + lane / 4;
    const float scale = a.scale * kLog2E;
    float result[D / 2];
#pragma unroll
    for (int e = 0; e < D / 2; e++) result[e] = 0;
    Rows rows;
    float score[kKeys / 2];
    uint32_t weights[kKeys / 16][4];
    const Keep keep(a, batch, head);
    uint4 words[kKeys / 32];
    hopper::barrier_wait(q_full, 0);
    hopper::barrier_wait(full, 0);
    hopper::products_begin();
    multiply_rows<S, D, kQueries>(score, qs, (group - 1) * 64, ks);
    hopper::products_commit();
    if constexpr (Drops) keep.draw(words, query, 0);
    hopper::products_wait<0>();
    settle(score);
    exponentials(score, rows, a, 0, first_row, scale);
    round_left<S>(weights, score);
    if constexpr (Drops) keep.drop(weights, words);
    int last = 0;
#pragma unroll 1
    for (int step = 1; step < steps; step++) {
      const int stage = step % kStages;
      hopper::barrier_wait(full + stage * 8, step / kStages & 1);
      hopper::products_begin();
      multiply_rows<S, D, kQueries>(score, qs, (group - 1) * 64, ks + stage * panel_bytes<D>(kKeys));
      hopper::products_commit();
      multiply_lines<S>(result, weights, vs + last * panel_bytes<D>(kKeys));
      hopper::products_commit();
      if constexpr (Drops) keep.draw(words, query, int64_t{step} * kKeys);
      hopper::products_wait<1>();
      settle(score);
      exponentials(score, rows, a, int64_t{step} * kKeys, first_row, scale);
      hopper::products_wait<0>();
      settle(result);
      if (lane == 0) hopper::barrier_arrive(empty + last * 8);
      __syncwarp();
      last = stage;
#pragma unroll
      for (int e = 0; e < D / 2; e++) result[e] *= rows.shrink[e / 2 % 2];
      round_left<S>(weights, score);
      if constexpr (Drops) keep.drop(weights, words);
    }
    hopper::products_begin();
    multiply_lines<S>(result, weights, vs + last * panel_bytes<D>(kKeys));
    hopper::products_commit();
    hopper::products_wait<0>();
    settle(result);
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float total = rows.sum[h];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      factor[h] = total == 0.0f ? 0.0f : 1.0f / total;
      if (lane % 4 == 0 && query + h * 8 < a.queries)
        lse[(batch * a.heads + head) * a.queries + query + h * 8] =
            total == 0.0f ? -INFINITY : rows.high[h] * scale * kLn2 + ::logf(total);
      if constexpr (Drops) factor[h] *= keep.scale();
    }
    put_sums<S>(out, batch, head, query, a.queries, result, factor);
  }
#endif
}

template <class S, int D, bool Drops>
bool launch(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  const auto kernel = &hopper_forward<S, D, Drops>;
  static const bool built = hopper::usable(kernel);
  if (!built) return false;
  CUtensorMap q, k, v;
  if (!map_rows<S, D>(&q, a.q, a.queries, a.heads, a.batch, kQueries) ||
      !map_rows<S, D>(&k, a.k, a.keys, a.kv_heads, a.batch, kKeys) ||
      !map_rows<S, D>(&v, a.v, a.keys, a.kv_heads, a.batch, kKeys))
    return false;
  const dim3 grid(static_cast<unsigned>(ceil_div(a.queries, kQueries)), static_cast<unsigned>(a.batch * a.heads));
  launch_kernel(kernel, grid, kThreadCount, shared_bytes<D>(), a, q, k, v, out, lse);
  return true;
}

}  // namespace

bool attention_hopper_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  if (!hopper_fits(a) || !(a.scale > 0.0f)) return false;
  bool done = false;
  attention_by_shape(a, Types<BFloat16, Half>{}, [&](auto tag, auto columns, auto drops) {
    done = launch<typename decltype(tag)::type, decltype(columns)::value, decltype(drops)::value>(a, out, lse);
  });
  return done;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
