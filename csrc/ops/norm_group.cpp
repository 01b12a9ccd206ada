// Group norm. PyTorch's entry points make every input of a private device contiguous; these keep channels last.
#include <limits>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/norm.h"
#include "ops/norm_params.h"

namespace minitorch {
namespace {

using at::Tensor;
using OptTensor = const std::optional<Tensor>&;
using Three = std::tuple<Tensor, Tensor, Tensor>;

bool is_channels_last(at::MemoryFormat format, int64_t spatial) {
  return spatial == 1 || format != at::MemoryFormat::Contiguous;
}

void check_inputs(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t c, int64_t groups) {
  TORCH_CHECK(groups > 0, "Expected num groups to be greater than 0, got ", groups);
  TORCH_CHECK(c % groups == 0, "Expected number of channels in input to be divisible by num_groups, but got input of ",
              "shape ", x.sizes(), " and num_groups=", groups);
  for (const Tensor* p : {&weight, &bias})
    TORCH_CHECK(!p->defined() || (p->dim() == 1 && p->numel() == c), "Expected ", p == &weight ? "weight" : "bias",
                " to be a vector of size equal to the number of channels in input, but got ",
                p == &weight ? "weight" : "bias", " of shape ", weight.sizes(), " and input of shape ", x.sizes());
}

// Native's words.
void check_dense(const Tensor& X) {
  const at::MemoryFormat memory_format = X.suggest_memory_format();
  TORCH_CHECK(X.is_contiguous(memory_format));
}

Three forward(const Tensor& input, OptTensor weight_opt, OptTensor bias_opt, int64_t n, int64_t c, int64_t spatial,
              int64_t groups, double eps) {
  const Tensor weight = contiguous_or_undefined(value_or_undefined(weight_opt));
  const Tensor bias = contiguous_or_undefined(value_or_undefined(bias_opt));
  check_same_device({&input, &weight, &bias});
  check_inputs(input, weight, bias, c, groups);
  check_dense(input);
  const at::ScalarType params = param_dtype(input, weight, bias);
  const at::MemoryFormat format = input.suggest_memory_format();
  Tensor y = empty(input.sizes(), input.scalar_type(), format);
  Tensor mean = empty({n, groups}, params), rstd = empty({n, groups}, params);
  if (input.numel() == 0) {
    mean.zero_();
    rstd.fill_(std::numeric_limits<double>::quiet_NaN());
    return {y, mean, rstd};
  }
  check_floating("GroupNormKernelImpl", input);
  TORCH_CHECK(input.numel() == n * c * spatial, "native_group_norm: the input has ", input.numel(),
              " elements, but N * C * HxW is ", n * c * spatial);
  group_norm_kernel({to_dtype(input.scalar_type()), to_dtype(params), to_dtype(params),
                     is_channels_last(format, spatial), n, c, spatial, groups, eps, input_ptr(input), input_ptr(weight),
                     input_ptr(bias), output_ptr(y), output_ptr(mean), output_ptr(rstd)});
  return {y, mean, rstd};
}

Three backward(const Tensor& grad_out, const Tensor& input, const Tensor& mean_in, const Tensor& rstd_in,
               OptTensor weight_opt, int64_t n, int64_t c, int64_t spatial, int64_t groups, std::array<bool, 3> mask) {
  const Tensor weight = contiguous_or_undefined(value_or_undefined(weight_opt));
  check_same_device({&grad_out, &input, &mean_in, &rstd_in, &weight});
  TORCH_CHECK(input.scalar_type() == grad_out.scalar_type(), "Expected scalar types of X and dY are same.");
  const at::ScalarType stats = param_dtype(input, mean_in, rstd_in);
  const at::ScalarType params = weight.defined() ? weight.scalar_type() : input.scalar_type();
  const at::MemoryFormat format = input.suggest_memory_format();
  Tensor dx, dweight, dbias;
  if (mask[0]) dx = empty(input.sizes(), input.scalar_type(), format);
  if (mask[1]) dweight = empty({c}, params);
  if (mask[2]) dbias = empty({c}, params);
  if (input.numel() == 0) {
    // Native multiplies by the reciprocal deviation of no values.
    if (mask[1]) dweight.fill_(n > 0 ? std::numeric_limits<double>::quiet_NaN() : 0.0);
    if (mask[2]) dbias.zero_();
    return {dx, dweight, dbias};
  }
  check_floating("GroupNormBackwardKernelImpl", input);
  TORCH_CHECK(input.numel() == n * c * spatial && grad_out.numel() == input.numel() && mean_in.numel() == n * groups &&
                  rstd_in.numel() == n * groups,
              "native_group_norm_backward: sizes do not match N, C, HxW and group");
  const Tensor x = input.contiguous(format), dy = grad_out.contiguous(format);
  const Tensor mean = mean_in.contiguous(), rstd = rstd_in.contiguous();
  group_norm_backward_kernel({to_dtype(x.scalar_type()), to_dtype(params), to_dtype(stats),
                              is_channels_last(format, spatial), n, c, spatial, groups, input_ptr(dy), input_ptr(x),
                              input_ptr(weight), input_ptr(mean), input_ptr(rstd), output_ptr(dx), output_ptr(dweight),
                              output_ptr(dbias)});
  return {dx, dweight, dbias};
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("native_group_norm", MT_CHECKED(forward));
  m.impl("native_group_norm_backward", MT_CHECKED(backward));
}

}  // namespace
}  // namespace minitorch
