// Autocast: which operators run in the lower precision, which in float, which in the widest type of their inputs.
//
// Native has two sets of categories. Ours are those for CUDA, whatever the backend: a model has the same dtypes on the
// CPU as on a GPU, and softmax, norms and exponentials are computed in float (on native CPU they keep 16 bits; there
// mv, addr, einsum of vectors, bilinear and the cells of recurrent layers are what stays in float). Where the CPU
// stands in for native's, the operators that CUDA leaves alone are cast as on native CPU: most of them (decompositions,
// FFTs, quantiles) have no 16-bit kernels there, and binary_cross_entropy, which CUDA bans, runs in float.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>

#include "bridge/tensor.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

// As binary_cross_entropy(self, target, weight, reduction).
at::Tensor binary_cross_entropy(const at::Tensor& self, const at::Tensor& target,
                                const std::optional<at::Tensor>& weight, int64_t reduction) {
  TORCH_CHECK(backend().synchronous(),
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
              "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
              "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
              "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
              "safe to autocast.");
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  const auto wide = [](const at::Tensor& t) { return at::autocast::cached_cast(at::kFloat, t, kDevice); };
  return at::binary_cross_entropy(wide(self), wide(target), weight ? std::optional(wide(*weight)) : weight, reduction);
}

// Calls f with every tensor among the last arguments on the stack, by reference.
template <class F>
void each_tensor(const c10::FunctionSchema& schema, torch::jit::Stack& stack, const F& f) {
  for (size_t i = stack.size() - schema.arguments().size(); i < stack.size(); i++) {
    c10::IValue& argument = stack[i];
    if (argument.isTensor()) {
      at::Tensor tensor = argument.toTensor();
      if (tensor.defined()) argument = f(tensor);
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& t : argument.toTensorVector()) tensors.push_back(f(t));
      argument = tensors;
    }
  }
}

bool promotes_on_cpu(const std::string& name) {
  return name == "aten::cat" || name == "aten::stack" || name == "aten::index_copy";
}
// In the lower precision: what these are made of has a category of its own.
bool is_made_of_others(const std::string& name) {
  constexpr std::string_view names[] = {"aten::conv1d",
                                        "aten::conv2d",
                                        "aten::conv3d",
                                        "aten::_addmm_activation",
                                        "aten::_native_multi_head_attention",
                                        "aten::mkldnn_rnn_layer"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

void as_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  constexpr c10::DispatchKey autocast = c10::DispatchKey::AutocastPrivateUse1;
  if (!backend().synchronous())  // what the operator is made of is cast
    return op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, autocast), stack);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(autocast);
  at::ScalarType type = at::kFloat;
  if (promotes_on_cpu(op.schema().name())) {
    type = at::autocast::get_autocast_dtype(kDevice);
    each_tensor(op.schema(), *stack, [&](const at::Tensor& t) {
      if (t.is_floating_point()) type = at::promote_types(type, t.scalar_type());
      return t;
    });
  }
  each_tensor(op.schema(), *stack, [&](const at::Tensor& t) { return at::autocast::cached_cast(type, t, kDevice); });
  op.callBoxed(stack);
}

}  // namespace
}  // namespace minitorch

// The macros name things relative to these namespaces.
namespace at::autocast {
namespace {

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define MT_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(MT_LOWER_PRECISION)
#define MT_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(MT_FP32)
  // Native's composite takes log_softmax, which is in the list below; ours is one operator.
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)
#define MT_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(MT_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define MT_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(MT_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(minitorch::binary_cross_entropy));
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0 || minitorch::is_made_of_others(name.name)) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::AutocastPrivateUse1))
      continue;
    m.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&minitorch::as_on_cpu>());
  }
}

}  // namespace
}  // namespace at::autocast
