// Random operators: PyTorch's own checks and composites, our engine and distributions behind its stubs.
#include <mutex>
#include <set>
#include <string>

#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/cauchy_native.h>
#include <ATen/ops/exponential_native.h>
#include <ATen/ops/geometric_native.h>
#include <ATen/ops/is_nonzero_native.h>
#include <ATen/ops/log_normal_native.h>
#include <ATen/ops/multinomial_native.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/random_native.h>
#include <ATen/ops/uniform_native.h>

#include "bridge/checked.h"
#include "bridge/generator.h"
#include "bridge/iterator.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/index.h"
#include "kernels/random.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

using Generator = std::optional<at::Generator>;

// Native's message for a dtype that its dispatch macro does not list.
void check_dtype(bool supported, const char* name, at::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(supported, '"', name, "\" not implemented for '", toString(type), "'");
}
bool is_number(at::ScalarType t) { return at::isFloatingType(t) || at::isIntegralType(t, /*includeBool=*/false); }
bool is_barebones_unsigned(at::ScalarType t) {
  return t == at::ScalarType::UInt16 || t == at::ScalarType::UInt32 || t == at::ScalarType::UInt64;
}

void draw(at::TensorIteratorBase& iter, const Generator& generator, Distribution d, const DistributionParams& params) {
  DeviceGenerator* g = generator_or_default(generator);
  const std::lock_guard lock(g->mutex_);
  distribution_kernel(g->state, d, view_of(iter), params);
}

void uniform(at::TensorIteratorBase& iter, double from, double to, Generator g) {
  draw(iter, g, Distribution::uniform, {.a = from, .b = to});
}

void normal(const at::TensorBase& self, double mean, double std, Generator generator) {
  check_dtype(at::isFloatingType(self.scalar_type()), "normal_kernel_cpu", self.scalar_type());
  if (self.numel() >= 16 && self.is_contiguous()) {
    DeviceGenerator* g = generator_or_default(generator);
    const std::lock_guard lock(g->mutex_);
    check_allocated(self);
    normal_fill_kernel(g->state, static_cast<char*>(self.data_ptr()), to_dtype(self.scalar_type()), self.numel(), mean,
                       std);
  } else {
    auto iter = at::TensorIterator::borrowing_nullary_op(self);
    draw(iter, generator, Distribution::normal, {.a = mean, .b = std});
  }
}

void log_normal(at::TensorIteratorBase& iter, double mean, double std, Generator g) {
  check_dtype(at::isFloatingType(iter.dtype()), "log_normal_cpu", iter.dtype());
  draw(iter, g, Distribution::log_normal, {.a = mean, .b = std});
}

void cauchy(at::TensorIteratorBase& iter, double median, double sigma, Generator g) {
  draw(iter, g, Distribution::cauchy, {.a = median, .b = sigma});
}

void exponential(at::TensorIteratorBase& iter, double lambda, Generator g) {
  TORCH_CHECK(at::isFloatingType(iter.dtype()),
              "Exponential distribution is a continuous probability distribution. dtype must be a floating point but "
              "you specified ",
              iter.dtype());
  draw(iter, g, Distribution::exponential, {.a = lambda});
}

void geometric(at::TensorIteratorBase& iter, double p, Generator g) {
  check_dtype(is_number(iter.dtype()) && !is_barebones_unsigned(iter.dtype()), "geometric_cpu", iter.dtype());
  draw(iter, g, Distribution::geometric, {.a = p});
}

void check_bernoulli_dtype(const at::TensorBase& self, const char* name) {
  const auto type = self.scalar_type();
  check_dtype((is_number(type) && !is_rare_or_float8(type)) || type == at::kBool, name, type);
}

void bernoulli_scalar(const at::TensorBase& self, double p, Generator g) {
  check_bernoulli_dtype(self, "bernoulli_scalar_cpu_");
  auto iter = at::TensorIterator::borrowing_nullary_op(self);
  draw(iter, g, Distribution::bernoulli, {.a = p});
}

void bernoulli_tensor(const at::TensorBase& self, const at::TensorBase& p, Generator generator) {
  check_bernoulli_dtype(self, "bernoulli_tensor_cpu_self_");
  check_dtype(at::isFloatingType(p.scalar_type()), "bernoulli_tensor_cpu_p_", p.scalar_type());
  const at::Tensor probability = at::Tensor(p).to(self.device()).expand(self.sizes());
  if (!backend().synchronous() && !self.is_contiguous() && self.strides() != probability.strides()) {
    // Native CUDA numbers the elements in their logical order unless both operands lie alike.
    const at::Tensor dense = at::empty(self.sizes(), self.options());
    bernoulli_tensor(dense, probability, generator);
    at::Tensor(self).copy_(dense);
    return;
  }
  auto iter =
      at::TensorIteratorConfig().add_output(self).add_const_input(probability).check_all_same_dtype(false).build();
  DeviceGenerator* g = generator_or_default(generator);
  const std::lock_guard lock(g->mutex_);
  bernoulli_tensor_kernel(g->state, view_of(iter));
}

void random_integers(at::TensorIteratorBase& iter, Generator g) {
  check_dtype((is_number(iter.dtype()) && !is_barebones_unsigned(iter.dtype())) || iter.dtype() == at::kBool,
              "random_kernel_cpu", iter.dtype());
  draw(iter, g, Distribution::integers, {});
}

void random_range(at::TensorIteratorBase& iter, uint64_t range, int64_t base, Generator g) {
  check_dtype(is_number(iter.dtype()) || iter.dtype() == at::kBool, "random_from_to_kernel_cpu", iter.dtype());
  draw(iter, g, Distribution::integers_range, {.range = range, .base = base});
}

void random_full(at::TensorIteratorBase& iter, Generator g) {
  const auto type = iter.dtype();
  TORCH_CHECK(type == at::kLong || type == at::kDouble || type == at::kFloat || type == at::kBFloat16,
              "random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16");
  draw(iter, g, Distribution::integers_full, {});
}

void multinomial_with_replacement(at::Tensor& result, const at::Tensor& weights, int64_t samples, Generator generator) {
  if (result.numel() == 0) return;
  const at::Tensor rows = weights.dim() == 1 ? weights.unsqueeze(0) : weights;
  const at::Tensor out = result.view({rows.size(0), samples});
  DeviceGenerator* g = generator_or_default(generator);
  const std::lock_guard lock(g->mutex_);
  multinomial_kernel(g->state, view_of(out), view_of(rows));
}

// A device reads a message when the call that gave it is long over: each one is kept, once.
const char* kept(std::string_view message) {
  static std::mutex mutex;
  static auto& all = *new std::set<std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  const auto found = all.find(message);
  return (found != all.end() ? found : all.emplace(message).first)->c_str();
}

// multinomial's composite checks its weights with these.
void assert_nonzero_with(const at::Tensor& self, std::string_view message) {
  if (message.empty()) message = "Assertion is failed";
  if (backend().synchronous()) {
    TORCH_CHECK(at::native::is_nonzero(self), message);
    return;
  }
  TORCH_CHECK(self.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(self.numel() == 1, "Boolean value of Tensor with more than one value is ambiguous");
  check_allocated(self);
  expect_nonzero_kernel(static_cast<const char*>(self.const_data_ptr()), to_dtype(self.scalar_type()), kept(message));
}
void assert_nonzero(const at::Tensor& self) {
  assert_nonzero_with(self, "Expected Tensor with single nonzero value, but got zero");
}

at::Tensor& randperm_out(int64_t n, Generator generator, at::Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(!generator.has_value() || generator->device() == result.device(), "Expected a '", result.device(),
              "' generator device but found '", generator.has_value() ? generator->device() : result.device(), "'");
  at::native::check_supported_max_int_with_precision(n, result);
  const auto type = result.scalar_type();
  check_dtype(is_number(type) && !is_barebones_unsigned(type), "randperm", type);
  result.resize_({n});
  if (n == 0) return result;
  DeviceGenerator* g = generator_or_default(generator);
  const std::lock_guard lock(g->mutex_);
  randperm_kernel(g->state, view_of(result));
  return result;
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(uniform_stub, &minitorch::uniform)
REGISTER_PRIVATEUSE1_DISPATCH(normal_stub, &minitorch::normal)
REGISTER_PRIVATEUSE1_DISPATCH(log_normal_stub, &minitorch::log_normal)
REGISTER_PRIVATEUSE1_DISPATCH(cauchy_stub, &minitorch::cauchy)
REGISTER_PRIVATEUSE1_DISPATCH(exponential_stub, &minitorch::exponential)
REGISTER_PRIVATEUSE1_DISPATCH(geometric_stub, &minitorch::geometric)
REGISTER_PRIVATEUSE1_DISPATCH(bernoulli_scalar_stub, &minitorch::bernoulli_scalar)
REGISTER_PRIVATEUSE1_DISPATCH(bernoulli_tensor_stub, &minitorch::bernoulli_tensor)
REGISTER_PRIVATEUSE1_DISPATCH(random_stub, &minitorch::random_integers)
REGISTER_PRIVATEUSE1_DISPATCH(random_from_to_stub, &minitorch::random_range)
REGISTER_PRIVATEUSE1_DISPATCH(random_full_64_bits_range_stub, &minitorch::random_full)
REGISTER_PRIVATEUSE1_DISPATCH(multinomial_with_replacement_stub, &minitorch::multinomial_with_replacement)
}  // namespace at::native

namespace minitorch {
namespace {

using G = std::optional<at::Generator>;

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("uniform_", MT_CHECKED(at::native::uniform_));
  m.impl("normal_", MT_CHECKED(at::native::normal_));
  m.impl("log_normal_", MT_CHECKED(at::native::log_normal_));
  m.impl("cauchy_", MT_CHECKED(at::native::cauchy_));
  m.impl("exponential_", MT_CHECKED(at::native::exponential_));
  m.impl("geometric_", MT_CHECKED(at::native::geometric_));
  m.impl("bernoulli_.float", MT_CHECKED(static_cast<at::Tensor& (*)(at::Tensor&, double, G)>(at::native::bernoulli_)));
  m.impl("bernoulli_.Tensor",
         MT_CHECKED(static_cast<at::Tensor& (*)(at::Tensor&, const at::Tensor&, G)>(at::native::bernoulli_)));
  m.impl("bernoulli.out", MT_CHECKED(at::native::bernoulli_out));
  m.impl("random_", MT_CHECKED(static_cast<at::Tensor& (*)(at::Tensor&, G)>(at::native::random_)));
  m.impl("random_.to", MT_CHECKED(static_cast<at::Tensor& (*)(at::Tensor&, int64_t, G)>(at::native::random_)));
  m.impl(
      "random_.from",
      MT_CHECKED(static_cast<at::Tensor& (*)(at::Tensor&, int64_t, std::optional<int64_t>, G)>(at::native::random_)));
  m.impl("normal.Tensor_float",
         MT_CHECKED(static_cast<at::Tensor (*)(const at::Tensor&, double, G)>(at::native::normal)));
  m.impl("normal.float_Tensor",
         MT_CHECKED(static_cast<at::Tensor (*)(double, const at::Tensor&, G)>(at::native::normal)));
  m.impl("normal.Tensor_Tensor",
         MT_CHECKED(static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&, G)>(at::native::normal)));
  m.impl("normal.Tensor_float_out",
         MT_CHECKED(static_cast<at::Tensor& (*)(const at::Tensor&, double, G, at::Tensor&)>(at::native::normal_out)));
  m.impl("normal.float_Tensor_out",
         MT_CHECKED(static_cast<at::Tensor& (*)(double, const at::Tensor&, G, at::Tensor&)>(at::native::normal_out)));
  m.impl("normal.Tensor_Tensor_out",
         MT_CHECKED(static_cast<at::Tensor& (*)(const at::Tensor&, const at::Tensor&, G, at::Tensor&)>(
             at::native::normal_out)));
  m.impl("_assert_async", MT_CHECKED(assert_nonzero));
  m.impl("_assert_async.msg", MT_CHECKED(assert_nonzero_with));
  m.impl("multinomial", MT_CHECKED(at::native::multinomial));
  m.impl("multinomial.out", MT_CHECKED(at::native::multinomial_out));
  m.impl("randperm.generator_out", TORCH_FN(randperm_out));
}

}  // namespace
}  // namespace minitorch
