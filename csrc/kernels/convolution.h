// Convolution in 1 to 3 dimensions and its gradients, all in terms of one relation between three tensors:
//
//   output[n, o, p] = sum over i, t of weight[o, i, t] * input[n, g * I + i, p * stride - padding + t * dilation]
//
// where g is the group of o and I the input channels of a group. A transposed convolution is the gradient of this
// relation with respect to its input, so three kernels serve both kinds, forward and backward.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// Strides in elements: (batch, channel, depth, height, width); for weights (output, input, depth, height, width).
struct ConvTensor {
  char* data = nullptr;
  int64_t strides[5] = {};
};

// Convolutions of fewer dimensions have leading spatial sizes of 1.
struct ConvArgs {
  DType dtype = DType::F32;
  int64_t batch = 0, groups = 1;
  int64_t in_channels = 0, out_channels = 0;  // of all groups together
  int64_t in_size[3] = {1, 1, 1}, out_size[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  ConvTensor input, weight, output;
  // Added to what a kernel writes, one value a channel; null for none. Not used by the weight gradient.
  char* bias = nullptr;
  int64_t bias_stride = 1;
  bool tf32 = false;  // float factors may be rounded to tf32 (10 bits of mantissa)
};

// Whether every position meets the one at its place, as in a product. (With output padding the larger side of a window
// of one element has positions that meet nothing.)
inline bool is_pointwise(const ConvArgs& a) {
  for (int d = 0; d < 3; d++)
    if (a.kernel[d] != 1 || a.stride[d] != 1 || a.padding[d] != 0 || a.in_size[d] != a.out_size[d]) return false;
  return true;
}

enum class ConvPass { forward, backward_input, backward_weight };

// What a pass has to do for positions [begin, end) along spatial dimension d of the output or, for the gradient of the
// input, of the input: a convolution over those and over the part of the other tensor that they meet. The weight's
// gradient is the sum of those of all parts.
ConvArgs part_of(ConvPass pass, const ConvArgs& a, int d, int64_t begin, int64_t end);

extern Kernel<void(const ConvArgs&)> conv_forward_kernel;          // writes output
extern Kernel<void(const ConvArgs&)> conv_backward_input_kernel;   // writes input, from output and weight
extern Kernel<void(const ConvArgs&)> conv_backward_weight_kernel;  // writes weight, from input and output

// The relation above as nested loops, for tests: `which` is 0, 1 or 2 in the order of the kernels.
extern Kernel<void(int which, const ConvArgs&)> conv_reference_kernel;

}  // namespace minitorch
