// Making tensors, filling them and reading a value back.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Fill.h>
#include <ATen/native/Resize.h>

#include "bridge/iterator.h"
#include "bridge/tensor.h"
#include "kernels/pointwise.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

void check_factory_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "minitorch tensors are strided; layout ",
                              layout.value_or(at::kStrided), " is not implemented");
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
}

at::Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  check_factory_options(layout, pin_memory);
  const c10::OptionalDeviceGuard guard(device);
  return empty(size, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_with_strides(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                              std::optional<at::Layout> layout, std::optional<at::Device> device,
                              std::optional<bool> pin_memory) {
  check_factory_options(layout, pin_memory);
  const c10::OptionalDeviceGuard guard(device);
  return empty_strided(size, stride, c10::dtype_or_default(dtype));
}

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  // Native converts the value to the tensor's dtype first, with an overflow check.
  const at::Scalar converted = at::scalar_tensor(value, at::device(at::kCPU).dtype(self.scalar_type())).item();
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)  // fill is idempotent, so overlap is fine
                  .check_all_same_dtype(false)
                  .add_output(self)
                  .resize_outputs(false)
                  .build();
  if (iter.numel() != 0) fill_kernel(view_of(iter), to_scalar(converted));
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  return self.fill_(value.item());
}

at::Tensor& zero_(at::Tensor& self) { return fill_scalar(self, 0); }

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(size);
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    impl->set_sizes_contiguous(size);
    const size_t bytes = at::detail::computeStorageNbytesContiguous(
        size, self.dtype().itemsize(), static_cast<size_t>(self.storage_offset()));
    if (self.numel() > 0 && bytes > self.storage().nbytes()) at::native::resize_bytes_nocuda(self.storage(), bytes);
  }
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  backend().synchronize_stream(backend().current_stream(self.device().index()));
  return alias_as_host(self).item();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_with_strides));
  m.impl("fill_.Scalar", TORCH_FN(fill_scalar));
  m.impl("fill_.Tensor", TORCH_FN(fill_tensor));
  m.impl("zero_", TORCH_FN(zero_));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

void fill_stub(at::TensorIterator& iter, const at::Scalar& value) { fill_kernel(view_of(iter), to_scalar(value)); }

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(fill_stub, &minitorch::fill_stub)
}
