// Making tensors, filling them and reading a value back.
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Fill.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>

#include <cstring>

#include "bridge/checked.h"
#include "bridge/conversions.h"
#include "bridge/iterator.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/pointwise.h"
#include "ops/opaque.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

void check_factory_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "minitorch tensors are strided; layout ",
                              layout.value_or(at::kStrided), " is not implemented");
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
}

// torch.use_deterministic_algorithms fills what would be uninitialised.
at::Tensor fill_if_deterministic(at::Tensor fresh) {
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()))
    at::native::fill_empty_deterministic_(fresh);
  return fresh;
}

at::Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  check_factory_options(layout, pin_memory);
  const c10::OptionalDeviceGuard guard(device);
  return fill_if_deterministic(empty(size, c10::dtype_or_default(dtype), format));
}

at::Tensor empty_with_strides(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                              std::optional<at::Layout> layout, std::optional<at::Device> device,
                              std::optional<bool> pin_memory) {
  check_factory_options(layout, pin_memory);
  const c10::OptionalDeviceGuard guard(device);
  return fill_if_deterministic(empty_strided(size, stride, c10::dtype_or_default(dtype)));
}

// clang-format off
// Every dtype that has arithmetic here, with its type on PyTorch's side.
#define MT_FOR_SCALAR_TYPES(X)                                                            \
  X(uint8_t, Byte) X(int8_t, Char) X(int16_t, Short) X(int, Int) X(int64_t, Long)         \
  X(bool, Bool) X(uint16_t, UInt16) X(uint32_t, UInt32) X(uint64_t, UInt64)               \
  X(c10::Half, Half) X(c10::BFloat16, BFloat16) X(float, Float) X(double, Double)         \
  X(c10::complex<float>, ComplexFloat) X(c10::complex<double>, ComplexDouble)
// Those that are converted only.
#define MT_FOR_FLOAT8_TYPES(X)                                                                               \
  X(c10::Float8_e5m2, Float8_e5m2) X(c10::Float8_e4m3fn, Float8_e4m3fn) X(c10::Float8_e8m0fnu, Float8_e8m0fnu) \
  X(c10::Float8_e5m2fnuz, Float8_e5m2fnuz) X(c10::Float8_e4m3fnuz, Float8_e4m3fnuz)
// clang-format on

// The memory of a tensor without gaps or overlap as one run of elements, whatever its dimensions.
PointwiseView run_of(const at::Tensor& dense) {
  check_allocated(dense);
  PointwiseView v;
  v.ndim = v.num_outputs = v.num_operands = 1;
  v.numel = v.sizes[0] = dense.numel();
  v.data[0] = static_cast<char*>(dense.mutable_data_ptr());
  v.dtype[0] = v.compute = to_dtype(dense.scalar_type());
  v.strides[0][0] = static_cast<int64_t>(dense.itemsize());
  return v;
}

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value);

// complex32 has no arithmetic here; its elements are filled as the integers that they look like.
at::Tensor& fill_complex_half(at::Tensor& self, const at::Scalar& value) {
  check_convertible(value, at::kComplexHalf);
  const auto z = value.to<c10::complex<float>>();
  const uint32_t real = c10::Half(z.real()).x, imag = c10::Half(z.imag()).x;
  at::Tensor bits = self.view(at::kInt);
  fill_scalar(bits, static_cast<int64_t>(static_cast<int32_t>(real | imag << 16)));
  return self;
}

// float8 is filled with the byte that stands for the value.
at::Tensor& fill_float8(at::Tensor& self, const at::Scalar& value, bool relaxed) {
  uint8_t code = 0;
  switch (self.scalar_type()) {
#define MT_CODE(T, name) \
  case at::ScalarType::name: code = (relaxed ? T(static_cast<float>(value.toDouble())) : value.to<T>()).x; break;
    MT_FOR_FLOAT8_TYPES(MT_CODE)
#undef MT_CODE
    default: break;
  }
  at::Tensor bytes = self.view(at::kByte);
  fill_scalar(bytes, static_cast<int64_t>(code));
  return self;
}

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  if (self.scalar_type() == at::kComplexHalf) return fill_complex_half(self, value);
  // Native CPU lets one element of a narrow float become infinite, as torch.tensor does; `x[0] = 1e6` comes this way.
  const bool relaxed = self.numel() == 1 && backend().synchronous();
  if (at::isFloat8Type(self.scalar_type())) return fill_float8(self, value, relaxed);
  check_convertible(value, relaxed && at::isReducedFloatingType(self.scalar_type()) ? at::kDouble : self.scalar_type());
  if (self.numel() == 0) return self;
  // Above 2^63 an unsigned value passes to a kernel as its bits, which only integers read so.
  const bool bits = at::isIntegralType(self.scalar_type(), /*includeBool=*/true) || !value.isUnsigned();
  const Scalar fill = bits ? to_scalar(held_by(self.scalar_type(), value)) : Scalar(value.toDouble());
  if (self.is_non_overlapping_and_dense()) {
    fill_kernel(run_of(self), fill);
    return self;
  }
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)  // fill is idempotent, so overlap is fine
                  .check_all_same_dtype(false)
                  .add_output(self)
                  .resize_outputs(false)
                  .build();
  fill_kernel(view_of(iter), fill);
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  if (!backend().synchronous() && self.device() == value.device() &&
      at::has_internal_overlap(self) != at::MemOverlap::Yes)  // nothing waits for the value
    return self.copy_(self.is_alias_of(value) ? value.clone() : value);
  // Converted as a copy would, which takes what a Scalar would refuse as an overflow.
  return self.fill_((self.device() == value.device() ? value.to(self.scalar_type()) : value).item());
}

at::Tensor& zero_(at::Tensor& self) {
  if (const auto integers = integers_for(self.scalar_type())) {
    self.view(*integers).zero_();
    return self;
  }
  return fill_scalar(self, 0);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  for (const int64_t s : size) TORCH_CHECK(s >= 0, "numel: integer multiplication overflow");  // native's words
  auto* impl = self.unsafeGetTensorImpl();
  const auto bytes_before = static_cast<int64_t>(self.storage().nbytes());
  if (self.sizes() != size) {
    // The memory first: when there is none left, the tensor stays as it was.
    const size_t bytes = at::detail::computeStorageNbytesContiguous(size, self.dtype().itemsize(),
                                                                    static_cast<size_t>(self.storage_offset()));
    if (c10::multiply_integers(size) > 0 && bytes > self.storage().nbytes())
      at::native::resize_bytes_nocuda(self.storage(), bytes);
    impl->set_sizes_contiguous(size);
  }
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
    at::native::fill_resize_deterministic_(self, bytes_before);
  return self;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  check_allocated(self);
  alignas(16) char bytes[16];
  backend().copy_to_host(bytes, self.const_data_ptr(), self.itemsize(),
                         backend().current_stream(self.device().index()));
  switch (self.scalar_type()) {
#define MT_READ(T, name)                   \
  case at::ScalarType::name: {             \
    T value;                               \
    std::memcpy(&value, bytes, sizeof(T)); \
    return at::Scalar(value);              \
  }
    MT_FOR_SCALAR_TYPES(MT_READ)
    MT_READ(c10::complex<c10::Half>, ComplexHalf)
    MT_FOR_FLOAT8_TYPES(MT_READ)
#undef MT_READ
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "\"_local_scalar_dense_cpu\" not implemented for '", self.scalar_type(), "'");
  }
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_with_strides));
  m.impl("fill_.Scalar", MT_CHECKED(fill_scalar));
  m.impl("fill_.Tensor", MT_CHECKED(fill_tensor));
  m.impl("zero_", MT_CHECKED(zero_));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

void fill_stub(at::TensorIterator& iter, const at::Scalar& value) { fill_kernel(view_of(iter), to_scalar(value)); }

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(fill_stub, &minitorch::fill_stub)
}
