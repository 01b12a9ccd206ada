// Copies between tensors of our device, and between it and the CPU.
#include "bridge/conversions.h"
#include "bridge/fallback.h"
#include "bridge/iterator.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "bridge/transfer.h"
#include "kernels/pointwise.h"
#include "ops/float8.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

// The stored elements, without a pending conjugation or negation.
at::Tensor stored(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.is_conj() ? tensor._conj() : tensor;
  return plain.is_neg() ? plain._neg_view() : plain;
}

// Copies elements between two tensors of one device, converting them; the pending bits of both have been dealt with.
void copy_within(const at::Tensor& to, const at::Tensor& from) {
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(true)
                  .add_output(to)
                  .add_const_input(from)
                  .resize_outputs(false)
                  .check_all_same_dtype(false)
                  .check_all_same_device(false)
                  .build();
  if (iter.numel() != 0) copy_kernel(view_of(iter));
}

at::ScalarType integer_of_size(int64_t bytes) {
  return bytes == 1 ? at::kByte : bytes == 2 ? at::kShort : bytes == 4 ? at::kInt : at::kLong;
}

// float8 and other types that no kernel computes with: bytes are moved here, float8 is converted by way of float, what
// is left (quantized and packed types) is native's.
void copy_without_kernels(const at::Tensor& src, const at::Tensor& dst) {
  const auto from = src.scalar_type(), to = dst.scalar_type();
  if (from == to) {
    const auto bits = integer_of_size(static_cast<int64_t>(dst.element_size()));
    dst.view(bits).copy_(src.view(bits));
    return;
  }
  const bool decode = at::isFloat8Type(from), encode = at::isFloat8Type(to);
  if ((decode || has_kernels(from)) && (encode || has_kernels(to))) {
    const at::Device device = src.is_cpu() ? dst.device() : src.device();
    const c10::OptionalDeviceGuard guard(device);
    const at::Tensor ours = src.to(device);
    const at::Tensor values = decode ? float8_decoded(ours) : ours;
    dst.copy_(encode ? float8_encoded(values, to) : values);
    return;
  }
  fall_back("aten::_copy_from", has_kernels(from) ? dst : src, [&] { dst.copy_(src.to(at::kCPU).to(to)); });
}

// aten::copy_ calls this whenever one side is ours. `src` broadcasts to the shape of `dst`.
at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  if (dst.numel() != 0) warn_if_imaginary_parts_go(src.scalar_type(), dst.scalar_type());
  if (!has_kernels(src.scalar_type()) || !has_kernels(dst.scalar_type())) {
    copy_without_kernels(src, dst);
    return dst;
  }
  const bool conjugate = dst.is_complex() && src.is_conj() != dst.is_conj();
  const bool negate = src.is_neg() != dst.is_neg();
  at::Tensor from = stored(src), to = stored(dst);
  if (from.device() != to.device() && !backend().host_accessible()) {
    copy_across(to, from, non_blocking && !conjugate && !negate);
  } else {
    // Where device memory is host memory, a CPU tensor is just another operand of the copy kernel.
    from = alias_as_device(from);
    to = alias_as_device(to);
    const c10::OptionalDeviceGuard guard(to.device());
    copy_within(to, from);
  }
  if (conjugate) to.conj_physical_();
  if (negate) to.neg_();
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& src, const at::Tensor& dst) {
  if (dst.sizes() != src.sizes()) dst.resize_(src.sizes());
  return copy_from(src, dst, false);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
}

// Copying resolves the bits itself. PyTorch's fallbacks for them would clone the tensor first, which copies, without
// end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace
}  // namespace minitorch
