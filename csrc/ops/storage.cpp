// Operators on a tensor's storage rather than its elements.
//
// set_data: `param.data = moved`, which Module.to is built on, between our device and other dense tensors.
// PyTorch lets set_data change a tensor's device in place among the devices on its own list of dense backends; a
// private backend is not on it. Without this, module.to("minitorch") would replace every parameter, which unties shared
// weights and leaves an optimizer that was made before with the old ones. Nothing in set_data depends on the list: it
// copies the fields of one plain TensorImpl into another and drops a gradient accumulator made for the old device.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <typeinfo>

#include "bridge/allocator.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"

namespace minitorch {
namespace {

bool is_plain_dense(const at::Tensor& t) {
  return t.defined() && t.layout() == at::kStrided && !t.is_quantized() && !t.is_nested() && !t.is_meta() &&
         t.key_set().has(c10::DispatchKey::Dense) && typeid(*t.unsafeGetTensorImpl()) == typeid(c10::TensorImpl);
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set()) ||
         (is_plain_dense(self) && is_plain_dense(from));
}

// Keeps the tensor's memory from being reused before the work that `stream` has now is done.
void record_stream(at::Tensor& self, at::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}
MT_OPERATORS(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace
}  // namespace minitorch
