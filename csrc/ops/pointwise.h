// Adapters between PyTorch's dispatch stubs for pointwise operators and the pointwise kernel. Shared by the binding
// files pointwise_*.cpp and activation.cpp.
#pragma once
#include <ATen/TensorIterator.h>
#include <ATen/native/DispatchStub.h>

#include "bridge/conversions.h"
#include "bridge/iterator.h"
#include "bridge/structured.h"
#include "kernels/pointwise.h"
#include "ops/complex_half.h"
#include "ops/float8.h"
#include "runtime/backend.h"

namespace minitorch {

inline Scalar kernel_scalar(const at::Scalar& s) { return to_scalar(s); }
inline Scalar kernel_scalar(double s) { return Scalar(s); }
inline Scalar kernel_scalar(int64_t s) { return Scalar(s); }

// Native converts an operator's numbers to the type that it computes in, and refuses those beyond its range. For 16-bit
// floats that is float, but where native CPU bounds or replaces elements it is theirs.
template <class S>
void check_parameter(PointwiseOp op, at::ScalarType dtype, int place, const S& value) {
  if constexpr (std::is_same_v<S, at::Scalar>) {
    if (op == PointwiseOp::pow_scalar && !at::isIntegralType(dtype, true)) return;
    const bool narrow = op == PointwiseOp::clamp || op == PointwiseOp::clamp_min || op == PointwiseOp::clamp_max ||
                        op == PointwiseOp::hardshrink || op == PointwiseOp::logit ||
                        op == PointwiseOp::logit_backward || (op == PointwiseOp::threshold && place == 1);
    if (!narrow || !backend().synchronous()) {
      if (dtype == at::kHalf || dtype == at::kBFloat16) dtype = at::kFloat;
      if (dtype == at::kComplexHalf) dtype = at::kComplexFloat;
    }
    check_convertible(value, dtype);
  }
}

// The same for all numbers of a call.
template <class... A>
void check_parameters(PointwiseOp op, const at::TensorIteratorBase& iter, const A&... scalars) {
  const at::ScalarType last = iter.dtype(iter.ntensors() - 1), common = iter.common_dtype();
  try {
    int place = 0;
    (check_parameter(op, common == at::ScalarType::Undefined ? last : common, place++, scalars), ...);
  } catch (const std::exception&) {
    PointwiseView nothing = view_of(iter);
    nothing.numel = 0;
    if (backend().synchronous()) pointwise_kernel(op, nothing, {});  // a dtype without a kernel is said first
    throw;
  }
}

// Runs an operator over an iterator's operands, with its scalar arguments.
template <class... A>
void run_pointwise(PointwiseOp op, const at::TensorIteratorBase& iter, const A&... scalars) {
  if constexpr ((std::is_same_v<A, at::Scalar> || ...)) check_parameters(op, iter, scalars...);
  // The CPU's kernel refuses a dtype for no elements, too, as native does.
  if (iter.numel() == 0 && !backend().synchronous()) return;
  if (C10_UNLIKELY(at::isFloat8Type(iter.dtype(0))) &&
      computes_wide(iter, [&](const at::TensorIteratorBase& wide) { run_pointwise(op, wide, scalars...); }))
    return;
  const bool reads = iter.dtype(1) == at::kComplexHalf || iter.dtype(iter.ntensors() - 1) == at::kComplexHalf;
  if (C10_UNLIKELY(reads || iter.dtype(0) == at::kComplexHalf)) {
    const at::ScalarType common = common_dtype_or_undefined(iter);
    if (reads || common == at::kComplexHalf)
      check_complex_half(common != at::ScalarType::Undefined ? common : iter.dtype(0), op);
  }
  pointwise_kernel(op, view_of(iter), PointwiseParams{{kernel_scalar(scalars)...}});
}

// A stub's function: iterator and scalar arguments as the stub declares them.
template <PointwiseOp op, class Iterator, class... A>
void pointwise_stub(Iterator& iter, A... scalars) {
  run_pointwise(op, iter, scalars...);
}

// For operators of which native CPU has no kernel of 16-bit floats, where ours has.
template <PointwiseOp op>
void without_halves(const char* kernel, at::TensorIteratorBase& iter) {
  check_native_has(!at::isReducedFloatingType(iter.common_dtype()), kernel, iter.common_dtype());
  run_pointwise(op, iter);
}

// For operators that do not promote: the kernel computes in the dtype of the (first) output.
inline void run_in_output_dtype(PointwiseOp op, const at::TensorIteratorBase& iter) {
  if (iter.numel() == 0 && !backend().synchronous()) return;
  PointwiseView v = view_of(iter);
  v.compute = v.dtype[0];
  pointwise_kernel(op, v, {});
}

// MT_STUB(stub, operator): inside namespace at::native.
#define MT_STUB(stub, op) REGISTER_PRIVATEUSE1_DISPATCH(stub, (&minitorch::pointwise_stub<minitorch::PointwiseOp::op>))
// The same for a kernel without 16-bit floats, by native's name for it.
#define MT_STUB_WITHOUT_HALVES(stub, op, kernel)                                                       \
  REGISTER_PRIVATEUSE1_DISPATCH(stub, (+[](at::TensorIteratorBase& iter) {                             \
                                  minitorch::without_halves<minitorch::PointwiseOp::op>(kernel, iter); \
                                }))

}  // namespace minitorch
