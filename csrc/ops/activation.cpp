// Activation functions and their derivatives: PyTorch's metas and TensorIterator, our kernels.
#include <ATen/NativeFunctions.h>
#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Gelu.h>
#include <ATen/native/UnaryOps.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "ops/pointwise.h"

namespace minitorch {
namespace {

void elu_backward_stub(at::TensorIteratorBase& iter, const at::Scalar& alpha, const at::Scalar& scale,
                       const at::Scalar& input_scale, bool is_result) {
  check_parameters(PointwiseOp::elu_backward, iter, alpha, scale, input_scale);
  const double below = alpha.toDouble() * scale.toDouble();
  run_pointwise(is_result ? PointwiseOp::elu_backward_from_result : PointwiseOp::elu_backward, iter, below,
                scale.toDouble(), input_scale.toDouble());
}
void elu_stub(at::TensorIteratorBase& iter, const at::Scalar& alpha, const at::Scalar& scale,
              const at::Scalar& input_scale) {
  check_parameters(PointwiseOp::elu, iter, alpha, scale, input_scale);
  run_pointwise(PointwiseOp::elu, iter, alpha.toDouble() * scale.toDouble(), scale.toDouble(), input_scale.toDouble());
}

void gelu_stub(at::TensorIteratorBase& iter, at::native::GeluType type) {
  PointwiseOp op = PointwiseOp::gelu;
  if (iter.common_dtype() == at::kHalf) op = PointwiseOp::gelu_half;
  if (iter.common_dtype() == at::kBFloat16) op = PointwiseOp::gelu_bfloat16;
  run_pointwise(type == at::native::GeluType::Tanh ? PointwiseOp::gelu_tanh : op, iter);
}
void gelu_backward_stub(at::TensorIteratorBase& iter, at::native::GeluType type) {
  run_pointwise(type == at::native::GeluType::Tanh ? PointwiseOp::gelu_tanh_backward : PointwiseOp::gelu_backward,
                iter);
}

// The bounds eps and 1 - eps in the tensor's own precision.
template <PointwiseOp op>
void logit_stub(at::TensorIteratorBase& iter, const at::Scalar& eps) {
  check_parameters(op, iter, eps);
  double low = eps.toDouble(), high = 1.0 - low;
  if (iter.common_dtype() == at::kHalf) {
    low = c10::Half(static_cast<float>(low)), high = c10::Half(1.0f) - c10::Half(static_cast<float>(low));
  } else if (iter.common_dtype() == at::kBFloat16) {
    low = c10::BFloat16(static_cast<float>(low)), high = c10::BFloat16(1.0f) - c10::BFloat16(static_cast<float>(low));
  }
  run_pointwise(op, iter, low, high);
}

at::Tensor relu(const at::Tensor& self) {
  TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
  return at::clamp_min(self, 0);
}
at::Tensor& relu_(at::Tensor& self) {
  TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
  return at::clamp_min_(self, 0);
}

// Native's runs on kCPU whatever the tensor's device. The buffer is native's too: its formula for the backward pass has
// it.
std::tuple<at::Tensor&, at::Tensor&> log_sigmoid_forward_out(const at::Tensor& self, at::Tensor& output,
                                                             at::Tensor& buffer) {
  TORCH_CHECK(output.scalar_type() == self.scalar_type(), "expected scalar type ", self.scalar_type(), " but found ",
              output.scalar_type());
  at::native::resize_output(output, self.sizes());
  at::native::resize_output(buffer, self.sizes());
  auto iter = at::TensorIteratorConfig().add_output(output).add_output(buffer).add_const_input(self).build();
  run_pointwise(PointwiseOp::log_sigmoid, iter);
  return {output, buffer};
}
std::tuple<at::Tensor, at::Tensor> log_sigmoid_forward(const at::Tensor& self) {
  at::Tensor output = at::empty_like(self, at::MemoryFormat::Contiguous);
  at::Tensor buffer = at::empty_like(self, at::MemoryFormat::Contiguous);
  log_sigmoid_forward_out(self, output, buffer);
  return {output, buffer};
}
at::Tensor& log_sigmoid_backward_out(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& buffer,
                                     at::Tensor& grad_input) {
  auto iter = at::TensorIteratorConfig()
                  .add_output(grad_input)
                  .add_const_input(self)
                  .add_const_input(buffer)
                  .add_const_input(grad)
                  .build();
  run_pointwise(PointwiseOp::log_sigmoid_backward, iter);
  return grad_input;
}
at::Tensor log_sigmoid_backward(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& buffer) {
  at::Tensor grad_input;
  auto iter = at::TensorIteratorConfig()
                  .add_output(grad_input)
                  .add_const_input(self)
                  .add_const_input(buffer)
                  .add_const_input(grad)
                  .build();
  run_pointwise(PointwiseOp::log_sigmoid_backward, iter);
  return iter.output();
}

}  // namespace
}  // namespace minitorch

namespace at::native {
#define MT_REGISTER(name) MT_STUB(name##_stub, name)
MT_REGISTER(glu)
MT_REGISTER(glu_backward)
MT_REGISTER(glu_jvp)
MT_REGISTER(hardshrink)
MT_REGISTER(hardsigmoid)
MT_REGISTER(hardsigmoid_backward)
MT_REGISTER(hardswish)
MT_REGISTER(hardswish_backward)
MT_REGISTER(hardtanh_backward)
MT_REGISTER(leaky_relu)
MT_REGISTER(leaky_relu_backward)
MT_REGISTER(mish)
MT_REGISTER(mish_backward)
MT_REGISTER(prelu)
MT_REGISTER(prelu_backward)
MT_REGISTER(shrink_backward)
MT_REGISTER(sigmoid_backward)
MT_REGISTER(silu)
MT_REGISTER(silu_backward)
MT_REGISTER(softplus)
MT_REGISTER(softplus_backward)
MT_REGISTER(softshrink)
MT_REGISTER(tanh_backward)
MT_REGISTER(threshold)
#undef MT_REGISTER
REGISTER_PRIVATEUSE1_DISPATCH(logit_stub, &minitorch::logit_stub<minitorch::PointwiseOp::logit>)
REGISTER_PRIVATEUSE1_DISPATCH(logit_backward_stub, &minitorch::logit_stub<minitorch::PointwiseOp::logit_backward>)
REGISTER_PRIVATEUSE1_DISPATCH(elu_stub, &minitorch::elu_stub)
REGISTER_PRIVATEUSE1_DISPATCH(elu_backward_stub, &minitorch::elu_backward_stub)
REGISTER_PRIVATEUSE1_DISPATCH(GeluKernel, &minitorch::gelu_stub)
REGISTER_PRIVATEUSE1_DISPATCH(GeluBackwardKernel, &minitorch::gelu_backward_stub)
}  // namespace at::native

namespace minitorch {
namespace {

// Native's impls try oneDNN first and have no stub call of their own to reach.
struct Gelu : at::meta::structured_gelu {
  void impl(const at::Tensor&, std::string_view approximate, const at::Tensor&) {
    gelu_stub(*this, at::native::get_gelutype_enum(approximate));
  }
};
struct GeluBackward : at::meta::structured_gelu_backward {
  void impl(const at::Tensor&, const at::Tensor&, std::string_view approximate, const at::Tensor&) {
    gelu_backward_stub(*this, at::native::get_gelutype_enum(approximate));
  }
};

MT_OPERATORS(aten, PrivateUse1, m) {
#define MT_FORWARD(name) structured<at::native::structured_##name##_out>(m, #name, #name "_", #name ".out");
  MT_FORWARD(elu)
  MT_FORWARD(hardsigmoid)
  MT_FORWARD(leaky_relu)
  MT_FORWARD(mish)
  MT_FORWARD(silu)
  MT_FORWARD(threshold)
#undef MT_FORWARD
#define MT_FORWARD(name) structured<at::native::structured_##name##_out>(m, #name, nullptr, #name ".out");
  MT_FORWARD(glu)
  MT_FORWARD(hardshrink)
  MT_FORWARD(softplus)
  MT_FORWARD(softshrink)
#undef MT_FORWARD
#define MT_BACKWARD(name) \
  structured<at::native::structured_##name##_backward_out>(m, #name "_backward", nullptr, #name "_backward.grad_input");
  MT_BACKWARD(elu)
  MT_BACKWARD(hardshrink)
  MT_BACKWARD(hardsigmoid)
  MT_BACKWARD(leaky_relu)
  MT_BACKWARD(logit)
  MT_BACKWARD(sigmoid)
  MT_BACKWARD(silu)
  MT_BACKWARD(softplus)
  MT_BACKWARD(softshrink)
  MT_BACKWARD(tanh)
  MT_BACKWARD(threshold)
#undef MT_BACKWARD
  structured<Gelu>(m, "gelu", "gelu_", "gelu.out");
  structured<GeluBackward>(m, "gelu_backward", nullptr, "gelu_backward.grad_input");
  m.impl("relu", MT_CHECKED(relu));
  m.impl("relu_", MT_CHECKED(relu_));
  m.impl("mish_backward", MT_CHECKED(at::native::mish_backward));
  m.impl("_prelu_kernel", MT_CHECKED(at::native::_prelu_kernel));
  m.impl("_prelu_kernel_backward", MT_CHECKED(at::native::_prelu_kernel_backward));
  m.impl("glu_backward", MT_CHECKED(at::native::glu_backward_cpu));
  m.impl("glu_backward.grad_input", MT_CHECKED(at::native::glu_backward_cpu_out));
  m.impl("glu_jvp", MT_CHECKED(at::native::glu_jvp));
  m.impl("glu_backward_jvp", MT_CHECKED(at::native::glu_backward_jvp));
  m.impl("hardtanh", MT_CHECKED(at::native::hardtanh));
  m.impl("hardtanh_", MT_CHECKED(at::native::hardtanh_));
  m.impl("hardtanh.out", MT_CHECKED(at::native::hardtanh_out));
  m.impl("hardtanh_backward", MT_CHECKED(at::native::hardtanh_backward));
  m.impl("hardtanh_backward.grad_input", MT_CHECKED(at::native::hardtanh_backward_out));
  m.impl("hardswish", MT_CHECKED(at::native::hardswish));
  m.impl("hardswish_", MT_CHECKED(at::native::hardswish_));
  m.impl("hardswish.out", MT_CHECKED(at::native::hardswish_out));
  m.impl("hardswish_backward", MT_CHECKED(at::native::hardswish_backward));
  m.impl("log_sigmoid_forward", MT_CHECKED(log_sigmoid_forward));
  m.impl("log_sigmoid_forward.output", MT_CHECKED(log_sigmoid_forward_out));
  m.impl("log_sigmoid_backward", MT_CHECKED(log_sigmoid_backward));
  m.impl("log_sigmoid_backward.grad_input", MT_CHECKED(log_sigmoid_backward_out));
}

}  // namespace
}  // namespace minitorch
