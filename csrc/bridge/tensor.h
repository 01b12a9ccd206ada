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

// A strided tensor for a kernel. The tensor must outlive the call; conj and neg bits must have been resolved. Of more
// than kMaxDims dimensions those of size 1 are left out, except among the last two.
TensorView view_of(const at::Tensor& tensor);

// Calls f(number of dimension `dim` in the views, views...), for a kernel that goes through equally many dimensions of
// each tensor and treats all but one alike. The tensors' sizes agree but in `dim`.
template <class F, class... Tensors>
void with_views_along(int64_t dim, const F& f, const at::Tensor& first, const Tensors&... others) {
  if (C10_LIKELY(first.dim() <= kMaxDims)) return f(static_cast<int>(dim), view_of(first), view_of(others)...);
  const auto turned = [dim](const at::Tensor& t) { return view_of(t.transpose(dim, -1)); };
  const TensorView view = turned(first);
  f(view.ndim - 1, view, turned(others)...);
}

// Takes the only place of every dimension but `dim` in which `shape` has one, of tensors that are not empty: what is
// left are fewer dimensions than kMaxDims. `dim` follows.
void leave_out_ones(const at::Tensor& shape, int64_t& dim, std::initializer_list<at::Tensor*> tensors);

// Whether the storage reaches as far as a tensor that is not contiguous.
bool strides_stay_within_storage(const c10::TensorImpl& tensor);
[[noreturn]] void fail_not_allocated(const c10::TensorImpl& tensor);

// Throws unless the storage holds every element of the tensor. It may have been resized to nothing, as FSDP does to
// free memory, or to less than the tensor takes; native reads what it finds there, or crashes.
inline void check_allocated(const at::TensorBase& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!impl.has_storage()) return;
  const auto bytes = impl.unsafe_storage().nbytes();
  const auto end = static_cast<uint64_t>(impl.storage_offset() + impl.numel()) * impl.itemsize();
  if (impl.is_contiguous() ? end <= bytes : strides_stay_within_storage(impl)) return;
  if (impl.numel() != 0 && !tensor._is_zerotensor()) fail_not_allocated(impl);
}

// Shows each tensor among an operator's arguments, alone, optional or in a list, to `Check::see_tensor`.
template <class Check>
struct ArgumentVisitor {
  void see(const at::Tensor& t) { static_cast<Check*>(this)->see_tensor(t); }
  void see(const std::optional<at::Tensor>& t) {
    if (t) see(*t);
  }
  void see(at::OptionalTensorRef t) {
    if (t.has_value()) see(t.getTensorRef());
  }
  void see(const at::ITensorListRef& list) {
    for (const at::Tensor& t : list) see(t);
  }
  void see(at::TensorList list) { see(at::ITensorListRef(list)); }
  void see(const at::IOptTensorListRef& list) {
    for (const at::OptionalTensorRef t : list) see(t);
  }
  void see(const c10::List<std::optional<at::Tensor>>& list) { see(at::IOptTensorListRef(list)); }
  template <class T>
  void see(const T&) {}  // an argument that is no tensor
};

struct AllocationCheck : ArgumentVisitor<AllocationCheck> {
  void see_tensor(const at::Tensor& t) {
    if (t.defined()) check_allocated(t);
  }
};

// Throws native's "Expected all tensors to be on the same device" when it sees tensors on two, and check_allocated's
// error. A CPU tensor without dimensions may be welcome among them, as it is to native's TensorIterator.
class DeviceCheck : public ArgumentVisitor<DeviceCheck> {
 public:
  enum CpuScalars : bool { refused, allowed };
  // `operator_name` must outlive the check; it is named in the error unless it is empty.
  explicit DeviceCheck(CpuScalars scalars = refused, std::string_view operator_name = {})
      : scalars_(scalars), operator_name_(operator_name) {}

  void see_tensor(const at::Tensor& t) {
    if (!t.defined() || (scalars_ == allowed && t.dim() == 0 && t.is_cpu())) return;
    if (!device_) device_ = t.device();
    if (t.device() != *device_) fail(t.device());
    check_allocated(t);
  }

 private:
  [[noreturn]] void fail(at::Device other) const;

  CpuScalars scalars_;
  std::string_view operator_name_;
  std::optional<at::Device> device_;
};

// The same for tensors that are at hand; null pointers and undefined tensors count as absent.
void check_same_device(std::initializer_list<const at::Tensor*> tensors);

// Makes `out`, the argument of an out= form, hold `result`, in its own dtype. Resized as native resizes it, with its
// warning.
at::Tensor& resize_and_copy(const at::Tensor& result, at::Tensor& out);
// The same for operators that refuse an `out` of another dtype, with native's words.
at::Tensor& copy_into(const at::Tensor& result, at::Tensor& out);

// A CPU tensor over the same memory as a tensor of ours, and the reverse. Only where device memory is host memory; the
// result keeps the storage alive.
at::Tensor alias_as_host(const at::Tensor& tensor);
at::Tensor alias_as_device(const at::Tensor& tensor);

}  // namespace minitorch
