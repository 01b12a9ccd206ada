// Losses: pointwise ones and their gradients, negative log likelihood, and the margin losses over classes.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// X(name, functor): operands, then parameters.
#define MT_LOSS_OPS(X)                                                                    \
  X(mse_backward, MseBackward)                                 /* x, y, g; norm */        \
  X(smooth_l1_backward, SmoothL1Backward)                      /* x, y, g; norm, beta */  \
  X(huber_backward, HuberBackward)                             /* x, y, g; norm, delta */ \
  X(binary_cross_entropy, BinaryCrossEntropy)                  /* x, y */                 \
  X(binary_cross_entropy_backward, BinaryCrossEntropyBackward) /* x, y, g */

enum class LossOp : uint8_t {
#define MT_ENUM(name, functor) name,
  MT_LOSS_OPS(MT_ENUM)
#undef MT_ENUM
};

// at::Reduction has the same values.
enum class LossReduction : uint8_t { none = 0, mean = 1, sum = 2 };

// Where a kernel reports a target out of range. On the CPU it is known when the kernel returns: the first such target,
// for the kernels that say which.
struct TargetError {
  bool found = false;
  int64_t target = 0;
};

// Input [n, classes, spatial], target [n, spatial] of int64 or uint8, all contiguous. A target equal to ignore_index
// contributes nothing.
struct NllArgs {
  DType dtype, target_dtype;
  LossReduction reduction;
  int64_t n, classes, spatial;
  int64_t ignore_index;
  const void* input;  // not read by the backward kernel
  const void* target;
  const void* weight;       // [classes] or null
  void* output;             // [n, spatial] without reduction, else one element
  void* total_weight;       // one element; read by the backward kernel
  const void* grad_output;  // backward: as output
  void* grad_input;         // backward: [n, classes, spatial], all of it is written
  TargetError* error;
};

// Input [n, classes]. Multi-margin: target [n], loss = sum over i != t of max(0, margin - x[t] + x[i])^p / classes,
// times weight[t]. Multi-label: target [n, classes], a row's targets end at the first -1; loss = sum over targets t and
// non-targets i of max(0, 1 - x[t] + x[i]) / classes.
struct MarginArgs {
  DType dtype;
  LossReduction reduction;
  int64_t n, classes;
  int p;
  double margin;
  const void* input;
  const void* target;       // int64
  const void* weight;       // multi-margin: [classes] or null
  void* is_target;          // multi-label: [n, classes] of 0 and 1 in dtype, written by the forward kernel
  void* output;             // [n] without reduction, else one element
  const void* grad_output;  // backward: as output
  void* grad_input;         // backward: [n, classes], all of it is written
  TargetError* error;
};

extern Kernel<void(LossOp, const PointwiseView&, const PointwiseParams&)> loss_kernel;
// Operand k of the view (k >= 1) has an element outside [0, 1], or is NaN: *offender = the smallest such k, else 0. An
// asynchronous device says 0, and what binary_cross_entropy says of its input (1) or target (2) at the next
// synchronisation.
extern Kernel<void(const PointwiseView&, int* offender)> unit_interval_kernel;
extern Kernel<void(const NllArgs&)> nll_kernel;
extern Kernel<void(const NllArgs&)> nll_backward_kernel;
extern Kernel<void(const MarginArgs&)> multi_margin_kernel;
extern Kernel<void(const MarginArgs&)> multi_margin_backward_kernel;
extern Kernel<void(const MarginArgs&)> multilabel_margin_kernel;
extern Kernel<void(const MarginArgs&)> multilabel_margin_backward_kernel;

}  // namespace minitorch
