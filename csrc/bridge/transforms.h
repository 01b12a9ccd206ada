// What PyTorch's function transforms want of operators that they cannot look into.
#pragma once
#include <ATen/core/Tensor.h>

namespace minitorch {

// True inside a transform of functorch (vmap, grad, jvp).
bool in_transform();

// True if a tensor carries a forward-mode tangent.
inline bool has_tangent(const at::Tensor& t) { return t.defined() && t._fw_grad(/*level=*/0).defined(); }

}  // namespace minitorch
