// Sums, products, norms, logical and index reductions: PyTorch's metas, our kernel. Variance is in reduce_var.cpp.
//
// PyTorch converts the input to the accumulation dtype as a pass of its own before most reductions. Our kernel converts
// while it reads, so these operators have their own impl.
#include "bridge/checked.h"
#include "ops/complex_half.h"
#include "ops/reduce.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceAllOps.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/all_meta.h>
#include <ATen/ops/amax_native.h>
#include <ATen/ops/amin_native.h>
#include <ATen/ops/aminmax_native.h>
#include <ATen/ops/any_meta.h>
#include <ATen/ops/argmax_native.h>
#include <ATen/ops/argmin_native.h>
#include <ATen/ops/linalg_vector_norm_meta.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/max_native.h>
#include <ATen/ops/mean_meta.h>
#include <ATen/ops/min_meta.h>
#include <ATen/ops/min_native.h>
#include <ATen/ops/nansum_native.h>
#include <ATen/ops/norm_native.h>
#include <ATen/ops/prod_meta.h>
#include <ATen/ops/renorm_meta.h>
#include <ATen/ops/sum_meta.h>

#include <limits>

#include "bridge/conversions.h"
#include "bridge/iterator.h"
#include "bridge/operators.h"
#include "bridge/structured.h"

namespace minitorch {

void reduce(ReduceOp op, const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, at::ScalarType dtype,
            const ReduceParams& params, const at::Tensor& out, const at::Tensor& out2) {
  const bool adds = op == ReduceOp::sum || op == ReduceOp::mean;
  if (adds || op == ReduceOp::prod)
    check_native_has(!is_rare_or_float8(dtype), adds ? "sum_cpu" : "prod_out_cpu", dtype);
  // Reading as `dtype` is the same as converting first unless the loops compute in a wider type.
  const DType wanted = to_dtype(dtype);
  if (adds || op == ReduceOp::prod) warn_if_imaginary_parts_go(self.scalar_type(), dtype);
  const bool converts = self.scalar_type() != dtype;
  const bool exact = wanted == compute_dtype(wanted) && (!is_integral(wanted) || wanted == DType::I64);
  const bool only_zeros_count = op == ReduceOp::any || op == ReduceOp::all || op == ReduceOp::count_nonzero;
  // The loops read numbers that become bools as integers, which makes a half nothing; float8 no loop reads,
  // and native counts none.
  const bool first = dtype == at::kBool ? !only_zeros_count : !exact;
  const at::Tensor source =
      converts && (first || (at::isFloat8Type(self.scalar_type()) && op != ReduceOp::count_nonzero)) ? self.to(dtype)
                                                                                                     : self;
  const auto mask = at::native::make_dim_mask(dims, self.dim());
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .resize_outputs(false)
      .is_reduction(true)
      .check_all_same_dtype(false)
      .add_owned_output(at::native::review_reduce_result(out, static_cast<int>(self.dim()), mask, keepdim));
  if (out2.defined())
    config.add_owned_output(at::native::review_reduce_result(out2, static_cast<int>(self.dim()), mask, keepdim));
  auto iter = config.add_owned_const_input(source).build();
  PointwiseView view = view_of(iter);
  view.compute = wanted;
  reduce_kernel(op, view, params);
}

at::Scalar extremum_of_nothing(bool max, at::ScalarType type) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (at::isFloatingType(type)) return max ? -infinity : infinity;
  at::Scalar result;
  AT_DISPATCH_INTEGRAL_TYPES(type, "extremum_of_nothing", [&] {
    using Limits = std::numeric_limits<scalar_t>;
    result = max ? Limits::lowest() : Limits::max();
  });
  return result;
}

namespace {

void run(ReduceOp op, const at::TensorIterator& iter, const ReduceParams& params = {}) {
  PointwiseView view = view_of(iter);
  view.compute = view.dtype[view.num_operands - 1];
  reduce_kernel(op, view, params);
}

struct Sum : at::meta::structured_sum_dim_IntList {
  void impl(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType>,
            const at::Tensor& out) {
    if (self.numel() == 0) {
      out.zero_();
    } else {
      reduce(ReduceOp::sum, self, dim, keepdim, out.scalar_type(), {}, out);
    }
  }
};

struct Mean : at::meta::structured_mean_dim {
  void impl(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType>,
            const at::Tensor& out) {
    refuse_rare("sum_cpu", out.scalar_type());
    TORCH_CHECK(!at::isIntegralType(out.scalar_type(), /*includeBool=*/true), "result type ",
                c10::get_default_dtype_as_scalartype(), " can't be cast to the desired output type ",
                out.scalar_type());
    at::assert_no_internal_overlap(out);
    if (self.numel() == 0) {
      constexpr double nan = std::numeric_limits<double>::quiet_NaN();
      out.fill_(out.is_complex() ? at::Scalar(c10::complex<double>(nan, nan)) : at::Scalar(nan));
    } else {
      // Of wider numbers the mean to be of 16 bits is rounded once, at the end, and their sum may exceed the range.
      const bool narrows = at::isReducedFloatingType(out.scalar_type()) && self.scalar_type() != out.scalar_type();
      reduce(ReduceOp::mean, self, dim, keepdim, narrows ? at::kFloat : out.scalar_type(), {}, out);
    }
  }
};

void prod_into(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, const at::Tensor& out) {
  if (self.numel() == 0) {
    out.fill_(1);
  } else {
    reduce(ReduceOp::prod, self, dim, keepdim, out.scalar_type(), {}, out);
  }
}

struct Prod : at::meta::structured_prod_dim_int {
  void impl(const at::Tensor& self, int64_t dim, bool keepdim, std::optional<at::ScalarType>, const at::Tensor& out) {
    prod_into(self, at::IntArrayRef(dim), keepdim, out);
  }
};

at::Tensor prod_all(const at::Tensor& self, std::optional<at::ScalarType> dtype) {
  at::Tensor out = empty({}, at::native::get_dtype_from_self(self, dtype, /*promote_integers=*/true));
  prod_into(self, std::nullopt, false, out);
  return out;
}

// To an integer dtype or bool, if that is asked for by name, native converts what is not NaN, and adds that up.
bool sums_converted(const at::Tensor& self, std::optional<at::ScalarType> dtype, at::ScalarType result) {
  TORCH_CHECK(!self.is_complex(), "nansum on CPU does not support complex inputs");
  const bool converts = self.is_floating_point() && at::isIntegralType(result, /*includeBool=*/true);
  TORCH_CHECK_NOT_IMPLEMENTED(!converts || dtype, "\"nansum_cpu\" not implemented for '", result, "'");
  check_native_has(!self.is_floating_point() || (!at::isComplexType(result) && !at::isFloat8Type(result)), "nansum_cpu",
                   result);
  return converts;
}
at::Tensor without_nans(const at::Tensor& self) { return self.masked_fill(self.isnan(), 0); }

at::Tensor& nansum_out(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                       std::optional<at::ScalarType> dtype, at::Tensor& out) {
  if (sums_converted(self, dtype, dtype.value_or(out.scalar_type())))
    return at::sum_out(out, without_nans(self), dim, keepdim, dtype);
  return at::native::nansum_out(self, dim, keepdim, dtype, out);
}

at::Tensor nansum(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                  std::optional<at::ScalarType> dtype) {
  if (sums_converted(self, dtype, dtype.value_or(self.scalar_type())))
    return at::sum(without_nans(self), dim, keepdim, dtype);
  return at::native::nansum(self, dim, keepdim, dtype);
}

// any and all: the meta's arguments are (self), (self, dim, keepdim) or (self, dims, keepdim).
void logical(ReduceOp op, const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, const at::Tensor& out) {
  if (self.numel() == 0) {
    out.fill_(op == ReduceOp::all);
  } else {
    reduce(op, self, dim, keepdim, at::kBool, {}, out);
  }
}
template <class Meta, ReduceOp op>
struct LogicalAll : Meta {
  void impl(const at::Tensor& self, const at::Tensor& out) { logical(op, self, std::nullopt, false, out); }
};
template <class Meta, ReduceOp op>
struct LogicalDim : Meta {
  void impl(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& out) {
    logical(op, self, at::IntArrayRef(dim), keepdim, out);
  }
};
template <class Meta, ReduceOp op>
struct LogicalDims : Meta {
  void impl(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, const at::Tensor& out) {
    if (dim.has_value() && dim->empty()) {  // here, unlike elsewhere, an empty list reduces nothing
      at::ne_outf(self, 0, const_cast<at::Tensor&>(out));
    } else {
      logical(op, self, dim, keepdim, out);
    }
  }
};

// max and min over one dimension, with indices.
template <class Meta, ReduceOp op>
struct ExtremumDim : Meta {
  void impl(const typename Meta::meta_return_ty& pre, const at::Tensor& self, int64_t, bool keepdim,
            const at::Tensor& values, const at::Tensor& indices) {
    assert_no_shared_part(self, values, indices);
    if (self.numel() == 0) return;
    if (self.dim() == 0) {  // of any dtype
      values.copy_(self), indices.zero_();
      return;
    }
    const bool max = op == ReduceOp::max_index;
    named(max ? "max" : "min", max ? "max_cpu" : "min_cpu",
          [&] { reduce(op, self, at::IntArrayRef(pre.dim), keepdim, self.scalar_type(), {}, values, indices); });
  }
};

template <ReduceOp op>
void extremum_all(at::Tensor& result, const at::Tensor& self) {
  const bool max = op == ReduceOp::max;
  const at::ScalarType type = self.scalar_type();
  named(max ? "max" : "min", max ? "max_all" : "min_all", [&] {
    if (self.numel() > 0) return reduce(op, self, std::nullopt, false, type, {}, result);
    // Native's CPU comes here with nothing where the call has out=.
    TORCH_CHECK(backend().synchronous(), max ? "max" : "min",
                "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
                "'dim' argument.");
    if (at::isComplexType(type) || is_rare_or_float8(type)) throw NoKernel(max ? "max" : "min", type);
    result.fill_(type == at::kBool ? at::Scalar(!max) : extremum_of_nothing(max, type));
  });
}

template <ReduceOp op>
void reduce_stub(at::TensorIterator& iter) {
  run(op, iter);
}

void check_has_order(const char* kernel, at::ScalarType dtype) {
  check_native_has(!at::isComplexType(dtype) && !is_rare_or_float8(dtype), kernel, dtype);
}
void aminmax_dim(const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& min, at::Tensor& max) {
  if (min.numel() == 0) return;
  assert_no_shared_part(self, min, max);
  if (self.dim() == 0) {
    TORCH_CHECK(!self.is_complex(), "aminmax not implemented for ", self.scalar_type());
    min.copy_(self), max.copy_(self);
    return;
  }
  check_has_order("aminmax_cpu", self.scalar_type());
  reduce(ReduceOp::aminmax, self, at::IntArrayRef(dim), keepdim, self.scalar_type(), {}, min, max);
}
void aminmax_all(const at::Tensor& self, at::Tensor& min, at::Tensor& max) {
  check_has_order("aminmax_cpu", self.scalar_type());
  reduce(ReduceOp::aminmax, self, std::nullopt, min.dim() == self.dim(), self.scalar_type(), {}, min, max);
}
std::tuple<at::Tensor, at::Tensor> aminmax_legacy(const at::Tensor& self) { return at::aminmax(self); }
std::tuple<at::Tensor, at::Tensor> aminmax_legacy_dim(const at::Tensor& self, int64_t dim, bool keepdim) {
  return at::aminmax(self, dim, keepdim);
}

struct VectorNorm : at::meta::structured_linalg_vector_norm {
  void impl(const at::Tensor& self, const at::Scalar& ord, at::OptionalIntArrayRef dim, bool keepdim,
            std::optional<at::ScalarType> dtype, const at::Tensor& out) {
    if (self.numel() == 0) {
      out.zero_();  // the meta has refused the orders that have no identity
      return;
    }
    for (const int64_t d : dim.value_or(at::IntArrayRef())) at::maybe_wrap_dim(d, self.dim());  // `out` may be self
    ReduceParams params;
    params.p = ord.toDouble();
    if (self.numel() == out.numel()) {  // of one element each
      at::assert_no_internal_overlap(out);
      at::assert_no_partial_overlap(out, self);
      if (params.p != 0) {  // exact, as native's is
        out.copy_((dtype ? self.to(*dtype) : self).abs().reshape(out.sizes()));
        return;
      }
    }
    // The gradient of the extremal norms finds the element with self.abs() == norm, so the norm is taken of self.abs().
    const bool extremal =
        params.p == std::numeric_limits<double>::infinity() || params.p == -std::numeric_limits<double>::infinity();
    const at::Tensor source = extremal && self.is_complex() ? self.abs() : self;
    const at::ScalarType type =
        source.is_complex() || !dtype ? dtype.value_or(source.scalar_type()) : out.scalar_type();
    reduce(ReduceOp::norm, source, dim, keepdim, type, params, out);
  }
};

// Scales each slice along `dim` whose p-norm exceeds maxnorm down to it. The norm of 16-bit floats is taken in float.
struct Renorm : at::meta::structured_renorm {
  void impl(const at::Tensor& self, const at::Scalar& p, int64_t dim, const at::Scalar& maxnorm,
            const at::Tensor& out) {
    const int64_t kept = at::maybe_wrap_dim(dim, self.dim());
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < self.dim(); d++)
      if (d != kept) dims.push_back(d);
    const bool half = at::isReducedFloatingType(self.scalar_type());
    const at::Tensor norm = at::linalg_vector_norm(self, p.toDouble(), dims, /*keepdim=*/true,
                                                   half ? std::optional<at::ScalarType>(at::kFloat) : std::nullopt);
    const at::Tensor factor = at::where(norm > maxnorm, maxnorm / (norm + 1e-7), at::ones_like(norm));
    at::mul_outf(self, factor.to(self.scalar_type()), const_cast<at::Tensor&>(out));
  }
};

at::Tensor count_nonzero(const at::Tensor& self, at::IntArrayRef dims) {
  if (dims.empty()) {  // else native's is a sum of what is not zero, of any dtype
    refuse_rare_as_native("count_nonzero", self.scalar_type());
  } else if (is_rare_or_float8(self.scalar_type())) {
    return at::ne(self, 0).sum(dims);
  }
  at::Tensor out = at::native::create_reduction_result(self, dims, false, at::kLong);
  if (self.numel() == 0) return out.zero_();
  reduce(ReduceOp::count_nonzero, self, dims, false, at::kBool, {}, out);
  return out;
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  if (!self.is_same_size(other)) return false;
  if (self.numel() == 0) return true;
  refuse_complex_half(self.scalar_type(), "equal");
  return at::eq(self, other).flatten().all().item<bool>();
}

at::Tensor trace(const at::Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  refuse_as_native("trace", self.scalar_type());
  return self.diagonal().sum();
}

}  // namespace
}  // namespace minitorch

namespace at::native {
using minitorch::ReduceOp;
REGISTER_PRIVATEUSE1_DISPATCH(sum_stub, &minitorch::reduce_stub<ReduceOp::sum>)
REGISTER_PRIVATEUSE1_DISPATCH(nansum_stub, &minitorch::reduce_stub<ReduceOp::nansum>)
REGISTER_PRIVATEUSE1_DISPATCH(max_values_stub, &minitorch::reduce_stub<ReduceOp::max>)
REGISTER_PRIVATEUSE1_DISPATCH(min_values_stub, &minitorch::reduce_stub<ReduceOp::min>)
REGISTER_PRIVATEUSE1_DISPATCH(argmax_stub, &minitorch::reduce_stub<ReduceOp::argmax>)
REGISTER_PRIVATEUSE1_DISPATCH(argmin_stub, &minitorch::reduce_stub<ReduceOp::argmin>)
REGISTER_PRIVATEUSE1_DISPATCH(max_all_stub, &minitorch::extremum_all<ReduceOp::max>)
REGISTER_PRIVATEUSE1_DISPATCH(min_all_stub, &minitorch::extremum_all<ReduceOp::min>)
REGISTER_PRIVATEUSE1_DISPATCH(aminmax_stub, &minitorch::aminmax_dim)
REGISTER_PRIVATEUSE1_DISPATCH(aminmax_allreduce_stub, &minitorch::aminmax_all)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  structured<Sum>(m, "sum.dim_IntList", nullptr, "sum.IntList_out");
  structured<Mean>(m, "mean.dim", nullptr, "mean.out");
  structured<Prod>(m, "prod.dim_int", nullptr, "prod.int_out");
  m.impl("prod", MT_CHECKED(prod_all));
  m.impl("nansum", MT_CHECKED(nansum));
  m.impl("nansum.out", MT_CHECKED(nansum_out));
  structured<LogicalAll<at::meta::structured_any, ReduceOp::any>>(m, "any", nullptr, "any.all_out");
  structured<LogicalAll<at::meta::structured_all, ReduceOp::all>>(m, "all", nullptr, "all.all_out");
  structured<LogicalDim<at::meta::structured_any_dim, ReduceOp::any>>(m, "any.dim", nullptr, "any.out");
  structured<LogicalDim<at::meta::structured_all_dim, ReduceOp::all>>(m, "all.dim", nullptr, "all.out");
  structured<LogicalDims<at::meta::structured_any_dims, ReduceOp::any>>(m, "any.dims", nullptr, "any.dims_out");
  structured<LogicalDims<at::meta::structured_all_dims, ReduceOp::all>>(m, "all.dims", nullptr, "all.dims_out");
  structured<ExtremumDim<at::meta::structured_max_dim, ReduceOp::max_index>>(m, "max.dim", nullptr, "max.dim_max");
  structured<ExtremumDim<at::meta::structured_min_dim, ReduceOp::min_index>>(m, "min.dim", nullptr, "min.dim_min");
  structured<at::native::structured_amax_out>(m, "amax", nullptr, "amax.out");
  structured<at::native::structured_amin_out>(m, "amin", nullptr, "amin.out");
  structured<at::native::structured_argmax_out>(m, "argmax", nullptr, "argmax.out");
  structured<at::native::structured_argmin_out>(m, "argmin", nullptr, "argmin.out");
  structured<at::native::structured_aminmax_out>(m, "aminmax", nullptr, "aminmax.out");
  m.impl("_aminmax", MT_CHECKED(aminmax_legacy));
  m.impl("_aminmax.dim", MT_CHECKED(aminmax_legacy_dim));
  m.impl("max", MT_CHECKED(static_cast<at::Tensor (*)(const at::Tensor&)>(at::native::max)));
  m.impl("min", MT_CHECKED(static_cast<at::Tensor (*)(const at::Tensor&)>(at::native::min)));
  m.impl("max.unary_out", MT_CHECKED(at::native::max_unary_out));
  m.impl("min.unary_out", MT_CHECKED(at::native::min_unary_out));
  structured<VectorNorm>(m, "linalg_vector_norm", nullptr, "linalg_vector_norm.out");
  structured<at::native::structured_norm_out>(m, "norm.ScalarOpt_dim", nullptr, "norm.out");
  structured<at::native::structured_norm_dtype_out>(m, "norm.ScalarOpt_dim_dtype", nullptr, "norm.dtype_out");
  structured<Renorm>(m, "renorm", "renorm_", "renorm.out");
  m.impl("count_nonzero.dim_IntList", MT_CHECKED(count_nonzero));
  m.impl("equal", MT_CHECKED(equal));
  m.impl("trace", MT_CHECKED(trace));
}
}  // namespace minitorch
