// See iterator.h.
#include "bridge/iterator.h"

#include "bridge/compat.h"
#include "bridge/tensor.h"

namespace minitorch {

PointwiseView view_of(const at::TensorIteratorBase& iter) {
  PointwiseView v;
  v.ndim = iter.ndim();
  v.num_outputs = iter.noutputs();
  v.num_operands = iter.ntensors();
  v.numel = iter.numel();
  TORCH_INTERNAL_ASSERT(v.num_operands <= kMaxOperands);
  if (C10_UNLIKELY(v.ndim > kMaxDims)) {  // an empty one: others have that few dimensions left
    TORCH_INTERNAL_ASSERT(v.numel == 0);
    v.ndim = 1;
    v.sizes[0] = 0;
  } else {
    const auto shape = iter.shape();
    for (int d = 0; d < v.ndim; d++) v.sizes[d] = shape[d];
  }
  for (int k = 0; k < v.num_operands; k++) {
    if (iter.is_cpu_scalar(k)) v.host_operands |= 1u << k;
    v.data[k] = static_cast<char*>(iter.data_ptr(k));
    // Not check_allocated: some of PyTorch's iterators outlive their tensors.
    TORCH_CHECK(v.data[k] != nullptr || v.numel == 0,
                "The tensor has a non-zero number of elements, but its data is not allocated yet.");
    v.dtype[k] = to_dtype(iter.dtype(k));
    const auto strides = iter.strides(k);
    for (int d = 0; d < v.ndim; d++) v.strides[k][d] = strides[d];
  }
  // Operators that do not promote leave the common dtype undefined; then the first input (or output) speaks.
  const auto common = common_dtype_or_undefined(iter);
  v.compute = common != at::ScalarType::Undefined ? to_dtype(common)
                                                  : v.dtype[v.num_operands > v.num_outputs ? v.num_outputs : 0];
  return v;
}

}  // namespace minitorch
