// Connectionist temporal classification (A. Graves et al., "Connectionist temporal classification: labelling
// unsegmented sequence data with recurrent neural networks", ICML 2006; equation numbers below are theirs).
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/kernel.h"

namespace minitorch {

// A sample's extended target is its labels with blanks before, between and after: 2 S + 1 states for S labels.
struct CtcArgs {
  DType dtype;
  DType label_dtype;  // int32 or int64
  int64_t time, batch, classes, blank;
  int64_t states;         // of the longest target
  const void* log_probs;  // [time, batch, classes], strides in elements
  int64_t strides[3];
  const void* labels;
  const int64_t* label_offsets;  // host memory: where a sample's labels begin; the next one is label_stride further
  int64_t label_stride;
  const int64_t* input_lengths;  // host memory
  const int64_t* target_lengths;
  void* loss;       // [batch]
  void* log_alpha;  // [batch, time, states] contiguous
  // Backward reads loss and log_alpha and the gradient of the loss, and writes all of dx [time, batch, classes],
  // contiguous.
  const void* dloss;
  int64_t dloss_stride;
  void* dx;
  bool zero_infinity;
  // On the CPU: whether a label lay outside [0, classes), known when the kernel returns.
  bool* failed;
};

extern Kernel<void(const CtcArgs&)> ctc_loss_kernel;
extern Kernel<void(const CtcArgs&)> ctc_loss_backward_kernel;

}  // namespace minitorch
