// Attention in double, which native's CPU kernel takes and ours do not: matrix products over whole rows of scores.
#pragma once
#include <ATen/core/Tensor.h>

#include <tuple>

namespace minitorch {

struct DoubleAttention {
  const at::Tensor &q, &k, &v;  // (batch, heads, queries, e), (batch, kv heads, keys, e), (batch, kv heads, keys, ev)
  const at::Tensor& mask;       // added to the scores; undefined, or of their shape
  bool causal;
  double scale;

  // The result, and the logarithm of each row's sum of exponentials. Rows that are masked throughout give zeros.
  std::tuple<at::Tensor, at::Tensor> forward() const;
  // The gradients of q, k and v.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& grad, const at::Tensor& out,
                                                          const at::Tensor& lse) const;

 private:
  at::Tensor scores(const at::Tensor& keys) const;
};

}  // namespace minitorch
