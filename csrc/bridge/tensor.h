// Making tensors of our device, and passing tensors to kernels as plain structs.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/IListRef.h>

#include <string_view>

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
bool has_kernels(at::ScalarType type);
Scalar to_scalar(const at::Scalar& scalar);

// A strided tensor for a kernel. The tensor must outlive the call; conj and neg bits must have been resolved.
TensorView view_of(const at::Tensor& tensor);
// Throws native's error for a tensor with elements whose storage was resized to nothing, as FSDP does to free memory.
inline void check_allocated(const at::TensorBase& tensor) {
  TORCH_CHECK(tensor.storage().nbytes() != 0 || tensor.numel() == 0,
              "The tensor has a non-zero number of elements, but its data is not allocated yet.");
}

// Throws native's "Expected all tensors to be on the same device" when it sees tensors on two. A CPU tensor without
// dimensions may be welcome among them, as it is to native's TensorIterator.
class DeviceCheck {
 public:
  enum CpuScalars : bool { refused, allowed };
  // `operator_name` must outlive the check; it is named in the error unless it is empty.
  explicit DeviceCheck(CpuScalars scalars = refused, std::string_view operator_name = {})
      : scalars_(scalars), operator_name_(operator_name) {}

  void see(const at::Tensor& t) {
    if (!t.defined() || (scalars_ == allowed && t.dim() == 0 && t.is_cpu())) return;
    if (!device_) device_ = t.device();
    if (t.device() != *device_) fail(t.device());
  }
  void see(const std::optional<at::Tensor>& t) {
    if (t) see(*t);
  }
  void see(at::OptionalTensorRef t) {
    if (t.has_value()) see(t.getTensorRef());
  }
  void see(const at::ITensorListRef& list) {
    for (const at::Tensor& t : list) see(t);
  }
  void see(const at::IOptTensorListRef& list) {
    for (const at::OptionalTensorRef t : list) see(t);
  }
  template <class T>
  void see(const T&) {}  // an argument that is no tensor

 private:
  [[noreturn]] void fail(at::Device other) const;

  CpuScalars scalars_;
  std::string_view operator_name_;
  std::optional<at::Device> device_;
};

// The same for tensors that are at hand; null pointers and undefined tensors count as absent.
void check_same_device(std::initializer_list<const at::Tensor*> tensors);

// A CPU tensor over the same memory as a tensor of ours, and the reverse. Only where device memory is host memory; the
// result keeps the storage alive.
at::Tensor alias_as_host(const at::Tensor& tensor);
at::Tensor alias_as_device(const at::Tensor& tensor);

}  // namespace minitorch
