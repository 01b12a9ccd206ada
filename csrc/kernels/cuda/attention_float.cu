// Attention of floats in plain arithmetic. A block owns a tile of rows (of queries; in the gradients of keys and
// values, of keys) and meets tiles of 64 columns; its 16 x 16 threads each hold every 16th row and column of the
// scores, so that both products - of rows with rows, and of weights with rows - read shared memory four floats at a
// time without conflicts. The gradients take two passes, one over queries and one over keys: no atomics, the same bits
// every time.
#include "kernels/cuda/attention_float.h"

#include "kernels/cuda/attention_dropout.cuh"
#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kSide = 16, kBlock = kSide * kSide;
constexpr int kColumns = 64, kEach = kColumns / kSide;  // columns of a tile of scores, and of a thread
constexpr int kWeights = kColumns + 4;                  // floats from a row of weights to the next
template <int D>
constexpr int kPitch = D + 4;  // the same for rows of operands, which are D wide, the rest zeros

__device__ __forceinline__ int row_of() { return static_cast<int>(threadIdx.x) / kSide; }
__device__ __forceinline__ int column_of() { return static_cast<int>(threadIdx.x) % kSide; }

// One head's rows of an operand.
struct Matrix {
  float* data;
  int64_t row, column, rows;
  int width;
  bool packs;  // four neighbours are one aligned access

  __device__ __forceinline__ Matrix(const AttentionOperand& o, int64_t batch, int64_t head, int64_t rows, int64_t width)
      : data(reinterpret_cast<float*>(o.data) + batch * o.batch + head * o.head),
        row(o.row),
        column(o.column),
        rows(rows),
        width(static_cast<int>(width)),
        packs(o.column == 1 && o.row % 4 == 0 && width % 4 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0) {}

  __device__ __forceinline__ float4 load(int64_t r, int c) const {
    float x[4] = {};
    const float* const from = data + r * row + c * column;
    if (r < rows && c < width) {
      if (packs) return *reinterpret_cast<const float4*>(from);
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (c + e < width) x[e] = from[e * column];
    }
    return make_float4(x[0], x[1], x[2], x[3]);
  }
  __device__ __forceinline__ void store(int64_t r, int c, const float (&x)[4]) const {
    float* const to = data + r * row + c * column;
    if (r >= rows || c >= width) return;
    if (packs) {
      *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
      return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (c + e < width) to[e * column] = x[e];
  }
};

template <int D>
__device__ __forceinline__ void load_rows(float* tile, const Matrix& m, int64_t first, int count) {
  for (int at = static_cast<int>(threadIdx.x); at < count * (D / 4); at += kBlock) {
    const int r = at / (D / 4), c = at % (D / 4) * 4;
    *reinterpret_cast<float4*>(&tile[r * kPitch<D> + c]) = m.load(first + r, c);
  }
}

// The tiles of columns that a block meets next, once the ones before are done with.
template <int D>
__device__ __forceinline__ void load_columns(float* tile, const Matrix& m, float* other_tile, const Matrix& other,
                                             int64_t first) {
  __syncthreads();
  load_rows<D>(tile, m, first, kColumns);
  load_rows<D>(other_tile, other, first, kColumns);
  __syncthreads();
}

// sums[i][j] += row_of() + 16 i of `a` times column_of() + 16 j of `b`, both rows of D.
template <int R, int D>
__device__ __forceinline__ void rows_by_rows(float (&sums)[R][kEach], const float* a, const float* b) {
  const float *const from_a = a + row_of() * kPitch<D>, *const from_b = b + column_of() * kPitch<D>;
#pragma unroll 2
  for (int d = 0; d < D; d += 4) {
    float4 right[kEach];
#pragma unroll
    for (int j = 0; j < kEach; j++) right[j] = *reinterpret_cast<const float4*>(&from_b[j * kSide * kPitch<D> + d]);
#pragma unroll
    for (int i = 0; i < R; i++) {
      const float4 left = *reinterpret_cast<const float4*>(&from_a[i * kSide * kPitch<D> + d]);
#pragma unroll
      for (int j = 0; j < kEach; j++) {
        sums[i][j] += left.x * right[j].x;
        sums[i][j] += left.y * right[j].y;
        sums[i][j] += left.z * right[j].z;
        sums[i][j] += left.w * right[j].w;
      }
    }
  }
}

// sums[i][4 g + e] += weights of row row_of() + 16 i times column 64 g + 4 column_of() + e of `rows`. The products of a
// tile are summed apart first: one sum of thousands of terms rounds at its own size as many times (2048 keys, causal:
// gradients are off by 4e-7 instead of 1.1e-6).
template <int R, int D>
__device__ __forceinline__ void weights_by_rows(float (&sums)[R][D / kSide], const float* weights, const float* rows) {
  const float *const from_w = weights + row_of() * kWeights, *const from_r = rows + column_of() * 4;
  float part[R][D / kSide] = {};
#pragma unroll 2
  for (int k = 0; k < kColumns; k += 4) {
    float4 left[R];
#pragma unroll
    for (int i = 0; i < R; i++) left[i] = *reinterpret_cast<const float4*>(&from_w[i * kSide * kWeights + k]);
#pragma unroll
    for (int e = 0; e < 4; e++) {
#pragma unroll
      for (int g = 0; g < D / 64; g++) {
        const float4 right = *reinterpret_cast<const float4*>(&from_r[(k + e) * kPitch<D> + g * 64]);
#pragma unroll
        for (int i = 0; i < R; i++) {
          const float w = e == 0 ? left[i].x : e == 1 ? left[i].y : e == 2 ? left[i].z : left[i].w;
          part[i][g * 4] += w * right.x;
          part[i][g * 4 + 1] += w * right.y;
          part[i][g * 4 + 2] += w * right.z;
          part[i][g * 4 + 3] += w * right.w;
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < R; i++)
#pragma unroll
    for (int c = 0; c < D / kSide; c++) sums[i][c] += part[i][c];
}

// The weights of a thread to where the 16 threads of its rows, which are of one warp, find them.
template <int R>
__device__ __forceinline__ void share(float* weights, const float (&values)[R][kEach]) {
  __syncwarp();
#pragma unroll
  for (int i = 0; i < R; i++)
#pragma unroll
    for (int j = 0; j < kEach; j++) weights[(row_of() + i * kSide) * kWeights + column_of() + j * kSide] = values[i][j];
  __syncwarp();
}

template <int R, int D>
__device__ __forceinline__ void store_rows(const Matrix& m, int64_t first, const float (&sums)[R][D / kSide],
                                           const float (&factors)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) {
#pragma unroll
    for (int g = 0; g < D / 64; g++) {
      float x[4];
#pragma unroll
      for (int e = 0; e < 4; e++) x[e] = sums[i][g * 4 + e] * factors[i];
      m.store(first + row_of() + i * kSide, g * 64 + column_of() * 4, x);
    }
  }
}

template <class F>
__device__ __forceinline__ float reduce_row(float value, const F& combine) {
#pragma unroll
  for (int mask = kSide / 2; mask > 0; mask /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

// Scores of pairs, minus infinity for those that do not meet.
struct Scores {
  const AttentionArgs& a;
  int64_t batch, head;

  __device__ __forceinline__ bool meet(int64_t query, int64_t key) const {
    return query < a.queries && key < a.keys && !(a.causal && key > query);
  }
  __device__ __forceinline__ float operator()(float product, int64_t query, int64_t key) const {
    if (!meet(query, key)) return -INFINITY;
    const float score = product * a.scale;
    return a.mask.data == nullptr
               ? score
               : score + reinterpret_cast<const float*>(a.mask.data)[batch * a.mask.batch + head * a.mask.head +
                                                                     query * a.mask.row + key * a.mask.column];
  }
};

// Of a thread's pairs of a query and keys (those of a tile that begins with `first`), those that dropout takes: zeros.
__device__ __forceinline__ void drop(const attention::Keep& keep, float (&values)[kEach], int64_t query,
                                     int64_t first) {
#pragma unroll
  for (int j = 0; j < kEach; j++)
    if (!keep(query, first + column_of() + j * kSide)) values[j] = 0.0f;
}

// A block's place: the tiles of a head are neighbours, and where later tiles have more to do they begin first.
struct Place {
  int64_t batch, head, first;
  __device__ __forceinline__ Place(int64_t rows, int64_t heads, int tile_rows, bool last_first) {
    const int64_t tiles = (rows + tile_rows - 1) / tile_rows, tile = blockIdx.x % tiles, unit = blockIdx.x / tiles;
    first = (last_first ? tiles - 1 - tile : tile) * tile_rows;
    head = unit % heads, batch = unit / heads;
  }
};

template <int R, int D, bool Drops>
__global__ void __launch_bounds__(kBlock, D == 64 ? 2 : 1)
    forward_kernel(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionOperand out, float* lse) {
  extern __shared__ __align__(16) float memory[];
  constexpr int kRows = R * kSide;
  float *const qs = memory, *const ks = qs + kRows * kPitch<D>, *const vs = ks + kColumns * kPitch<D>,
               *const weights = vs + kColumns * kPitch<D>;
  const Place at(a.queries, a.heads, kRows, a.causal);
  const int64_t kv_head = at.head / (a.heads / a.kv_heads);
  const Scores score{a, at.batch, at.head};
  const Matrix k(a.k, at.batch, kv_head, a.keys, a.head_dim), v(a.v, at.batch, kv_head, a.keys, a.value_dim);
  const attention::Keep keep(a, at.batch, at.head);
  load_rows<D>(qs, Matrix(a.q, at.batch, at.head, a.queries, a.head_dim), at.first, kRows);
  float high[R], sum[R] = {}, result[R][D / kSide] = {};
#pragma unroll
  for (int i = 0; i < R; i++) high[i] = -INFINITY;
  const int64_t keys = a.causal ? min(a.keys, at.first + kRows) : a.keys;
  for (int64_t first = 0; first < keys; first += kColumns) {
    load_columns<D>(ks, k, vs, v, first);
    float s[R][kEach] = {};
    rows_by_rows<R, D>(s, qs, ks);
#pragma unroll
    for (int i = 0; i < R; i++) {
      const int64_t query = at.first + row_of() + i * kSide;
      float highest = high[i];
#pragma unroll
      for (int j = 0; j < kEach; j++) {
        s[i][j] = score(s[i][j], query, first + column_of() + j * kSide);
        highest = Max()(highest, s[i][j]);
      }
      highest = reduce_row(highest, Max());
      // A row that has met nothing yet: its exponentials are zeros, not exp(-inf + inf).
      const float reference = highest == -INFINITY ? 0.0f : highest, shrink = ::expf(high[i] - reference);
      float total = 0;
#pragma unroll
      for (int j = 0; j < kEach; j++) total += s[i][j] = ::expf(s[i][j] - reference);
      sum[i] = sum[i] * shrink + reduce_row(total, Sum());
      high[i] = highest;
#pragma unroll
      for (int c = 0; c < D / kSide; c++) result[i][c] *= shrink;
      if constexpr (Drops) drop(keep, s[i], query, first);
    }
    share<R>(weights, s);
    weights_by_rows<R, D>(result, weights, vs);
  }
  float factors[R];
#pragma unroll
  for (int i = 0; i < R; i++) {
    const int64_t query = at.first + row_of() + i * kSide;
    factors[i] = sum[i] == 0.0f ? 0.0f : 1.0f / sum[i];
    if (column_of() == 0 && query < a.queries)
      lse[(at.batch * a.heads + at.head) * a.queries + query] = sum[i] == 0.0f ? -INFINITY : high[i] + ::logf(sum[i]);
    if constexpr (Drops) factors[i] *= keep.scale();
  }
  store_rows<R, D>(Matrix(out, at.batch, at.head, a.queries, a.value_dim), at.first, result, factors);
}

// grad_q = scale * sum over keys of grad_score * k.
template <int R, int D, bool Drops>
__global__ void __launch_bounds__(kBlock, D == 64 ? 2 : 1)
    query_gradient(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionGradients g,
                   const float* delta) {
  extern __shared__ __align__(16) float memory[];
  constexpr int kRows = R * kSide;
  float *const qs = memory, *const dys = qs + kRows * kPitch<D>, *const ks = dys + kRows * kPitch<D>,
               *const vs = ks + kColumns * kPitch<D>, *const weights = vs + kColumns * kPitch<D>;
  const Place at(a.queries, a.heads, kRows, a.causal);
  const int64_t kv_head = at.head / (a.heads / a.kv_heads), base = (at.batch * a.heads + at.head) * a.queries;
  const Scores score{a, at.batch, at.head};
  const Matrix k(a.k, at.batch, kv_head, a.keys, a.head_dim), v(a.v, at.batch, kv_head, a.keys, a.value_dim);
  load_rows<D>(qs, Matrix(a.q, at.batch, at.head, a.queries, a.head_dim), at.first, kRows);
  load_rows<D>(dys, Matrix(g.grad_out, at.batch, at.head, a.queries, a.value_dim), at.first, kRows);
  const attention::Keep keep(a, at.batch, at.head);
  const float kept = Drops ? keep.scale() : 1.0f;
  float row_lse[R], row_delta[R], result[R][D / kSide] = {};
#pragma unroll
  for (int i = 0; i < R; i++) {
    const int64_t query = at.first + row_of() + i * kSide;
    row_lse[i] = query < a.queries ? g.lse[base + query] : -INFINITY;
    row_delta[i] = query < a.queries ? delta[base + query] : 0.0f;
  }
  const int64_t keys = a.causal ? min(a.keys, at.first + kRows) : a.keys;
  for (int64_t first = 0; first < keys; first += kColumns) {
    load_columns<D>(ks, k, vs, v, first);
    float s[R][kEach] = {}, grad[R][kEach] = {};
    rows_by_rows<R, D>(s, qs, ks);
    rows_by_rows<R, D>(grad, dys, vs);
#pragma unroll
    for (int i = 0; i < R; i++) {
      const int64_t query = at.first + row_of() + i * kSide;
      if constexpr (Drops) drop(keep, grad[i], query, first);
#pragma unroll
      for (int j = 0; j < kEach; j++) {
        const int64_t key = first + column_of() + j * kSide;
        const bool counts = row_lse[i] != -INFINITY && score.meet(query, key);
        grad[i][j] =
            counts ? ::expf(score(s[i][j], query, key) - row_lse[i]) * (grad[i][j] * kept - row_delta[i]) : 0.0f;
      }
    }
    share<R>(weights, grad);
    weights_by_rows<R, D>(result, weights, ks);
  }
  float factors[R];
#pragma unroll
  for (int i = 0; i < R; i++) factors[i] = a.scale;
  store_rows<R, D>(Matrix(g.grad_q, at.batch, at.head, a.queries, a.head_dim), at.first, result, factors);
}

// grad_v = sum over queries of weight * grad_out, grad_k = scale * sum of grad_score * q, over all the query heads that
// share the key.
template <int R, int D, bool Drops>
__global__ void __launch_bounds__(kBlock, D == 64 ? 2 : 1)
    key_gradient(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionGradients g,
                 const float* delta) {
  extern __shared__ __align__(16) float memory[];
  constexpr int kRows = R * kSide;
  float *const ks = memory, *const vs = ks + kRows * kPitch<D>, *const qs = vs + kRows * kPitch<D>,
               *const dys = qs + kColumns * kPitch<D>, *const weights = dys + kColumns * kPitch<D>;
  const Place at(a.keys, a.kv_heads, kRows, false);
  const int64_t group = a.heads / a.kv_heads;
  load_rows<D>(ks, Matrix(a.k, at.batch, at.head, a.keys, a.head_dim), at.first, kRows);
  load_rows<D>(vs, Matrix(a.v, at.batch, at.head, a.keys, a.value_dim), at.first, kRows);
  float dk[R][D / kSide] = {}, dv[R][D / kSide] = {};
  const float kept = Drops ? attention::Keep(a, at.batch, 0).scale() : 1.0f;
  for (int64_t head = at.head * group; head < (at.head + 1) * group; head++) {
    const attention::Keep keep(a, at.batch, head);
    const Scores score{a, at.batch, head};
    const int64_t base = (at.batch * a.heads + head) * a.queries;
    const Matrix q(a.q, at.batch, head, a.queries, a.head_dim);
    const Matrix dy(g.grad_out, at.batch, head, a.queries, a.value_dim);
    for (int64_t first = a.causal ? at.first / kColumns * kColumns : 0; first < a.queries; first += kColumns) {
      load_columns<D>(qs, q, dys, dy, first);
      float weight[R][kEach] = {}, grad[R][kEach] = {};
      rows_by_rows<R, D>(weight, ks, qs);
      rows_by_rows<R, D>(grad, vs, dys);
#pragma unroll
      for (int j = 0; j < kEach; j++) {
        const int64_t query = first + column_of() + j * kSide;
        const float lse = query < a.queries ? g.lse[base + query] : -INFINITY;
        const float d = query < a.queries ? delta[base + query] : 0.0f;
#pragma unroll
        for (int i = 0; i < R; i++) {
          const int64_t key = at.first + row_of() + i * kSide;
          const bool counts = lse != -INFINITY && score.meet(query, key);
          weight[i][j] = counts ? ::expf(score(weight[i][j], query, key) - lse) : 0.0f;
          const bool stays = !Drops || keep(query, key);
          grad[i][j] = counts ? weight[i][j] * ((stays ? grad[i][j] * kept : 0.0f) - d) : 0.0f;
          if (!stays) weight[i][j] = 0.0f;
        }
      }
      share<R>(weights, weight);
      weights_by_rows<R, D>(dv, weights, dys);
      share<R>(weights, grad);
      weights_by_rows<R, D>(dk, weights, qs);
    }
  }
  float value_factors[R], factors[R];
#pragma unroll
  for (int i = 0; i < R; i++) value_factors[i] = kept, factors[i] = a.scale;
  store_rows<R, D>(Matrix(g.grad_k, at.batch, at.head, a.keys, a.head_dim), at.first, dk, factors);
  store_rows<R, D>(Matrix(g.grad_v, at.batch, at.head, a.keys, a.value_dim), at.first, dv, value_factors);
}

// Calls f(columns of a head rounded up, whether weights are dropped).
template <class F>
void by_shape(const AttentionArgs& a, const F& f) {
  const auto with_columns = [&](auto columns) {
    a.dropout.p > 0 ? f(columns, std::true_type()) : f(columns, std::false_type());
  };
  std::max(a.head_dim, a.value_dim) <= 64 ? with_columns(std::integral_constant<int, 64>{})
                                          : with_columns(std::integral_constant<int, 128>{});
}

bool for_tiles(const AttentionArgs& a) { return a.dtype == DType::F32 && std::max(a.head_dim, a.value_dim) <= 128; }

// Blocks for tiles of `tile` rows of each head; `own` and `met` operands are held by tiles of rows and of columns.
template <class Kernel, class... Rest>
void start(Kernel kernel, int64_t rows, int64_t heads, int tile, int width, int own, int met, const Rest&... rest) {
  if (rows * heads == 0) return;
  const int bytes = ((own * tile + met * kColumns) * (width + 4) + tile * kWeights) * 4;
  launch_kernel(kernel, static_cast<unsigned>(ceil_div(rows, int64_t{tile}) * heads), kBlock, bytes, rest...);
}

template <int D, bool Drops>
void forward(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  start(&forward_kernel<8, D, Drops>, a.queries, a.batch * a.heads, 8 * kSide, D, 1, 2, a, out, lse);
}
template <int D, bool Drops>
void backward(const AttentionArgs& a, const AttentionGradients& g, const float* delta) {
  start(&query_gradient<4, D, Drops>, a.queries, a.batch * a.heads, 4 * kSide, D, 2, 2, a, g, delta);
  start(&key_gradient<4, D, Drops>, a.keys, a.batch * a.kv_heads, 4 * kSide, D, 2, 2, a, g, delta);
}

}  // namespace

bool attention_float_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  if (!for_tiles(a)) return false;
  by_shape(a,
           [&](auto columns, auto drops) { forward<decltype(columns)::value, decltype(drops)::value>(a, out, lse); });
  return true;
}

bool attention_float_backward(const AttentionArgs& a, const AttentionGradients& g, const float* delta) {
  if (!for_tiles(a)) return false;
  by_shape(a,
           [&](auto columns, auto drops) { backward<decltype(columns)::value, decltype(drops)::value>(a, g, delta); });
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
