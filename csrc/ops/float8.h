// Conversions to and from float8, and a view for operators that move such numbers.
#pragma once
#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>

namespace minitorch {

// The numbers of a float8 tensor of our device as float, contiguous.
at::Tensor float8_decoded(const at::Tensor& tensor);
// A tensor of our device as float8, contiguous.
at::Tensor float8_encoded(const at::Tensor& tensor, at::ScalarType format);

// What moves elements and does not look at them takes float8 as bytes.
inline at::Tensor as_bytes(const at::Tensor& tensor) {
  return at::isFloat8Type(tensor.scalar_type()) ? tensor.view(at::kByte) : tensor;
}

// Of an iterator that converts to a float8 output: runs `compute` on one with an output of the common dtype, and
// converts that. False if there is no common dtype.
bool computes_wide(const at::TensorIteratorBase& iter, c10::function_ref<void(const at::TensorIteratorBase&)> compute);

}  // namespace minitorch
