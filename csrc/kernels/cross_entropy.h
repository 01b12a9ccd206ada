// Cross-entropy of class indices straight from the logits. Nothing of the logits' size is kept between the two passes
// but the logits: a row's log-sum-exp is enough to rebuild its probabilities.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// Thrown when a target is neither a class nor the ignored index.
struct TargetOutOfRange {
  int64_t target;
};

// For row i with target t, weights w (1 when there are none), W = sum of all w and smoothing s over C classes:
//   loss_i = (1 - s) w_t (lse_i - x_t) + s / C (W lse_i - sum_c w_c x_c)
// Rows whose target is ignored count for nothing.
struct CrossEntropyArgs {
  int64_t rows, classes;
  DType dtype;            // of logits, weight and grad_logits
  const char* logits;     // rows x classes, contiguous in a row
  int64_t logits_stride;  // elements from row to row
  const int64_t* target;  // rows
  int64_t target_stride;
  const char* weight;  // classes, contiguous, or null
  int64_t ignore_index;
  double smoothing;
  // Contiguous, float (double for double logits):
  char* lse;           // rows
  char* total_weight;  // one element: the sum of w_t over the rows that count
};

enum class LossReduction : uint8_t { none, mean, sum };

// `loss` is of the logits' dtype: a contiguous row of losses, or one element.
extern Kernel<void(const CrossEntropyArgs&, LossReduction, char* loss)> cross_entropy_kernel;
// grad_logits (rows x classes, contiguous) from grad_loss, of the logits' dtype, with `grad_stride` elements between
// rows.
extern Kernel<void(const CrossEntropyArgs&, LossReduction, const char* grad_loss, int64_t grad_stride,
                   char* grad_logits)>
    cross_entropy_backward_kernel;

}  // namespace minitorch
