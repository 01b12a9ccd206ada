// Resampling an image to another size along one to three spatial dimensions: torch.nn.functional.interpolate. Every
// mode is separable: along an axis each output is a weighted sum of a few inputs, its taps.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/kernel.h"

namespace minitorch {

// The _aa modes widen their filter when they shrink an image (antialiasing).
enum class ResampleMode : uint8_t { nearest, nearest_exact, linear, cubic, linear_aa, cubic_aa, lanczos_aa };

struct ResampleAxis {
  int64_t in, out;
  double scale;  // output size / input size as the caller gave it; 0 or less: taken from the sizes
  bool present;  // false for a dimension that the operator lacks
};

struct ResampleArgs {
  DType dtype;
  ResampleMode mode;
  bool align_corners;
  // Nearest modes: the source index in single precision with shortcuts for ratios 1 and 2, as native's channels-last
  // kernel and its gradients have it.
  bool nearest_shortcut;
  bool channels_last;  // [n, spatial..., c], else [n, c, spatial...]
  bool backward;       // x is the gradient of the output and y that of the input; axes stay those of the forward call
  int64_t n, c;
  ResampleAxis axis[3];  // depth, height, width
  const void* x;
  void* y;  // all of it is written
};

extern Kernel<void(const ResampleArgs&)> resample_kernel;

}  // namespace minitorch
