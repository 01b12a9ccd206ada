// Gradients of attention of 16-bit floats on Hopper's matrix units. Two kernels of the same build as the forward one: a
// block has 128 queries and meets all keys for grad_q, or has 128 keys and meets all queries for grad_k and grad_v.
// Every result is summed in the registers of one warpgroup in a fixed order, so no addition is atomic and none needs a
// second pass; the price is that scores are computed in both (seven products where one kernel would have five). On an
// H200, batch 4, 16 heads, 2048 queries and keys, causal: 0.35 ms for heads of 64 columns and 0.53 for 128 (0.50 and
// 0.73 with dropout), against 0.93 and 1.6 on an H100 with the mma.sync kernels of attention_mma.cuh.
#include "kernels/cuda/attention_hopper.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace attention;

constexpr int kConsumers = 2, kMine = 64 * kConsumers;  // the block's own rows
constexpr int kThreadCount = 128 * (kConsumers + 1);
constexpr int kDrawers = 3;  // warps that draw flags for the others: those beside the one that copies
// Registers of the warpgroup that feeds a block, and of one that multiplies. Drawing takes more of them than copying.
template <bool Draws>
constexpr int kFeeding = Draws ? 40 : 24;
template <bool Draws>
constexpr int kMultiplying = Draws ? 232 : 240;

// What the scores of a query need to become weights and their gradients: the log of its sum of exponentials, in units
// of log2, and the sum of grad_out * out. A query that met nothing has infinity, and weights of zero.
struct Statistics {
  float lse, delta;
};

// Rows of statistics are as long as tiles, so that tiles of them are copied whole.
__host__ __device__ __forceinline__ int64_t statistics_pitch(int64_t queries) {
  return (queries + kMine - 1) / kMine * kMine;
}

// D / 8 lanes a query.
template <class S, int D>
__global__ void __launch_bounds__(kThreads)
    statistics_kernel(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionGradients g,
                      Statistics* to) {
  constexpr int kLanes = D / 8;
  const int64_t pitch = statistics_pitch(a.queries);
  const int64_t query = blockIdx.x * int64_t{kThreads / kLanes} + threadIdx.x / kLanes;
  if (query >= pitch) return;  // whole warps: the pitch is a multiple of all that a warp has
  const int64_t head = blockIdx.y % a.heads, batch = blockIdx.y / a.heads;
  const int column = static_cast<int>(threadIdx.x) % kLanes * 8;
  float sum = 0;
  if (query < a.queries) {
    const auto row = [&](const AttentionOperand& o) {
      return *reinterpret_cast<const Pack<S, 8>*>(slice(o, batch, head) + query * o.row + column);
    };
    const Pack<S, 8> x = row(g.grad_out), y = row(g.out);
#pragma unroll
    for (int e = 0; e < 8; e++) sum += convert<float>(x.value[e]) * convert<float>(y.value[e]);
  }
#pragma unroll
  for (int d = kLanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (column == 0)
    to[blockIdx.y * pitch + query] = {query < a.queries ? exponent_of(g.lse[blockIdx.y * a.queries + query]) : INFINITY,
                                      sum};
}

// Theirs: keys (or queries) that a block meets at a time. Flags: each stage has flags of dropout, too.
template <int D, int Theirs, bool Flags = false>
struct Shape {
  static constexpr int kMineBytes = panel_bytes<D>(kMine), kTheirBytes = panel_bytes<D>(Theirs);
  static constexpr int kStatisticsBytes = Theirs * static_cast<int>(sizeof(Statistics));
  static constexpr int kFlagsBytes = Flags ? kMine * Theirs / 8 : 0;
  static constexpr int kStageBytes = 2 * kTheirBytes + kStatisticsBytes + kFlagsBytes;
  static constexpr int kStages =
      (224 * 1024 - 2 * kMineBytes) / kStageBytes < 4 ? (224 * 1024 - 2 * kMineBytes) / kStageBytes : 4;
  static constexpr int kBytes = 2 * kMineBytes + kStages * kStageBytes + 1024 + (1 + 2 * kStages) * 8;
  static_assert(kStages >= 2);

  // Offsets in shared memory from a multiple of 1024.
  uint32_t mine[2], theirs[2], statistics, flags, mine_full, full, empty;
  __device__ __forceinline__ explicit Shape(uint32_t base) {
    mine[0] = base;
    mine[1] = mine[0] + kMineBytes;
    theirs[0] = mine[1] + kMineBytes;
    theirs[1] = theirs[0] + kStages * kTheirBytes;
    statistics = theirs[1] + kStages * kTheirBytes;
    flags = statistics + kStages * kStatisticsBytes;
    mine_full = flags + kStages * kFlagsBytes;
    full = mine_full + 8;
    empty = full + kStages * 8;
  }
  // leaving: how many arrive when a stage has been read.
  __device__ __forceinline__ void init_barriers(int leaving) const {
    if (threadIdx.x == 0) {
      hopper::barrier_init(mine_full, 1);
      for (int s = 0; s < kStages; s++) {
        hopper::barrier_init(full + s * 8, Flags ? 1 + 32 * kDrawers : 1);
        hopper::barrier_init(empty + s * 8, leaving);
      }
      hopper::barrier_init_done();
    }
    __syncthreads();
  }
};

// Stages in turn, with the parity of their barriers.
template <int Stages>
struct Turn {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// What the warp that feeds a block does: its own rows of two operands, and one stage of theirs, which `more` bytes of
// the caller's join. Returns the stage's barrier.
template <int D, class Shape>
__device__ __forceinline__ void copy_mine(const Shape& at, const CUtensorMap& first, const CUtensorMap& second, int row,
                                          int head, int batch) {
  hopper::barrier_expect(at.mine_full, 2 * Shape::kMineBytes);
  copy_rows<D, kMine>(at.mine[0], first, row, head, batch, at.mine_full);
  copy_rows<D, kMine>(at.mine[1], second, row, head, batch, at.mine_full);
}
template <int D, int Theirs, class Shape>
__device__ __forceinline__ uint32_t copy_theirs(const Shape& at, const Turn<Shape::kStages>& turn,
                                                const CUtensorMap& first, const CUtensorMap& second, int row, int head,
                                                int batch, int more = 0) {
  const uint32_t barrier = at.full + turn.stage * 8, to = turn.stage * Shape::kTheirBytes;
  hopper::barrier_wait(at.empty + turn.stage * 8, turn.phase ^ 1);
  hopper::barrier_expect(barrier, 2 * Shape::kTheirBytes + more);
  copy_rows<D, Theirs>(at.theirs[0] + to, first, row, head, batch, barrier);
  copy_rows<D, Theirs>(at.theirs[1] + to, second, row, head, batch, barrier);
  return barrier;
}

// What the warps beside it do for a stage, if weights are dropped: leave flags.
template <int Queries, int Keys, class Shape>
__device__ __forceinline__ void leave_flags(const Shape& at, const Turn<Shape::kStages>& turn, const Keep& keep,
                                            uint32_t* flags, uint32_t row, uint32_t column) {
  hopper::barrier_wait(at.empty + turn.stage * 8, turn.phase ^ 1);
  keep.leave<Queries, Keys, kDrawers>(flags + turn.stage * (Shape::kFlagsBytes / 4), row, column);
  hopper::barrier_arrive(at.full + turn.stage * 8);
}

// grad_q = scale * sum over keys of grad_score * k.
template <class S, int D, int Keys, bool Drops>
__global__ void __launch_bounds__(kThreadCount, 1)
    query_gradient(const __grid_constant__ AttentionArgs a, const __grid_constant__ CUtensorMap q_map,
                   const __grid_constant__ CUtensorMap dy_map, const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map, const __grid_constant__ AttentionOperand grad_q,
                   const Statistics* statistics) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = Shape<D, Keys, Drops>;
  extern __shared__ char memory[];
  const Shape at((mma::shared_address(memory) + 1023) / 1024 * 1024);
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int64_t head = blockIdx.y % a.heads, batch = blockIdx.y / a.heads;
  // Under a causal mask the last queries have the most work: they start first.
  const int64_t q0 = int64_t{gridDim.x - 1 - blockIdx.x} * kMine;
  const int64_t keys = a.causal ? min(a.keys, q0 + kMine) : a.keys;
  const int steps = static_cast<int>((keys + Keys - 1) / Keys);
  // Flags are read by every lane, which says so itself.
  at.init_barriers(kConsumers * (Drops ? 128 : 4));
  uint32_t* const flags = reinterpret_cast<uint32_t*>(memory + (at.flags - mma::shared_address(memory)));
  Turn<Shape::kStages> turn;
  if (group == 0) {
    hopper::registers_shrink<kFeeding<Drops>>();
    if (Drops && threadIdx.x >= 32) {
      const Keep keep(a, batch, head);
      for (int step = 0; step < steps; step++, turn.advance())
        leave_flags<kMine, Keys>(at, turn, keep, flags, static_cast<uint32_t>(q0 / 16), step * (Keys / 64));
    }
    if (threadIdx.x != 0) return;
    const int kv_head = static_cast<int>(head / (a.heads / a.kv_heads)), sample = static_cast<int>(batch);
    copy_mine<D>(at, q_map, dy_map, static_cast<int>(q0), static_cast<int>(head), sample);
    for (int step = 0; step < steps; step++, turn.advance())
      copy_theirs<D, Keys>(at, turn, k_map, v_map, step * Keys, kv_head, sample);
  } else {
    hopper::registers_grow<kMultiplying<Drops>>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const int row = (group - 1) * 64;
    const int64_t first_row = q0 + row, query = first_row + warp * 16 + lane / 4;
    const float scale = a.scale * kLog2E;
    const Statistics* const mine = statistics + blockIdx.y * statistics_pitch(a.queries) + query;
    const Statistics of_row[2] = {mine[0], mine[8]};
    const float kept = Drops ? Keep(a, batch, head).scale() : 1.0f;
    float result[D / 2];
#pragma unroll
    for (int e = 0; e < D / 2; e++) result[e] = 0;
    hopper::barrier_wait(at.mine_full, 0);
#pragma unroll 1
    for (int step = 0; step < steps; step++, turn.advance()) {
      const uint32_t kp = at.theirs[0] + turn.stage * Shape::kTheirBytes,
                     vp = at.theirs[1] + turn.stage * Shape::kTheirBytes;
      hopper::barrier_wait(at.full + turn.stage * 8, turn.phase);
      float score[Keys / 2], grad[Keys / 2];
      hopper::products_begin();
      multiply_rows<S, D, kMine>(score, at.mine[0], row, kp);
      hopper::products_commit();
      multiply_rows<S, D, kMine>(grad, at.mine[1], row, vp);
      hopper::products_commit();
      uint32_t flags_of[Keys / 64];
#pragma unroll
      for (int c = 0; Drops && c < Keys / 64; c++)
        flags_of[c] = flags[turn.stage * (Shape::kFlagsBytes / 4) + ((row / 16 + warp) * (Keys / 64) + c) * 32 +
                            flag_place(lane)];
      hopper::products_wait<1>();  // the scores are there
      settle(score);
      const int64_t first = int64_t{step} * Keys;
      const bool edge = first + Keys > a.keys || (a.causal && first + Keys > first_row + 1);
#pragma unroll
      for (int e = 0; e < Keys / 2; e++) score[e] = power_of_two(score[e] * scale - of_row[e / 2 % 2].lse);
      if (edge) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int64_t end = a.causal ? min(a.keys, query + h * 8 + 1) : a.keys;
          const int limit = static_cast<int>(min(end - first, int64_t{Keys})) - lane % 4 * 2;
#pragma unroll
          for (int y = 0; y < Keys / 8; y++) {
            if (y * 8 >= limit) score[y * 4 + h * 2] = 0;
            if (y * 8 + 1 >= limit) score[y * 4 + h * 2 + 1] = 0;
          }
        }
      }
      hopper::products_wait<0>();
      settle(grad);
      if constexpr (Drops) drop_by_flags(grad, flags_of);
#pragma unroll
      for (int e = 0; e < Keys / 2; e++)
        grad[e] = score[e] * ((Drops ? grad[e] * kept : grad[e]) - of_row[e / 2 % 2].delta);
      uint32_t left[Keys / 16][4];
      round_left<S>(left, grad);
      hopper::products_begin();
      multiply_lines<S>(result, left, kp);
      hopper::products_commit();
      hopper::products_wait<0>();
      if (Drops || lane == 0) hopper::barrier_arrive(at.empty + turn.stage * 8);
      __syncwarp();
    }
    hopper::products_wait<0>();
    settle(result);
    put_sums<S>(grad_q, batch, head, query, a.queries, result, {a.scale, a.scale});
  }
#endif
}

// grad_v = sum over queries of weight * grad_out, grad_k = scale * sum of grad_score * q, over all the query heads that
// share the key. Scores are computed with keys as rows, so a lane has no use for the numbers that dropout draws for it:
// warps beside the one that copies draw them for all. Ahead: the last products of a step run on while the next one
// begins, for which wide heads have no registers.
template <class S, int D, int Queries, bool Drops, bool Ahead>
__global__ void __launch_bounds__(kThreadCount, 1)
    key_gradient(const __grid_constant__ AttentionArgs a, const __grid_constant__ CUtensorMap k_map,
                 const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap q_map,
                 const __grid_constant__ CUtensorMap dy_map, const __grid_constant__ AttentionOperand grad_k,
                 const __grid_constant__ AttentionOperand grad_v, const Statistics* statistics) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = Shape<D, Queries, Drops>;
  extern __shared__ char memory[];
  const uint32_t base = (mma::shared_address(memory) + 1023) / 1024 * 1024;
  const Shape at(base);
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int kv_head = static_cast<int>(blockIdx.y % a.kv_heads), batch = static_cast<int>(blockIdx.y / a.kv_heads);
  const int heads = static_cast<int>(a.heads / a.kv_heads);
  const int64_t k0 = int64_t{blockIdx.x} * kMine;  // under a causal mask the first keys have the most work
  const int start = a.causal ? static_cast<int>(k0 / Queries) : 0;
  const int end = static_cast<int>((a.queries + Queries - 1) / Queries);
  at.init_barriers(kConsumers * 128);  // every lane reads statistics itself
  uint32_t* const flags = reinterpret_cast<uint32_t*>(memory + (at.flags - mma::shared_address(memory)));
  Turn<Shape::kStages> turn;
  if (group == 0) {
    hopper::registers_shrink<kFeeding<Drops && D == 64>>();  // wide heads have none to spare
    if (Drops && threadIdx.x >= 32) {
      for (int h = 0; h < heads; h++) {
        const Keep keep(a, batch, kv_head * heads + h);
        for (int step = start; step < end; step++, turn.advance())
          leave_flags<Queries, kMine>(at, turn, keep, flags, step * (Queries / 16), blockIdx.x * (kMine / 64));
      }
    }
    if (threadIdx.x != 0) return;
    copy_mine<D>(at, k_map, v_map, static_cast<int>(k0), kv_head, batch);
    for (int h = 0; h < heads; h++) {
      const int head = kv_head * heads + h;
      const Statistics* const of_head = statistics + (batch * a.heads + head) * statistics_pitch(a.queries);
      for (int step = start; step < end; step++, turn.advance()) {
        const uint32_t barrier =
            copy_theirs<D, Queries>(at, turn, q_map, dy_map, step * Queries, head, batch, Shape::kStatisticsBytes);
        hopper::copy_bytes(at.statistics + turn.stage * Shape::kStatisticsBytes, of_head + step * Queries,
                           Shape::kStatisticsBytes, barrier);
      }
    }
  } else {
    hopper::registers_grow<kMultiplying<Drops && D == 64>>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const int row = (group - 1) * 64;
    const int64_t first_row = k0 + row, key = first_row + warp * 16 + lane / 4;
    const float scale = a.scale * kLog2E, kept = Drops ? Keep(a, 0, 0).scale() : 1.0f;
    float dk[D / 2], dv[D / 2];
#pragma unroll
    for (int e = 0; e < D / 2; e++) dk[e] = dv[e] = 0;
    int last = -1;
    hopper::barrier_wait(at.mine_full, 0);
#pragma unroll 1
    for (int h = 0; h < heads; h++) {
#pragma unroll 1
      for (int step = start; step < end; step++, turn.advance()) {
        const uint32_t qp = at.theirs[0] + turn.stage * Shape::kTheirBytes,
                       dyp = at.theirs[1] + turn.stage * Shape::kTheirBytes;
        // Of columns 2 c and 2 c + 1 of every eight, one after the other.
        const auto* const numbers =
            reinterpret_cast<const float4*>(memory + (at.statistics - mma::shared_address(memory)) +
                                            turn.stage * Shape::kStatisticsBytes) +
            lane % 4;
        hopper::barrier_wait(at.full + turn.stage * 8, turn.phase);
        float weight[Queries / 2], grad[Queries / 2];
        hopper::products_begin();
        multiply_rows<S, D, kMine>(weight, at.mine[0], row, qp);
        hopper::products_commit();
        multiply_rows<S, D, kMine>(grad, at.mine[1], row, dyp);
        hopper::products_commit();
        // The scores, and with them the products that the step before left running.
        hopper::products_wait<1>();
        settle(weight);
        if constexpr (Ahead) {
          if (last >= 0) hopper::barrier_arrive(at.empty + last * 8);
        }
        last = turn.stage;
#pragma unroll
        for (int y = 0; y < Queries / 8; y++) {
          const float4 n = numbers[y * 4];
#pragma unroll
          for (int e = 0; e < 4; e++)
            weight[y * 4 + e] = power_of_two(weight[y * 4 + e] * scale - (e % 2 == 0 ? n.x : n.z));
        }
        const int64_t first = int64_t{step} * Queries;
        if (a.causal && first < first_row + 63) {
          // Row (key) i of this tile meets columns (queries) from i on.
          const int ahead = static_cast<int>(key - first) - lane % 4 * 2;
#pragma unroll
          for (int y = 0; y < Queries / 8; y++)
#pragma unroll
            for (int e = 0; e < 4; e++)
              if (y * 8 + e % 2 < ahead + e / 2 * 8) weight[y * 4 + e] = 0;
        }
        if constexpr (Drops)
          mark_by_flags<kMine / 64 * 32>(weight, flags + turn.stage * (Shape::kFlagsBytes / 4) + (group - 1) * 32);
        uint32_t left[Queries / 16][4];
        round_left<S, Drops>(left, weight);
        hopper::products_begin();
        multiply_lines<S>(dv, left, dyp);
        hopper::products_commit();
        hopper::products_wait<1>();
        settle(grad);
#pragma unroll
        for (int y = 0; y < Queries / 8; y++) {
          const float4 n = numbers[y * 4];
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const float w = weight[y * 4 + e], delta = e % 2 == 0 ? n.y : n.w;
            float& g = grad[y * 4 + e];
            if constexpr (Drops)
              g = ::fabsf(w) * ((is_kept(w) ? g : 0.0f) * kept - delta);
            else
              g = w * (g - delta);
          }
        }
        uint32_t left_grad[Queries / 16][4];
        round_left<S>(left_grad, grad);
        hopper::products_begin();
        multiply_lines<S>(dk, left_grad, qp);
        hopper::products_commit();
        if constexpr (!Ahead) {
          hopper::products_wait<0>();
          hopper::barrier_arrive(at.empty + turn.stage * 8);
        }
      }
    }
    hopper::products_wait<0>();
    settle(dk);
    settle(dv);
    put_sums<S>(grad_k, batch, kv_head, key, a.keys, dk, {a.scale, a.scale});
    put_sums<S>(grad_v, batch, kv_head, key, a.keys, dv, {kept, kept});
  }
#endif
}

template <class Kernel, class... Rest>
void start(Kernel kernel, int64_t rows, int64_t heads, int bytes, const Rest&... rest) {
  const dim3 grid(static_cast<unsigned>(ceil_div(rows, kMine)), static_cast<unsigned>(heads));
  launch_kernel(kernel, grid, kThreadCount, bytes, rest...);
}

template <class S, int D, bool Drops>
bool launch(const AttentionArgs& a, const AttentionGradients& g) {
  constexpr int kKeys = 128, kQueries = 64;
  const auto queries = &query_gradient<S, D, kKeys, Drops>;
  const auto keys = &key_gradient<S, D, kQueries, Drops, D == 64>;
  static const bool built = hopper::usable(queries) && hopper::usable(keys);
  if (!built) return false;
  // Each operand once as the block's own rows and once as what is met.
  CUtensorMap q[2], dy[2], k[2], v[2];
  for (int met = 0; met < 2; met++) {
    const int by_query = met ? kQueries : kMine, by_key = met ? kKeys : kMine;
    if (!map_rows<S, D>(&q[met], a.q, a.queries, a.heads, a.batch, by_query) ||
        !map_rows<S, D>(&dy[met], g.grad_out, a.queries, a.heads, a.batch, by_query) ||
        !map_rows<S, D>(&k[met], a.k, a.keys, a.kv_heads, a.batch, by_key) ||
        !map_rows<S, D>(&v[met], a.v, a.keys, a.kv_heads, a.batch, by_key))
      return false;
  }
  const int64_t heads = a.batch * a.heads, pitch = statistics_pitch(a.queries);
  const Scratch memory(heads * pitch * static_cast<int64_t>(sizeof(Statistics)));
  auto* const statistics = memory.get<Statistics>();
  const dim3 grid(static_cast<unsigned>(ceil_div(pitch * (D / 8), kThreads)), static_cast<unsigned>(heads));
  statistics_kernel<S, D><<<grid, kThreads, 0, cuda::current_stream()>>>(a, g, statistics);
  start(queries, a.queries, heads, Shape<D, kKeys, Drops>::kBytes, a, q[0], dy[0], k[1], v[1], g.grad_q, statistics);
  start(keys, a.keys, a.batch * a.kv_heads, Shape<D, kQueries, Drops>::kBytes, a, k[0], v[0], q[1], dy[1], g.grad_k,
        g.grad_v, statistics);
  return true;
}

}  // namespace

bool attention_hopper_backward(const AttentionArgs& a, const AttentionGradients& g) {
  if (!hopper_fits(a) || a.queries == 0 || !mappable(g.grad_out) || !mappable(g.out)) return false;
  bool done = false;
  attention_by_shape(a, Types<BFloat16, Half>{}, [&](auto tag, auto columns, auto drops) {
    done = launch<typename decltype(tag)::type, decltype(columns)::value, decltype(drops)::value>(a, g);
  });
  return done;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
