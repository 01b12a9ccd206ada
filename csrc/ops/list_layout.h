// How tensors of a list of parameters and its companions lie in memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace minitorch {

// Whether both have the same sizes and their elements in the same order. The stride of a dimension of size 1 says
// nothing: a gradient in channels-last memory of a 1x1 convolution's weight has others than the weight.
inline bool lies_as(const at::Tensor& t, const at::Tensor& peer) {
  if (t.sizes() != peer.sizes()) return false;
  for (int64_t d = 0; d < t.dim(); d++)
    if (t.size(d) > 1 && t.stride(d) != peer.stride(d)) return false;
  return true;
}

}  // namespace minitorch
