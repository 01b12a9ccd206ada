// Attention on CUDA where no faster kernel takes it. A warp owns a query (backward: a query, then a key) and meets
// tiles of 32 keys that the warps of a block share: a lane scores one key, the warp keeps the running maximum, sum and
// output. All arithmetic is in float; the products of a tile are summed apart first, see attention_float.cu.
#include "kernels/attention.h"

#include "kernels/cuda/attention_dropout.cuh"
#include "kernels/cuda/attention_float.h"
#include "kernels/cuda/attention_tensor.h"
#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kWarps = 8, kTile = 32;

template <class S>
__device__ __forceinline__ float element(const AttentionOperand& o, int64_t batch, int64_t head, int64_t row,
                                         int64_t column) {
  return convert<float>(
      reinterpret_cast<const S*>(o.data)[batch * o.batch + head * o.head + row * o.row + column * o.column]);
}
template <class S>
__device__ __forceinline__ void put(const AttentionOperand& o, int64_t batch, int64_t head, int64_t row, int64_t column,
                                    float value) {
  reinterpret_cast<S*>(o.data)[batch * o.batch + head * o.head + row * o.row + column * o.column] = convert<S>(value);
}

// Rows [first, first + kTile) of a matrix into shared memory, zeros past the last; rows are padded by one word so that
// lanes that read a column meet different banks.
template <class S>
__device__ void load_tile(float* tile, const AttentionOperand& o, int64_t batch, int64_t head, int64_t first,
                          int64_t rows, int width) {
  for (int at = threadIdx.x; at < kTile * width; at += blockDim.x) {
    const int r = at / width, c = at % width;
    tile[r * (width + 1) + c] = first + r < rows ? element<S>(o, batch, head, first + r, c) : 0.0f;
  }
}

__device__ __forceinline__ float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int c = 0; c < n; c++) sum += a[c] * b[c];
  return sum;
}

struct Max32 {
  __device__ __forceinline__ float operator()(float a, float b) const { return a != a || a > b ? a : b; }
};

// Shared memory: a tile of K, a tile of V, a row of Q for each warp. N: registers of a lane for the output.
template <class S, int N>
__global__ void __launch_bounds__(32 * kWarps)
    forward_kernel(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionOperand out, float* lse) {
  extern __shared__ float memory[];
  const int dim = static_cast<int>(a.head_dim), width = static_cast<int>(a.value_dim);
  float *ks = memory, *vs = ks + kTile * (dim + 1), *qs = vs + kTile * (width + 1);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t head = blockIdx.y % a.heads, batch = blockIdx.y / a.heads, kv_head = head / (a.heads / a.kv_heads);
  const int64_t first_query = static_cast<int64_t>(blockIdx.x) * kWarps, query = first_query + warp;
  const bool live = query < a.queries;
  float* q = qs + warp * dim;
  for (int c = lane; c < dim; c += 32) q[c] = live ? element<S>(a.q, batch, head, query, c) * a.scale : 0.0f;
  const attention::Keep keep(a, batch, head);
  const bool drops = a.dropout.p > 0;
  float high = -INFINITY, sum = 0, result[N] = {};
  const int64_t keys = a.causal ? min(a.keys, first_query + kWarps) : a.keys;
  for (int64_t first = 0; first < keys; first += kTile) {
    __syncthreads();
    load_tile<S>(ks, a.k, batch, kv_head, first, a.keys, dim);
    load_tile<S>(vs, a.v, batch, kv_head, first, a.keys, width);
    __syncthreads();
    const int64_t key = first + lane;
    float score = -INFINITY;
    if (live && key < a.keys && !(a.causal && key > query)) {
      score = dot(q, ks + lane * (dim + 1), dim);
      if (a.mask.data != nullptr) score += element<S>(a.mask, batch, head, query, key);
    }
    const float highest = Max32()(high, warp_reduce(score, Max32()));
    // A row that has met nothing yet: its exponentials are zeros, not exp(-inf + inf).
    const float reference = highest == -INFINITY ? 0.0f : highest;
    float weight = ::expf(score - reference);
    const float shrink = ::expf(high - reference);
    sum = sum * shrink + warp_reduce(weight, Sum());
    if (drops) weight = keep(query, key) ? weight * keep.scale() : 0.0f;
    high = highest;
    float part[N] = {};
    for (int j = 0; j < kTile; j++) {
      const float w = __shfl_sync(0xffffffffu, weight, j);
      if (w == 0.0f) continue;
#pragma unroll
      for (int n = 0; n < N; n++)
        if (lane + n * 32 < width) part[n] += w * vs[j * (width + 1) + lane + n * 32];
    }
#pragma unroll
    for (int n = 0; n < N; n++) result[n] = result[n] * shrink + part[n];
  }
  if (!live) return;
#pragma unroll
  for (int n = 0; n < N; n++)
    if (lane + n * 32 < width) put<S>(out, batch, head, query, lane + n * 32, sum == 0.0f ? 0.0f : result[n] / sum);
  if (lane == 0) lse[(batch * a.heads + head) * a.queries + query] = sum == 0.0f ? -INFINITY : high + ::logf(sum);
}

// delta = sum over the row of grad_out * out.
template <class S>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionGradients g, float* delta) {
  const int64_t rows = a.batch * a.heads * a.queries, warps = int64_t{gridDim.x} * (kThreads / 32);
  for (int64_t row = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32; row < rows; row += warps) {
    const int64_t query = row % a.queries, head = row / a.queries % a.heads, batch = row / (a.queries * a.heads);
    float sum = 0;
    for (int64_t c = threadIdx.x % 32; c < a.value_dim; c += 32)
      sum += element<S>(g.grad_out, batch, head, query, c) * element<S>(g.out, batch, head, query, c);
    sum = warp_reduce(sum, Sum());
    if (threadIdx.x % 32 == 0) delta[row] = sum;
  }
}

// The softmax weight of a pair and the gradient of its score.
struct PairTerms {
  float weight, grad_score;
};

// A warp a query: grad_q = scale * sum over keys of grad_score * k.
template <class S, int N>
__global__ void __launch_bounds__(32 * kWarps)
    query_gradient(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionGradients g,
                   const float* delta) {
  extern __shared__ float memory[];
  const int dim = static_cast<int>(a.head_dim), width = static_cast<int>(a.value_dim);
  float *ks = memory, *vs = ks + kTile * (dim + 1), *rows = vs + kTile * (width + 1);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t head = blockIdx.y % a.heads, batch = blockIdx.y / a.heads, kv_head = head / (a.heads / a.kv_heads);
  const int64_t first_query = static_cast<int64_t>(blockIdx.x) * kWarps, query = first_query + warp;
  const bool live = query < a.queries;
  float *q = rows + warp * (dim + width), *dy = q + dim;
  for (int c = lane; c < dim; c += 32) q[c] = live ? element<S>(a.q, batch, head, query, c) * a.scale : 0.0f;
  for (int c = lane; c < width; c += 32) dy[c] = live ? element<S>(g.grad_out, batch, head, query, c) : 0.0f;
  const int64_t row = (batch * a.heads + head) * a.queries + query;
  const float lse = live ? g.lse[row] : 0.0f, d = live ? delta[row] : 0.0f;
  const attention::Keep keep(a, batch, head);
  const bool drops = a.dropout.p > 0;
  float result[N] = {};
  const int64_t keys = a.causal ? min(a.keys, first_query + kWarps) : a.keys;
  for (int64_t first = 0; first < keys; first += kTile) {
    __syncthreads();
    load_tile<S>(ks, a.k, batch, kv_head, first, a.keys, dim);
    load_tile<S>(vs, a.v, batch, kv_head, first, a.keys, width);
    __syncthreads();
    const int64_t key = first + lane;
    float grad_score = 0;
    if (live && key < a.keys && !(a.causal && key > query) && lse != -INFINITY) {
      float score = dot(q, ks + lane * (dim + 1), dim);
      if (a.mask.data != nullptr) score += element<S>(a.mask, batch, head, query, key);
      float grad = dot(dy, vs + lane * (width + 1), width);
      if (drops) grad = keep(query, key) ? grad * keep.scale() : 0.0f;
      grad_score = ::expf(score - lse) * (grad - d);
    }
    float part[N] = {};
    for (int j = 0; j < kTile; j++) {
      const float w = __shfl_sync(0xffffffffu, grad_score, j);
#pragma unroll
      for (int n = 0; n < N; n++)
        if (lane + n * 32 < dim) part[n] += w * ks[j * (dim + 1) + lane + n * 32];
    }
#pragma unroll
    for (int n = 0; n < N; n++) result[n] += part[n];
  }
  if (!live) return;
#pragma unroll
  for (int n = 0; n < N; n++)
    if (lane + n * 32 < dim) put<S>(g.grad_q, batch, head, query, lane + n * 32, result[n] * a.scale);
}

// A warp a key: grad_v = sum over queries of weight * grad_out, grad_k = scale * sum of grad_score * q, over all the
// query heads that share the key.
template <class S, int N>
__global__ void __launch_bounds__(32 * kWarps)
    key_gradient(const __grid_constant__ AttentionArgs a, const __grid_constant__ AttentionGradients g,
                 const float* delta) {
  extern __shared__ float memory[];
  const int dim = static_cast<int>(a.head_dim), width = static_cast<int>(a.value_dim);
  float *qs = memory, *dys = qs + kTile * (dim + 1), *rows = dys + kTile * (width + 1);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t kv_head = blockIdx.y % a.kv_heads, batch = blockIdx.y / a.kv_heads, group = a.heads / a.kv_heads;
  const int64_t first_key = static_cast<int64_t>(blockIdx.x) * kWarps, key = first_key + warp;
  const bool live = key < a.keys;
  float *k = rows + warp * (dim + width), *v = k + dim;
  for (int c = lane; c < dim; c += 32) k[c] = live ? element<S>(a.k, batch, kv_head, key, c) * a.scale : 0.0f;
  for (int c = lane; c < width; c += 32) v[c] = live ? element<S>(a.v, batch, kv_head, key, c) : 0.0f;
  float dk[N] = {}, dv[N] = {};
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
    const attention::Keep keep(a, batch, head);
    const int64_t start = a.causal ? first_key / kTile * kTile : 0;
    for (int64_t first = start; first < a.queries; first += kTile) {
      __syncthreads();
      load_tile<S>(qs, a.q, batch, head, first, a.queries, dim);
      load_tile<S>(dys, g.grad_out, batch, head, first, a.queries, width);
      __syncthreads();
      const int64_t query = first + lane;
      PairTerms mine{0, 0};
      if (live && query < a.queries && !(a.causal && key > query)) {
        const int64_t row = (batch * a.heads + head) * a.queries + query;
        const float lse = g.lse[row];
        if (lse != -INFINITY) {
          float score = dot(k, qs + lane * (dim + 1), dim);
          if (a.mask.data != nullptr) score += element<S>(a.mask, batch, head, query, key);
          mine.weight = ::expf(score - lse);
          const float factor = a.dropout.p == 0 ? 1.0f : keep(query, key) ? keep.scale() : 0.0f;
          mine.grad_score = mine.weight * (factor * dot(v, dys + lane * (width + 1), width) - delta[row]);
          mine.weight *= factor;
        }
      }
      float part_k[N] = {}, part_v[N] = {};
      for (int j = 0; j < kTile; j++) {
        const float w = __shfl_sync(0xffffffffu, mine.weight, j), s = __shfl_sync(0xffffffffu, mine.grad_score, j);
#pragma unroll
        for (int n = 0; n < N; n++) {
          const int c = lane + n * 32;
          if (c < dim) part_k[n] += s * qs[j * (dim + 1) + c];
          if (c < width) part_v[n] += w * dys[j * (width + 1) + c];
        }
      }
#pragma unroll
      for (int n = 0; n < N; n++) dk[n] += part_k[n], dv[n] += part_v[n];
    }
  }
  if (!live) return;
#pragma unroll
  for (int n = 0; n < N; n++) {
    const int c = lane + n * 32;
    if (c < dim) put<S>(g.grad_k, batch, kv_head, key, c, dk[n] * a.scale);
    if (c < width) put<S>(g.grad_v, batch, kv_head, key, c, dv[n]);
  }
}

// Calls f(Tag<storage type>, registers of a lane).
template <class F>
void by_shape(const char* name, const AttentionArgs& a, const F& f) {
  const int64_t columns = std::max(a.head_dim, a.value_dim);
  const bool known = dispatch(a.dtype, Types<float, Half, BFloat16>{}, [&](auto tag) {
    if (columns <= 64) return f(tag, std::integral_constant<int, 2>{});
    if (columns <= 128) return f(tag, std::integral_constant<int, 4>{});
    if (columns <= 256) return f(tag, std::integral_constant<int, 8>{});
    throw std::runtime_error("minitorch: attention with more than 256 columns a head is not implemented on cuda");
  });
  if (!known) missing_kernel(name, name_of(a.dtype));
}

int64_t tiles_of(const AttentionArgs& a) { return kTile * (a.head_dim + a.value_dim + 2); }
dim3 grid_of(int64_t rows, int64_t heads) {
  return dim3(static_cast<unsigned>(ceil_div(rows, kWarps)), static_cast<unsigned>(heads));
}

// Some of the batch and of the heads.
struct Slice {
  int64_t first, count, first_head, heads, group;  // group: query heads that share a key head

  AttentionOperand of(AttentionOperand o, DType dtype, bool by_key_head = false) const {
    if (o.data == nullptr) return o;
    const int64_t head = by_key_head ? first_head / group : first_head;
    o.data += (first * o.batch + head * o.head) * static_cast<int64_t>(size_of(dtype));
    return o;
  }
  AttentionArgs of(AttentionArgs a) const {
    a.q = of(a.q, a.dtype), a.mask = of(a.mask, a.dtype);
    a.k = of(a.k, a.dtype, true), a.v = of(a.v, a.dtype, true);
    a.dropout.first = first * a.dropout.heads + first_head;
    a.batch = count, a.heads = heads, a.kv_heads = heads / group;
    return a;
  }
  int64_t first_row(const AttentionArgs& whole) const { return (first * whole.heads + first_head) * whole.queries; }
};

// Calls f(slice) for parts of the problem that a launch can have, whose grid ends at 65535 heads.
template <class F>
void for_each_slice(const AttentionArgs& a, const F& f) {
  constexpr int64_t kMost = 65535;
  const int64_t group = a.heads / a.kv_heads;
  if (group > kMost) throw std::runtime_error("minitorch: attention with so many heads is not implemented on cuda");
  const int64_t heads = a.heads <= kMost ? a.heads : kMost / group * group,
                batch = a.heads <= kMost ? kMost / heads : 1;
  for (int64_t b = 0; b < a.batch; b += batch)
    for (int64_t h = 0; h < a.heads; h += heads)
      f(Slice{b, std::min(batch, a.batch - b), h, std::min(heads, a.heads - h), group});
}

void forward_slice(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  if (attention_half_forward(a, out, lse) || attention_split_forward(a, out, lse) ||
      attention_float_forward(a, out, lse))
    return;
  by_shape("attention", a, [&](auto tag, auto registers) {
    launch_kernel(&forward_kernel<typename decltype(tag)::type, decltype(registers)::value>,
                  grid_of(a.queries, a.batch * a.heads), 32 * kWarps, (tiles_of(a) + kWarps * a.head_dim) * 4, a, out,
                  lse);
  });
}

void forward(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  if (a.batch * a.heads * a.queries == 0) return;
  for_each_slice(a, [&](const Slice& s) { forward_slice(s.of(a), s.of(out, a.dtype), lse + s.first_row(a)); });
  cuda::check_launch("launching attention");
}

void backward_slice(const AttentionArgs& a, const AttentionGradients& g) {
  if (attention_hopper_backward(a, g)) return;
  const int64_t shared_bytes = (tiles_of(a) + kWarps * (a.head_dim + a.value_dim)) * 4;
  const int64_t rows = a.batch * a.heads * a.queries;
  const Scratch memory(rows * 4);
  float* delta = memory.get<float>();
  by_shape("attention_backward", a, [&](auto tag, auto registers) {
    using S = typename decltype(tag)::type;
    constexpr int N = decltype(registers)::value;
    if (rows > 0) delta_kernel<S><<<grid_for(rows * 32), kThreads, 0, cuda::current_stream()>>>(a, g, delta);
    if (attention_half_backward(a, g, delta) || attention_split_backward(a, g, delta) ||
        attention_float_backward(a, g, delta))
      return;
    const auto start = [&](auto kernel, int64_t count, int64_t heads) {
      if (count > 0) launch_kernel(kernel, grid_of(count, heads), 32 * kWarps, shared_bytes, a, g, delta);
    };
    start(&query_gradient<S, N>, a.queries, a.batch * a.heads);
    start(&key_gradient<S, N>, a.keys, a.batch * a.kv_heads);
  });
}

void backward(const AttentionArgs& a, const AttentionGradients& g) {
  if (a.batch * a.heads == 0) return;
  for_each_slice(a, [&](const Slice& s) {
    backward_slice(s.of(a), {.grad_out = s.of(g.grad_out, a.dtype),
                             .out = s.of(g.out, a.dtype),
                             .lse = g.lse + s.first_row(a),
                             .grad_q = s.of(g.grad_q, a.dtype),
                             .grad_k = s.of(g.grad_k, a.dtype, true),
                             .grad_v = s.of(g.grad_v, a.dtype, true)});
  });
  cuda::check_launch("launching the gradient of attention");
}

MT_REGISTER_KERNEL(attention_kernel, &forward);
MT_REGISTER_KERNEL(attention_backward_kernel, &backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
