// Distances between the rows of two matrices (cdist) and between all pairs of rows of one (pdist), with gradients.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/kernel.h"

namespace minitorch {

// x1 [batch, r1, m], x2 [batch, r2, m], all contiguous: distance [batch, r1, r2] is the p-norm of the rows' difference;
// p may be 0 (elements that differ) or infinite.
struct DistanceArgs {
  DType dtype;
  int64_t batch, r1, r2, m;
  double p;
  const void* x1;
  const void* x2;
  void* distance;
  // Backward reads distance and dy, of its shape, and writes all of dx1.
  const void* dy;
  void* dx1;
};

extern Kernel<void(const DistanceArgs&)> cdist_kernel;
extern Kernel<void(const DistanceArgs&)> cdist_backward_kernel;
// The pairs of rows of x1 in the order (0, 1), (0, 2), ..., (1, 2), ...; batch is 1 and x2 is not used.
extern Kernel<void(const DistanceArgs&)> pdist_kernel;
extern Kernel<void(const DistanceArgs&)> pdist_backward_kernel;

}  // namespace minitorch
