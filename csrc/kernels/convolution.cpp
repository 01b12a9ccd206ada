// The convolution kernel objects, and parts of convolutions.
#include "kernels/convolution.h"

#include <algorithm>

namespace minitorch {

ConvArgs part_of(ConvPass pass, const ConvArgs& a, int d, int64_t begin, int64_t end) {
  const int64_t stride = a.stride[d], padding = a.padding[d], reach = (a.kernel[d] - 1) * a.dilation[d];
  ConvArgs part = a;
  int64_t in_begin, in_end, out_begin, out_end;
  if (pass == ConvPass::backward_input) {
    in_begin = begin, in_end = end;
    const int64_t first = begin + padding - reach;
    out_begin = first < 0 ? 0 : std::min(first / stride, a.out_size[d]);
    out_end = std::clamp((end - 1 + padding) / stride + 1, out_begin, a.out_size[d]);
    part.padding[d] = padding + begin - out_begin * stride;
  } else {
    out_begin = begin, out_end = end;
    const int64_t first = begin * stride - padding, last = (end - 1) * stride - padding + reach;
    in_begin = std::clamp<int64_t>(first, 0, a.in_size[d]);
    in_end = std::clamp(last + 1, in_begin, a.in_size[d]);
    part.padding[d] = std::max<int64_t>(in_begin - first, 0);
  }
  const auto size = static_cast<int64_t>(size_of(a.dtype));
  part.in_size[d] = in_end - in_begin;
  part.out_size[d] = out_end - out_begin;
  part.input.data += in_begin * a.input.strides[2 + d] * size;
  part.output.data += out_begin * a.output.strides[2 + d] * size;
  return part;
}

constinit Kernel<void(const ConvArgs&)> conv_forward_kernel{"conv_forward"};
constinit Kernel<void(const ConvArgs&)> conv_backward_input_kernel{"conv_backward_input"};
constinit Kernel<void(const ConvArgs&)> conv_backward_weight_kernel{"conv_backward_weight"};
constinit Kernel<void(int, const ConvArgs&)> conv_reference_kernel{"conv_reference"};
}  // namespace minitorch
