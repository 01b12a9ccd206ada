// Variance and standard deviation. PyTorch's own functions refuse devices that they do not name, so the checks and the
// warning are restated here with their texts.
#include <ATen/native/ReduceOpsUtils.h>
#include <torch/library.h>

#include <limits>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "ops/reduce.h"

namespace minitorch {
namespace {

// `mean` may be undefined. Complex input: the variances of the two components add up.
void var_into(const char* name, ReduceOp op, const at::Tensor& self, at::OptionalIntArrayRef dim,
              const std::optional<at::Scalar>& correction, bool keepdim, at::Tensor& out, at::Tensor& mean) {
  if (self.is_complex()) {
    at::Tensor parts[2], means[2];
    for (int i = 0; i < 2; i++) {
      const at::Tensor component = i == 0 ? at::real(self) : at::imag(self);
      parts[i] = empty({0}, c10::toRealValueType(out.scalar_type()));
      if (mean.defined()) means[i] = empty({0}, component.scalar_type());
      var_into(name, ReduceOp::var, component, dim, correction, keepdim, parts[i], means[i]);
    }
    at::add_out(out, parts[0], parts[1]);
    if (op == ReduceOp::std) out.sqrt_();
    if (mean.defined()) at::complex_out(mean, means[0], means[1]);
    return;
  }
  ReduceParams params;
  params.correction = correction.value_or(1).toDouble();
  TORCH_CHECK(dim.has_value() || !at::isFloat8Type(self.scalar_type()), "std_var_all: Unsupported dtype ",
              self.scalar_type());
  const auto mask = at::native::make_dim_mask(dim, self.dim());
  at::native::resize_reduction_result(out, self, mask, keepdim, out.scalar_type());
  if (mean.defined()) at::native::resize_reduction_result(mean, self, mask, keepdim, mean.scalar_type());
  TORCH_CHECK(at::canCast(self.scalar_type(), out.scalar_type()), "result type ", self.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  const int64_t count = out.numel() == 0 ? 0 : self.numel() / out.numel();
  if (static_cast<double>(count) - params.correction <= 0)
    TORCH_WARN(name,
               "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
               "(input numel divided by output numel).");
  if (self.numel() == 0) {
    out.fill_(std::numeric_limits<double>::quiet_NaN());
    if (mean.defined()) mean.fill_(std::numeric_limits<double>::quiet_NaN());
    return;
  }
  check_native_has(!at::isComplexType(out.scalar_type()), "std_cpu", out.scalar_type());
  reduce(op, self, dim, keepdim, out.scalar_type(), params, out, mean);
  // The mean of one infinity is that, of several it is NaN, as native's running mean has it.
  if (mean.defined() && count == 1) mean.copy_(self.reshape(mean.sizes()));
}

template <ReduceOp op>
at::Tensor& var_out(const at::Tensor& self, at::OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction,
                    bool keepdim, at::Tensor& out) {
  check_same_device({&self, &out});
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()),
              "std and var only support floating point and complex dtypes");
  at::Tensor no_mean;
  const at::Tensor source = out.is_alias_of(self) ? self.clone() : self;
  var_into(op == ReduceOp::std ? "std" : "var", op, source, dim, correction, keepdim, out, no_mean);
  return out;
}

template <ReduceOp op>
at::Tensor var(const at::Tensor& self, at::OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction,
               bool keepdim) {
  at::Tensor out = empty({0}, c10::toRealValueType(self.scalar_type()));
  return var_out<op>(self, dim, correction, keepdim, out);
}

template <ReduceOp op>
std::tuple<at::Tensor, at::Tensor> var_mean(const at::Tensor& self, at::OptionalIntArrayRef dim,
                                            const std::optional<at::Scalar>& correction, bool keepdim) {
  const char* name = op == ReduceOp::std ? "std_mean" : "var_mean";
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()), name,
              " only support floating point and complex dtypes");
  at::Tensor out = empty({0}, c10::toRealValueType(self.scalar_type())), mean = empty({0}, self.scalar_type());
  var_into(name, op, self, dim, correction, keepdim, out, mean);
  return {out, mean};
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("var.correction", MT_CHECKED(var<ReduceOp::var>));
  m.impl("std.correction", MT_CHECKED(var<ReduceOp::std>));
  m.impl("var.correction_out", MT_CHECKED(var_out<ReduceOp::var>));
  m.impl("std.correction_out", MT_CHECKED(var_out<ReduceOp::std>));
  m.impl("var_mean.correction", MT_CHECKED(var_mean<ReduceOp::var>));
  m.impl("std_mean.correction", MT_CHECKED(var_mean<ReduceOp::std>));
}

}  // namespace
}  // namespace minitorch
