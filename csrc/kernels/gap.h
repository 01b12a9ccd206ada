// How far two results of one operator lie apart: what minitorch_backend.compare asks of every call, in one pass.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/kernel.h"

namespace minitorch {

// Distances are NaN or infinite where such values are about; whoever asks decides what they mean.
struct Gap {
  double steps = 0;  // largest |difference| of the bits as signed integers of the same width, which may wrap
  double span = 0;   // largest |a - b|
  double scale = 0;  // largest |b|
};

struct GapArgs {
  DType dtype;  // F16, BF16, F32 or F64
  const void* a;
  const void* b;  // as long and as contiguous as a
  int64_t n;
  Gap* gap;  // out
};

// Host memory only: the CPU's slots.
extern Kernel<void(const GapArgs&)> gap_kernel;

}  // namespace minitorch
