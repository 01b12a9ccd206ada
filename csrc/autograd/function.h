// What our differentiable Functions share. Each stands in for a composite aten operator (linear, dropout, ...): its
// entry is registered at AutogradPrivateUse1 and calls operators of the namespace minitorch, which have Meta kernels
// and are themselves in the dispatcher, so torch.compile sees and traces them.
//
// A C++ Function cannot run inside functorch's transforms (vmap, grad, jvp) and knows nothing of forward-mode tangents;
// there the entry steps aside and calls PyTorch's composite, which is differentiated operator by operator.
//
// Where no gradient arrives none leaves, as with native's nodes (zeros would let an optimizer decay a parameter that
// had no part in the loss): Functions do not have gradients materialised, and return undefined ones for undefined ones.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "bridge/transforms.h"

namespace minitorch {

template <class... T>
bool steps_aside(const T&... tensors) {
  return in_transform() || (has_tangent(tensors) || ...);
}

// A handle to the dispatcher operator minitorch::name.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace minitorch
