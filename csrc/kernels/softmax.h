// softmax and log_softmax over one dimension of contiguous tensors seen as (outer, dim, inner), and their gradients.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

enum class SoftmaxOp : uint8_t { softmax, log_softmax };

struct SoftmaxShape {
  int64_t outer, dim, inner;
};

// Elements where the mask is true are left out of the softmax and come out as 0; a slice with nothing left is NaN.
// Slice r (inner is 1) is masked by row (r / repeat) % rows of the mask; data is null when there is no mask.
struct SoftmaxMask {
  const bool* data = nullptr;
  int64_t repeat = 1, rows = 1;
};

// A contiguous operand: its memory and element type.
struct SoftmaxOperand {
  char* data;
  DType dtype;
};

extern Kernel<void(SoftmaxOp, const SoftmaxShape&, const SoftmaxOperand& output, const SoftmaxOperand& input,
                   const SoftmaxMask&)>
    softmax_kernel;
// grad_input from the gradient and the value of the output.
extern Kernel<void(SoftmaxOp, const SoftmaxShape&, const SoftmaxOperand& grad_input, const SoftmaxOperand& grad,
                   const SoftmaxOperand& output, const SoftmaxMask&)>
    softmax_backward_kernel;

}  // namespace minitorch
