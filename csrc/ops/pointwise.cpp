// Pointwise operators: PyTorch's metas and TensorIterator, our kernels.
#include <ATen/native/BinaryOps.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/add_meta.h>
#include <ATen/ops/exp_native.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/neg_native.h>

#include "bridge/iterator.h"
#include "bridge/structured.h"
#include "kernels/pointwise.h"

namespace minitorch {
namespace {

template <UnaryOp op>
void unary_stub(at::TensorIteratorBase& iter) {
  unary_kernel(op, view_of(iter), {});
}

// PyTorch generates add's impl per device, so it has no stub to register.
struct Add : at::meta::structured_add_Tensor {
  void impl(const at::Tensor&, const at::Tensor&, const at::Scalar& alpha, const at::Tensor&) {
    binary_kernel(BinaryOp::add, view_of(*this), {{to_scalar(alpha)}});
  }
};

void mul_stub(at::TensorIteratorBase& iter) { binary_kernel(BinaryOp::mul, view_of(iter), {}); }

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(exp_stub, &minitorch::unary_stub<minitorch::UnaryOp::exp>)
REGISTER_PRIVATEUSE1_DISPATCH(neg_stub, &minitorch::unary_stub<minitorch::UnaryOp::neg>)
REGISTER_PRIVATEUSE1_DISPATCH(mul_stub, &minitorch::mul_stub)
}  // namespace at::native

namespace minitorch {
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::native::structured_exp_out>(m, "exp", "exp_", "exp.out");
  structured<at::native::structured_neg_out>(m, "neg", "neg_", "neg.out");
  structured<Add>(m, "add.Tensor", "add_.Tensor", "add.out");
  structured<at::native::structured_mul_out>(m, "mul.Tensor", "mul_.Tensor", "mul.out");
}
}  // namespace minitorch
