// Samplers with tensors of parameters (poisson, binomial, gamma, Dirichlet), their gradients, and rrelu's noise.
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/generator.h"
#include "bridge/iterator.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/pointwise.h"
#include "kernels/random.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

using at::Tensor;
using Generator = std::optional<at::Generator>;

// Native's message for a dtype that its dispatch macro does not list.
void check_dtype(bool supported, const char* name, at::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(supported, '"', name, "\" not implemented for '", toString(type), "'");
}
bool is_wide_float(at::ScalarType type) { return type == at::kFloat || type == at::kDouble; }

void sample(Sampler sampler, const Generator& generator, const at::TensorIteratorBase& iter) {
  if (iter.numel() == 0) return;
  DeviceGenerator* g = generator_or_default(generator);
  const std::lock_guard lock(g->mutex_);
  sampler_kernel(g->state, sampler, view_of(iter));
}
at::TensorIterator unary(const Tensor& out, const Tensor& in) {
  return at::TensorIteratorConfig().add_output(out).add_const_input(in).check_all_same_dtype(false).build();
}

Tensor poisson(const Tensor& rate, Generator generator) {
  check_dtype(at::isFloatingType(rate.scalar_type()), "poisson_cpu", rate.scalar_type());
  const Tensor result = empty(rate.sizes(), rate.scalar_type());
  sample(Sampler::poisson, generator, unary(result, rate));
  return result;
}

Tensor standard_gamma(const Tensor& alpha, Generator generator) {
  check_dtype(is_wide_float(alpha.scalar_type()), "gamma_cpu", alpha.scalar_type());
  const Tensor result = empty(alpha.sizes(), alpha.scalar_type());
  sample(Sampler::gamma, generator, unary(result, alpha));
  return result;
}

Tensor sample_dirichlet(const Tensor& alpha, Generator generator) {
  const at::ScalarType type = alpha.scalar_type();
  check_dtype(is_wide_float(type), "dirichlet", type);
  // Native CPU computes in double and ends at the largest value below one, native CUDA at one less epsilon.
  const bool on_cpu = backend().synchronous(), wide = type == at::kDouble;
  const Tensor gamma = empty(alpha.sizes(), on_cpu ? at::kDouble : type);
  sample(Sampler::gamma, generator, unary(gamma, alpha));
  const Tensor share = gamma.div_(gamma.sum({-1}, /*keepdim=*/true)).to(type);
  const double least = wide ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  const double epsilon = wide ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  return share.clamp_(least, 1 - (on_cpu ? epsilon / 2 : epsilon));
}

Tensor binomial(const Tensor& count, const Tensor& p, Generator generator) {
  TORCH_CHECK_VALUE(at::isFloatingType(count.scalar_type()),
                    "binomial only supports floating-point dtypes for count, got: ", count.scalar_type());
  TORCH_CHECK_VALUE(at::isFloatingType(p.scalar_type()),
                    "binomial only supports floating-point dtypes for prob, got: ", p.scalar_type());
  const Tensor result = empty(count.sizes(), count.scalar_type());
  const auto iter = at::TensorIteratorConfig().add_output(result).add_const_input(count).add_const_input(p).build();
  check_dtype(is_wide_float(count.scalar_type()), "binomial_cpu", count.scalar_type());
  sample(Sampler::binomial, generator, iter);
  return result;
}

Tensor standard_gamma_grad(const Tensor& alpha, const Tensor& sample) {
  Tensor result = at::empty(alpha.sizes(), alpha.options());
  auto iter = at::TensorIteratorConfig().add_output(result).add_const_input(alpha).add_const_input(sample).build();
  check_dtype(is_wide_float(iter.dtype()), "_standard_gamma_grad_cpu", iter.dtype());
  if (iter.numel() != 0) {
    PointwiseView v = view_of(iter);
    v.compute = v.dtype[0];
    pointwise_kernel(PointwiseOp::standard_gamma_grad, v, {});
  }
  return iter.output();
}

Tensor dirichlet_grad(const Tensor& x, const Tensor& alpha, const Tensor& total) {
  Tensor result = at::empty(x.sizes(), x.options());
  auto iter = at::TensorIteratorConfig()
                  .add_output(result)
                  .add_const_input(x)
                  .add_const_input(alpha)
                  .add_const_input(total)
                  .build();
  check_dtype(is_wide_float(iter.dtype()), "_dirichlet_grad_cpu", iter.dtype());
  if (iter.numel() != 0) {
    PointwiseView v = view_of(iter);
    v.compute = v.dtype[0];
    pointwise_kernel(PointwiseOp::dirichlet_grad, v, {});
  }
  return iter.output();
}

// In evaluation it is leaky_relu with the mean slope, and the noise is left alone.
Tensor& rrelu_with_noise_out(const Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                             bool training, Generator generator, Tensor& out) {
  check_same_device({&self, &noise, &out});
  TORCH_CHECK(self.sym_sizes() == noise.sym_sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sym_sizes(),
              " noise.shape = ", noise.sym_sizes());
  if (!training) {
    named("leaky_relu", "leaky_relu_cpu",
          [&] { at::leaky_relu_out(out, self, (lower.to<double>() + upper.to<double>()) / 2); });
    return out;
  }
  const at::ScalarType type = self.scalar_type();
  check_dtype(is_wide_float(type) || type == at::kBFloat16, "rrelu_with_noise_out_cpu", type);
  TORCH_CHECK(noise.scalar_type() == type, "expected scalar type ", type, " but found ", noise.scalar_type());
  TORCH_CHECK(out.scalar_type() == type, "expected scalar type ", type, " but found ", out.scalar_type());
  // Native CPU takes the bounds in the type that it computes in, native CUDA as they are.
  const bool wide = type == at::kDouble || !backend().synchronous();
  const double from = wide ? lower.to<double>() : lower.to<float>(), to = wide ? upper.to<double>() : upper.to<float>();
  TORCH_CHECK(from <= to);
  at::native::resize_output(out, self.sizes());
  if (self.numel() == 0) return out;
  const Tensor x = self.contiguous(), r = noise.is_contiguous() ? noise : empty(noise.sizes(), type);
  const Tensor y = out.is_contiguous() ? out : empty(out.sizes(), type);
  DeviceGenerator* g = generator_or_default(generator);
  {
    const std::lock_guard lock(g->mutex_);
    random_relu_kernel(g->state, {to_dtype(type), x.numel(), from, to, x.const_data_ptr(), r.mutable_data_ptr(),
                                  y.mutable_data_ptr()});
  }
  if (!r.is_same(noise)) noise.copy_(r);
  if (!y.is_same(out)) out.copy_(y);
  return out;
}
Tensor rrelu_with_noise(const Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                        bool training, Generator generator) {
  Tensor out = at::empty_like(self, LEGACY_CONTIGUOUS_MEMORY_FORMAT);
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), out);
}
Tensor& rrelu_with_noise_(Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training,
                          Generator generator) {
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), self);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("poisson", MT_CHECKED(poisson));
  m.impl("binomial", MT_CHECKED(binomial));
  m.impl("_standard_gamma", MT_CHECKED(standard_gamma));
  m.impl("_standard_gamma_grad", MT_CHECKED(standard_gamma_grad));
  m.impl("_sample_dirichlet", MT_CHECKED(sample_dirichlet));
  m.impl("_dirichlet_grad", MT_CHECKED(dirichlet_grad));
  m.impl("rrelu_with_noise", MT_CHECKED(rrelu_with_noise));
  m.impl("rrelu_with_noise_", MT_CHECKED(rrelu_with_noise_));
  m.impl("rrelu_with_noise.out", MT_CHECKED(rrelu_with_noise_out));
}

}  // namespace
}  // namespace minitorch
