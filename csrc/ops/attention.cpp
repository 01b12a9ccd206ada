// scaled_dot_product_attention. PyTorch asks us which way to take: our fused kernels, or its composite of matrix
// products and a softmax, which serves dropout on the CPU, a mask that needs a gradient, and forward-mode derivatives.
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bridge/checked.h"
#include "bridge/generator.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "bridge/transforms.h"
#include "kernels/attention.h"
#include "ops/attention_double.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The CUDA kernels hold a row of this many elements; longer rows take the composite there.
constexpr int64_t kLongestRowOnCuda = 256;

// (batch, heads, queries, e), (batch, kv heads, keys, e), (batch, kv heads, keys, ev), none of them empty.
bool shapes_match(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (q.is_nested() || k.is_nested() || v.is_nested()) return false;
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4) return false;
  for (const Tensor* t : {&q, &k, &v})
    if (t->scalar_type() != q.scalar_type() || t->device() != q.device() || t->sym_numel() == 0) return false;
  if (k.sym_size(0) != q.sym_size(0) || v.sym_size(0) != q.sym_size(0)) return false;
  return k.sym_size(1) == v.sym_size(1) && k.sym_size(2) == v.sym_size(2) && k.sym_size(3) == q.sym_size(3);
}
bool is_fused_dtype(at::ScalarType type) {
  if (type == at::kDouble) return backend().synchronous();  // as native: fused on the CPU, composed on CUDA
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

// Native fuses only rows that lie next to each other and are as long in values as in keys; what it composes instead
// gives a contiguous result.
bool native_fuses(const Tensor& q, const Tensor& k, const Tensor& v) {
  for (const Tensor* t : {&q, &k, &v})
    if (t->sym_stride(-1) != 1) return false;
  return q.sym_size(-1) == v.sym_size(-1);
}

// Native's kernel without a mask deals random numbers in tiles, the one for all else along the matrix of scores.
bool drops_by_tiles(const Tensor& q, const Tensor& v, const Tensor& mask) {
  return q.scalar_type() != at::kFloat && !mask.defined() && q.size(3) == v.size(3);
}

at::ScalarType lse_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

bool fuses(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& mask, double dropout,
           bool enable_gqa) {
  const auto type = q.scalar_type();
  if (!at::globalContext().userEnabledOverrideableSDP()) return false;
  if (dropout > 0 && (backend().synchronous() || dropout >= 1)) return false;
  if (in_transform()) return false;  // there is no batching rule for it
  if (!is_fused_dtype(type) || !shapes_match(q, k, v)) return false;
  if (has_tangent(q) || has_tangent(k) || has_tangent(v)) return false;
  if (!backend().synchronous() && (q.sym_size(3) > kLongestRowOnCuda || v.sym_size(3) > kLongestRowOnCuda))
    return false;
  if (enable_gqa ? q.sym_size(1) % k.sym_size(1) != 0 : q.sym_size(1) != k.sym_size(1)) return false;
  if (!mask.has_value() || !mask->defined()) return true;
  if (mask->requires_grad() || (mask->scalar_type() != at::kBool && mask->scalar_type() != type)) return false;
  if (mask->dim() < 2 || mask->dim() > 4 || mask->device() != q.device()) return false;
  const c10::SymInt shape[] = {q.sym_size(0), q.sym_size(1), q.sym_size(2), k.sym_size(2)};
  for (int64_t d = 1; d <= mask->dim(); d++)
    if (mask->sym_size(-d) != 1 && mask->sym_size(-d) != shape[4 - d]) return false;
  return true;
}

int64_t choose(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& mask, double dropout,
               bool is_causal, std::optional<double> /*scale*/, bool enable_gqa) {
  bool fused = fuses(q, k, v, mask, dropout, enable_gqa);
  // The composite refuses a mask beside is_causal, which native's fused kernel takes.
  const bool two_masks = is_causal && mask.has_value() && mask->defined();
  const bool refused = dropout != 0 && backend().synchronous();  // a probability below zero, by native's kernel
  if (two_masks || refused || q.scalar_type() == at::kDouble) fused = fused && native_fuses(q, k, v);
  return static_cast<int64_t>(fused ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

AttentionOperand operand(const Tensor& t) {
  return {static_cast<char*>(const_cast<void*>(t.const_data_ptr())), t.stride(0), t.stride(1), t.stride(2),
          t.stride(3)};
}

// The mask seen as (batch, heads, queries, keys); the caller keeps `expanded` alive.
AttentionArgs args_of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& expanded_mask, bool causal,
                      double scale, double dropout) {
  AttentionArgs a{
      .dtype = to_dtype(q.scalar_type()),
      .batch = q.size(0),
      .heads = q.size(1),
      .kv_heads = k.size(1),
      .queries = q.size(2),
      .keys = k.size(2),
      .head_dim = q.size(3),
      .value_dim = v.size(3),
      .q = operand(q),
      .k = operand(k),
      .v = operand(v),
      .mask = {},
      .causal = causal,
      .scale = static_cast<float>(scale),
      .dropout = {.p = dropout > 0 ? dropout : 0, .by_tiles = drops_by_tiles(q, v, expanded_mask), .heads = q.size(1)}};
  if (expanded_mask.defined()) a.mask = operand(expanded_mask);
  return a;
}

double scale_of(const Tensor& q, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
}

Tensor expand_mask(const OptionalTensor& mask, const Tensor& q, const Tensor& k) {
  if (!mask.has_value() || !mask->defined()) return {};
  return mask->to(q.scalar_type()).expand({q.size(0), q.size(1), q.size(2), k.size(2)});
}

// A tensor of this shape whose dimensions lie in memory in the order that those of `like` have.
Tensor empty_in_order_of(const Tensor& like, at::IntArrayRef sizes) {
  std::vector<int64_t> order(sizes.size());
  for (size_t d = 0; d < order.size(); d++) order[d] = static_cast<int64_t>(d);
  std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return like.stride(x) > like.stride(y); });
  std::vector<int64_t> strides(sizes.size());
  int64_t next = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[*d] = next;
    next *= sizes[*d];
  }
  return empty_strided(sizes, strides, like.scalar_type());
}

// Strides as native's: on the CPU its fused kernel gives (batch, time, heads, e), its composite products of matrices;
// on CUDA the gradients lie as the inputs do.
std::tuple<Tensor, Tensor, Tensor> empty_gradients(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (!backend().synchronous())
    return {empty_in_order_of(q, q.sizes()), empty_in_order_of(k, k.sizes()), empty_in_order_of(v, v.sizes())};
  const auto with_swapped = [](const Tensor& t, int64_t d, int64_t e) {
    std::vector<int64_t> sizes = t.sizes().vec();
    std::swap(sizes[d], sizes[e]);
    return empty(sizes, t.scalar_type()).transpose(d, e);
  };
  if (native_fuses(q, k, v)) return {with_swapped(q, 1, 2), with_swapped(k, 1, 2), with_swapped(v, 1, 2)};
  return {empty(q.sizes(), q.scalar_type()), with_swapped(k, 2, 3), empty(v.sizes(), v.scalar_type())};
}

// What native takes from the generator: 32 lanes a head, or a number a weight.
void take_numbers(AttentionArgs& a) {
  DeviceGenerator* g = generator_or_default(std::nullopt);
  const std::lock_guard lock(g->mutex_);
  const int64_t heads = a.batch * a.heads;
  a.dropout.seed = g->state.seed;
  a.dropout.offset = advance(g->state, static_cast<uint64_t>(heads * (a.dropout.by_tiles ? 32 : a.queries * a.keys)));
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Forward attention(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& mask, double dropout,
                  bool causal, bool /*return_debug_mask*/, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(fuses(q, k, v, mask, dropout, /*enable_gqa=*/true),
                              "minitorch's fused attention takes 4-d floating point tensors of matching "
                              "shapes, on the CPU without dropout; use scaled_dot_product_attention for other cases");
  TORCH_CHECK(dropout == 0 || !backend().synchronous(),
              "scaled_dot_product_attention_flash_attention: Currently do not support dropout > 0");
  check_same_device({&q, &k, &v});
  const Tensor bias = expand_mask(mask, q, k);
  // A query that repeats itself gives a contiguous result, too.
  bool in_order = native_fuses(q, k, v) && (!mask.has_value() || !mask->defined() || mask->stride(-1) == 1);
  for (int64_t d = 0; d < q.dim(); d++) in_order = in_order && (q.stride(d) != 0 || q.size(d) == 1);
  const std::array sizes{q.size(0), q.size(1), q.size(2), v.size(3)};
  Tensor out = in_order ? empty_in_order_of(q, sizes) : empty(sizes, q.scalar_type());
  Tensor lse = empty({q.size(0), q.size(1), q.size(2)}, lse_type(q.scalar_type()));
  const double factor = scale_of(q, scale);
  AttentionDropout drawn;
  if (q.scalar_type() == at::kDouble) {
    const auto [result, logarithms] = DoubleAttention{q, k, v, bias, causal, factor}.forward();
    out.copy_(result), lse.copy_(logarithms);
  } else {
    AttentionArgs args = args_of(q, k, v, bias, causal, factor, dropout);
    if (dropout > 0) take_numbers(args);
    attention_kernel(args, operand(out), static_cast<float*>(lse.data_ptr()));
    drawn = args.dropout;
  }
  // On the CPU, as native's: the gradient reads them without waiting for the device.
  const auto number = [](uint64_t x) { return at::scalar_tensor(static_cast<int64_t>(x), at::kLong); };
  return {out, lse, Tensor(), Tensor(), q.size(2), k.size(2), number(drawn.seed), number(drawn.offset), Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(const Tensor& grad_out, const Tensor& q, const Tensor& k,
                                                              const Tensor& v, const Tensor& mask,
                                                              std::array<bool, 4> /*grad_input_mask*/,
                                                              const Tensor& out, const Tensor& lse, const Tensor&,
                                                              const Tensor&, c10::SymInt, c10::SymInt, double dropout,
                                                              bool causal, const Tensor& seed, const Tensor& offset,
                                                              std::optional<double> scale) {
  if (!grad_out.defined()) return {};
  check_same_device({&grad_out, &q, &k, &v, &out, &lse});
  TORCH_CHECK(is_fused_dtype(q.scalar_type()) && shapes_match(q, k, v) && q.size(1) % k.size(1) == 0,
              "attention's gradient: query ", q.sizes(), ", key ", k.sizes(), " and value ", v.sizes(),
              " do not belong together");
  const std::array sizes{q.size(0), q.size(1), q.size(2), v.size(3)};
  for (const Tensor* t : {&grad_out, &out})
    TORCH_CHECK(t->sizes() == at::IntArrayRef(sizes) && t->scalar_type() == q.scalar_type(),
                "attention's gradient: expected the output and its gradient to have sizes ", at::IntArrayRef(sizes),
                " and dtype ", q.scalar_type(), ", got ", t->sizes(), " and ", t->scalar_type());
  TORCH_CHECK(lse.sizes() == q.sizes().slice(0, 3) && lse.scalar_type() == lse_type(q.scalar_type()),
              "attention's gradient: expected a logsumexp in ", lse_type(q.scalar_type()), " of sizes ",
              q.sizes().slice(0, 3), ", got ", lse.scalar_type(), " of ", lse.sizes());
  const Tensor bias = expand_mask(mask, q, k), dense_lse = lse.contiguous();
  auto [grad_q, grad_k, grad_v] = empty_gradients(q, k, v);
  const double factor = scale_of(q, scale);
  if (q.scalar_type() == at::kDouble) {
    const auto [for_q, for_k, for_v] = DoubleAttention{q, k, v, bias, causal, factor}.backward(grad_out, out, lse);
    grad_q.copy_(for_q), grad_k.copy_(for_k), grad_v.copy_(for_v);
    return {grad_q, grad_k, grad_v, Tensor()};
  }
  AttentionArgs args = args_of(q, k, v, bias, causal, factor, dropout);
  if (dropout > 0) {
    args.dropout.seed = static_cast<uint64_t>(seed.item<int64_t>());
    args.dropout.offset = static_cast<uint64_t>(offset.item<int64_t>());
  }
  attention_backward_kernel(args, {.grad_out = operand(grad_out),
                                   .out = operand(out),
                                   .lse = static_cast<const float*>(dense_lse.const_data_ptr()),
                                   .grad_q = operand(grad_q),
                                   .grad_k = operand(grad_k),
                                   .grad_v = operand(grad_v)});
  return {grad_q, grad_k, grad_v, Tensor()};
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", MT_CHECKED(choose));
  m.impl("_scaled_dot_product_fused_attention_overrideable", MT_CHECKED(attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", MT_CHECKED(attention_backward));
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &minitorch::choose)
}  // namespace at::native
