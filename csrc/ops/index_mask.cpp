// Operators on masks: masked_fill_, masked_select, masked_scatter_, nonzero and nonzero_static.
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/masked_fill_native.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/conversions.h"
#include "bridge/iterator.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/index.h"
#include "ops/float8.h"

namespace minitorch {
namespace {

using at::Tensor;

NonzeroPlan plan_of(const TensorView& view) {
  NonzeroPlan plan;
  nonzero_plan_kernel(view, plan);
  return plan;
}

void masked_fill_stub(at::TensorIterator& iter, const at::Scalar& value) {
  const auto mask_dtype = iter.tensor_base(1).dtype();
  TORCH_CHECK(mask_dtype == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask_dtype);
  // Raises native's error for a value that the dtype cannot hold.
  AT_DISPATCH_V2(iter.dtype(0), "masked_fill", AT_WRAP([&] { (void)value.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), at::kBool, at::kHalf, at::kBFloat16, at::kComplexHalf,
                 AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  masked_fill_kernel(view_of(iter), to_scalar(held_by(iter.dtype(0), value)));
}

// A value that lies on the device, in self's dtype, stays there: no one waits for it.
Tensor& masked_fill_with_tensor(Tensor& self, const Tensor& mask, const Tensor& value) {
  const bool stays = value.dim() == 0 && value.device() == self.device() && mask.device() == self.device() &&
                     value.scalar_type() == self.scalar_type() && !is_rare_or_float8(self.scalar_type()) &&
                     !value.is_neg() && !value.is_conj() && mask.scalar_type() == at::kBool &&
                     at::has_internal_overlap(self) != at::MemOverlap::Yes && self.numel() != 0;
  if (!stays) return at::native::masked_fill__cpu(self, mask, value);
  at::assert_no_partial_overlap(self, mask);
  check_allocated(value);
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(self)
                  .add_const_input(mask)
                  .build();
  masked_fill_with_element_kernel(view_of(iter), static_cast<const char*>(value.const_data_ptr()));
  return self;
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& result) {
  check_same_device({&result, &self, &mask});
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(self.scalar_type() == result.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, self);
  at::assert_no_overlap(result, mask);
  const auto [flags, input] = at::expand_outplace(mask, self);
  const TensorView flag_view = view_of(*flags);
  const NonzeroPlan plan = plan_of(flag_view);
  at::native::resize_output(result, {plan.before[plan.chunks]});
  if (result.numel() == 0) return result;
  refuse_rare_as_native("masked_select", self.scalar_type());
  masked_select_kernel(view_of(as_bytes(*input)), flag_view, plan, view_of(as_bytes(result)));
  return result;
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  Tensor result = empty({0}, self.scalar_type());
  masked_select_out(self, mask, result);
  return result;
}

Tensor& masked_scatter_(Tensor& self, const Tensor& mask, const Tensor& source) {
  check_same_device({&self, &mask, &source});
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter: expected self and source to have same dtypes but got", self.scalar_type(), " and ",
              source.scalar_type());
  const auto flags = at::expand_inplace(self, mask, "masked_scatter_");
  TORCH_CHECK(flags->scalar_type() == at::kBool,
              "masked_scatter_ only supports boolean masks, but got mask with dtype ", flags->scalar_type());
  const Tensor values = source.contiguous();
  const TensorView flag_view = view_of(*flags);
  const NonzeroPlan plan = plan_of(flag_view);
  TORCH_CHECK(plan.before[plan.chunks] <= values.numel(), "Number of elements of source < number of ones in mask");
  masked_scatter_kernel(view_of(self), flag_view, plan, view_of(values));
  return self;
}

// The kernel writes coordinates of the view's dimensions, which can be fewer than the tensor's.
void write_coordinates(const Tensor& self, const TensorView& view, const NonzeroPlan& plan, const Tensor& result) {
  if (self.numel() == 0) return;
  if (view.ndim == self.dim()) return nonzero_kernel(view, plan, view_of(result));
  Tensor shorter = self;
  int64_t none = -1;
  leave_out_ones(self, none, {&shorter});
  const Tensor found = empty({result.size(0), shorter.dim()}, at::kLong);
  nonzero_kernel(view_of(shorter), plan, view_of(found));
  for (int64_t d = 0, from = 0; d < self.dim(); d++) {
    const Tensor column = result.select(1, d);
    if (self.size(d) == 1)
      column.zero_();
    else
      column.copy_(found.select(1, from++));
  }
}

Tensor& nonzero_out(const Tensor& self, Tensor& result) {
  check_same_device({&result, &self});
  TORCH_CHECK(result.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got scalar type", result.scalar_type());
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, self);
  const TensorView view = view_of(self);
  const NonzeroPlan plan = plan_of(view);
  const int64_t total = plan.before[plan.chunks];
  // Like native: column-major when the result was not given in the right size.
  if (at::native::resize_output(result, {total, self.dim()})) result.as_strided_({total, self.dim()}, {1, total});
  write_coordinates(self, view, plan, result);
  return result;
}

Tensor nonzero(const Tensor& self) {
  Tensor result = empty({0}, at::kLong);
  nonzero_out(self, result);
  return result;
}

Tensor& nonzero_static_out(const Tensor& self, int64_t size, int64_t fill_value, Tensor& result) {
  check_same_device({&result, &self});
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  TORCH_CHECK(result.scalar_type() == at::kLong,
              "nonzero_static: Expected out tensor to have scalar type Long but got scalar type", result.scalar_type());
  const int64_t ndim = self.dim();
  if (result.dim() != 2 || result.size(0) != size || result.size(1) != ndim) result.resize_({size, ndim});
  if (result.size(0) == 0 || result.size(1) == 0) return result;
  const TensorView view = view_of(self);
  const NonzeroPlan plan = plan_of(view);
  write_coordinates(self, view, plan, result);
  const int64_t found = plan.before[plan.chunks];
  if (found < size) result.narrow(0, found, size - found).fill_(fill_value);
  return result;
}

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  Tensor result = empty({size, self.dim()}, at::kLong);
  nonzero_static_out(self, size, fill_value, result);
  return result;
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(masked_fill_stub, &minitorch::masked_fill_stub)
}

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  using FillScalar = Tensor& (*)(Tensor&, const Tensor&, const at::Scalar&);
  m.impl("masked_fill_.Scalar", MT_CHECKED(static_cast<FillScalar>(at::native::masked_fill__cpu)));
  m.impl("masked_fill_.Tensor", MT_CHECKED(masked_fill_with_tensor));
  m.impl("masked_select", MT_CHECKED(masked_select));
  m.impl("masked_select.out", MT_CHECKED(masked_select_out));
  m.impl("masked_scatter_", MT_CHECKED(masked_scatter_));
  m.impl("nonzero", MT_CHECKED(nonzero));
  m.impl("nonzero.out", MT_CHECKED(nonzero_out));
  m.impl("nonzero_static", MT_CHECKED(nonzero_static));
  m.impl("nonzero_static.out", MT_CHECKED(nonzero_static_out));
}
}  // namespace minitorch
