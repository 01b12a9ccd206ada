// Advanced indexing (x[indices], index_put_), index_fill_, index_copy, take, put_ and flip. PyTorch's functions check,
// broadcast the indices and build the iterators; our kernels move the elements.
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/native/TensorAdvancedIndexingUtils.h>
#include <ATen/native/UnfoldBackward.h>
#include <ATen/ops/_index_put_impl_native.h>
#include <ATen/ops/channel_shuffle_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip_native.h>
#include <ATen/ops/index_copy_native.h>
#include <ATen/ops/index_fill_native.h>
#include <ATen/ops/index_meta.h>
#include <ATen/ops/put_native.h>
#include <ATen/ops/roll_native.h>
#include <ATen/ops/take_native.h>
#include <ATen/ops/unfold_backward_native.h>

#include "bridge/checked.h"
#include "bridge/conversions.h"
#include "bridge/iterator.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/shape.h"
#include "ops/float8.h"
#include "ops/index_common.h"
#include "ops/opaque.h"

namespace minitorch {
namespace {

using at::TensorIterator;

// `dims[k]` is the dimension that index tensor k applies to, for the message.
template <class F>
void with_dimension_errors(const F& f, at::IntArrayRef dims, const char* prefix = "") {
  with_index_errors(f, [&](const IndexOutOfRange& e) {
    TORCH_CHECK_INDEX(false, prefix, "index ", e.index, " is out of bounds for dimension ", dims[e.which],
                      " with size ", e.size);
  });
}

// PyTorch numbers the dimensions in its message by index tensor.
at::DimVector numbered(at::IntArrayRef sizes) {
  at::DimVector dims;
  for (size_t k = 0; k < sizes.size(); k++)
    if (reaches_kernel(sizes, k)) dims.push_back(static_cast<int64_t>(k));
  return dims;
}

struct Index : at::meta::structured_index_Tensor {
  void impl(const meta_return_ty& pre, const at::Tensor&, at::IOptTensorListRef, const at::Tensor& out) {
    if (numel() == 0) return;
    IndexArgs args = from_iterator(*this, 0, 1, 2, pre.sizes, pre.strides, true);
    args.check_first = !unseen(out);
    with_dimension_errors([&] { index_read_kernel(args); }, numbered(pre.sizes));
  }
};

void check_index_put(at::ScalarType dtype) {
  check_native_has(!c10::isBarebonesUnsignedType(dtype) && dtype != at::kFloat8_e8m0fnu, "index_put", dtype);
}

// Where memory is the host's: adds numbers of eight bits one after another, each sum rounded, as native does.
template <class T>
void add_in_order(const IndexArgs& args) {
  std::vector<std::pair<T*, const T*>> pairs(args.numel);
  int64_t place[kMaxDims] = {};
  for (auto& [target, value] : pairs) {
    const auto at = [&](const int64_t* strides) {
      int64_t offset = 0;
      for (int d = 0; d < args.ndim; d++) offset += place[d] * strides[d];
      return offset;
    };
    char* to = args.self + at(args.self_strides);
    for (int k = 0; k < args.num_indices; k++) {
      const int64_t size = args.indexed_size[k];
      const int64_t index = *reinterpret_cast<const int64_t*>(args.index[k] + at(args.index_strides[k]));
      if (index < -size || index >= size) throw IndexOutOfRange{index, k, size};
      to += (index < 0 ? index + size : index) * args.indexed_stride[k];
    }
    target = reinterpret_cast<T*>(to);
    value = reinterpret_cast<const T*>(args.values + at(args.values_strides));
    for (int d = 0; d < args.ndim && ++place[d] == args.sizes[d]; d++) place[d] = 0;
  }
  for (const auto& [target, value] : pairs)
    *target = static_cast<T>(static_cast<float>(*target) + static_cast<float>(*value));
}

void put(const IndexArgs& args, at::ScalarType dtype, bool accumulate) {
  if (!accumulate || !at::isFloat8Type(dtype))
    return index_write_kernel(args, accumulate ? IndexWrite::add : IndexWrite::assign);
  AT_DISPATCH_V2(dtype, "index_put", AT_WRAP([&] { add_in_order<scalar_t>(args); }), AT_EXPAND(AT_FLOAT8_TYPES));
}

// Whether there is more than to_dtype knows for numbers of this dtype.
bool puts_float8(at::ScalarType dtype, bool accumulate) {
  return dtype != at::kFloat8_e8m0fnu && (!accumulate || backend().host_accessible());
}

void index_put_stub(TensorIterator& iter, at::IntArrayRef sizes, at::IntArrayRef strides, bool accumulate) {
  const at::ScalarType dtype = iter.dtype(0);
  check_index_put(dtype);
  IndexArgs args = from_iterator(iter, 1, 0, 2, sizes, strides, puts_float8(dtype, accumulate));
  args.name = "index_put_";
  with_dimension_errors([&] { put(args, dtype, accumulate); }, numbered(sizes));
}

// Accumulation, and assignment under torch.use_deterministic_algorithms, reach a device that is not the CPU as tensors.
// The iterator that reads self[indices] serves: its output, which it asks for here, is where the values come from.
struct IndexPut final : at::meta::structured_index_Tensor {
  explicit IndexPut(const at::Tensor& value) : value_(value) {}
  const at::Tensor& maybe_get_output(int64_t) override { return placed_; }
  void set_output_raw_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options MT_NAMES_PARAM) override {
    TORCH_CHECK(at::is_expandable_to(value_.sizes(), sizes), "shape mismatch: value tensor of shape ", value_.sizes(),
                " cannot be broadcast to indexing result of shape ", sizes);
    const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());  // of self
    TORCH_CHECK(value_.scalar_type() == dtype, "Index put requires the source and destination dtypes match, got ",
                dtype, " for the destination and ", value_.scalar_type(), " for the source.");
    check_index_put(dtype);
    const bool fits =
        value_.sizes() == sizes && (strides.empty() ? value_.is_contiguous() : value_.strides() == strides);
    if (fits) {
      placed_ = value_;
    } else {
      placed_ = structured_detail::make_output(sizes, strides, options);
      placed_.copy_(value_);
    }
    at::TensorIteratorBase::set_output_raw_strided(i, sizes, strides, options MT_NAMES_ARG);
  }

 private:
  const at::Tensor& value_;
  at::Tensor placed_;
};

void index_put_with_sort_stub(at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                              const at::Tensor& value, bool accumulate, bool /*unsafe*/) {
  IndexPut op(value);
  const auto pre = op.meta(self, at::IOptTensorListRef(indices));
  if (op.numel() == 0) return;
  const at::ScalarType dtype = self.scalar_type();
  IndexArgs args = from_iterator(op, 0, 1, 2, pre.sizes, pre.strides, puts_float8(dtype, accumulate));
  args.name = "index_put_";
  with_dimension_errors([&] { put(args, dtype, accumulate); }, numbered(pre.sizes));
}

// `self` in the iterator does not advance along the indexed dimension `dim`.
void index_fill_stub(TensorIterator& iter, int64_t dim, int64_t size, int64_t stride, const at::Scalar& source) {
  if (is_rare_or_float8(iter.dtype(0))) refuse_as_native("index_fill", iter.dtype(0));
  if (iter.numel() == 0) return;
  check_convertible(source, iter.dtype(0));
  const at::Tensor value = at::scalar_tensor(source, iter.tensor_base(0).options());
  IndexArgs args = from_iterator(iter, 0, 0, 1, {size}, {stride * static_cast<int64_t>(value.element_size())});
  args.name = "index_fill_";
  args.values = static_cast<char*>(value.data_ptr());
  for (int d = 0; d < args.ndim; d++) args.values_strides[d] = 0;
  with_dimension_errors([&] { index_write_kernel(args, IndexWrite::assign); }, {dim});
}

void index_copy_stub(TensorIterator& iter, int64_t dim, int64_t size, int64_t stride) {
  if (iter.numel() == 0) return;
  IndexArgs args = from_iterator(iter, 2, 0, 1, {size}, {stride * static_cast<int64_t>(iter.element_size(0))});
  args.name = "index_copy_";
  args.allow_negative = false;
  with_dimension_errors([&] { index_write_kernel(args, IndexWrite::assign); }, {dim}, "index_copy_(): ");
}

struct IndexCopy : at::native::structured_index_copy_out {
  void impl(const meta_return_ty& pre, const at::Tensor& self, int64_t, const at::Tensor& index,
            const at::Tensor& source, const at::Tensor& out) {
    structured_index_copy_out::impl(self, pre.dim, index, source, out);
  }
};

template <class F>
void with_take_errors(const F& f) {
  with_index_errors(f, [&](const IndexOutOfRange& e) {
    TORCH_CHECK_INDEX(false, "out of range: tried to access index ", e.index, " on a tensor of ", e.size, " elements.");
  });
}

// take and put_ see `self` as one-dimensional. Operand 0 of the iterator holds the values, operand 1 the indices.
IndexArgs flat_space(const char* name, const TensorIterator& iter, const at::TensorBase& self) {
  IndexArgs args = from_iterator(iter, 0, 0, 1, {self.numel()}, {static_cast<int64_t>(self.element_size())});
  check_allocated(self);
  args.name = name;
  args.self = static_cast<char*>(self.data_ptr());
  for (int d = 0; d < args.ndim; d++) args.self_strides[d] = 0;
  return args;
}

void take_stub(TensorIterator& iter, const at::TensorBase& input) {
  if (iter.numel() == 0) return;
  if (is_rare_or_float8(input.scalar_type())) refuse_as_native("take", input.scalar_type());
  const at::Tensor flat = at::Tensor(input).contiguous();
  with_take_errors([&] { index_read_kernel(flat_space("take", iter, flat)); });
}

void put_stub(TensorIterator& iter, const at::TensorBase& self, bool accumulate) {
  if (iter.numel() == 0) return;
  if (is_rare_or_float8(self.scalar_type())) refuse_as_native("put", self.scalar_type());
  const at::Tensor target(self), flat = target.contiguous();
  with_take_errors(
      [&] { index_write_kernel(flat_space("put_", iter, flat), accumulate ? IndexWrite::add : IndexWrite::assign); });
  if (!flat.is_same(target)) target.copy_(flat);
}

// The iterator's output runs backwards along the flipped dimensions; a third operand only keeps them from being merged.
void flip_stub(TensorIterator& iter, bool /*quantized*/) {
  PointwiseView view = view_of(iter);
  view.num_operands = 2;
  flip_kernel(view);
}

// Whether no flipped dimension, nor a gap, lies within the shortest step: such rows native copies whatever they hold.
bool flips_rows(const at::Tensor& self, at::IntArrayRef dims) {
  at::DimVector strides(self.strides());
  const auto flipped = at::dim_list_to_bitset(dims, self.dim());
  bool any = false;
  for (int64_t d = 0; d < self.dim(); d++)
    if (flipped[d] && self.size(d) > 1 && self.stride(d) != 0) strides[d] = 0, any = true;
  if (!any || self.numel() <= 1) return true;
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false);
  config.declare_static_dtype_and_device(self.scalar_type(), self.device());
  config.add_owned_output(at::empty_like(self)).add_const_input(self);
  config.add_owned_const_input(self.as_strided(self.sizes(), strides));
  return config.build().has_contiguous_first_dim();
}

at::Tensor flip(const at::Tensor& self, at::IntArrayRef dims) {
  const at::ScalarType dtype = self.scalar_type();
  const auto integers = at::isFloat8Type(dtype) ? at::kByte : integers_for(dtype);
  if (!integers && !is_rare(dtype)) return at::native::flip(self, dims);
  check_native_has(flips_rows(self, dims), "flip_cpu", dtype);
  return integers ? at::native::flip(self.view(*integers), dims).view(dtype) : at::native::flip(self, dims);
}

void unfold_backward_stub(at::Tensor& grad_in, const at::Tensor& grad, int64_t dim, int64_t size, int64_t step) {
  if (grad_in.numel() == 0) return;
  TORCH_INTERNAL_ASSERT(grad_in.is_contiguous());
  // A 0-dim input unfolds into one fold of one element.
  at::Tensor out = grad_in.dim() == 0 ? grad_in.unsqueeze(0) : grad_in;
  at::Tensor folds = grad_in.dim() == 0 ? grad.unsqueeze(0) : grad;
  int64_t d = at::maybe_wrap_dim(dim, out.dim());
  at::DimVector expected(out.sizes());
  if (size >= 0 && size <= out.size(d) && step > 0) expected[d] = (out.size(d) - size) / step + 1;
  expected.push_back(size);
  TORCH_CHECK(step > 0 && folds.sizes() == at::IntArrayRef(expected), "unfold_backward: folds of ", size,
              " elements, a step of ", step, " apart, of a tensor of sizes ", out.sizes(),
              " have no gradient of sizes ", folds.sizes());
  if (folds.dim() > kMaxDims) leave_out_ones(out, d, {&out, &folds});
  unfold_backward_kernel({view_of(out), view_of(folds), static_cast<int>(d), size, step});
}

// x[mask] = value is masked_fill_, for native where the value is on the CPU. The Python binding puts a number on the
// CPU for native's devices, but on the tensor's own device for ours, where it stays if masked_fill_ can take it there.
at::Tensor& index_put_impl(at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                           const at::Tensor& value, bool accumulate, bool unsafe) {
  if (!accumulate && value.numel() == 1 && value.device() == self.device()) {
    const at::Tensor any_number = at::empty({}, self.options().device(at::kCPU));
    const auto [fills, mask] = at::native::canDispatchToMaskedFill(self, indices, any_number);
    if (fills && !backend().synchronous() && value.scalar_type() == self.scalar_type())
      return self.masked_fill_(mask, value.reshape({}));
    if (fills) return at::native::_index_put_impl_(self, indices, value.cpu(), accumulate, unsafe);
  }
  return at::native::_index_put_impl_(self, indices, value, accumulate, unsafe);
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(index_put_stub, &minitorch::index_put_stub)
REGISTER_PRIVATEUSE1_DISPATCH(index_put_with_sort_stub, &minitorch::index_put_with_sort_stub)
REGISTER_PRIVATEUSE1_DISPATCH(index_fill_stub, &minitorch::index_fill_stub)
REGISTER_PRIVATEUSE1_DISPATCH(index_copy_stub, &minitorch::index_copy_stub)
REGISTER_PRIVATEUSE1_DISPATCH(take_stub, &minitorch::take_stub)
REGISTER_PRIVATEUSE1_DISPATCH(put_stub, &minitorch::put_stub)
REGISTER_PRIVATEUSE1_DISPATCH(flip_stub, &minitorch::flip_stub)
REGISTER_PRIVATEUSE1_DISPATCH(unfold_backward_stub, &minitorch::unfold_backward_stub)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  using Scalar = at::Scalar;
  using Fill = at::Tensor& (*)(at::Tensor&, int64_t, const at::Tensor&, const Scalar&);
  using FillTensor = at::Tensor& (*)(at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&);
  structured<Index>(m, "index.Tensor", nullptr, "index.Tensor_out");
  structured<IndexCopy>(m, "index_copy", "index_copy_", "index_copy.out");
  m.impl("_index_put_impl_", MT_CHECKED(index_put_impl));
  m.impl("index_fill_.int_Scalar", MT_CHECKED(static_cast<Fill>(at::native::index_fill_)));
  m.impl("index_fill_.int_Tensor", MT_CHECKED(static_cast<FillTensor>(at::native::index_fill_)));
  m.impl("take", MT_CHECKED(at::native::take));
  m.impl("take.out", MT_CHECKED(at::native::take_out));
  m.impl("put_", MT_CHECKED(at::native::put_));
  m.impl("flip", MT_CHECKED(minitorch::flip));
  m.impl("roll", MT_CHECKED(at::native::roll));
  m.impl("channel_shuffle", MT_CHECKED(at::native::channel_shuffle));
  m.impl("unfold_backward", MT_CHECKED(at::native::unfold_backward));
}
}  // namespace minitorch
