// What is built on sorted data: unique, searchsorted, bucketize, isin, bincount.
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/isin_native.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/sort.h"

namespace minitorch {
namespace {

using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

char* bytes(const at::Tensor& t) { return static_cast<char*>(const_cast<void*>(t.const_data_ptr())); }
int64_t* integers(const at::Tensor& t) { return t.defined() ? static_cast<int64_t*>(t.mutable_data_ptr()) : nullptr; }

// Runs of equal items: where each starts (ending with n), and the run of each item at its label.
struct Runs {
  at::Tensor first;   // [number of runs]
  at::Tensor counts;  // [number of runs], undefined unless asked for
  at::Tensor inverse;
};

Runs find_runs(const at::Tensor& data, int64_t n, int64_t width, const at::Tensor& order, const at::Tensor& label,
               bool return_inverse, bool return_counts) {
  const at::Tensor count = empty({1}, at::kLong), starts = empty({n + 1}, at::kLong);
  Runs runs;
  if (return_inverse) runs.inverse = empty({n}, at::kLong);
  runs_kernel({bytes(data), to_dtype(data.scalar_type()), n, width, integers(order), integers(label), integers(count),
               integers(starts), integers(runs.inverse)});
  const int64_t found = count.item<int64_t>();
  runs.first = starts.narrow(0, 0, found);
  if (return_counts) runs.counts = starts.narrow(0, 1, found) - runs.first;
  return runs;
}

// index_select refuses wide unsigned integers, unique does not.
at::Tensor rows_at(const at::Tensor& data, const at::Tensor& rows) {
  const auto type = data.scalar_type();
  if (!c10::isBarebonesUnsignedType(type)) return data.index_select(0, rows);
  const auto bits = type == at::kUInt16 ? at::kShort : type == at::kUInt32 ? at::kInt : at::kLong;
  return data.view(bits).index_select(0, rows).view(type);
}

Triple finish(at::Tensor values, const Runs& runs, at::IntArrayRef inverse_shape) {
  return {std::move(values), runs.inverse.defined() ? runs.inverse.view(inverse_shape) : empty({0}, at::kLong),
          runs.counts.defined() ? runs.counts : empty({0}, at::kLong)};
}

// Many integers in a narrow range are counted: nothing needs to be sorted. Nothing if they are not.
std::optional<Triple> unique_by_counting(const at::Tensor& flat, at::IntArrayRef shape, bool return_inverse,
                                         bool return_counts) {
  constexpr int64_t kFewest = 1024;  // elements, to be worth it
  const int64_t n = flat.numel();
  const bool countable =
      at::isIntegralType(flat.scalar_type(), /*includeBool=*/true) && !at::isBarebonesUnsignedType(flat.scalar_type());
  if (!countable || n < kFewest) return std::nullopt;
  if (flat.scalar_type() == at::kBool) {
    auto found = unique_by_counting(flat.view(at::kByte), shape, return_inverse, return_counts);
    if (found) std::get<0>(*found) = std::get<0>(*found).view(at::kBool);
    return found;
  }
  const auto [least, most] = at::aminmax(flat);
  const int64_t low = least.item<int64_t>(), high = most.item<int64_t>();
  if (static_cast<uint64_t>(high) - static_cast<uint64_t>(low) >= static_cast<uint64_t>(n / 4)) return std::nullopt;
  const int64_t bins = high - low + 1;
  const at::Tensor table = empty({bins}, at::kLong);
  count_kernel({integers(table), bytes(flat), to_dtype(flat.scalar_type()), n, bins, low});
  const at::Tensor found = table.nonzero().view(-1);
  const at::Tensor values = found.add(low).to(flat.scalar_type());
  const at::Tensor counts = return_counts ? table.index_select(0, found) : empty({0}, at::kLong);
  if (!return_inverse) return Triple(values, empty({0}, at::kLong), counts);
  const at::Tensor number = table.ne(0).cumsum(0).sub_(1);
  return Triple(values, number.index_select(0, flat.to(at::kLong).sub(low)).view(shape), counts);
}

void check_has_equals(const char* kernel, at::ScalarType dtype) {
  check_native_has(!at::isComplexType(dtype) && !at::isFloat8Type(dtype), kernel, dtype);
}

// The result is sorted whether asked for or not.
Triple unique2(const at::Tensor& self, bool, bool return_inverse, bool return_counts) {
  check_has_equals("unique", self.scalar_type());
  const at::Tensor flat = self.contiguous().view(-1);
  if (auto counted = unique_by_counting(flat, self.sizes(), return_inverse, return_counts)) return *counted;
  const auto [sorted, order] = at::sort(flat, /*stable=*/true, 0, /*descending=*/false);
  const Runs runs = find_runs(sorted, flat.numel(), 1, {}, order, return_inverse, return_counts);
  return finish(rows_at(sorted, runs.first), runs, self.sizes());
}

std::tuple<at::Tensor, at::Tensor> unique(const at::Tensor& self, bool sorted, bool return_inverse) {
  auto [values, inverse, counts] = unique2(self, sorted, return_inverse, false);
  return {values, inverse};
}

template <bool consecutive>
Triple unique_slices(const at::Tensor& self, int64_t dim, bool return_inverse, bool return_counts) {
  check_has_equals("unique_dim", self.scalar_type());
  if (backend().synchronous()) return_inverse = return_counts = true;  // native's CPU gives them to whoever calls
  const auto zero_dims = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) == 0) {
    TORCH_CHECK(zero_dims == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    return {empty(self.sizes(), self.scalar_type()), empty({0}, at::kLong), empty({0}, at::kLong)};
  }
  TORCH_CHECK(zero_dims == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  const int64_t n = self.size(dim);
  const at::Tensor slices = self.moveaxis(dim, 0).contiguous().view({n, -1});
  at::Tensor order;
  if (!consecutive) {
    order = empty({n}, at::kLong);
    lexicographic_order_kernel(integers(order), bytes(slices), to_dtype(self.scalar_type()), n, slices.size(1));
  }
  const Runs runs = find_runs(slices, n, slices.size(1), order, order, return_inverse, return_counts);
  const at::Tensor picked = consecutive ? runs.first : order.index_select(0, runs.first);
  return finish(rows_at(self.moveaxis(dim, 0), picked).moveaxis(0, dim), runs, {n});
}

Triple unique_dim(const at::Tensor& self, int64_t dim, bool, bool return_inverse, bool return_counts) {
  return unique_slices<false>(self, at::maybe_wrap_dim(dim, self.dim()), return_inverse, return_counts);
}
Triple unique_dim_runs(const at::Tensor& self, int64_t dim, bool return_inverse, bool return_counts) {
  return unique_slices<true>(self, at::maybe_wrap_dim(dim, self.dim()), return_inverse, return_counts);
}
Triple unique_consecutive(const at::Tensor& self, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  if (dim.has_value() && !(self.dim() == 1 && (*dim == 0 || *dim == -1)))
    return unique_dim_runs(self, *dim, return_inverse, return_counts);
  const at::Tensor flat = self.contiguous().view(-1);
  if (!return_inverse && !return_counts && flat.numel() > 0) {
    const at::Tensor count = empty({1}, at::kLong);
    const auto run = [&](char* values) {
      run_values_kernel(bytes(flat), to_dtype(flat.scalar_type()), flat.numel(), integers(count), values);
    };
    run(nullptr);
    const at::Tensor values = empty({count.item<int64_t>()}, self.scalar_type());
    run(bytes(values));
    return {values, empty({0}, at::kLong), empty({0}, at::kLong)};
  }
  const Runs runs = find_runs(flat, flat.numel(), 1, {}, {}, return_inverse, return_counts);
  return finish(rows_at(flat, runs.first), runs, self.sizes());
}

at::Tensor& searchsorted_into(const at::Tensor& sorted_sequence, const at::Tensor& self, bool out_int32, bool right,
                              std::optional<std::string_view> side, const std::optional<at::Tensor>& sorter_opt,
                              at::Tensor& out) {
  const at::Tensor sorter = sorter_opt.value_or(at::Tensor());
  at::native::searchsorted_pre_check(sorted_sequence, self, out, out_int32, right, side, sorter);
  at::native::resize_output(out, self.sizes());
  if (self.numel() == 0) return out;
  at::Tensor input, boundaries, order;
  at::native::searchsorted_maybe_trim_input_tensors(input, boundaries, order, self, sorted_sequence,
                                                    sorter.defined() ? sorter : sorted_sequence);
  if (!input.defined()) input = self;
  if (!boundaries.defined()) boundaries = sorted_sequence;
  if (!order.defined()) order = sorter;
  const auto dtype = input.scalar_type();
  if (dtype != at::kFloat && dtype != at::kLong) refuse_as_native("bucketize", dtype);
  // What is written must not be searched any more.
  const bool own = !out.is_contiguous() || out.is_alias_of(self) || out.is_alias_of(sorted_sequence) ||
                   (sorter.defined() && out.is_alias_of(sorter));
  const at::Tensor result = own ? at::empty(out.sizes(), out.options()) : out;
  SearchArgs args{};
  args.sequences = bytes(boundaries);
  args.values = bytes(input);
  args.dtype = to_dtype(input.scalar_type());
  args.sorter = sorter.defined() ? integers(order) : nullptr;
  args.output = bytes(result);
  args.output_dtype = to_dtype(result.scalar_type());
  args.length = boundaries.size(-1);
  args.n = input.numel();
  args.per_sequence = boundaries.dim() == 1 ? args.n : input.size(-1);
  args.right = side.has_value() ? *side == "right" : right;
  search_kernel(args);
  if (!result.is_same(out)) out.copy_(result);
  return out;
}

at::Tensor search(const at::Tensor& sorted_sequence, const at::Tensor& self, bool out_int32, bool right,
                  std::optional<std::string_view> side, const std::optional<at::Tensor>& sorter) {
  at::Tensor out = empty({0}, out_int32 ? at::kInt : at::kLong);
  return searchsorted_into(sorted_sequence, self, out_int32, right, side, sorter, out);
}
at::Tensor& searchsorted_scalar_into(const at::Tensor& sorted_sequence, const at::Scalar& self, bool out_int32,
                                     bool right, std::optional<std::string_view> side,
                                     const std::optional<at::Tensor>& sorter, at::Tensor& out) {
  const at::Tensor value = at::native::searchsorted_scalar_tensor(self, sorted_sequence.device());
  return searchsorted_into(sorted_sequence, value, out_int32, right, side, sorter, out);
}
at::Tensor searchsorted_scalar(const at::Tensor& sorted_sequence, const at::Scalar& self, bool out_int32, bool right,
                               std::optional<std::string_view> side, const std::optional<at::Tensor>& sorter) {
  at::Tensor out = empty({0}, out_int32 ? at::kInt : at::kLong);
  return searchsorted_scalar_into(sorted_sequence, self, out_int32, right, side, sorter, out);
}

void check_boundaries(const at::Tensor& boundaries) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
}
at::Tensor& bucketize_into(const at::Tensor& self, const at::Tensor& boundaries, bool out_int32, bool right,
                           at::Tensor& out) {
  check_boundaries(boundaries);
  return searchsorted_into(boundaries, self, out_int32, right, std::nullopt, std::nullopt, out);
}
at::Tensor bucketize(const at::Tensor& self, const at::Tensor& boundaries, bool out_int32, bool right) {
  check_boundaries(boundaries);
  return search(boundaries, self, out_int32, right, std::nullopt, std::nullopt);
}
at::Tensor bucketize_scalar(const at::Scalar& self, const at::Tensor& boundaries, bool out_int32, bool right) {
  check_boundaries(boundaries);
  return searchsorted_scalar(boundaries, self, out_int32, right, std::nullopt, std::nullopt);
}

// PyTorch's impl comes here when there are few test elements, and sorts otherwise.
void isin(const at::Tensor& elements, const at::Tensor& tests, bool invert, const at::Tensor& out) {
  const auto common = at::result_type(elements, tests);
  check_native_has(!at::isComplexType(common) && !is_rare_or_float8(common), "isin_default_cpu", common);
  const at::Tensor e = elements.to(common).contiguous(), t = tests.to(common).contiguous();
  const at::Tensor result = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
  membership_kernel({static_cast<bool*>(result.mutable_data_ptr()), bytes(e), bytes(t), to_dtype(common), e.numel(),
                     t.numel(), invert});
  if (!result.is_same(out)) out.copy_(result);
}

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  const bool refused = backend().synchronous() && is_rare(self.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), /*includeBool=*/false) && !refused,
                              "\"bincount_cpu\" not implemented for '", self.scalar_type(), "'");
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  const bool weighted = weights.has_value() && weights->defined();
  if (self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
  const auto [low, high] = at::aminmax(self);
  TORCH_CHECK(low.item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const int64_t bins = std::max(minlength, high.item<int64_t>() + 1);
  if (!weighted) {
    const at::Tensor counts = empty({bins}, at::kLong), elements = self.contiguous();
    count_kernel({integers(counts), bytes(elements), to_dtype(self.scalar_type()), self.numel(), bins, 0});
    return counts;
  }
  const at::Tensor index = self.to(at::kLong);
  const at::Tensor w = weights->scalar_type() == at::kFloat ? *weights : weights->to(at::kDouble);
  return at::zeros({bins}, w.options()).scatter_add_(0, index, w);
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(isin_default_stub, &minitorch::isin)
}

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_unique2", MT_CHECKED(unique2));
  m.impl("_unique", MT_CHECKED(unique));
  m.impl("unique_dim", MT_CHECKED(unique_dim));
  m.impl("unique_dim_consecutive", MT_CHECKED(unique_dim_runs));
  m.impl("unique_consecutive", MT_CHECKED(unique_consecutive));
  m.impl("searchsorted.Tensor", MT_CHECKED(search));
  m.impl("searchsorted.Tensor_out", MT_CHECKED(searchsorted_into));
  m.impl("searchsorted.Scalar", MT_CHECKED(searchsorted_scalar));
  m.impl("searchsorted.Scalar_out", MT_CHECKED(searchsorted_scalar_into));
  m.impl("bucketize.Tensor", MT_CHECKED(bucketize));
  m.impl("bucketize.Tensor_out", MT_CHECKED(bucketize_into));
  m.impl("bucketize.Scalar", MT_CHECKED(bucketize_scalar));
  structured<at::native::structured_isin_Tensor_Tensor_out>(m, "isin.Tensor_Tensor", nullptr, "isin.Tensor_Tensor_out");
  structured<at::native::structured_isin_Tensor_Scalar_out>(m, "isin.Tensor_Scalar", nullptr, "isin.Tensor_Scalar_out");
  structured<at::native::structured_isin_Scalar_Tensor_out>(m, "isin.Scalar_Tensor", nullptr, "isin.Scalar_Tensor_out");
  m.impl("bincount", MT_CHECKED(bincount));
}
}  // namespace minitorch
