// Sampling an image at the points of a grid, in two or three dimensions (torch.nn.functional.grid_sample; M. Jaderberg
// et al., "Spatial Transformer Networks", arXiv:1506.02025).
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/kernel.h"

namespace minitorch {

enum class GridInterpolation : uint8_t { linear, nearest, cubic };
enum class GridPadding : uint8_t { zeros, border, reflection };

struct GridSampleArgs {
  DType dtype;
  int dims;  // 2 or 3
  GridInterpolation interpolation;
  GridPadding padding;
  bool align_corners;
  int64_t n, c;
  int64_t in[3], out[3];  // depth, height, width; depth is 1 in two dimensions
  const void* x;          // [n, c, in...], strides in elements
  int64_t x_n, x_c, x_strides[3];
  const void* grid;  // [n, out..., dims] contiguous: coordinates from -1 to 1, the last dimension's first
  void* y;           // [n, c, out...] contiguous
  // Backward reads dy in place of y; dx ([n, c, in...]) and dgrid (laid out as grid) are contiguous and wholly written.
  // Either may be null.
  const void* dy;
  void* dx;
  void* dgrid;
};

extern Kernel<void(const GridSampleArgs&)> grid_sample_kernel;
extern Kernel<void(const GridSampleArgs&)> grid_sample_backward_kernel;

}  // namespace minitorch
