// Nested tensors of the strided layout: tensors of different sizes one behind another in one buffer, their sizes,
// strides and offsets in host tensors beside it. PyTorch's own class holds them and its functions take them apart into
// operators on the buffer, on its pieces or on a padded tensor, which are ours. Those that compute by themselves, on
// host memory, are replaced here. What native has no kernel for, or we have none for, raises an error that names it.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <torch/library.h>

#include "bridge/operators.h"
#include "bridge/refusal.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

namespace native = at::native;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor nested_like(const std::vector<Tensor>& pieces, const Tensor& sizes) {
  std::vector<Tensor> flat;
  for (const Tensor& piece : pieces) flat.push_back(piece.reshape(-1));
  return native::wrap_buffer(at::cat(flat), sizes);
}

// Rows of the buffer that layer_norm normalizes, as (rows, normalized shape...).
Tensor normalized_rows(const Tensor& input, at::IntArrayRef shape, const Tensor& weight, const Tensor& bias) {
  TORCH_CHECK(!shape.empty(), "Expected normalized_shape to be at least 1-dimensional, i.e., ",
              "containing at least one element, but got normalized_shape = ", shape);
  TORCH_CHECK(!weight.defined() || weight.sizes().equals(shape),
              "Expected weight to be of same shape as normalized_shape, but got ", "weight of shape ", weight.sizes(),
              " and normalized_shape = ", shape);
  TORCH_CHECK(!bias.defined() || bias.sizes().equals(shape),
              "Expected bias to be of same shape as normalized_shape, but got ", "bias of shape ", bias.sizes(),
              " and normalized_shape = ", shape);
  const auto* nested = native::get_nested_tensor_impl(input);
  const auto dims = static_cast<int64_t>(shape.size());
  for (int64_t d = 0; d < dims; d++) {
    const auto size = nested->opt_size(d - dims);
    TORCH_CHECK(size.has_value(), "normalized_shape extends into irregular dimensions for the nested tensor");
    TORCH_CHECK(shape[d] == *size, "The shape at dimension ", d, "of normalized_shape doesn't match the input");
  }
  const int64_t row = c10::multiply_integers(shape);
  std::vector<int64_t> sizes{row == 0 ? 0 : input.numel() / row};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return nested->get_buffer().view(sizes);
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& input, at::IntArrayRef shape, const OptionalTensor& weight,
                                              const OptionalTensor& bias, double eps) {
  TORCH_CHECK_VALUE(weight.has_value() && bias.has_value(), "NestedTensor layer_norm requires weight and bias");
  TORCH_CHECK(!weight->is_nested(), "NestedTensor weight not supported for layer_norm");
  TORCH_CHECK(!bias->is_nested(), "NestedTensor bias not supported for layer_norm");
  const Tensor rows = normalized_rows(input, shape, *weight, *bias);
  const auto [out, mean, rstd] = at::native_layer_norm(rows, shape, weight, bias, eps);
  return {native::wrap_buffer(out.view(-1), native::get_nested_sizes(input)), mean.view(-1), rstd.view(-1)};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& input, at::IntArrayRef shape,
                                                       const Tensor& mean, const Tensor& rstd,
                                                       const OptionalTensor& weight, const OptionalTensor& bias,
                                                       std::array<bool, 3> wanted) {
  TORCH_CHECK_VALUE(weight.has_value() && bias.has_value(), "NestedTensor layer_norm requires weight and bias");
  const Tensor rows = normalized_rows(input, shape, *weight, *bias);
  std::vector<int64_t> statistics(shape.size() + 1, 1);
  statistics[0] = rows.size(0);
  auto [d_rows, d_weight, d_bias] =
      at::native_layer_norm_backward(native::get_buffer(grad).view(rows.sizes()), rows, shape, mean.view(statistics),
                                     rstd.view(statistics), weight, bias, wanted);
  if (wanted[0]) d_rows = native::wrap_buffer(d_rows.contiguous().view(-1), native::get_nested_sizes(input));
  return {d_rows, d_weight, d_bias};
}

void check_sums(at::ScalarType type, const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(type != at::kBool && !at::isComplexType(type), "\"", name, "\" not implemented for '",
                              type, "'");
}

// Over the last dimension, which stays as one of size 1.
Tensor sum(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, std::optional<at::ScalarType> dtype) {
  TORCH_CHECK(dims.has_value() && dims->size() == 1,
              "NestedTensor only allows reduction of a single dimension for now.");
  const int64_t dim = at::maybe_wrap_dim(dims->front(), self.dim());
  TORCH_CHECK(dim == self.dim() - 1, "NestedTensor can only be reduced across the last dimension for now ",
              "got dimension ", dim, " instead.");
  TORCH_CHECK(keepdim, "NestedTensor always requires keepdim=True for now.");
  TORCH_CHECK(!dtype, "NestedTensor does not support dtype argument for now.");
  const auto* nested = native::get_nested_tensor_impl(self);
  TORCH_CHECK(native::nested_tensor_impl_is_contiguous(nested),
              "NestedTensor does not support reductions when the input is noncontiguous for now.");
  if (nested->size(0) == 0) return self;
  check_sums(self.scalar_type(), "nested_sum_dim_cpu");
  std::vector<Tensor> sums;
  for (const Tensor& piece : self.unbind()) sums.push_back(piece.sum(-1, /*keepdim=*/true, self.scalar_type()));
  const Tensor sizes = nested->get_nested_sizes().clone();
  sizes.select(1, -1).fill_(1);
  return nested_like(sums, sizes);
}

Tensor sum_backward(const Tensor& grad, const Tensor& self, at::OptionalIntArrayRef /*dims*/, bool /*keepdim*/) {
  const auto* nested = native::get_nested_tensor_impl(self);
  if (nested->size(0) == 0) return self;
  check_sums(self.scalar_type(), "nested_sum_dim_cpu");
  const std::vector<Tensor> sums = grad.unbind(), pieces = self.unbind();
  std::vector<Tensor> expanded;
  for (size_t i = 0; i < pieces.size(); i++) expanded.push_back(sums[i].expand(pieces[i].sizes()));
  return nested_like(expanded, nested->get_nested_sizes());
}

void no_kernel(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "minitorch has no kernel for '", c10::toString(op.operator_name()),
                              "' on nested tensors of the strided layout, on the ", backend().name(),
                              " backend. Use layout=torch.jagged, to_padded_tensor(), or .cpu() and native PyTorch.");
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&no_kernel>());
}

// Making them of dense tensors.
MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_nested_tensor_from_mask", TORCH_FN(native::NestedTensor_nested_tensor_from_mask));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(native::NestedTensor_nested_tensor_from_mask_left_aligned));
  m.impl("_nested_from_padded", TORCH_FN(native::nested_from_padded_generic));
  m.impl("_nested_view_from_buffer", TORCH_FN(native::_nested_view_from_buffer));
}

MT_OPERATORS(aten, NestedTensorPrivateUse1, m) {
#define MT_IMPL(name) m.impl(#name, TORCH_FN(native::NestedTensor_##name))
  MT_IMPL(abs);
  MT_IMPL(abs_);
  MT_IMPL(sgn);
  MT_IMPL(sgn_);
  MT_IMPL(logical_not);
  MT_IMPL(logical_not_);
  MT_IMPL(cos);
  MT_IMPL(sin);
  MT_IMPL(sqrt);
  MT_IMPL(isnan);
  MT_IMPL(isinf);
  MT_IMPL(isposinf);
  MT_IMPL(isneginf);
  MT_IMPL(neg);
  MT_IMPL(neg_);
  MT_IMPL(relu);
  MT_IMPL(relu_);
  MT_IMPL(gelu);
  MT_IMPL(gelu_);
  MT_IMPL(silu);
  MT_IMPL(silu_);
  MT_IMPL(tanh);
  MT_IMPL(tanh_);
#undef MT_IMPL
  m.impl("add.Tensor", TORCH_FN(native::NestedTensor_add_Tensor));
  m.impl("add_.Tensor", TORCH_FN(native::NestedTensor_add__Tensor));
  m.impl("sub.Tensor", TORCH_FN(native::NestedTensor_sub_Tensor));
  m.impl("mul.Tensor", TORCH_FN(native::NestedTensor_mul_Tensor));
  m.impl("mul_.Tensor", TORCH_FN(native::NestedTensor_mul__Tensor));
  m.impl("mul.Scalar", TORCH_FN(native::NestedTensor_mul_Scalar));
  m.impl("mul_.Scalar", TORCH_FN(native::NestedTensor_mul__Scalar));
  m.impl("div.Tensor", TORCH_FN(native::NestedTensor_div_Tensor));
  m.impl("div.Scalar", TORCH_FN(native::NestedTensor_div_Scalar));
  m.impl("eq.Scalar", TORCH_FN(native::eq_scalar_nested));
  m.impl("eq.Tensor", TORCH_FN(native::eq_tensor_nested));
  m.impl("ge.Scalar", TORCH_FN(native::ge_scalar_nested));
  m.impl("gt.Scalar", TORCH_FN(native::gt_scalar_nested));
  m.impl("where.self", TORCH_FN(native::NestedTensor_where));
  m.impl("where.self_out", TORCH_FN(native::NestedTensor_where_out));
  m.impl("masked_fill.Scalar", TORCH_FN(native::NestedTensor_masked_fill));
  m.impl("fill_.Scalar", static_cast<Tensor& (*)(Tensor&, const at::Scalar&)>(&native::fill_nested_));
  m.impl("fill_.Tensor", static_cast<Tensor& (*)(Tensor&, const Tensor&)>(&native::fill_nested_));
  m.impl("zero_", TORCH_FN(native::zero_nested_));
  m.impl("normal_", TORCH_FN(native::normal_nested_));
  m.impl("all.dim", TORCH_FN(native::NestedTensor_all));

  m.impl("clone", TORCH_FN(native::clone_nested));
  m.impl("copy_", TORCH_FN(native::copy_nested_));
  m.impl("_to_copy", TORCH_FN(native::_to_copy_nested));
  m.impl("empty_like", TORCH_FN(native::empty_like_nested));
  m.impl("ones_like", TORCH_FN(native::ones_like));
  m.impl("to_padded_tensor", TORCH_FN(native::NestedTensor_to_padded_tensor_generic));
  m.impl("_nested_from_padded_and_nested_example", TORCH_FN(native::NestedTensor_from_padded_and_nested_example));
  m.impl("is_pinned", TORCH_FN(native::is_pinned));
  m.impl("_pin_memory", TORCH_FN(native::_pin_memory_nested));

  m.impl("is_same_size", TORCH_FN(native::nested_is_same_size));
  m.impl("_nested_tensor_size", TORCH_FN(native::_nested_tensor_size));
  m.impl("_nested_tensor_strides", TORCH_FN(native::_nested_tensor_strides));
  m.impl("_nested_tensor_storage_offsets", TORCH_FN(native::_nested_tensor_storage_offsets));
  m.impl("values", TORCH_FN(native::values_nested));
  m.impl("alias", TORCH_FN(native::alias_nested));
  m.impl("detach", TORCH_FN(native::detach));
  m.impl("view", TORCH_FN(native::view_nested));
  m.impl("unbind.int", TORCH_FN(native::NestedTensor_unbind));
  m.impl("select.int", TORCH_FN(native::select_nested));
  m.impl("_nested_select_backward", TORCH_FN(native::_nested_select_backward_symint));
  m.impl("narrow", TORCH_FN(native::narrow_nested_symint));
  m.impl("chunk", TORCH_FN(native::chunk_nested_tensor));
  m.impl("split_with_sizes", TORCH_FN(native::split_with_sizes_nested));
  m.impl("cat", TORCH_FN(native::cat_nested));
  m.impl("transpose.int", TORCH_FN(native::transpose_nested));
  m.impl("unsqueeze", TORCH_FN(native::unsqueeze_nested));
  m.impl("squeeze", TORCH_FN(native::squeeze_nested));
  m.impl("squeeze.dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(&native::squeeze_dim_nested));
  m.impl("squeeze.dims", static_cast<Tensor (*)(const Tensor&, at::IntArrayRef)>(&native::squeeze_dim_nested));

  m.impl("linear", TORCH_FN(native::nested_linear));
  m.impl("linear_backward", TORCH_FN(native::nested_linear_backward));
  m.impl("bmm", TORCH_FN(native::bmm_nested));
  m.impl("matmul", TORCH_FN(native::matmul_nested));
  m.impl("matmul.out", TORCH_FN(native::matmul_out_nested));
  m.impl("matmul_backward", TORCH_FN(native::matmul_backward_nested));
  m.impl("embedding", TORCH_FN(native::NestedTensor_embedding));
  m.impl("gelu_backward", TORCH_FN(native::gelu_backwards_nested));
  m.impl("silu_backward", TORCH_FN(native::silu_backward_nested));
  m.impl("threshold_backward", TORCH_FN(native::threshold_backwards_nested));
  m.impl("native_dropout", TORCH_FN(native::native_dropout_nested));
  m.impl("native_dropout_backward", TORCH_FN(native::native_dropout_backward));
  m.impl("_softmax", TORCH_FN(native::softmax_nested));
  m.impl("_softmax_backward_data", TORCH_FN(native::nested_softmax_backward));
  m.impl("_safe_softmax", TORCH_FN(native::_safe_softmax));
  m.impl("_nested_tensor_softmax_with_shape", TORCH_FN(native::NestedTensor_softmax_dropout));
  m.impl("_fused_sdp_choice", TORCH_FN(native::_fused_sdp_choice_cpp));
  m.impl("value_selecting_reduction_backward", TORCH_FN(native::value_selecting_reduction_backward_nested_symint));

  m.impl("native_layer_norm", TORCH_FN(layer_norm));
  m.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
  m.impl("sum.dim_IntList", TORCH_FN(sum));
  m.impl("_nested_sum_backward", TORCH_FN(sum_backward));
}

}  // namespace
}  // namespace minitorch
