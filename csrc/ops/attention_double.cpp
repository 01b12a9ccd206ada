// See attention_double.h.
#include "ops/attention_double.h"

#include <ATen/ATen.h>

#include <limits>

namespace minitorch {
namespace {

using at::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Each head of keys or values as often as queries use it, and the sum over those uses.
Tensor repeat_heads(const Tensor& t, int64_t heads) {
  if (t.size(1) == heads) return t;
  return t.unsqueeze(2).expand({-1, -1, heads / t.size(1), -1, -1}).reshape({t.size(0), heads, t.size(2), t.size(3)});
}
Tensor sum_heads(const Tensor& grad, int64_t heads) {
  if (grad.size(1) == heads) return grad;
  return grad.unflatten(1, {heads, grad.size(1) / heads}).sum(2);
}

}  // namespace

Tensor DoubleAttention::scores(const Tensor& keys) const {
  Tensor result = at::matmul(q, keys.transpose(2, 3)).mul_(scale);
  if (causal) {
    const Tensor later = at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).triu_(1);
    result.masked_fill_(later, -kInfinity);
  }
  return mask.defined() ? result.add_(mask) : result;
}

std::tuple<Tensor, Tensor> DoubleAttention::forward() const {
  Tensor weights = scores(repeat_heads(k, q.size(1)));
  Tensor largest = weights.amax(-1, /*keepdim=*/true);
  largest.masked_fill_(largest.eq(-kInfinity), 0);
  weights.sub_(largest).exp_();
  Tensor sum = weights.sum(-1, /*keepdim=*/true);
  sum.masked_fill_(sum.eq(0), 1);
  return {at::matmul(weights.div_(sum), repeat_heads(v, q.size(1))), largest.add_(sum.log()).squeeze(-1)};
}

std::tuple<Tensor, Tensor, Tensor> DoubleAttention::backward(const Tensor& grad, const Tensor& out,
                                                             const Tensor& lse) const {
  const int64_t heads = q.size(1);
  const Tensor keys = repeat_heads(k, heads), values = repeat_heads(v, heads);
  const Tensor weights = scores(keys).sub_(lse.unsqueeze(-1)).exp_();
  const Tensor along = grad.mul(out).sum(-1, /*keepdim=*/true);
  const Tensor grad_scores = at::matmul(grad, values.transpose(2, 3)).sub_(along).mul_(weights).mul_(scale);
  return {at::matmul(grad_scores, keys), sum_heads(at::matmul(grad_scores.transpose(2, 3), q), k.size(1)),
          sum_heads(at::matmul(weights.transpose(2, 3), grad), v.size(1))};
}

}  // namespace minitorch
