// hash_tensor: PyTorch's reduction, our kernel behind its stub.
#if __has_include(<ATen/ops/hash_tensor_native.h>)
#include <ATen/native/ReduceOps.h>
#include <ATen/ops/hash_tensor_native.h>

#include "bridge/iterator.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/hash.h"

namespace minitorch {
namespace {

void xor_sum(at::TensorIterator& iter) {
  const at::ScalarType type = iter.dtype(1);
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isComplexType(type), "\"xor_sum_cpu\" not implemented for '", c10::toString(type),
                              "'");
  xor_hash_kernel(view_of(iter));
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(xor_sum_stub, &minitorch::xor_sum)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  structured<at::native::structured_hash_tensor_out>(m, "hash_tensor", nullptr, "hash_tensor.out");
}
}  // namespace minitorch
#endif
