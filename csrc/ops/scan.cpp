// cumsum, cumprod, logcumsumexp, cummax and cummin: PyTorch's checks, our kernels.
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_logcumsumexp_native.h>
#include <ATen/ops/cumprod_native.h>
#include <ATen/ops/cumsum_native.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/scan.h"
#include "ops/complex_half.h"

namespace minitorch {
namespace {

template <ScanOp op>
void scan_stub(const at::Tensor& result, const at::Tensor& self, int64_t dim) {
  TORCH_CHECK_NOT_IMPLEMENTED(result.scalar_type() != at::kBool && !refuses_rare(result.scalar_type()),
                              op == ScanOp::sum         ? "\"cumsum_out_cpu\""
                              : op == ScanOp::logsumexp ? "\"logcumsumexp_out_cpu\""
                                                        : "\"cumprod_out_cpu\"",
                              " not implemented for '", result.scalar_type(), "'");
  refuse_complex_half(result.scalar_type(), "scan");
  at::assert_no_internal_overlap(result);
  at::assert_no_partial_overlap(result, self);
  if (result.numel() == 0) return;
  with_views_along(
      dim, [](int d, const TensorView& out, const TensorView& in) { scan_kernel(op, out, in, d); }, result, self);
}

// PyTorch's own logcumsumexp is bound to the CPU dispatch key, but not to the CPU.
at::Tensor& logcumsumexp_out(const at::Tensor& self, int64_t dim, at::Tensor& out) {
  check_same_device({&self, &out});
  at::native::resize_output(out, self.sizes());
  return at::native::_logcumsumexp_out_cpu(self, at::maybe_wrap_dim(dim, self.dim()), out);
}
at::Tensor logcumsumexp(const at::Tensor& self, int64_t dim) {
  at::Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
  return logcumsumexp_out(self, dim, out);
}
void logcumsumexp_stub(at::Tensor& result, const at::Tensor& self, int64_t dim) {
  scan_stub<ScanOp::logsumexp>(result, self, dim);
}

// cummax and cummin have made the outputs before they call this; a call by the helper's own name may have made others.
template <bool max>
void extremum_helper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim) {
  check_same_device({&self, &values, &indices});
  TORCH_CHECK(values.sizes() == self.sizes() && indices.sizes() == self.sizes(), "Expected values of shape ",
              values.sizes(), " and indices of shape ", indices.sizes(), " to have the input's shape, ", self.sizes());
  TORCH_CHECK(values.scalar_type() == self.scalar_type() && indices.scalar_type() == at::kLong,
              "Expected values of the input's dtype and indices of dtype Long, got ", values.scalar_type(), " and ",
              indices.scalar_type());
  at::assert_no_internal_overlap(values);
  at::assert_no_internal_overlap(indices);
  with_views_along(
      at::maybe_wrap_dim(dim, self.dim()), [](int d, const auto&... views) { scan_extremum_kernel(max, views..., d); },
      values, indices, self);
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(cumsum_stub, &minitorch::scan_stub<minitorch::ScanOp::sum>)
REGISTER_PRIVATEUSE1_DISPATCH(cumprod_stub, &minitorch::scan_stub<minitorch::ScanOp::prod>)
REGISTER_PRIVATEUSE1_DISPATCH(logcumsumexp_stub, &minitorch::logcumsumexp_stub)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  structured<at::native::structured_cumsum_out>(m, "cumsum", "cumsum_", "cumsum.out");
  structured<at::native::structured_cumprod_out>(m, "cumprod", "cumprod_", "cumprod.out");
  m.impl("_logcumsumexp", MT_CHECKED(logcumsumexp));
  m.impl("_logcumsumexp.out", MT_CHECKED(logcumsumexp_out));
  m.impl("_cummax_helper", MT_CHECKED(extremum_helper<true>));
  m.impl("_cummin_helper", MT_CHECKED(extremum_helper<false>));
}
}  // namespace minitorch
