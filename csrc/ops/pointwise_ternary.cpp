// Pointwise operators of three tensors, and those that bound or select: where, clamp, lerp, addcmul, addcdiv.
#include <ATen/NativeFunctions.h>
#include <ATen/native/Lerp.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/TensorCompare.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "ops/float8.h"
#include "ops/pointwise.h"

namespace minitorch {
namespace {

// Selection only moves bits, so it runs on the unsigned type of the element's size.
void where_stub(at::TensorIterator& iter) {
  if (iter.numel() == 0) return;
  if (at::isFloat8Type(iter.dtype(0))) {
    as_bytes(iter.tensor(0)).copy_(at::where(iter.tensor(1), as_bytes(iter.tensor(2)), as_bytes(iter.tensor(3))));
    return;
  }
  PointwiseView v = view_of(iter);
  v.compute = v.dtype[0];
  if (v.dtype[2] == v.dtype[0] && v.dtype[3] == v.dtype[0]) {
    switch (size_of(v.compute)) {
      case 1: v.compute = DType::U8; break;
      case 2: v.compute = DType::U16; break;
      case 4: v.compute = DType::U32; break;
      case 8: v.compute = DType::U64; break;
      default: v.compute = DType::C128;
    }
    v.dtype[0] = v.dtype[2] = v.dtype[3] = v.compute;
  }
  pointwise_kernel(PointwiseOp::where, v, {});
}

void lerp_tensor_stub(at::TensorIteratorBase& iter) {
  named("lerp", "lerp_kernel_tensor", [&] { run_pointwise(PointwiseOp::lerp_tensor, iter); });
}
// By tensors or by numbers; of booleans native has only maximum and minimum of two.
template <class... Bounds>
void clamp(PointwiseOp op, const char* kernel, at::TensorIteratorBase& iter, const Bounds&... bounds) {
  named("clamp", kernel, [&] {
    if (iter.common_dtype() == at::kBool) refuse_as_native("clamp", at::kBool);
    run_pointwise(op, iter, bounds...);
  });
}
void clamp_tensor_stub(at::TensorIteratorBase& iter) { clamp(PointwiseOp::clamp_tensor, "clamp_cpu", iter); }
void clamp_min_stub(at::TensorIteratorBase& iter, at::Scalar low) {
  clamp(PointwiseOp::clamp_min, "clamp_min_scalar_cpu", iter, low);
}
void clamp_max_stub(at::TensorIteratorBase& iter, at::Scalar high) {
  clamp(PointwiseOp::clamp_max, "clamp_max_scalar_cpu", iter, high);
}
void clamp_scalar_stub(at::TensorIteratorBase& iter, const at::Scalar& low, const at::Scalar& high) {
  clamp(PointwiseOp::clamp, "clamp_scalar_cpu", iter, low, high);
}

}  // namespace
}  // namespace minitorch

namespace at::native {
MT_STUB(addcmul_stub, addcmul)
MT_STUB(addcdiv_stub, addcdiv)
MT_STUB(lerp_kernel_scalar_weight, lerp_scalar)
REGISTER_PRIVATEUSE1_DISPATCH(lerp_kernel_tensor_weight, &minitorch::lerp_tensor_stub)
REGISTER_PRIVATEUSE1_DISPATCH(clamp_stub, &minitorch::clamp_tensor_stub)
REGISTER_PRIVATEUSE1_DISPATCH(clamp_scalar_stub, &minitorch::clamp_scalar_stub)
REGISTER_PRIVATEUSE1_DISPATCH(clamp_min_scalar_stub, &minitorch::clamp_min_stub)
REGISTER_PRIVATEUSE1_DISPATCH(clamp_max_scalar_stub, &minitorch::clamp_max_stub)
REGISTER_PRIVATEUSE1_DISPATCH(where_kernel, &minitorch::where_stub)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  structured<at::native::structured_addcmul_out>(m, "addcmul", "addcmul_", "addcmul.out");
  structured<at::native::structured_addcdiv_out>(m, "addcdiv", "addcdiv_", "addcdiv.out");
  structured<at::native::structured_lerp_Scalar>(m, "lerp.Scalar", "lerp_.Scalar", "lerp.Scalar_out");
  structured<at::native::structured_lerp_Tensor>(m, "lerp.Tensor", "lerp_.Tensor", "lerp.Tensor_out");
  structured<at::native::structured_clamp_out>(m, "clamp", "clamp_", "clamp.out");
  structured<at::native::structured_clamp_Tensor_out>(m, "clamp.Tensor", "clamp_.Tensor", "clamp.Tensor_out");
  structured<at::native::structured_clamp_min_out>(m, "clamp_min", "clamp_min_", "clamp_min.out");
  structured<at::native::structured_clamp_min_Tensor_out>(m, "clamp_min.Tensor", "clamp_min_.Tensor",
                                                          "clamp_min.Tensor_out");
  structured<at::native::structured_clamp_max_out>(m, "clamp_max", "clamp_max_", "clamp_max.out");
  structured<at::native::structured_clamp_max_Tensor_out>(m, "clamp_max.Tensor", "clamp_max_.Tensor",
                                                          "clamp_max.Tensor_out");
  m.impl("where.self", MT_CHECKED(static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&)>(
                           at::native::where)));
  m.impl("where.self_out", MT_CHECKED(at::native::where_self_out));
}
}  // namespace minitorch
