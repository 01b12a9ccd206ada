// Adapters between PyTorch's dispatch stubs for pointwise operators and the pointwise kernel. Shared by the binding
// files pointwise_*.cpp and activation.cpp.
#pragma once
#include <ATen/TensorIterator.h>
#include <ATen/native/DispatchStub.h>

#include "bridge/iterator.h"
#include "bridge/structured.h"
#include "kernels/pointwise.h"
#include "ops/complex_half.h"

namespace minitorch {

inline Scalar kernel_scalar(const at::Scalar& s) { return to_scalar(s); }
inline Scalar kernel_scalar(double s) { return Scalar(s); }
inline Scalar kernel_scalar(int64_t s) { return Scalar(s); }

// Runs an operator over an iterator's operands, with its scalar arguments.
template <class... A>
void run_pointwise(PointwiseOp op, const at::TensorIteratorBase& iter, const A&... scalars) {
  // Of dtypes that native has few operators for it says so for no elements, too; so will the kernel.
  const auto last = iter.dtype(iter.ntensors() - 1);
  if (iter.numel() == 0 && !refuses_rare(last) && !(at::isFloat8Type(last) && backend().synchronous())) return;
  if (C10_UNLIKELY(iter.dtype(1) == at::kComplexHalf || iter.dtype(iter.ntensors() - 1) == at::kComplexHalf))
    check_complex_half(iter.dtype(0), op);
  pointwise_kernel(op, view_of(iter), PointwiseParams{{kernel_scalar(scalars)...}});
}

// A stub's function: iterator and scalar arguments as the stub declares them.
template <PointwiseOp op, class Iterator, class... A>
void pointwise_stub(Iterator& iter, A... scalars) {
  run_pointwise(op, iter, scalars...);
}

// For operators that do not promote: the kernel computes in the dtype of the (first) output.
inline void run_in_output_dtype(PointwiseOp op, const at::TensorIteratorBase& iter) {
  if (iter.numel() == 0) return;
  PointwiseView v = view_of(iter);
  v.compute = v.dtype[0];
  pointwise_kernel(op, v, {});
}

// MT_STUB(stub, operator): inside namespace at::native.
#define MT_STUB(stub, op) REGISTER_PRIVATEUSE1_DISPATCH(stub, (&minitorch::pointwise_stub<minitorch::PointwiseOp::op>))

}  // namespace minitorch
