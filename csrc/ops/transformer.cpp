// The fast paths of nn.MultiheadAttention and nn.TransformerEncoderLayer in evaluation. PyTorch takes them for our
// device; its functions compose them of operators that we have, but for the one that splits and scales the projections.
#include <ATen/ops/_native_multi_head_attention_native.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"

namespace minitorch {
namespace {

using at::Tensor;

// qkv (batch, time, 3 heads dim) plus bias as q / sqrt(dim), k and v, each contiguous (batch, heads, time, dim).
std::tuple<Tensor, Tensor, Tensor> split_projections(const Tensor& qkv, const Tensor& bias, int64_t heads) {
  TORCH_CHECK(
      qkv.dim() == 3 && heads > 0 && heads <= std::max<int64_t>(qkv.size(2), 1) && qkv.size(2) % (3 * heads) == 0,
      "Expected qkv of shape [B, T, 3 * num_heads * dim], got ", qkv.sizes(), " with ", heads, " heads");
  check_same_device({&qkv, &bias});
  const int64_t dim = qkv.size(2) / 3 / heads;
  const Tensor parts =
      (qkv + bias).view({qkv.size(0), qkv.size(1), 3, heads, dim}).permute({2, 0, 3, 1, 4}).contiguous();
  parts.select(0, 0).mul_(1.0 / std::sqrt(static_cast<double>(dim)));
  return {parts.select(0, 0), parts.select(0, 1), parts.select(0, 2)};
}

// Of sequences of different lengths: where the shorter ones end, q, k and v are the bias.
std::tuple<Tensor, Tensor, Tensor> split_nested_projections(const Tensor& qkv, const Tensor& bias, int64_t heads) {
  return split_projections(qkv.is_nested() ? qkv.to_padded_tensor(0) : qkv, bias, heads);
}

// PyTorch's composition divides by the number of heads before it looks at it.
std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value, int64_t embed_dim,
                                     int64_t heads, const Tensor& qkv_weight, const Tensor& qkv_bias,
                                     const Tensor& proj_weight, const Tensor& proj_bias,
                                     const std::optional<Tensor>& mask, bool need_weights, bool average_weights,
                                     std::optional<int64_t> mask_type) {
  TORCH_CHECK(heads > 0, "Expected a positive number of heads, got ", heads);
  return at::native::native_multi_head_attention_cpu(query, key, value, embed_dim, heads, qkv_weight, qkv_bias,
                                                     proj_weight, proj_bias, mask, need_weights, average_weights,
                                                     mask_type);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_transform_bias_rescale_qkv", MT_CHECKED(split_projections));
  m.impl("_native_multi_head_attention", MT_CHECKED(attention));
  m.impl("_transformer_encoder_layer_fwd", MT_CHECKED(at::native::transformer_encoder_layer_forward));
}
MT_OPERATORS(aten, NestedTensorPrivateUse1, m) {
  m.impl("_transform_bias_rescale_qkv", TORCH_FN(split_nested_projections));
  m.impl("_native_multi_head_attention", TORCH_FN(attention));
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(at::native::transformer_encoder_layer_forward));
}

}  // namespace
}  // namespace minitorch
