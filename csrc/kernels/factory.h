// Sequences: arange, range, linspace and logspace.
#pragma once
#include <cstdint>

#include "core/scalar.h"
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// `out` is contiguous.
struct SequenceArgs {
  char* out;
  DType dtype;
  int64_t count;
  Scalar first;
  Scalar last;  // linspace and logspace: the value at the end
  Scalar step;  // arange
  double base;  // logspace: values are base to the power of a linspace
};

// out[i] = first + i * step
extern Kernel<void(const SequenceArgs&)> arange_kernel;
// `count` values from first to last, both included; the second half counts back from `last`, so both ends are exact.
// One value alone has no step: count is not 1.
extern Kernel<void(const SequenceArgs&)> linspace_kernel;
extern Kernel<void(const SequenceArgs&)> logspace_kernel;

}  // namespace minitorch
