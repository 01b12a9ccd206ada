// See tensor.h.
#include "bridge/tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/TensorImpl.h>

#include "bridge/refusal.h"
#include "bridge/storage.h"
#include "runtime/backend.h"

namespace minitorch {

namespace {
const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

#define MT_SAME(D, S) static_assert(static_cast<int>(DType::D) == static_cast<int>(at::ScalarType::S))
MT_SAME(U8, Byte);
MT_SAME(I8, Char);
MT_SAME(I16, Short);
MT_SAME(I32, Int);
MT_SAME(I64, Long);
MT_SAME(F16, Half);
MT_SAME(F32, Float);
MT_SAME(F64, Double);
MT_SAME(C32, ComplexHalf);
MT_SAME(C64, ComplexFloat);
MT_SAME(C128, ComplexDouble);
MT_SAME(Bool, Bool);
MT_SAME(BF16, BFloat16);
MT_SAME(U16, UInt16);
MT_SAME(U32, UInt32);
MT_SAME(U64, UInt64);
#undef MT_SAME

// A tensor with the geometry of `tensor` over `storage`.
at::Tensor with_storage(const at::Tensor& tensor, c10::Storage storage, c10::DispatchKey key) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) result._set_conj(true);
  if (tensor.is_neg()) result._set_neg(true);
  return result;
}
}  // namespace

// What at::detail::empty_generic does, with our storage object in place of c10's.
at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype, std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(sizes);
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  auto tensor = at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(make_storage(at::detail::computeStorageNbytesContiguous(sizes, type.itemsize()))), kKeys, type);
  auto* impl = tensor.unsafeGetTensorImpl();
  if (sizes.size() != 1 || sizes[0] != 0) impl->set_sizes_contiguous(sizes);
  if (format && *format != at::MemoryFormat::Contiguous) impl->empty_tensor_restride(*format);
  return tensor;
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  at::detail::check_size_nonnegative(sizes);
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  auto tensor = at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(make_storage(at::detail::computeStorageNbytes(sizes, strides, type.itemsize()))), kKeys, type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

bool has_kernels(at::ScalarType type) { return size_of(static_cast<DType>(type)) != 0; }

DType to_dtype(at::ScalarType type) {
  if (C10_UNLIKELY(!has_kernels(type))) throw NoKernel("minitorch", type);
  return static_cast<DType>(type);
}

Scalar to_scalar(const at::Scalar& s) {
  if (s.isComplex()) {
    const auto z = s.toComplexDouble();
    return Scalar(z.real(), z.imag());
  }
  if (s.isFloatingPoint()) return Scalar(s.toDouble());
  if (s.isBoolean()) return Scalar(static_cast<int64_t>(s.toBool()));
  if (s.isUnsigned()) return Scalar(static_cast<int64_t>(s.toUInt64()));
  return Scalar(s.toLong());
}

namespace {

// A tensor that has elements has fewer than kMaxDims dimensions of more than one; of an empty one that has more, some
// become one dimension.
void fold_dimensions(TensorView& v, const at::Tensor& tensor) {
  const int64_t last = tensor.dim() - 2;
  v.ndim = 0;
  for (int64_t d = 0; d < tensor.dim(); d++) {
    if (d < last && tensor.size(d) == 1) continue;
    if (d < last && v.ndim == kMaxDims - 2) {
      v.sizes[v.ndim - 1] = static_cast<int64_t>(static_cast<uint64_t>(v.sizes[v.ndim - 1]) * tensor.size(d));
      continue;
    }
    v.sizes[v.ndim] = tensor.size(d);
    v.strides[v.ndim++] = tensor.stride(d);
  }
}

}  // namespace

TensorView view_of(const at::Tensor& tensor) {
  TORCH_INTERNAL_ASSERT(!tensor.is_conj() && !tensor.is_neg());
  TensorView v;
  check_allocated(tensor);
  v.dtype = to_dtype(tensor.scalar_type());
  v.data = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr()));
  v.numel = tensor.numel();
  if (C10_UNLIKELY(tensor.dim() > kMaxDims)) {
    fold_dimensions(v, tensor);
    return v;
  }
  v.ndim = static_cast<int>(tensor.dim());
  for (int d = 0; d < v.ndim; d++) {
    v.sizes[d] = tensor.size(d);
    v.strides[d] = tensor.stride(d);
  }
  return v;
}

void leave_out_ones(const at::Tensor& shape, int64_t& dim, std::initializer_list<at::Tensor*> tensors) {
  const at::DimVector sizes(shape.sizes());
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; d--) {
    if (d == dim || sizes[d] != 1) continue;
    for (at::Tensor* t : tensors) *t = t->select(d, 0);
    if (d < dim) dim--;
  }
}

bool strides_stay_within_storage(const c10::TensorImpl& tensor) {
  auto last = static_cast<uint64_t>(tensor.storage_offset());
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  for (size_t d = 0; d < sizes.size(); d++) last += static_cast<uint64_t>(sizes[d] - 1) * strides[d];
  return (last + 1) * tensor.itemsize() <= tensor.unsafe_storage().nbytes();
}

void fail_not_allocated(const c10::TensorImpl& tensor) {
  const auto bytes = tensor.unsafe_storage().nbytes();
  TORCH_CHECK(bytes != 0, "The tensor has a non-zero number of elements, but its data is not allocated yet.");
  TORCH_CHECK(false, "The tensor of sizes ", tensor.sizes(), " and strides ", tensor.strides(), " at offset ",
              tensor.storage_offset(), " is out of bounds for storage of size ", bytes,
              ": the storage was resized after the tensor was made");
}

void DeviceCheck::fail(at::Device other) const {
  std::string where;
  if (!operator_name_.empty()) where = c10::str(" (when checking the arguments of ", operator_name_, ")");
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", *device_,
              " and ", other, "!", where);
}

void check_same_device(std::initializer_list<const at::Tensor*> tensors) {
  DeviceCheck check;
  for (const at::Tensor* t : tensors)
    if (t != nullptr) check.see(*t);
}

at::Tensor& resize_and_copy(const at::Tensor& result, at::Tensor& out) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

at::Tensor& copy_into(const at::Tensor& result, at::Tensor& out) {
  TORCH_CHECK(out.dtype() == result.dtype(), "Expected out tensor to have dtype ", result.dtype(), ", but got ",
              out.dtype(), " instead");
  return resize_and_copy(result, out);
}

at::Tensor alias_as_host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  TORCH_INTERNAL_ASSERT(backend().host_accessible() && tensor.device().type() == kDevice);
  auto storage = alias_storage(tensor.storage(), c10::Device(c10::kCPU));
  return with_storage(tensor, std::move(storage), c10::DispatchKey::CPU);
}

at::Tensor alias_as_device(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() == kDevice) return tensor;
  TORCH_INTERNAL_ASSERT(backend().host_accessible() && tensor.is_cpu());
  auto storage = alias_storage(tensor.storage(), c10::Device(kDevice, backend().current_device()));
  return with_storage(tensor, std::move(storage), c10::DispatchKey::PrivateUse1);
}

}  // namespace minitorch
