// Reductions of tensors: from aten's arguments to the kernel's view.
#pragma once
#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include "kernels/reduce.h"

namespace minitorch {

// Reduces `self` over `dims` (none or empty: all) into outputs that have their final shape, as if `self` had been
// converted to `dtype` first. The second output may be undefined. Nothing may be empty.
void reduce(ReduceOp op, const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, at::ScalarType dtype,
            const ReduceParams& params, const at::Tensor& out, const at::Tensor& out2 = {});

// What a search for the largest number of a floating or integral dtype begins with, or the smallest.
at::Scalar extremum_of_nothing(bool max, at::ScalarType type);

// Native's error for outputs that share some of the input's memory. The input itself is an output that native takes.
inline void assert_no_shared_part(const at::Tensor& self, const at::Tensor& values, const at::Tensor& indices) {
  for (const at::Tensor* out : {&values, &indices})
    if (!out->is_same(self)) at::assert_no_partial_overlap(*out, self);
}

}  // namespace minitorch
