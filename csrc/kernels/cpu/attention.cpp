// Attention, forward: a block of queries meets one block of keys after the other and keeps a running maximum, sum and
// output.
#include "kernels/attention.h"

#include <cmath>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/gemm_transpose.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/scratch.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace attention;

// Queries of a call up to which the keys are met where they lie (decoding): turning them would take longer.
constexpr int64_t kFewQueries = 4;

// K of one head as transposed blocks (head_dim x kKeys each), unless the queries are few, and V as rows, both in float.
// Made once for all the query blocks of a head that a thread works on. Values that are rows of floats already stay
// where they are.
struct Keys {
  const AttentionArgs& a;
  bool few, values_lie;
  int64_t blocks, value_width;
  Scratch<float> transposed, copied;
  const float* values = nullptr;
  int64_t value_row = 0;
  int64_t head = -1;  // which one is there

  explicit Keys(const AttentionArgs& args)
      : a(args),
        few(args.queries <= kFewQueries),
        values_lie(args.dtype == DType::F32 && args.v.column == 1 && args.value_dim % kLanes == 0),
        blocks((args.keys + kKeys - 1) / kKeys),
        value_width(whole_vectors(args.value_dim)),
        transposed(few ? 0 : blocks * args.head_dim * kKeys),
        copied(values_lie ? 0 : args.keys * value_width) {}

  void use(int64_t batch, int64_t kv_head) {
    if (head == batch * a.kv_heads + kv_head) return;
    head = batch * a.kv_heads + kv_head;
    const Matrix k(a.k, a.dtype, batch, kv_head), v(a.v, a.dtype, batch, kv_head);
    for (int64_t b = 0; b < blocks && !few; b++)
      read_transposed(k, b * kKeys, std::min(kKeys, a.keys - b * kKeys), a.head_dim, block(b), kKeys);
    values = values_lie ? reinterpret_cast<const float*>(v.at(0, 0)) : copied.get();
    value_row = values_lie ? v.row : value_width;
    if (!values_lie) read_rows(v, 0, a.keys, a.value_dim, copied.get(), value_width);
  }
  float* block(int64_t b) const { return transposed.get() + b * a.head_dim * kKeys; }
};

// scores[i * kKeys + j] = q row i . K row first + j, for j < keys rounded up to whole vectors. The partial sums of as
// many keys as a vector has lanes are turned in registers and added up. Rows of q are padded with zeros to `depth`.
void few_scores(const float* q, int64_t depth, int64_t queries, const Matrix& k, int64_t columns, int64_t first,
                int64_t keys, float* scores) {
  const bool lies = k.dtype == DType::F32 && k.column == 1 && columns == depth;
  const Scratch<float, 16384> copied(lies ? 0 : kLanes * depth);
  for (int64_t j = 0; j < keys; j += kLanes) {
    const int64_t count = std::min(kLanes, keys - j);
    const float* row[kLanes];
    if (!lies) read_rows(k, first + j, count, columns, copied.get(), depth);
    for (int64_t r = 0; r < kLanes; r++) {
      const int64_t at = std::min(r, count - 1);
      row[r] = lies ? reinterpret_cast<const float*>(k.at(first + j + at, 0)) : copied.get() + at * depth;
    }
    for (int64_t i = 0; i < queries; i++) {
      Vector sum[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; r++) sum[r] = Vector{};
      for (int64_t d = 0; d < depth; d += kLanes) {
        const Vector x = *reinterpret_cast<const Vector*>(q + i * depth + d);
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; r++) sum[r] += x * *reinterpret_cast<const Vector*>(row[r] + d);
      }
      gemm::transpose<static_cast<int>(kLanes)>(sum);
      for (int64_t h = kLanes / 2; h > 0; h /= 2)
        for (int64_t r = 0; r < h; r++) sum[r] += sum[r + h];
      *reinterpret_cast<Vector*>(scores + i * kKeys + j) = sum[0];
    }
  }
}

// The state of a block of queries.
struct Queries {
  alignas(64) float scores[kQueries * kKeys];
  float largest[kQueries], sum[kQueries];
};

// Turns a tile of scores into exponentials against the new row maxima and rescales what has been summed so far.
void absorb(Queries& s, int64_t queries, int64_t width, float* out, int64_t out_width) {
  for (int64_t i = 0; i < queries; i++) {
    float* row = s.scores + i * kKeys;
    const float largest = std::max(s.largest[i], lane_max(row, width));
    // A row that has met nothing yet: its exponentials are zeros, not exp(-inf + inf).
    const float reference = largest == -INFINITY ? 0.0f : largest;
    for (int64_t j = 0; j < width; j++) row[j] = exp_nonpositive<float>(row[j] - reference);
    const float sum = lane_sum(row, width);
    const float shrink = exp_nonpositive<float>(s.largest[i] - reference);
    s.sum[i] = s.sum[i] * shrink + sum;
    s.largest[i] = largest;
    if (shrink != 1.0f)
      for (int64_t d = 0; d < out_width; d++) out[i * out_width + d] *= shrink;
  }
}

void attention(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  const int64_t blocks = (a.queries + kQueries - 1) / kQueries, group = a.heads / a.kv_heads;
  const int64_t width = whole_vectors(a.value_dim);
  parallel_for(a.batch * a.heads * blocks, 1, [&](int64_t begin, int64_t end) {
    Keys keys(a);
    const int64_t depth = keys.few ? whole_vectors(a.head_dim) : a.head_dim;
    const Scratch<Queries> state(1);
    const Scratch<float> q(kQueries * depth), sums(kQueries * width);
    Queries& s = state[0];
    for (int64_t task = begin; task < end; task++) {
      const int64_t head = task / blocks % a.heads, batch = task / blocks / a.heads;
      const int64_t first = task % blocks * kQueries, queries = std::min(kQueries, a.queries - first);
      keys.use(batch, head / group);
      read_rows(Matrix(a.q, a.dtype, batch, head), first, queries, a.head_dim, q.get(), depth, a.scale);
      std::fill_n(sums.get(), queries * width, 0.0f);
      std::fill_n(s.largest, queries, -INFINITY);
      std::fill_n(s.sum, queries, 0.0f);
      for (int64_t b = 0; b < keys.blocks; b++) {
        const int64_t first_key = b * kKeys, met = keys_met(a, first + queries - 1, first_key);
        if (met == 0) break;
        const int64_t columns = whole_vectors(met);
        if (keys.few) {
          few_scores(q.get(), depth, queries, Matrix(a.k, a.dtype, batch, head / group), a.head_dim, first_key, met,
                     s.scores);
        } else {
          for (int64_t i = 0; i < queries; i++) std::fill_n(s.scores + i * kKeys, columns, 0.0f);
          tile_product(q.get(), depth, 1, keys.block(b), kKeys, s.scores, kKeys, queries, columns, depth);
        }
        mask_tile(a, batch, head, first, queries, first_key, met, columns, s.scores);
        absorb(s, queries, columns, sums.get(), width);
        tile_product(s.scores, kKeys, 1, keys.values + first_key * keys.value_row, keys.value_row, sums.get(), width,
                     queries, width, met);
      }
      float* row_lse = lse + (batch * a.heads + head) * a.queries + first;
      for (int64_t i = 0; i < queries; i++) {
        const float inverse = s.sum[i] == 0 ? 0.0f : 1.0f / s.sum[i];
        for (int64_t d = 0; d < width; d++) sums[i * width + d] *= inverse;
        row_lse[i] = s.largest[i] + std::log(s.sum[i]);
      }
      write_rows(Matrix(out, a.dtype, batch, head), first, queries, a.value_dim, sums.get(), width);
    }
  });
}

MT_REGISTER_KERNEL(attention_kernel, &attention);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
