// Attention on tensor cores, after T. Dao, "FlashAttention-2", ICLR 2024: a warp keeps its rows of queries (for the
// gradients of K and V, of keys) and the result in registers, and a block's warps share panels of the other side that
// asynchronous copies bring in one ahead. Scores never leave the registers: the accumulator of one product is, rounded
// or split, the left operand of the next. `Step`: keys (or queries) that a block meets at a time.
#pragma once
#include "kernels/cuda/attention_fragments.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace attention {

// How many of the keys from `first` on a query meets.
template <int Step>
__device__ __forceinline__ int keys_met(const AttentionArgs& a, int64_t query, int64_t first) {
  const int64_t end = a.causal ? min(a.keys, query + 1) : a.keys;
  return static_cast<int>(min(end - first, int64_t{Step}));
}

// Scores in units of log2, with the mask. `query` and `first`: of this lane's first row, and of the tile's first key.
template <class S, int Tiles, int N>
__device__ __forceinline__ void scale_scores(const AttentionArgs& a, int64_t batch, int64_t head, int64_t query,
                                             int64_t first, float (&score)[Tiles][N][4]) {
  const S* const mask = reinterpret_cast<const S*>(a.mask.data);
  const int64_t key = first + threadIdx.x % 4 * 2;
  const int64_t at = batch * a.mask.batch + head * a.mask.head + query * a.mask.row + key * a.mask.column;
#pragma unroll
  for (int x = 0; x < Tiles; x++)
#pragma unroll
    for (int y = 0; y < N; y++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int row = x * 16 + e / 2 * 8, column = y * 8 + e % 2;
        float& s = score[x][y][e];
        s *= a.scale * kLog2E;
        if (mask != nullptr && query + row < a.queries && key + column < a.keys)
          s += kLog2E * convert<float>(mask[at + row * a.mask.row + column * a.mask.column]);
      }
}

// The keys and values that a block's queries meet, a tile of each at a time, brought in by asynchronous copies: two
// pairs of panels of type P, used in turn.
template <class S, class P, int Step, int Threads>
struct KeyTiles {
  const AttentionArgs& a;
  const S *k, *v;
  uint32_t panels;
  int steps;
  bool k_vectors, v_vectors;
  // End: of the block's queries.
  __device__ __forceinline__ KeyTiles(const AttentionArgs& args, int64_t batch, int64_t head, int64_t end, uint32_t at)
      : a(args),
        k(slice<S>(args.k, batch, head / (args.heads / args.kv_heads))),
        v(slice<S>(args.v, batch, head / (args.heads / args.kv_heads))),
        panels(at),
        steps(static_cast<int>(((args.causal ? min(args.keys, end) : args.keys) + Step - 1) / Step)),
        k_vectors(vectors<S>(args.k)),
        v_vectors(vectors<S>(args.v)) {}
  __device__ __forceinline__ uint32_t keys(int step) const { return panels + step % 2 * 2 * P::kBytes; }
  __device__ __forceinline__ uint32_t values(int step) const { return keys(step) + P::kBytes; }
  __device__ __forceinline__ void fill(int step) const {
    if (step < steps) {
      const int64_t first = int64_t{step} * Step;
      fill_rows<P, Threads>(keys(step), k + first * a.k.row, a.k.row, a.keys - first, a.head_dim, k_vectors);
      fill_rows<P, Threads>(values(step), v + first * a.v.row, a.v.row, a.keys - first, a.value_dim, v_vectors);
    }
    mma::commit_copies();
  }
};

// ---- Forward -------------------------------------------------------------------------------------------------------

// Tiles: 16 rows of queries that a warp has, each. D: columns of a head, rounded up.
template <class S, int D, int Step, int Warps, int Tiles>
struct ForwardShape {
  static constexpr int kQueries = Warps * Tiles * 16;
  using Queries = Rows<S, kQueries, D>;
  using Keys = Rows<S, Step, D>;
  static constexpr int kBytes = Queries::kBytes + 4 * Keys::kBytes;
};

template <class S, int D, int Step, int Warps, int Tiles, bool Drops>
__global__ void __launch_bounds__(Warps * 32)
    forward_kernel(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionOperand out, float* lse) {
  using Shape = ForwardShape<S, D, Step, Warps, Tiles>;
  using Keys = typename Shape::Keys;
  constexpr int kThreadCount = Warps * 32, kKeyTiles = Step / 8, kColumns = D / 8;
  extern __shared__ __align__(128) char memory[];
  const uint32_t qs = mma::shared_address(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t head = blockIdx.y % a.heads, batch = blockIdx.y / a.heads;
  // Under a causal mask the last queries have the most work: they start first.
  const int64_t q0 = int64_t{gridDim.x - 1 - blockIdx.x} * Shape::kQueries;
  const KeyTiles<S, Keys, Step, kThreadCount> met(a, batch, head, q0 + Shape::kQueries, qs + Shape::Queries::kBytes);
  fill_rows<typename Shape::Queries, kThreadCount>(qs, slice<S>(a.q, batch, head) + q0 * a.q.row, a.q.row,
                                                   a.queries - q0, a.head_dim, vectors<S>(a.q));
  met.fill(0);

  float result[Tiles][kColumns][4], high[Tiles][2], sum[Tiles][2];
#pragma unroll
  for (int x = 0; x < Tiles; x++) {
    clear(result[x]);
    high[x][0] = high[x][1] = -INFINITY;
    sum[x][0] = sum[x][1] = 0;
  }
  // The largest score is found before scaling, where the order allows it.
  const bool scaled = a.mask.data != nullptr || !(a.scale > 0.0f);
  const float scale = scaled ? 1.0f : a.scale * kLog2E;
  const int row0 = warp * Tiles * 16;
  const Keep keep(a, batch, head);
#pragma unroll 1
  for (int step = 0; step < met.steps; step++) {
    mma::wait_copies<0>();
    __syncthreads();
    met.fill(step + 1);
    float score[Tiles][kKeyTiles][4];
#pragma unroll
    for (int x = 0; x < Tiles; x++) clear(score[x]);
    multiply_panels<S, typename Shape::Queries, Keys, D>(score, qs, row0, met.keys(step));
    const int64_t first = int64_t{step} * Step;
    if (scaled) scale_scores<S>(a, batch, head, q0 + row0 + lane / 4, first, score);
    const bool edge = first + Step > a.keys || (a.causal && first + Step > q0 + row0 + 1);
#pragma unroll
    for (int x = 0; x < Tiles; x++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        if (edge) {
          const int limit = keys_met<Step>(a, q0 + row0 + x * 16 + h * 8 + lane / 4, first) - lane % 4 * 2;
#pragma unroll
          for (int y = 0; y < kKeyTiles; y++) {
            if (y * 8 >= limit) score[x][y][h * 2] = -INFINITY;
            if (y * 8 + 1 >= limit) score[x][y][h * 2 + 1] = -INFINITY;
          }
        }
        float highest = high[x][h];
#pragma unroll
        for (int y = 0; y < kKeyTiles; y++) highest = fmaxf(highest, fmaxf(score[x][y][h * 2], score[x][y][h * 2 + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
        // A row that has met nothing yet: its exponentials are zeros, not exp(-inf + inf).
        const float reference = highest == -INFINITY ? 0.0f : highest * scale;
        // Rounded as the reference was: what a fused product leaves of equal ones would add up from step to step.
        const float shrink = power_of_two(__fmul_rn(high[x][h], scale) - reference);
        high[x][h] = highest;
        float total = 0;
#pragma unroll
        for (int y = 0; y < kKeyTiles; y++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float& s = score[x][y][h * 2 + e];
            s = power_of_two(s * scale - reference);
            total += s;
          }
        }
        sum[x][h] = sum[x][h] * shrink + total;  // of this lane's columns; the lanes are added at the end
#pragma unroll
        for (int y = 0; y < kColumns; y++) {
          result[x][y][h * 2] *= shrink;
          result[x][y][h * 2 + 1] *= shrink;
        }
      }
      if constexpr (Drops) keep.drop(score[x], q0 + row0 + x * 16 + lane / 4, first);
    }
    multiply_left<S, Keys>(result, score, met.values(step));
  }
  mma::wait_copies<0>();
#pragma unroll
  for (int x = 0; x < Tiles; x++) {
    const int64_t query = q0 + row0 + x * 16 + lane / 4;
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float total = sum[x][h];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      factor[h] = total == 0.0f ? 0.0f : 1.0f / total;
      if (lane % 4 == 0 && query + h * 8 < a.queries)
        lse[(batch * a.heads + head) * a.queries + query + h * 8] =
            total == 0.0f ? -INFINITY : high[x][h] * scale * kLn2 + ::logf(total);
      if constexpr (Drops) factor[h] *= keep.scale();
    }
    put_rows<S>(out, batch, head, query, a.queries, a.value_dim, result[x], factor);
  }
}

// ---- Backward ------------------------------------------------------------------------------------------------------

constexpr int kBackwardWarps = 8, kBackwardRows = kBackwardWarps * 16;

template <class S, int D, int Step>
struct BackwardShape {
  using Mine = Rows<S, kBackwardRows, D>;               // the block's own rows, of two operands
  using Theirs = Rows<S, Step, D>;                      // what it meets: two operands, twice
  static constexpr int kStatistics = 2 * 2 * Step * 4;  // lse and delta of the queries met, twice
  static constexpr int kBytes = 2 * Mine::kBytes + 4 * Theirs::kBytes + kStatistics;
};

// What the log-sum-exp of a query is as an exponent of two to take off: infinity for one that met nothing, so that its
// weights are zeros.
__device__ __forceinline__ float exponent_of(float lse) { return lse == -INFINITY ? INFINITY : lse * kLog2E; }

// grad_q = scale * sum over keys of grad_score * k.
template <class S, int D, int Step, bool Drops>
__global__ void __launch_bounds__(kBackwardWarps * 32)
    query_gradient(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionGradients g,
                   const float* delta) {
  using Shape = BackwardShape<S, D, Step>;
  using Mine = typename Shape::Mine;
  using Theirs = typename Shape::Theirs;
  constexpr int kThreadCount = kBackwardWarps * 32, kTiles = Step / 8;
  extern __shared__ __align__(128) char memory[];
  const uint32_t qs = mma::shared_address(memory), dys = qs + Mine::kBytes;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t head = blockIdx.y % a.heads, batch = blockIdx.y / a.heads;
  const int64_t q0 = int64_t{gridDim.x - 1 - blockIdx.x} * kBackwardRows;
  const KeyTiles<S, Theirs, Step, kThreadCount> met(a, batch, head, q0 + kBackwardRows, dys + Mine::kBytes);
  fill_rows<Mine, kThreadCount>(qs, slice<S>(a.q, batch, head) + q0 * a.q.row, a.q.row, a.queries - q0, a.head_dim,
                                vectors<S>(a.q));
  fill_rows<Mine, kThreadCount>(dys, slice<S>(g.grad_out, batch, head) + q0 * g.grad_out.row, g.grad_out.row,
                                a.queries - q0, a.value_dim, vectors<S>(g.grad_out));
  met.fill(0);
  const int row0 = warp * 16;
  const int64_t query = q0 + row0 + lane / 4, statistics = (batch * a.heads + head) * a.queries;
  float lse[2], d[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const bool live = query + h * 8 < a.queries;
    lse[h] = live ? exponent_of(g.lse[statistics + query + h * 8]) : INFINITY;
    d[h] = live ? delta[statistics + query + h * 8] : 0.0f;
  }
  const float scale = a.mask.data != nullptr ? 1.0f : a.scale * kLog2E;
  const Keep keep(a, batch, head);
  const float kept = Drops ? keep.scale() : 1.0f;
  float result[D / 8][4];
  clear(result);
#pragma unroll 1
  for (int step = 0; step < met.steps; step++) {
    mma::wait_copies<0>();
    __syncthreads();
    met.fill(step + 1);
    const int64_t first = int64_t{step} * Step;
    if (a.causal && first > q0 + row0 + 15) continue;  // all of this warp's queries come before these keys
    float score[1][kTiles][4], grad[kTiles][4];
    clear(score[0]);
    clear(grad);
    multiply_panels<S, Mine, Theirs, D>(score, qs, row0, met.keys(step));
    multiply_panels<S, Mine, Theirs, D>(one(grad), dys, row0, met.values(step));
    if (a.mask.data != nullptr) scale_scores<S>(a, batch, head, query, first, score);
    if constexpr (Drops) keep.drop(grad, query, first);
    const int limit[2] = {keys_met<Step>(a, query, first) - lane % 4 * 2,
                          keys_met<Step>(a, query + 8, first) - lane % 4 * 2};
#pragma unroll
    for (int y = 0; y < kTiles; y++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float w = power_of_two(score[0][y][e] * scale - lse[e / 2]);
        grad[y][e] = y * 8 + e % 2 < limit[e / 2] ? w * (grad[y][e] * kept - d[e / 2]) : 0.0f;
      }
    multiply_left<S, Theirs>(one(result), one(grad), met.keys(step));
  }
  mma::wait_copies<0>();
  put_rows<S>(g.grad_q, batch, head, query, a.queries, a.head_dim, result, {a.scale, a.scale});
}

// grad_v = sum over queries of weight * grad_out, grad_k = scale * sum of grad_score * q, over all the query heads that
// share the key. Scores are computed with keys as rows.
template <class S, int D, int Step, bool Drops>
__global__ void __launch_bounds__(kBackwardWarps * 32)
    key_gradient(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionGradients g,
                 const float* delta) {
  using Shape = BackwardShape<S, D, Step>;
  using Mine = typename Shape::Mine;
  using Theirs = typename Shape::Theirs;
  constexpr int kThreadCount = kBackwardWarps * 32, kTiles = Step / 8;
  extern __shared__ __align__(128) char memory[];
  const uint32_t ks = mma::shared_address(memory), vs = ks + Mine::kBytes, qs = vs + Mine::kBytes;
  float* const numbers = reinterpret_cast<float*>(memory + 2 * Mine::kBytes + 4 * Theirs::kBytes);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t kv_head = blockIdx.y % a.kv_heads, batch = blockIdx.y / a.kv_heads, group = a.heads / a.kv_heads;
  const int64_t k0 = int64_t{blockIdx.x} * kBackwardRows;  // under a causal mask the first keys have the most work
  const bool q_vectors = vectors<S>(a.q), dy_vectors = vectors<S>(g.grad_out);
  const int64_t start = a.causal ? k0 / Step : 0, per_head = max((a.queries + Step - 1) / Step - start, int64_t{0});
  const int64_t steps = per_head * group;
  const auto fill = [&](int64_t step) {
    if (step < steps) {
      const int64_t head = kv_head * group + step / per_head, first = (start + step % per_head) * Step;
      const uint32_t to = qs + static_cast<uint32_t>(step % 2) * 2 * Theirs::kBytes;
      fill_rows<Theirs, kThreadCount>(to, slice<S>(a.q, batch, head) + first * a.q.row, a.q.row, a.queries - first,
                                      a.head_dim, q_vectors);
      fill_rows<Theirs, kThreadCount>(to + Theirs::kBytes, slice<S>(g.grad_out, batch, head) + first * g.grad_out.row,
                                      g.grad_out.row, a.queries - first, a.value_dim, dy_vectors);
      const int at = static_cast<int>(threadIdx.x);
      if (at < Step) {
        const bool live = first + at < a.queries;
        const int64_t row = (batch * a.heads + head) * a.queries + first + at;
        float* const to_numbers = numbers + step % 2 * 2 * Step;
        to_numbers[at] = live ? exponent_of(g.lse[row]) : INFINITY;
        to_numbers[Step + at] = live ? delta[row] : 0.0f;
      }
    }
    mma::commit_copies();
  };
  fill_rows<Mine, kThreadCount>(ks, slice<S>(a.k, batch, kv_head) + k0 * a.k.row, a.k.row, a.keys - k0, a.head_dim,
                                vectors<S>(a.k));
  fill_rows<Mine, kThreadCount>(vs, slice<S>(a.v, batch, kv_head) + k0 * a.v.row, a.v.row, a.keys - k0, a.value_dim,
                                vectors<S>(a.v));
  fill(0);
  const int row0 = warp * 16;
  const int64_t key = k0 + row0 + lane / 4;
  const float scale = a.scale * kLog2E, kept = Drops ? Keep(a, batch, 0).scale() : 1.0f;
  float dk[D / 8][4], dv[D / 8][4];
  clear(dk);
  clear(dv);
#pragma unroll 1
  for (int64_t step = 0; step < steps; step++) {
    mma::wait_copies<0>();
    __syncthreads();
    fill(step + 1);
    const int64_t head = kv_head * group + step / per_head, first = (start + step % per_head) * Step;
    if (a.causal && first + Step <= k0 + row0) continue;  // all of these queries come before the warp's keys
    const uint32_t qp = qs + static_cast<uint32_t>(step % 2) * 2 * Theirs::kBytes, dyp = qp + Theirs::kBytes;
    const float* const lse = numbers + step % 2 * 2 * Step;
    float weight[kTiles][4], grad[kTiles][4];
    clear(weight);
    multiply_panels<S, Mine, Theirs, D>(one(weight), ks, row0, qp);
    const bool edge = a.causal && first < k0 + row0 + 15;
#pragma unroll
    for (int y = 0; y < kTiles; y++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int at = y * 8 + lane % 4 * 2 + e % 2;
        const int64_t mine = key + e / 2 * 8;
        float s = weight[y][e] * scale;
        if (a.mask.data != nullptr && first + at < a.queries && mine < a.keys)
          s += kLog2E * convert<float>(
                            reinterpret_cast<const S*>(a.mask.data)[batch * a.mask.batch + head * a.mask.head +
                                                                    (first + at) * a.mask.row + mine * a.mask.column]);
        const float w = power_of_two(s - lse[at]);
        weight[y][e] = edge && first + at < mine ? 0.0f : w;
      }
    if constexpr (Drops) Keep(a, batch, head).mark(weight, key, first);
    multiply_left<S, Theirs, Drops>(one(dv), one(weight), dyp);
    clear(grad);
    multiply_panels<S, Mine, Theirs, D>(one(grad), vs, row0, dyp);
#pragma unroll
    for (int y = 0; y < kTiles; y++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float d = lse[Step + y * 8 + lane % 4 * 2 + e % 2], w = weight[y][e];
        if constexpr (Drops)
          grad[y][e] = ::fabsf(w) * ((is_kept(w) ? grad[y][e] * kept : 0.0f) - d);
        else
          grad[y][e] = w * (grad[y][e] - d);
      }
    multiply_left<S, Theirs>(one(dk), one(grad), qp);
  }
  mma::wait_copies<0>();
  put_rows<S>(g.grad_k, batch, kv_head, key, a.keys, a.head_dim, dk, {a.scale, a.scale});
  put_rows<S>(g.grad_v, batch, kv_head, key, a.keys, a.value_dim, dv, {kept, kept});
}

}  // namespace attention
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
