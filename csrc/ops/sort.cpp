// sort, topk, kthvalue, median, mode: PyTorch's checks, our kernels. argsort, msort and quantile are composites of
// these.
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/SortingUtils.h>
#include <ATen/ops/sort_meta.h>
#include <ATen/ops/topk_meta.h>

#include <limits>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/sort.h"
#include "ops/reduce.h"

namespace minitorch {
namespace {

// Native's error for outputs whose elements share memory.
void assert_writable(const at::Tensor& values, const at::Tensor& indices) {
  at::assert_no_internal_overlap(values);
  at::assert_no_internal_overlap(indices);
}

// A kernel whose threads write results while others still read the input needs an input of its own.
at::Tensor apart(const at::Tensor& self, const at::Tensor& values, const at::Tensor& indices) {
  return values.is_alias_of(self) || indices.is_alias_of(self) ? self.clone() : self;
}

struct Sort : at::meta::structured_sort_stable {
  void impl(const at::Tensor& self, std::optional<bool>, int64_t dim, bool descending, const at::Tensor& values,
            const at::Tensor& indices) {
    assert_writable(values, indices);
    at::assert_no_partial_overlap(values, self);
    const at::ScalarType dtype = self.scalar_type();
    const bool single = self.dim() == 0;  // of any dtype that has an order
    check_native_has(single || !at::isFloat8Type(dtype), "sorting_kernel_method_name", dtype);
    if (self.numel() == 0) return;
    TORCH_CHECK(!self.is_complex(), " Sort does not support complex dtypes on CPU");
    if (single) {
      values.copy_(self);
      indices.zero_();
      return;
    }
    const at::Tensor input = apart(self, values, indices);
    with_views_along(
        at::maybe_wrap_dim(dim, self.dim()), [&](int d, const auto&... views) { sort_kernel(views..., d, descending); },
        values, indices, input);
  }
};

struct TopK : at::meta::structured_topk {
  void impl(const at::Tensor& self, int64_t k, int64_t dim, bool largest, bool, const at::Tensor& values,
            const at::Tensor& indices) {
    assert_writable(values, indices);
    assert_no_shared_part(self, values, indices);
    if (self.dim() != 0 && is_rare_or_float8(self.scalar_type())) refuse_as_native("topk", self.scalar_type());
    if (values.numel() == 0) return;
    if (self.dim() == 0) {  // also of none: the results have no dimension that could be empty
      values.copy_(self);
      indices.zero_();
      return;
    }
    const at::Tensor input = apart(self, values, indices);
    with_views_along(
        at::maybe_wrap_dim(dim, self.dim()), [&](int d, const auto&... views) { topk_kernel(views..., d, k, largest); },
        values, indices, input);
  }
};

// Where an output is the input, resizing it must not change what is read.
at::Tensor shape_kept(const at::Tensor& self, const at::Tensor& values, const at::Tensor& indices) {
  return values.is_same(self) || indices.is_same(self) ? self.alias() : self;
}

at::DimVector reduced_shape(const at::Tensor& self, int64_t dim, bool keepdim) {
  at::DimVector shape(self.sizes());
  if (self.dim() == 0) return shape;
  if (keepdim)
    shape[dim] = 1;
  else
    shape.erase(shape.begin() + dim);
  return shape;
}

// Outputs that have lost the reduced dimension get it back for the kernel, as a view.
void select(SelectOp op, const at::Tensor& self, const at::Tensor& values, const at::Tensor& indices, int64_t dim,
            bool keepdim, int64_t k = 0) {
  assert_writable(values, indices);
  if (values.numel() == 0) return;
  const bool missing = !keepdim && self.dim() > 0;
  const at::Tensor v = missing ? values.unsqueeze(dim) : values, i = missing ? indices.unsqueeze(dim) : indices;
  const at::Tensor input = apart(self, values, indices);
  with_views_along(dim, [&](int d, const auto&... views) { select_kernel(op, views..., d, k); }, v, i, input);
}

std::tuple<at::Tensor&, at::Tensor&> kthvalue_out(const at::Tensor& self, int64_t k, int64_t dim, bool keepdim,
                                                  at::Tensor& values, at::Tensor& indices) {
  check_same_device({&self, &values, &indices});
  const int64_t d = at::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/true);
  at::native::zero_numel_check_dims(self, d, "kthvalue()");
  TORCH_CHECK(k > 0 && k <= (self.dim() > 0 ? self.size(d) : 1),
              "kthvalue(): selected number k out of range for dimension ", d);
  at::assert_no_overlap(self, values);
  const at::Tensor source = shape_kept(self, values, indices);
  at::native::_reduction_with_indices_allocate_or_resize_output(values, indices, source, d, keepdim);
  if (source.dim() == 0) {  // of any dtype
    values.copy_(source);
    indices.zero_();
    return {values, indices};
  }
  if (const auto t = source.scalar_type(); t != at::kFloat) refuse_as_native("kthvalue", t);
  select(SelectOp::kth, source, values, indices, d, /*keepdim=*/true, k);
  if (!keepdim) {
    values.squeeze_(d);
    indices.squeeze_(d);
  }
  return {values, indices};
}

// Native's text is not the same for all elements and for those along a dimension.
void check_median(const char* kernel, at::ScalarType dtype) {
  const bool has = dtype != at::kBool && !at::isComplexType(dtype) && !at::isFloat8Type(dtype) &&
                   !c10::isBarebonesUnsignedType(dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(has || !backend().host_accessible(), '"', kernel, "\" not implemented for '", dtype, "'");
}

template <SelectOp op>
std::tuple<at::Tensor&, at::Tensor&> median_out(const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values,
                                                at::Tensor& indices) {
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, d, "median()");
  at::checkDeviceType("median", {values, indices}, self.device().type());
  at::checkScalarType("median", {indices, "indices", 1}, at::kLong);
  at::checkSameType("median", {values, "values", 0}, {self, "self", 2});
  const at::DimVector shape = reduced_shape(self, d, keepdim);
  at::native::resize_output(values, shape);
  at::native::resize_output(indices, shape);
  at::maybe_wrap_dim(dim, self.dim());  // one of the outputs may be self
  check_median("median_out", self.scalar_type());
  select(op, self, values, indices, d, keepdim);
  return {values, indices};
}

// NaN, or for integers what native's conversion makes of it on the host.
at::Scalar median_of_nothing(at::ScalarType type) {
  if (!at::isIntegralType(type, /*includeBool=*/false)) return std::numeric_limits<double>::quiet_NaN();
  if (type == at::kInt) return std::numeric_limits<int32_t>::min();
  return type == at::kLong ? std::numeric_limits<int64_t>::min() : int64_t{0};
}

template <SelectOp op>
at::Tensor median_all(const at::Tensor& self) {
  if (self.numel() == 0) return empty({}, self.scalar_type()).fill_(median_of_nothing(self.scalar_type()));
  check_median("median_cpu", self.scalar_type());
  at::Tensor value = empty({}, self.scalar_type());
  const at::Tensor flat = self.reshape(-1), index = empty({}, at::kLong);
  select(op, flat, value, index, 0, /*keepdim=*/false);
  return value;
}

std::tuple<at::Tensor&, at::Tensor&> mode_out(const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values,
                                              at::Tensor& indices) {
  TORCH_CHECK(self.device() == values.device(), "expected device '", self.device(), "' but got '", values.device(),
              "' for values output");
  TORCH_CHECK(self.device() == indices.device(), "expected device '", self.device(), "' but got '", indices.device(),
              "' for indices output");
  TORCH_CHECK(self.scalar_type() == values.scalar_type(), "expected scalar type '", self.scalar_type(), "' but got '",
              values.scalar_type(), "' for values output");
  TORCH_CHECK(indices.scalar_type() == at::kLong, "expected scalar type '", at::kLong, "' but got '",
              indices.scalar_type(), "' for indices output");
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  if (self.numel() == 0) {
    const auto sizes = at::native::get_zero_numel_tensor_size(self, d, keepdim, "mode()");
    at::native::resize_output(values, sizes);
    at::native::resize_output(indices, sizes);
    return {values, indices};
  }
  const at::Tensor source = shape_kept(self, values, indices);
  const at::DimVector shape = reduced_shape(source, d, keepdim);
  at::native::resize_output(values, shape);
  at::native::resize_output(indices, shape);
  assert_no_shared_part(self, values, indices);
  if (source.dim() == 0) {  // of any dtype
    values.copy_(source);
    indices.zero_();
    return {values, indices};
  }
  if (is_rare_or_float8(source.scalar_type())) refuse_as_native("mode", source.scalar_type());
  select(SelectOp::mode, source, values, indices, d, keepdim);
  return {values, indices};
}

std::tuple<at::Tensor, at::Tensor> mode(const at::Tensor& self, int64_t dim, bool keepdim) {
  at::Tensor values = empty({0}, self.scalar_type()), indices = empty({0}, at::kLong);
  mode_out(self, dim, keepdim, values, indices);
  return {values, indices};
}

MT_OPERATORS(aten, PrivateUse1, m) {
  structured<Sort>(m, "sort.stable", nullptr, "sort.values_stable");
  structured<TopK>(m, "topk", nullptr, "topk.values");
  m.impl("kthvalue.values", MT_CHECKED(kthvalue_out));
  m.impl("median", MT_CHECKED(median_all<SelectOp::median>));
  m.impl("nanmedian", MT_CHECKED(median_all<SelectOp::nanmedian>));
  m.impl("median.dim_values", MT_CHECKED(median_out<SelectOp::median>));
  m.impl("nanmedian.dim_values", MT_CHECKED(median_out<SelectOp::nanmedian>));
  m.impl("mode", MT_CHECKED(mode));
  m.impl("mode.values", MT_CHECKED(mode_out));
}

}  // namespace
}  // namespace minitorch
