// Layer norm, RMS norm and weight norm.
#include <ATen/OpMathType.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_fused_rms_norm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/_weight_norm_differentiable_backward_native.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/norm.h"
#include "ops/norm_params.h"

namespace minitorch {
namespace {

using Mask2 = std::array<bool, 2>;
using Mask3 = std::array<bool, 3>;

// The input's leading sizes, then ones: the shape of the statistics.
std::vector<int64_t> stat_shape(const at::Tensor& input, at::IntArrayRef normalized_shape) {
  std::vector<int64_t> shape(input.sizes().begin(), input.sizes().end());
  std::fill(shape.end() - static_cast<int64_t>(normalized_shape.size()), shape.end(), 1);
  return shape;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(const at::Tensor& input,
                                                                 at::IntArrayRef normalized_shape,
                                                                 const std::optional<at::Tensor>& weight_opt,
                                                                 const std::optional<at::Tensor>& bias_opt,
                                                                 double eps) {
  const at::Tensor weight = contiguous_or_undefined(value_or_undefined(weight_opt));
  const at::Tensor bias = contiguous_or_undefined(value_or_undefined(bias_opt));
  check_same_device({&input, &weight, &bias});
  const auto [rows, cols] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  check_floating("LayerNormKernelImpl", input);
  const at::ScalarType params = param_dtype(input, weight, bias);
  const at::Tensor x = input.contiguous();
  at::Tensor y = empty(input.sizes(), input.scalar_type());
  const auto stats = stat_shape(input, normalized_shape);
  at::Tensor mean = empty(stats, params), rstd = empty(stats, params);
  if (rows > 0)
    layer_norm_kernel({to_dtype(x.scalar_type()), to_dtype(params), to_dtype(params), true, rows, cols, eps,
                       input_ptr(x), input_ptr(weight), input_ptr(bias), output_ptr(y), output_ptr(mean),
                       output_ptr(rstd)});
  return {y, mean, rstd};
}

// Both norms' backward: `mean` is undefined for RMS norm.
std::tuple<at::Tensor, at::Tensor, at::Tensor> rows_backward(const at::Tensor& grad_out, const at::Tensor& input,
                                                             int64_t rows, int64_t cols, const at::Tensor& mean_in,
                                                             const at::Tensor& rstd_in, const at::Tensor& weight_in,
                                                             const at::Tensor& bias, Mask3 mask) {
  check_same_device({&grad_out, &input, &mean_in, &rstd_in, &weight_in, &bias});
  TORCH_CHECK(grad_out.scalar_type() == input.scalar_type(), "expected scalar type ", input.scalar_type(),
              " but found ", grad_out.scalar_type());
  TORCH_CHECK(grad_out.sizes() == input.sizes(), "expected grad_out of shape ", input.sizes(), ", got ",
              grad_out.sizes());
  TORCH_CHECK(
      input.numel() == rows * cols && rstd_in.numel() == rows && (!mean_in.defined() || mean_in.numel() == rows),
      "expected one mean and one rstd for each of ", rows, " rows of ", cols, " elements, got ", rstd_in.numel(),
      " for an input of shape ", input.sizes());
  TORCH_CHECK(!weight_in.defined() || weight_in.numel() == cols, "expected a weight of ", cols, " elements, got ",
              weight_in.numel());
  const at::Tensor x = input.contiguous(), dy = grad_out.contiguous(), weight = contiguous_or_undefined(weight_in);
  const at::Tensor mean = contiguous_or_undefined(mean_in), rstd = rstd_in.contiguous();
  const at::Tensor& shaped = weight.defined() ? weight : bias;
  at::Tensor dx, dweight, dbias;
  if (mask[0]) dx = empty(input.sizes(), input.scalar_type());
  if (mask[1] && weight.defined()) dweight = empty(weight.sizes(), weight.scalar_type());
  if (mask[2] && shaped.defined()) dbias = empty(shaped.sizes(), shaped.scalar_type());
  if (rows > 0) {
    const at::ScalarType params = shaped.defined() ? shaped.scalar_type() : input.scalar_type();
    layer_norm_backward_kernel({to_dtype(x.scalar_type()), to_dtype(params), to_dtype(rstd.scalar_type()),
                                mean.defined(), rows, cols, input_ptr(dy), input_ptr(x), input_ptr(weight),
                                input_ptr(mean), input_ptr(rstd), output_ptr(dx), output_ptr(dweight),
                                output_ptr(dbias)});
  } else {
    if (dweight.defined()) dweight.zero_();
    if (dbias.defined()) dbias.zero_();
  }
  return {dx, dweight, dbias};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm_backward(
    const at::Tensor& grad_out, const at::Tensor& input, at::IntArrayRef normalized_shape, const at::Tensor& mean,
    const at::Tensor& rstd, const std::optional<at::Tensor>& weight_opt, const std::optional<at::Tensor>& bias_opt,
    Mask3 mask) {
  const at::Tensor weight = value_or_undefined(weight_opt), bias = value_or_undefined(bias_opt);
  const auto [rows, cols] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  check_floating("LayerNormBackwardKernelImpl", input);
  return rows_backward(grad_out, input, rows, cols, mean, rstd, weight, bias, mask);
}

// One fused pass where PyTorch's composition makes five. Other dtypes than floats, and a weight of another dtype than
// the input (whose result promotes), take the composition.
std::tuple<at::Tensor, at::Tensor> fused_rms_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                                                  const std::optional<at::Tensor>& weight_opt,
                                                  std::optional<double> eps) {
  const at::Tensor weight = contiguous_or_undefined(value_or_undefined(weight_opt));
  check_same_device({&input, &weight});
  const bool same_dtype = !weight.defined() || weight.scalar_type() == input.scalar_type();
  if (!at::isFloatingType(input.scalar_type()) || !same_dtype)
    return at::compositeimplicitautograd::_fused_rms_norm(input, normalized_shape, weight_opt, eps);
  at::native::_check_rms_norm_inputs_symint(input, c10::fromIntArrayRefSlow(normalized_shape), weight);
  const int64_t cols = c10::multiply_integers(normalized_shape);
  const at::Tensor x = input.contiguous();
  const auto compute = at::toOpMathType(input.scalar_type());
  at::Tensor y = empty(input.sizes(), input.scalar_type());
  at::Tensor rstd = empty(stat_shape(input, normalized_shape), compute);
  if (rstd.numel() > 0)
    layer_norm_kernel({to_dtype(x.scalar_type()), to_dtype(x.scalar_type()), to_dtype(compute), false, rstd.numel(),
                       cols, eps.value_or(rms_norm_eps(compute)), input_ptr(x), input_ptr(weight), nullptr,
                       output_ptr(y), nullptr, output_ptr(rstd)});
  return {y, rstd};
}

std::tuple<at::Tensor, at::Tensor> fused_rms_norm_backward(const at::Tensor& grad_out, const at::Tensor& input,
                                                           at::IntArrayRef normalized_shape, const at::Tensor& rstd,
                                                           const std::optional<at::Tensor>& weight_opt, Mask2 mask) {
  check_floating("fused_rms_norm_backward", input);
  auto [dx, dweight, unused] =
      rows_backward(grad_out, input, rstd.numel(), c10::multiply_integers(normalized_shape), at::Tensor(), rstd,
                    value_or_undefined(weight_opt), at::Tensor(), {mask[0], mask[1], false});
  return {dx, dweight};
}

// w = v * g / |v|, the norm taken over every dimension but `dim`.
std::tuple<at::Tensor, at::Tensor> weight_norm_interface(const at::Tensor& v, const at::Tensor& g, int64_t dim) {
  TORCH_INTERNAL_ASSERT(dim == 0 || dim == v.dim() - 1, "fused kernels can only be applied for first or last dim");
  check_same_device({&v, &g});
  const at::Tensor norm = at::norm_except_dim(v.to(at::toOpMathType(v.scalar_type())), 2, dim);
  return {v.contiguous() * (g.to(norm.scalar_type()) / norm).to(v.scalar_type()), norm};
}

std::tuple<at::Tensor, at::Tensor> weight_norm_interface_backward(const at::Tensor& grad, const at::Tensor& v,
                                                                  const at::Tensor& g, const at::Tensor& norms,
                                                                  int64_t dim) {
  return at::native::_weight_norm_differentiable_backward(grad, v, g, norms.to(v.scalar_type()), dim);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", MT_CHECKED(native_layer_norm));
  m.impl("native_layer_norm_backward", MT_CHECKED(native_layer_norm_backward));
  m.impl("_fused_rms_norm", MT_CHECKED(fused_rms_norm));
  m.impl("_fused_rms_norm_backward", MT_CHECKED(fused_rms_norm_backward));
  m.impl("_weight_norm_interface", MT_CHECKED(weight_norm_interface));
  m.impl("_weight_norm_interface_backward", MT_CHECKED(weight_norm_interface_backward));
}

}  // namespace
}  // namespace minitorch
