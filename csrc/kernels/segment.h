// Reductions over consecutive segments of one dimension (torch.segment_reduce), with their gradient.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/kernel.h"

namespace minitorch {

enum class SegmentReduction : uint8_t { max, mean, min, sum, prod };

// data [outer, length, inner], result [outer, segments, inner]. Segment s of outer index o covers [bounds[s],
// bounds[s + 1]) of the row of `bounds` that belongs to o; all contiguous.
struct SegmentArgs {
  DType dtype;
  SegmentReduction reduction;
  int64_t outer, length, inner, segments;
  const int64_t* bounds;  // [outer, segments + 1], host memory on the CPU backend
  bool has_initial;
  double initial;
  const void* data;
  void* result;
  // Backward reads result and its gradient, and writes all of ddata.
  const void* dresult;
  void* ddata;
};

extern Kernel<void(const SegmentArgs&)> segment_reduce_kernel;
extern Kernel<void(const SegmentArgs&)> segment_reduce_backward_kernel;

// bounds from lengths or offsets (int32 or int64, contiguous, [outer, count]); *failed is set when a segment is
// negative or ends beyond `length`.
struct SegmentBoundsArgs {
  DType dtype;
  bool from_lengths;
  int64_t outer, count, length;
  const void* source;
  int64_t* bounds;
  bool* failed;
};
extern Kernel<void(const SegmentBoundsArgs&)> segment_bounds_kernel;

}  // namespace minitorch
