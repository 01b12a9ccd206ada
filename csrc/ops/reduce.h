// Reductions of tensors: from aten's arguments to the kernel's view.
#pragma once
#include <ATen/ATen.h>

#include "kernels/reduce.h"

namespace minitorch {

// Reduces `self` over `dims` (none or empty: all) into outputs that have their final shape, as if `self` had been
// converted to `dtype` first. The second output may be undefined. Nothing may be empty.
void reduce(ReduceOp op, const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, at::ScalarType dtype,
            const ReduceParams& params, const at::Tensor& out, const at::Tensor& out2 = {});

}  // namespace minitorch
