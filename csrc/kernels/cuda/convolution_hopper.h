// Convolutions on Hopper's matrix units. False where the device, the build or the shape is not for it.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// Pixels in memory, channels together. Strides in elements, multiples of 16 bytes. Pairs are (height, width).
struct HopperImage {
  const void* data;
  int64_t channels;  // there are
  int64_t size[2];
  int64_t sample, row, pixel, channel = 1;  // strides
};

// A window that slides over an image, and what its positions give:
//   output[position][c] = sum over taps and channels of weight[c][tap][channel] source[position * stride +
//   ...][channel]
struct HopperConvolution {
  DType dtype;
  int64_t samples;
  HopperImage input, output;
  int64_t kernel[2], padding[2], stride[2], dilation[2];
};

bool conv_hopper_usable();
// Writes `output`, from the input and weight [output channels][tap][depth]; or, backward, the input, from the output
// and weight [input channels][tap][depth]. depth: the channels that are read, rounded up to 128 bytes.
bool conv_hopper_pixels(const HopperConvolution& c, bool backward, const void* weight, bool turned, int64_t depth,
                        char* bias, int64_t bias_stride);

// The gradient of the weight, as sums of parts: [part][tap][depth][plan.channels]. Of floats, which are rounded to
// tf32, the output may lie in any way.
struct HopperWeightPlan {
  int columns;
  int64_t parts, per_part;  // of positions
  int64_t channels;         // of the output, rounded up
};
HopperWeightPlan conv_hopper_weight_plan(const HopperConvolution& c, int64_t depth);
bool conv_hopper_weights(const HopperConvolution& c, int64_t depth, const HopperWeightPlan& plan, float* partial);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
