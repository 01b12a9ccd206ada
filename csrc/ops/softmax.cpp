// softmax, log_softmax and masked softmax with their gradients.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_meta.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/softmax.h"

namespace minitorch {
namespace {

SoftmaxShape shape_of(const at::Tensor& t, int64_t dim) {
  SoftmaxShape s{1, 1, 1};
  dim = at::maybe_wrap_dim(dim, t.dim());
  for (int64_t d = 0; d < t.dim(); d++) (d < dim ? s.outer : d == dim ? s.dim : s.inner) *= t.size(d);
  return s;
}

SoftmaxOperand operand(const at::Tensor& t) {
  return {static_cast<char*>(const_cast<void*>(t.const_data_ptr())), to_dtype(t.scalar_type())};
}

// Native's name for the way through an operator.
const char* name_of(SoftmaxOp op, bool backward, bool last) {
  static constexpr const char* names[2][2][2] = {
      {{"softmax_kernel_impl", "softmax_lastdim_kernel_impl"},
       {"softmax_backward_kernel_impl", "softmax_backward_lastdim_kernel_impl"}},
      {{"log_softmax_kernel_impl", "log_softmax_lastdim_kernel_impl"},
       {"log_softmax_backward_kernel_impl", "log_softmax_backward_lastdim_kernel_impl"}},
  };
  return names[op == SoftmaxOp::log_softmax][backward][last];
}

void forward(SoftmaxOp op, const at::Tensor& self, int64_t dim, const at::Tensor& out, const SoftmaxMask& mask = {}) {
  if (self.numel() == 0) return;
  const at::Tensor input = self.contiguous(), output = out.is_contiguous() ? out : at::empty_like(input, out.options());
  const char* const name = name_of(op, false, self.dim() == 0 || at::maybe_wrap_dim(dim, self.dim()) == self.dim() - 1);
  named("_softmax", name, [&] { softmax_kernel(op, shape_of(self, dim), operand(output), operand(input), mask); });
  if (!output.is_same(out)) out.copy_(output);
}

void backward(SoftmaxOp op, const at::Tensor& grad, const at::Tensor& output, int64_t dim, const at::Tensor& grad_input,
              const SoftmaxMask& mask = {}) {
  TORCH_CHECK(grad.sizes() == output.sizes() && grad.scalar_type() == output.scalar_type(),
              "Expected grad and output of one shape and dtype, got ", grad.sizes(), " of ", grad.scalar_type(),
              " and ", output.sizes(), " of ", output.scalar_type());
  if (output.numel() == 0) return;
  const at::Tensor dy = grad.contiguous(), y = output.contiguous();
  const at::Tensor dx = grad_input.is_contiguous() ? grad_input : at::empty_like(y, grad_input.options());
  const char* const name =
      name_of(op, true, output.dim() == 0 || at::maybe_wrap_dim(dim, output.dim()) == output.dim() - 1);
  named("_softmax", name,
        [&] { softmax_backward_kernel(op, shape_of(output, dim), operand(dx), operand(dy), operand(y), mask); });
  if (!dx.is_same(grad_input)) grad_input.copy_(dx);
}

template <class Meta, SoftmaxOp op>
struct Forward : Meta {
  void impl(const at::Tensor& self, int64_t dim, bool, const at::Tensor& out) { forward(op, self, dim, out); }
};

template <class Meta, SoftmaxOp op>
struct Backward : Meta {
  void impl(const at::Tensor& grad, const at::Tensor& output, int64_t dim, at::ScalarType,
            const at::Tensor& grad_input) {
    backward(op, grad, output, dim, grad_input);
  }
};

constexpr int64_t kAttentionMask = 0, kPaddingMask = 1, kFullMask = 2;

// The mask as the kernel reads it; `storage` keeps what it points to alive.
SoftmaxMask mask_for(const at::Tensor& input, const at::Tensor& mask, int64_t dim, std::optional<int64_t> type,
                     at::Tensor& storage) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  const bool last = input.dim() == 0 || at::maybe_wrap_dim(dim, input.dim()) == input.dim() - 1;
  // The compact masks belong to four-dimensional attention scores.
  const int64_t kind = mask.dim() != 2 || input.dim() != 4 ? kFullMask : type.value_or(kFullMask);
  storage = mask;
  SoftmaxMask result;
  TORCH_CHECK(kind == kFullMask || input.size(2) == input.size(3),
              "masks of type 0 and 1 are for square scores, got an input of shape ", input.sizes());
  if (kind == kPaddingMask) {
    TORCH_CHECK(input.size(0) == mask.size(0) && input.size(2) == mask.size(1),
                "For mask_type == 1 mask shape should be (B, L)");
    if (!last) storage = mask.view({input.size(0), 1, 1, input.size(2)}).expand(input.sizes());
    result.repeat = last ? input.size(1) * input.size(2) : 1;
  } else if (kind == kAttentionMask) {
    TORCH_CHECK(input.size(2) == mask.size(0) && input.size(2) == mask.size(1),
                "For mask_type == 0 mask shape should be (L, L)");
    if (!last) storage = mask.view({1, 1, input.size(2), input.size(2)}).expand(input.sizes());
  } else {
    TORCH_CHECK(input.sizes() == mask.sizes(), "For mask_type == 2 mask shape should match input shape");
  }
  storage = storage.contiguous();
  result.rows = std::max<int64_t>(storage.numel() / std::max<int64_t>(input.dim() == 0 ? 1 : input.size(-1), 1), 1);
  result.data = static_cast<const bool*>(storage.const_data_ptr());
  return result;
}

// The kernel masks rows, so another dimension is moved last and back.
at::Tensor masked_softmax(const at::Tensor& self, const at::Tensor& mask, std::optional<int64_t> dim,
                          std::optional<int64_t> mask_type) {
  check_same_device({&self, &mask});
  const int64_t d = at::maybe_wrap_dim(dim.value_or(-1), self.dim());
  at::Tensor storage;
  SoftmaxMask m = mask_for(self, mask, d, mask_type, storage);
  if (self.dim() == 0 || d == self.dim() - 1) {
    at::Tensor out = empty(self.sizes(), self.scalar_type());
    forward(SoftmaxOp::softmax, self, d, out, m);
    return out;
  }
  const at::Tensor moved = storage.view(self.sizes()).transpose(d, -1).contiguous();
  m.data = static_cast<const bool*>(moved.const_data_ptr());
  m.rows = std::max<int64_t>(moved.numel() / std::max<int64_t>(moved.size(-1), 1), 1);
  const at::Tensor rows = self.transpose(d, -1).contiguous();
  at::Tensor out = empty(rows.sizes(), self.scalar_type());
  forward(SoftmaxOp::softmax, rows, -1, out, m);
  return out.transpose(d, -1).contiguous();
}

at::Tensor masked_softmax_backward(const at::Tensor& grad, const at::Tensor& output, const at::Tensor& mask,
                                   std::optional<int64_t> dim) {
  check_same_device({&grad, &output, &mask});
  TORCH_CHECK(grad.sizes() == mask.sizes(), "Mask shape should match grad shape");
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  const int64_t d = at::maybe_wrap_dim(dim.value_or(-1), output.dim());
  const bool last = output.dim() == 0 || d == output.dim() - 1;
  auto rows_of = [&](const at::Tensor& t) { return (last ? t : t.transpose(d, -1)).contiguous(); };
  const at::Tensor y = rows_of(output), dy = rows_of(grad), rows = rows_of(mask);
  SoftmaxMask m;
  m.data = static_cast<const bool*>(rows.const_data_ptr());
  m.rows = std::max<int64_t>(rows.numel() / std::max<int64_t>(y.dim() == 0 ? 1 : y.size(-1), 1), 1);
  at::Tensor dx = empty(y.sizes(), grad.scalar_type());
  backward(SoftmaxOp::softmax, dy, y, -1, dx, m);
  return last ? dx : dx.transpose(d, -1).contiguous();
}

MT_OPERATORS(aten, PrivateUse1, m) {
  structured<Forward<at::meta::structured__softmax, SoftmaxOp::softmax>>(m, "_softmax", nullptr, "_softmax.out");
  structured<Forward<at::meta::structured__log_softmax, SoftmaxOp::log_softmax>>(m, "_log_softmax", nullptr,
                                                                                 "_log_softmax.out");
  structured<Backward<at::meta::structured__softmax_backward_data, SoftmaxOp::softmax>>(
      m, "_softmax_backward_data", nullptr, "_softmax_backward_data.out");
  structured<Backward<at::meta::structured__log_softmax_backward_data, SoftmaxOp::log_softmax>>(
      m, "_log_softmax_backward_data", nullptr, "_log_softmax_backward_data.out");
  m.impl("_masked_softmax", MT_CHECKED(masked_softmax));
  m.impl("_masked_softmax_backward", MT_CHECKED(masked_softmax_backward));
}

}  // namespace
}  // namespace minitorch
