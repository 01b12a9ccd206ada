// Conversions to and from float8, for copies.
#pragma once
#include <ATen/ATen.h>

namespace minitorch {

// The numbers of a float8 tensor of our device as float, contiguous.
at::Tensor float8_decoded(const at::Tensor& tensor);
// A tensor of our device as float8, contiguous.
at::Tensor float8_encoded(const at::Tensor& tensor, at::ScalarType format);

}  // namespace minitorch
