// Making tensors of our device, and passing tensors to kernels as plain structs.
#pragma once
#include <ATen/ATen.h>

#include "core/dtype.h"
#include "core/scalar.h"
#include "kernels/view.h"

namespace minitorch {

inline constexpr at::DeviceType kDevice = at::DeviceType::PrivateUse1;

// Uninitialised tensors on the current device (or the device of `options`), without a trip through the dispatcher.
at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype, std::optional<at::MemoryFormat> format = std::nullopt);
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);

// The kernel-side name of a dtype. Throws NotImplementedError for quantized, float8 and other types without kernels.
DType to_dtype(at::ScalarType type);
Scalar to_scalar(const at::Scalar& scalar);

// A strided tensor for a kernel. The tensor must outlive the call; conj and neg bits must have been resolved.
TensorView view_of(const at::Tensor& tensor);

// Throws native's "Expected all tensors to be on the same device" unless all defined tensors are on one device.
void check_same_device(std::initializer_list<const at::Tensor*> tensors);

// A CPU tensor over the same memory as a tensor of ours, and the reverse. Only where device memory is host memory; the
// result keeps the storage alive.
at::Tensor alias_as_host(const at::Tensor& tensor);
at::Tensor alias_as_device(const at::Tensor& tensor);

}  // namespace minitorch
