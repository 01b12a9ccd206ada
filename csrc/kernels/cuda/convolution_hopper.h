// Convolutions on Hopper's matrix units. False where the device, the build or the shape is not for it.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// A window that slides over a source image. Pairs are (height, width).
struct HopperConvolution {
  DType dtype;
  const void* source;  // [sample][source_size][pitch]
  int64_t samples, source_size[2], pitch;
  int64_t grid[2];  // positions of the window
  int kernel[2], padding[2], step[2], dilation[2];
  int64_t depth;  // channels, rounded up to 128 bytes
  int64_t channels;
  // Over pixels: the weight, [channels][tap][depth]. Over weights: the gradient, [sample][grid][other_pitch].
  const void* other;
  int64_t other_pitch;
  bool reversed;  // the window's first tap meets the weight's last
  char* result;   // over pixels: [sample][grid][channels]
  char* bias;     // or null
  int64_t bias_stride;
};

bool conv_hopper_usable();
// result[position][c] = sum over taps and channels of weight times source.
bool conv_hopper_pixels(const HopperConvolution& c);
// partial[part][c][tap][depth] = sum over the part's positions of gradient times source; 16-bit floats.
bool conv_hopper_weights(const HopperConvolution& c, int64_t parts, int64_t per_part, float* partial);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
