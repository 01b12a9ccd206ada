// minitorch::linear_forward, the operator under aten::linear.
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "ops/matmul.h"

namespace minitorch {
namespace {

at::Tensor linear_forward_meta(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>&) {
  auto sizes = input.sym_sizes().vec();
  sizes.back() = weight.sym_size(0);
  return at::empty_symint(sizes, input.options());
}

TORCH_LIBRARY_FRAGMENT(minitorch, m) {
  m.def("linear_forward(Tensor input, Tensor weight, Tensor? bias) -> Tensor", {at::Tag::pt2_compliant_tag});
}
MT_OPERATORS(minitorch, PrivateUse1, m) { m.impl("linear_forward", MT_CHECKED(linear_forward)); }
TORCH_LIBRARY_IMPL(minitorch, Meta, m) { m.impl("linear_forward", TORCH_FN(linear_forward_meta)); }

}  // namespace
}  // namespace minitorch
