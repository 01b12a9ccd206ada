// Normalisation: layer norm and RMS norm over rows, batch norm over channels, group norm over groups of channels.
// Inputs are dense: rows of `cols` elements, or [n, c, spatial] (channels_last: [n, spatial, c]). 16-bit inputs compute
// in float. Pointers to parameters and gradients may be null where the comment says so; then they are not used.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/kernel.h"

namespace minitorch {

// y = (x - mean) * rstd * weight + bias over each row, rstd = 1 / sqrt(var + eps).
// RMS norm is the same with mean = 0: then `mean` is null and `centered` false.
struct LayerNormArgs {
  DType dtype;        // of x and y
  DType param_dtype;  // of weight and bias
  DType stat_dtype;   // of mean and rstd
  bool centered;
  int64_t rows, cols;
  double eps;
  const void* x;
  const void* weight;  // [cols] or null
  const void* bias;    // [cols] or null
  void* y;
  void* mean;  // [rows]
  void* rstd;  // [rows]
};

struct LayerNormBackwardArgs {
  DType dtype, param_dtype, stat_dtype;
  bool centered;
  int64_t rows, cols;
  const void* dy;
  const void* x;
  const void* weight;  // or null
  const void* mean;
  const void* rstd;
  void* dx;       // or null
  void* dweight;  // or null
  void* dbias;    // or null
};

struct BatchNormArgs {
  DType dtype;        // of x and y
  DType param_dtype;  // of everything that has one element a channel
  bool channels_last;
  bool training;       // normalise with the batch's own statistics, and update the running ones
  bool save_variance;  // save_invstd receives the biased variance instead
  int64_t n, c, spatial;
  double momentum, eps;
  const void* x;
  const void* weight;  // or null
  const void* bias;    // or null
  void* running_mean;  // or null in training
  void* running_var;
  void* save_mean;  // training only
  void* save_invstd;
  void* y;  // null: statistics only
};

struct BatchNormBackwardArgs {
  DType dtype, param_dtype;
  bool channels_last;
  bool training;
  int64_t n, c, spatial;
  double eps;
  const void* dy;
  const void* x;
  const void* weight;  // or null
  const void* mean;    // of the batch in training, the running ones otherwise
  const void* stat;    // 1 / sqrt(var + eps) in training, the running variance otherwise
  void* dx;            // or null
  void* dweight;       // or null
  void* dbias;         // or null
};

struct GroupNormArgs {
  DType dtype, param_dtype, stat_dtype;
  bool channels_last;
  int64_t n, c, spatial, groups;
  double eps;
  const void* x;
  const void* weight;  // or null
  const void* bias;    // or null
  void* y;
  void* mean;  // [n, groups]
  void* rstd;  // [n, groups]
};

struct GroupNormBackwardArgs {
  DType dtype, param_dtype, stat_dtype;
  bool channels_last;
  int64_t n, c, spatial, groups;
  const void* dy;
  const void* x;
  const void* weight;  // or null
  const void* mean;
  const void* rstd;
  void* dx;       // or null
  void* dweight;  // or null
  void* dbias;    // or null
};

extern Kernel<void(const LayerNormArgs&)> layer_norm_kernel;
extern Kernel<void(const LayerNormBackwardArgs&)> layer_norm_backward_kernel;
extern Kernel<void(const BatchNormArgs&)> batch_norm_kernel;
extern Kernel<void(const BatchNormBackwardArgs&)> batch_norm_backward_kernel;
extern Kernel<void(const GroupNormArgs&)> group_norm_kernel;
extern Kernel<void(const GroupNormBackwardArgs&)> group_norm_backward_kernel;

}  // namespace minitorch
