// Attention, forward: a block of queries meets one block of keys after the other and keeps a running maximum, sum and
// output.
#include "kernels/attention.h"

#include <cmath>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/scratch.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace attention;

// K of one head as transposed blocks (head_dim x kKeys each) and V as rows, both in float. Made once for all the query
// blocks of a head that a thread works on.
struct Keys {
  const AttentionArgs& a;
  int64_t blocks, value_width;
  Scratch<float> transposed, values;
  int64_t head = -1;  // which one is there

  explicit Keys(const AttentionArgs& args)
      : a(args),
        blocks((args.keys + kKeys - 1) / kKeys),
        value_width(whole_vectors(args.value_dim)),
        transposed(blocks * args.head_dim * kKeys),
        values(args.keys * value_width) {}

  void use(int64_t batch, int64_t kv_head) {
    if (head == batch * a.kv_heads + kv_head) return;
    head = batch * a.kv_heads + kv_head;
    const Matrix k(a.k, a.dtype, batch, kv_head), v(a.v, a.dtype, batch, kv_head);
    for (int64_t b = 0; b < blocks; b++)
      read_transposed(k, b * kKeys, std::min(kKeys, a.keys - b * kKeys), a.head_dim, block(b), kKeys);
    read_rows(v, 0, a.keys, a.value_dim, values.get(), value_width);
  }
  float* block(int64_t b) const { return transposed.get() + b * a.head_dim * kKeys; }
};

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
  const int64_t depth = a.head_dim, width = whole_vectors(a.value_dim);
  parallel_for(a.batch * a.heads * blocks, 1, [&](int64_t begin, int64_t end) {
    Keys keys(a);
    const Scratch<Queries> state(1);
    const Scratch<float> q(kQueries * depth), sums(kQueries * width);
    Queries& s = state[0];
    for (int64_t task = begin; task < end; task++) {
      const int64_t head = task / blocks % a.heads, batch = task / blocks / a.heads;
      const int64_t first = task % blocks * kQueries, queries = std::min(kQueries, a.queries - first);
      keys.use(batch, head / group);
      read_rows(Matrix(a.q, a.dtype, batch, head), first, queries, depth, q.get(), depth, a.scale);
      std::fill_n(sums.get(), queries * width, 0.0f);
      std::fill_n(s.largest, queries, -INFINITY);
      std::fill_n(s.sum, queries, 0.0f);
      for (int64_t b = 0; b < keys.blocks; b++) {
        const int64_t first_key = b * kKeys, met = keys_met(a, first + queries - 1, first_key);
        if (met == 0) break;
        const int64_t columns = whole_vectors(met);
        for (int64_t i = 0; i < queries; i++) std::fill_n(s.scores + i * kKeys, columns, 0.0f);
        tile_product(q.get(), depth, 1, keys.block(b), kKeys, s.scores, kKeys, queries, columns, depth);
        mask_tile(a, batch, head, first, queries, first_key, met, columns, s.scores);
        absorb(s, queries, columns, sums.get(), width);
        tile_product(s.scores, kKeys, 1, keys.values.get() + first_key * width, width, sums.get(), width, queries,
                     width, met);
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
