// Attention, backward. The scores are computed again from Q, K and the rows' log-sum-exp:
//   P = exp(scale Q K^T + mask - lse)     dV = P^T dO      dP = dO V^T
//   dS = P (dP - rowsum(dO O))            dQ = scale dS K  dK = scale dS^T Q
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

// All that a thread needs for one key head and the query heads that share it.
class HeadGradient {
 public:
  HeadGradient(const AttentionArgs& a, const AttentionGradients& g)
      : a_(a),
        g_(g),
        group_(a.heads / a.kv_heads),
        rows_(group_ * a.queries),
        sums_rows_(is_half(a.dtype) && a.keys <= kKeys),
        depth_(whole_vectors(a.head_dim)),
        width_(whole_vectors(a.value_dim)),
        q_(rows_ * depth_),
        grad_out_(rows_ * width_),
        grad_q_(rows_ * depth_),
        delta_(rows_),
        k_(kKeys * depth_),
        k_transposed_(a.head_dim * kKeys),
        v_transposed_(a.value_dim * kKeys),
        grad_k_(kKeys * depth_),
        grad_v_(kKeys * width_),
        p_(kQueries * kKeys),
        dp_(kQueries * kKeys) {}

  void run(int64_t batch, int64_t kv_head) {
    for (int64_t h = 0; h < group_; h++) read_queries(batch, kv_head * group_ + h, h * a_.queries);
    std::fill_n(grad_q_.get(), rows_ * depth_, 0.0f);
    const Matrix k(a_.k, a_.dtype, batch, kv_head), v(a_.v, a_.dtype, batch, kv_head);
    for (int64_t first = 0; first < a_.keys; first += kKeys) {
      const int64_t keys = std::min(kKeys, a_.keys - first);
      read_rows(k, first, keys, a_.head_dim, k_.get(), depth_);
      read_transposed(k, first, keys, a_.head_dim, k_transposed_.get(), kKeys);
      read_transposed(v, first, keys, a_.value_dim, v_transposed_.get(), kKeys);
      std::fill_n(grad_k_.get(), keys * depth_, 0.0f);
      std::fill_n(grad_v_.get(), keys * width_, 0.0f);
      for (int64_t h = 0; h < group_; h++)
        for (int64_t i = 0; i < a_.queries; i += kQueries) tile(batch, kv_head * group_ + h, h * a_.queries, i, first);
      write_rows(Matrix(g_.grad_k, a_.dtype, batch, kv_head), first, keys, a_.head_dim, grad_k_.get(), depth_);
      write_rows(Matrix(g_.grad_v, a_.dtype, batch, kv_head), first, keys, a_.value_dim, grad_v_.get(), width_);
    }
    for (int64_t i = 0; i < rows_ * depth_; i++) grad_q_[i] *= a_.scale;
    for (int64_t h = 0; h < group_; h++)
      write_rows(Matrix(g_.grad_q, a_.dtype, batch, kv_head * group_ + h), 0, a_.queries, a_.head_dim,
                 grad_q_.get() + h * a_.queries * depth_, depth_);
  }

 private:
  // rowsum(dO O) = rowsum(P dP), for a row that lies in one tile: without the rounding of O to 16 bits.
  static float row_delta(const float* p, const float* dp, int64_t columns) {
    float products[kKeys];
    for (int64_t j = 0; j < columns; j++) products[j] = p[j] * dp[j];
    return lane_sum(products, columns);
  }

  // The rows of one query head go to the buffers from row `to` on: Q scaled, dO, and delta = rowsum(dO O).
  void read_queries(int64_t batch, int64_t head, int64_t to) {
    read_rows(Matrix(a_.q, a_.dtype, batch, head), 0, a_.queries, a_.head_dim, q_.get() + to * depth_, depth_,
              a_.scale);
    float* grad = grad_out_.get() + to * width_;
    read_rows(Matrix(g_.grad_out, a_.dtype, batch, head), 0, a_.queries, a_.value_dim, grad, width_);
    if (sums_rows_) return;
    const Matrix out(g_.out, a_.dtype, batch, head);
    const Scratch<float> row(width_);
    for (int64_t i = 0; i < a_.queries; i++) {
      read_rows(out, i, 1, a_.value_dim, row.get(), width_);
      for (int64_t d = 0; d < width_; d++) row[d] *= grad[i * width_ + d];
      delta_[to + i] = lane_sum(row.get(), width_);
    }
  }

  void tile(int64_t batch, int64_t head, int64_t offset, int64_t first_query, int64_t first_key) {
    const int64_t queries = std::min(kQueries, a_.queries - first_query);
    const int64_t met = keys_met(a_, first_query + queries - 1, first_key), columns = whole_vectors(met);
    if (met == 0) return;
    const int64_t row = offset + first_query;
    const float* q = q_.get() + row * depth_;
    const float* grad_out = grad_out_.get() + row * width_;
    float *p = p_.get(), *dp = dp_.get();
    for (int64_t i = 0; i < queries; i++) {
      std::fill_n(p + i * kKeys, columns, 0.0f);
      std::fill_n(dp + i * kKeys, columns, 0.0f);
    }
    tile_product(q, depth_, 1, k_transposed_.get(), kKeys, p, kKeys, queries, columns, a_.head_dim);
    mask_tile(a_, batch, head, first_query, queries, first_key, met, columns, p);
    const float* lse = g_.lse + (batch * a_.heads + head) * a_.queries + first_query;
    for (int64_t i = 0; i < queries; i++) {
      // A row that meets no key has an lse of -inf, and probabilities of 0.
      const float reference = lse[i] == -INFINITY ? INFINITY : lse[i];
      for (int64_t j = 0; j < columns; j++) p[i * kKeys + j] = exp_nonpositive<float>(p[i * kKeys + j] - reference);
    }
    tile_product(p, 1, kKeys, grad_out, width_, grad_v_.get(), width_, met, width_, queries);
    tile_product(grad_out, width_, 1, v_transposed_.get(), kKeys, dp, kKeys, queries, columns, a_.value_dim);
    for (int64_t i = 0; i < queries; i++) {
      const float delta = sums_rows_ ? row_delta(p + i * kKeys, dp + i * kKeys, columns) : delta_[row + i];
      for (int64_t j = 0; j < columns; j++) p[i * kKeys + j] *= dp[i * kKeys + j] - delta;
    }
    tile_product(p, 1, kKeys, q, depth_, grad_k_.get(), depth_, met, depth_, queries);
    tile_product(p, kKeys, 1, k_.get(), depth_, grad_q_.get() + row * depth_, depth_, queries, depth_, met);
  }

  const AttentionArgs& a_;
  const AttentionGradients& g_;
  int64_t group_, rows_;
  bool sums_rows_;
  int64_t depth_, width_;
  Scratch<float> q_, grad_out_, grad_q_, delta_;
  Scratch<float> k_, k_transposed_, v_transposed_, grad_k_, grad_v_, p_, dp_;
};

void attention_backward(const AttentionArgs& a, const AttentionGradients& g) {
  parallel_for(a.batch * a.kv_heads, 1, [&](int64_t begin, int64_t end) {
    HeadGradient head(a, g);
    for (int64_t task = begin; task < end; task++) head.run(task / a.kv_heads, task % a.kv_heads);
  });
}

MT_REGISTER_KERNEL(attention_backward_kernel, &attention_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
