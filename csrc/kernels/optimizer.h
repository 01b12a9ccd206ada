// Fused optimizer steps: every parameter of a list updated in one pass over its memory.
#pragma once
#include <vector>

#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// One parameter with its gradient and state, all of one dtype and memory order. Unused states are null.
struct OptimizerItem {
  int64_t numel;
  char* param;
  char* grad;
  char* state[3];
  const float* step;  // how many steps, this one included
};

struct OptimizerParams {
  double lr = 0, weight_decay = 0, eps = 0;
  const double* lr_on_device = nullptr;  // replaces lr; only for a device that the host does not share memory with
  double beta1 = 0, beta2 = 0;           // Adam
  double momentum = 0, dampening = 0;    // SGD
  double lr_decay = 0;                   // Adagrad
  bool decoupled_decay = false;          // AdamW: decay the parameter, not the gradient
  bool amsgrad = false, nesterov = false, first_step = false, maximize = false;
  const float* grad_scale = nullptr;  // gradients are divided by it, in place
  const float* found_inf = nullptr;   // nothing happens when it is 1
};

// States: exponential averages of the gradient and of its square, and the largest of the latter with amsgrad.
// D. Kingma, J. Ba, "Adam", ICLR 2015; I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019.
extern Kernel<void(const std::vector<OptimizerItem>&, DType, const OptimizerParams&)> fused_adam_kernel;
// State: the momentum buffer, if momentum is not 0.
extern Kernel<void(const std::vector<OptimizerItem>&, DType, const OptimizerParams&)> fused_sgd_kernel;
// State: the sum of squared gradients. J. Duchi et al., "Adaptive subgradient methods", JMLR 2011.
extern Kernel<void(const std::vector<OptimizerItem>&, DType, const OptimizerParams&)> fused_adagrad_kernel;

}  // namespace minitorch
