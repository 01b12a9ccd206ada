// Reductions: every output element combines the input elements of one slice.
//
// The view has the outputs first and the one input last; a dimension is reduced when the outputs' stride there is 0
// (the bridge takes it from a reducing TensorIterator). Neither the outputs nor the reduced extent are empty. Elements
// are converted to the view's compute dtype (for sums and products: to the output's dtype) while they are read; 16-bit
// floats are accumulated in float, integers in int64.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

enum class ReduceOp : uint8_t {
  sum,
  nansum,  // NaN counts as 0
  mean,
  prod,
  count_nonzero,
  any,
  all,
  max,  // NaN if there is one, as in all operators of this family
  min,
  aminmax,    // two outputs: minimum, maximum
  max_index,  // two outputs: maximum and the index of its first occurrence
  min_index,
  argmax,  // the index alone
  argmin,
  norm,       // (sum |x|^p)^(1/p), with the limits for p = 0, inf and -inf
  power_sum,  // sum |x|^p
  var,        // one output: the variance; two outputs: variance and mean
  std,
};

const char* name_of(ReduceOp op);

struct ReduceParams {
  double p = 2;           // norm
  double correction = 1;  // var, std: subtracted from the number of elements in the divisor
};

extern Kernel<void(ReduceOp, const PointwiseView&, const ReduceParams&)> reduce_kernel;

}  // namespace minitorch
