// Tensors of zeros without memory, which forward-mode differentiation makes for absent tangents.
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include "bridge/operators.h"
#include "bridge/tensor.h"

namespace minitorch {
namespace {

at::Tensor efficient_zero_tensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                                 std::optional<at::Device> device, std::optional<bool>) {
  at::Device where = c10::device_or_default(device);
  if (!where.has_index()) where.set_index(0);
  at::native::ZeroTensorAllocator allocator(where);
  const auto keys =
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), std::nullopt);
}

MT_OPERATORS(aten, PrivateUse1, m) { m.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor)); }

}  // namespace
}  // namespace minitorch
