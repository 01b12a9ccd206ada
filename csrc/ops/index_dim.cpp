// Indexing along one dimension: gather, scatter and its reductions, index_select, index_add, index_reduce.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/ops/gather_native.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_reduce_meta.h>
#include <ATen/ops/one_hot_native.h>
#include <ATen/ops/scatter_add_meta.h>
#include <ATen/ops/scatter_native.h>
#include <ATen/ops/scatter_reduce_native.h>

#include "bridge/checked.h"
#include "bridge/conversions.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "ops/float8.h"
#include "ops/index_common.h"
#include "ops/opaque.h"
#include "ops/reduce.h"

namespace minitorch {
namespace {

using at::Tensor;
using at::native::ReductionType;

template <class F>
void with_gather_errors(const F& f, int64_t dim) {
  with_index_errors(f, [&](const IndexOutOfRange& e) {
    TORCH_CHECK(false, "index ", e.index, " is out of bounds for dimension ", dim, " with size ", e.size);
  });
}

template <class F>
void with_select_errors(const F& f) {
  with_index_errors(f, [](const IndexOutOfRange&) { TORCH_CHECK_INDEX(false, "index out of range in self"); });
}

IndexWrite write_of(const ReductionType& op) {
  switch (op) {
    case ReductionType::SUM:
    case ReductionType::MEAN: return IndexWrite::add;  // PyTorch divides by the counts afterwards
    case ReductionType::PROD: return IndexWrite::multiply;
    case ReductionType::MAX: return IndexWrite::maximum;
    case ReductionType::MIN: return IndexWrite::minimum;
  }
  TORCH_INTERNAL_ASSERT(false);
}

void check_reducible(const Tensor& self, const ReductionType& op) {
  const bool ordered = op == ReductionType::MAX || op == ReductionType::MIN;
  TORCH_CHECK_NOT_IMPLEMENTED(!ordered || !self.is_complex(), "\"scatter_gather_tensor_cpu_reduce_",
                              op == ReductionType::MAX ? "amax" : "amin", "\" not implemented for '",
                              toString(self.scalar_type()), "'");
}

// `fresh`: nobody sees self if an index is out of bounds.
void write_along(const char* name, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& values,
                 IndexWrite op, bool fresh = false) {
  if (op != IndexWrite::assign && at::isReducedFloatingType(self.scalar_type())) {
    // Like native: 16-bit floats are reduced in float and rounded once.
    const Tensor wide = self.to(at::kFloat);
    write_along(name, wide, dim, index, values.to(at::kFloat), op, true);
    self.copy_(wide);
    return;
  }
  const Tensor longs = as_long(index);
  IndexArgs args = along_dim(name, values, self, dim, longs);
  args.check_first = !fresh;
  with_gather_errors([&] { index_write_kernel(args, op); }, dim);
}

// Whether native takes its way for a vector of indices that is expanded over rows. It knows fewer dtypes there, but is
// asked for all floats; for us this matters in the names of refusals only.
bool is_expanded(const Tensor& into, int64_t dim, const Tensor& index, const Tensor& from, bool scatters) {
  constexpr int64_t kFewest = 16;  // elements of a row, to scatter them so
  if (!at::isFloatingType(into.scalar_type()) || dim != 0 || from.dim() == 0 || index.dim() == 0) return false;
  if (into.numel() == 0 || index.numel() == 0 || from.numel() == 0) return false;
  for (int64_t d = 1; d < index.dim(); d++)
    if (from.size(d) != index.size(d) || index.stride(d) > 1) return false;
  if (scatters && index.numel() / index.size(0) < kFewest) return false;
  return index.stride(0) == 1 && into.is_contiguous() && from.is_contiguous();
}

void gather_stub(const Tensor& result, const Tensor& self, int64_t dim, const Tensor& index) {
  if (at::isFloat8Type(self.scalar_type()))
    check_native_has(!is_expanded(result, dim, index, self, false), "gather_expanded_index", self.scalar_type());
  if (is_rare_or_float8(self.scalar_type())) refuse_as_native("gather", self.scalar_type());
  const Tensor longs = as_long(index);
  IndexArgs args = along_dim("gather", result, self, dim, longs);
  args.check_first = !unseen(result);
  with_gather_errors([&] { index_read_kernel(args); }, dim);
}

void scatter_stub(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  refuse_rare_as_native("scatter", self.scalar_type());
  write_along("scatter", self, dim, index, src, IndexWrite::assign);
}

void check_scatters(const char* kernel, const Tensor& self) {
  check_native_has(!is_rare_or_float8(self.scalar_type()), kernel, self.scalar_type());
}

void scatter_fill_stub(const Tensor& self, int64_t dim, const Tensor& index, const at::Scalar& value) {
  check_scatters("scatter_gather_scalar_cpu", self);
  check_convertible(value, self.scalar_type());
  write_along("scatter", self, dim, index, at::scalar_tensor(value, self.options()), IndexWrite::assign);
}

// PyTorch's own implementation does not say whether the result is new.
struct ScatterAdd : at::meta::structured_scatter_add {
  void impl(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, const Tensor& out) {
    const bool in_place = out.is_same(self);
    if (!in_place) out.copy_(self);
    if (index.numel() == 0) return;
    dim = at::maybe_wrap_dim(dim, self.dim());
    check_scatters(is_expanded(out, dim, index, src, true) ? "scatter_add_expanded_index" : "scatter_gather_tensor_cpu",
                   out);
    write_along("scatter_add", out, dim, index, src, IndexWrite::add, !in_place && unseen(out));
  }
};

void scatter_reduce_stub(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                         const ReductionType& op) {
  check_reducible(self, op);
  if (op == ReductionType::MEAN && self.scalar_type() == at::kBool) refuse_as_native("scatter_reduce", at::kBool);
  check_scatters(op == ReductionType::MEAN  ? "scatter_gather_tensor_cpu_reduce_mean"
                 : op == ReductionType::MAX ? "scatter_gather_tensor_cpu_reduce_amax"
                 : op == ReductionType::MIN ? "scatter_gather_tensor_cpu_reduce_amin"
                                            : "scatter_gather_tensor_cpu",
                 self);
  write_along("scatter_reduce", self, dim, index, src, write_of(op));
}

// Refuses in native's names, which depend on more than the dtype.
struct ScatterReduce : at::native::structured_scatter_reduce_two {
  void impl(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
            bool include_self, const Tensor& out) {
    const at::ScalarType dtype = self.scalar_type();
    if (C10_UNLIKELY(is_rare_or_float8(dtype))) {
      const bool expanded = is_expanded(out, at::maybe_wrap_dim(dim, self.dim()), index, src, true);
      check_native_has(!expanded, "scatter_reduce_expanded_index", dtype);
      // What no element is added to is divided by one instead of none.
      const bool fills = index.numel() == 0 && reduce == "mean" && dtype != at::kComplexHalf;
      check_native_has(!fills, "masked_fill", dtype);
    }
    at::native::structured_scatter_reduce_two::impl(self, dim, index, src, reduce, include_self, out);
  }
};

void scatter_scalar_reduce_stub(const Tensor& self, int64_t dim, const Tensor& index, const at::Scalar& value,
                                const ReductionType& op) {
  check_reducible(self, op);
  check_scatters("scatter_gather_scalar_cpu", self);
  check_convertible(value, self.scalar_type());
  write_along("scatter_reduce", self, dim, index, at::scalar_tensor(value, self.options()), write_of(op));
}

Tensor& index_select_out(const Tensor& self, int64_t dim, const Tensor& index, Tensor& result) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  check_same_device({&result, &self, &index});
  const int64_t count = index.numel();
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(!(self.dim() == 0 && count != 1), "index_select(): Index to scalar can have only 1 value, got ", count,
              " value(s)");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(self.scalar_type() == result.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, self);
  at::assert_no_overlap(result, index);
  at::DimVector sizes(self.sizes());
  if (self.dim() > 0) sizes[dim] = count;
  at::native::resize_output(result, sizes);
  check_native_has(self.dim() > 1 || !c10::isBarebonesUnsignedType(self.scalar_type()), "index_select",
                   self.scalar_type());
  if (count == 0) return result;
  TORCH_CHECK(self.dim() <= 1 || self.numel() != 0 || self.size(dim) > 0,
              "index_select(): self indexing axis dim should be positive");
  const Tensor longs = as_long(index);
  // An empty space has no element that would meet a bad index; a scalar for each index does.
  const bool nothing = self.dim() > 1 && self.numel() == 0;
  // Native goes from slice to slice, of which it can tell more often what they share.
  if (self.dim() > 1 && !nothing && !unseen(result))
    at::assert_no_partial_overlap(result.select(dim, 0), self.select(dim, 0));
  // PyTorch has another message for the case that it has another loop for.
  const bool second_dim = self.dim() > 1 && (nothing || (dim == 1 && result.is_contiguous()));
  with_index_errors(
      [&] {
        if (nothing) {
          const Tensor bounds = as_bytes(at::empty({self.size(dim)}, self.options()));
          const Tensor scalars = as_bytes(at::empty({count}, self.options()));
          index_read_kernel(along_dim_vector("index_select", scalars, bounds, 0, longs));
        } else {
          IndexArgs args = along_dim_vector("index_select", as_bytes(result), as_bytes(self), dim, longs);
          args.check_first = !unseen(result);
          index_read_kernel(args);
        }
      },
      [&](const IndexOutOfRange& e) {
        TORCH_CHECK(!second_dim, "INDICES element is out of DATA bounds, id=", e.index, " axis_dim=", e.size);
        TORCH_CHECK_INDEX(false, "index out of range in self");
      });
  return result;
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  if (const auto integers = integers_for(self.scalar_type()))
    return at::index_select(self.view(*integers), dim, index).view(self.scalar_type());
  Tensor result = at::empty({0}, self.options());
  index_select_out(self, dim, index, result);
  return result;
}

struct IndexAdd : at::meta::structured_index_add {
  void impl(const meta_return_ty& pre, const Tensor& self, int64_t, const Tensor& index, const Tensor& source,
            const at::Scalar& scale, const Tensor& out) {
    if (!out.is_same(self)) out.copy_(self);
    TORCH_CHECK(out.dim() > 1 || source.dim() <= 1, "source.dim() (", source.dim(),
                ") must one or zero for given self.dim() (", self.dim(), ")");
    const bool scaled = !scale.equal(1),
               adds = !at::isFloat8Type(out.scalar_type()) && !c10::isBarebonesUnsignedType(out.scalar_type());
    if (out.dim() <= 1) check_native_has(adds, "index_add_", out.scalar_type());
    if (index.numel() == 0 || source.numel() == 0 || (out.numel() == 0 && out.dim() > 1)) return;
    const at::Scalar alpha = as_native_takes(scale, out.scalar_type());
    check_native_has(adds, scaled ? "add_stub" : "scatter_gather_tensor_cpu", out.scalar_type());
    if ((scaled || out.dim() <= 1) && at::isReducedFloatingType(out.scalar_type())) {
      // Products and sums stay in float until the end. (Sums of whole rows do so in the kernel.)
      const Tensor sum = out.to(at::kFloat);
      add(sum, pre.dim, index, scaled ? source.to(at::kFloat).mul(alpha) : source.to(at::kFloat), scaled);
      out.copy_(sum);
    } else {
      add(out, pre.dim, index, scaled ? source.mul(alpha) : source, scaled);
    }
  }

 private:
  // Of a fraction integers take what is before the point.
  static at::Scalar as_native_takes(const at::Scalar& scale, at::ScalarType dtype) {
    check_convertible(scale, dtype);
    if (at::isIntegralType(dtype, false) && !scale.isIntegral(false)) return scale.toLong();
    return held_by(dtype, scale);
  }
  static void add(const Tensor& out, int64_t dim, const Tensor& index, const Tensor& source, bool scaled) {
    const Tensor longs = as_long(index);
    const auto run = [&] {
      index_write_kernel(along_dim_vector("index_add", source, out, dim, longs), IndexWrite::add);
    };
    // PyTorch sends unscaled sums through scatter_add, which has its own message.
    if (out.dim() > 1 && !scaled) {
      with_gather_errors(run, dim);
    } else {
      with_select_errors(run);
    }
  }
};

struct IndexReduce : at::meta::structured_index_reduce {
  void impl(const meta_return_ty& pre, const Tensor& self, int64_t, const Tensor& index, const Tensor& source,
            std::string_view reduce, bool include_self, const Tensor& out) {
    TORCH_WARN_ONCE("index_reduce() is in beta and the API may change at any time.");
    const int64_t dim = pre.dim;
    const ReductionType op = at::native::get_reduction_enum(reduce);
    if (!out.is_same(self)) out.copy_(self);
    TORCH_CHECK(out.dim() > 1 || source.dim() <= 1, "source.dim() (", source.dim(),
                ") must one or zero for given self.dim() (", self.dim(), ")");
    const at::ScalarType type = out.scalar_type();
    const bool real = !at::isComplexType(type) && !is_rare_or_float8(type);
    if (out.dim() <= 1) check_native_has(real && type != at::kBool, "index_func_", type);
    TORCH_CHECK_NOT_IMPLEMENTED(real || backend().synchronous(), "\"index_reduce\" not implemented for '", type, "'");
    TORCH_CHECK_NOT_IMPLEMENTED((real && type != at::kBool) || include_self,
                                "\"index_reduce_func_exclude_input_init\" not implemented for '", type, "'");
    if (index.numel() == 0) return;
    TORCH_CHECK_NOT_IMPLEMENTED(type != at::kBool || op != ReductionType::MEAN,
                                "\"div_floor_cpu\" not implemented for 'Bool'");
    const Tensor longs = as_long(index);
    if (!include_self) out.index_fill_(dim, longs, initial_value(op, type));
    if (!real)
      reduce_slices(op, dim, longs, source, out);
    else if (source.numel() != 0)
      with_select_errors(
          [&] { index_write_kernel(along_dim_vector("index_reduce", source, out, dim, longs), write_of(op)); });
    if (op != ReductionType::MEAN) return;
    Tensor counts = include_self ? at::ones_like(out) : at::zeros_like(out);
    counts.index_add_(dim, longs, at::ones_like(source));
    counts.masked_fill_(counts == 0, 1);
    if (out.is_floating_point() || out.is_complex()) {
      out.div_(counts);
    } else {
      out.div_(counts, "floor");
    }
  }

 private:
  // Native works on pairs of slices, with what it has for elements of any dtype.
  static void reduce_slices(ReductionType op, int64_t dim, const Tensor& index, const Tensor& source,
                            const Tensor& out) {
    const at::ScalarType type = out.scalar_type();
    check_native_has(op != ReductionType::MAX, "maximum_cpu", type);
    check_native_has(op != ReductionType::MIN, "minimum_cpu", type);
    check_native_has(op != ReductionType::MEAN || at::isComplexType(type), "add_stub", type);
    check_native_has(op != ReductionType::MEAN || type != at::kComplexHalf, "div_cpu", type);
    const Tensor rows = index.cpu().contiguous();
    const int64_t* row = rows.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < rows.numel(); i++)
      TORCH_CHECK_INDEX(row[i] >= 0 && row[i] < out.size(dim), "index out of range in self");
    for (int64_t i = 0; i < rows.numel(); i++) {
      Tensor slice = out.select(dim, row[i]);
      if (op == ReductionType::PROD)
        slice.mul_(source.select(dim, i));
      else
        slice.add_(source.select(dim, i));
    }
  }
  static at::Scalar initial_value(ReductionType op, at::ScalarType dtype) {
    if (op == ReductionType::PROD) return 1;
    if (op == ReductionType::SUM || op == ReductionType::MEAN) return 0;
    const bool integral = at::isIntegralType(dtype, false) && !c10::isBarebonesUnsignedType(dtype);
    TORCH_CHECK_NOT_IMPLEMENTED(integral || at::isFloatingType(dtype), "\"index_reduce\" not implemented for '",
                                toString(dtype), "'");
    return extremum_of_nothing(op == ReductionType::MAX, dtype);
  }
};

// PyTorch's composite checks the classes only on devices whose names are on a list. With their number given, a device
// that is not waited for finds a bad one while it scatters.
Tensor one_hot(const Tensor& self, int64_t num_classes) {
  if (self.scalar_type() == at::kLong && self.numel() != 0 && (backend().synchronous() || num_classes == -1)) {
    TORCH_CHECK(self.min().item<int64_t>() >= 0, "Class values must be non-negative.");
    TORCH_CHECK(num_classes == -1 || self.max().item<int64_t>() < num_classes,
                "Class values must be smaller than num_classes.");
  }
  return at::native::one_hot(self, num_classes);
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(gather_stub, &minitorch::gather_stub)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_stub, &minitorch::scatter_stub)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_fill_stub, &minitorch::scatter_fill_stub)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_reduce_stub, &minitorch::scatter_reduce_stub)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_reduce_two_stub, &minitorch::scatter_reduce_stub)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_scalar_reduce_stub, &minitorch::scatter_scalar_reduce_stub)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("one_hot", MT_CHECKED(one_hot));
  structured<at::native::structured_gather_out>(m, "gather", nullptr, "gather.out");
  structured<at::native::structured_scatter_src_out>(m, "scatter.src", "scatter_.src", "scatter.src_out");
  structured<at::native::structured_scatter_value_out>(m, "scatter.value", "scatter_.value", "scatter.value_out");
  structured<at::native::structured_scatter_reduce_out>(m, "scatter.reduce", "scatter_.reduce", "scatter.reduce_out");
  structured<at::native::structured_scatter_value_reduce_out>(m, "scatter.value_reduce", "scatter_.value_reduce",
                                                              "scatter.value_reduce_out");
  structured<ScatterAdd>(m, "scatter_add", "scatter_add_", "scatter_add.out");
  structured<ScatterReduce>(m, "scatter_reduce.two", "scatter_reduce_.two", "scatter_reduce.two_out");
  structured<IndexAdd>(m, "index_add", "index_add_", "index_add.out");
  structured<IndexReduce>(m, "index_reduce", "index_reduce_", "index_reduce.out");
  m.impl("index_select", MT_CHECKED(index_select));
  m.impl("index_select.out", MT_CHECKED(index_select_out));
}
}  // namespace minitorch
