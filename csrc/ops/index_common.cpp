// See index_common.h.
#include "ops/index_common.h"

#include <ATen/Context.h>
#include <ATen/native/NonEmptyUtils.h>

namespace minitorch {
namespace {

using at::native::ensure_nonempty_dim;
using at::native::ensure_nonempty_size;
using at::native::ensure_nonempty_stride;

// Everything but the index strides and the values. Kernels have the innermost dimension first.
IndexArgs space_of(const char* name, const at::Tensor& shape, const at::Tensor& self, int64_t dim,
                   const at::Tensor& index) {
  IndexArgs a;
  a.name = name;
  a.ndim = static_cast<int>(ensure_nonempty_dim(shape.dim()));
  a.num_indices = 1;
  a.allow_negative = false;
  a.ordered = at::globalContext().deterministicAlgorithms();
  a.dtype = to_dtype(self.scalar_type());
  const int64_t size = static_cast<int64_t>(self.element_size());
  check_allocated(self);
  check_allocated(index);
  a.numel = shape.numel();
  a.self = static_cast<char*>(const_cast<void*>(self.const_data_ptr()));
  a.index[0] = static_cast<const char*>(index.const_data_ptr());
  a.indexed_size[0] = ensure_nonempty_size(self, dim);
  a.indexed_stride[0] = ensure_nonempty_stride(self, dim) * size;
  for (int d = 0; d < a.ndim; d++) {
    const int64_t from = a.ndim - 1 - d;
    a.sizes[d] = ensure_nonempty_size(shape, from);
    a.self_strides[d] = from == dim ? 0 : ensure_nonempty_stride(self, from) * size;
  }
  return a;
}

// Of tensors that are empty, whatever their dimensions.
IndexArgs empty_space(const char* name, const at::Tensor& self) {
  const at::Tensor nothing = self.new_empty({0}), no_index = self.new_empty({0}, at::kLong);
  return along_dim(name, nothing, nothing, 0, no_index);
}

// Every index into a dimension of size 1 is 0 or -1; raises PyTorch's error otherwise.
void check_names_one_place(const at::Tensor& index, size_t which) {
  const at::Tensor bad = index.masked_select(at::logical_and(index.ne(0), index.ne(-1)));
  if (bad.numel() == 0) return;
  TORCH_CHECK_INDEX(false, "index ", bad[0].item<int64_t>(), " is out of bounds for dimension ", which, " with size 1");
}

void set_values(IndexArgs& a, const at::Tensor& values) {
  const int64_t size = static_cast<int64_t>(values.element_size());
  const bool single = values.dim() == 0;
  check_allocated(values);
  a.values = static_cast<char*>(const_cast<void*>(values.const_data_ptr()));
  for (int d = 0; d < a.ndim; d++) a.values_strides[d] = single ? 0 : values.stride(a.ndim - 1 - d) * size;
}

}  // namespace

IndexArgs along_dim(const char* name, const at::Tensor& values, const at::Tensor& self, int64_t dim,
                    const at::Tensor& index) {
  if (C10_UNLIKELY(index.dim() > kMaxDims)) {
    if (index.numel() == 0) return empty_space(name, self);
    at::Tensor v = values, s = self, i = index;
    if (values.dim() == 0)
      leave_out_ones(index, dim, {&s, &i});
    else
      leave_out_ones(index, dim, {&v, &s, &i});
    return along_dim(name, v, s, dim, i);
  }
  IndexArgs a = space_of(name, index, self, dim, index);
  set_values(a, values);
  for (int d = 0; d < a.ndim; d++) a.index_strides[0][d] = ensure_nonempty_stride(index, a.ndim - 1 - d) * 8;
  simplify(a);
  return a;
}

IndexArgs along_dim_vector(const char* name, const at::Tensor& values, const at::Tensor& self, int64_t dim,
                           const at::Tensor& index) {
  if (C10_UNLIKELY(values.dim() > kMaxDims)) {
    if (values.numel() == 0) return empty_space(name, self);
    at::Tensor v = values, s = self;
    leave_out_ones(values, dim, {&v, &s});
    return along_dim_vector(name, v, s, dim, index);
  }
  IndexArgs a = space_of(name, values, self, dim, index);
  set_values(a, values);
  const int64_t step = ensure_nonempty_stride(index, 0) * 8;
  for (int d = 0; d < a.ndim; d++) a.index_strides[0][d] = a.ndim - 1 - d == dim ? step : 0;
  simplify(a);
  return a;
}

IndexArgs from_iterator(const at::TensorIteratorBase& iter, int values, int self, int first_index,
                        at::IntArrayRef sizes, at::IntArrayRef strides_in_bytes, bool float8) {
  IndexArgs a;
  a.ndim = std::max(iter.ndim(), 1);
  if (C10_UNLIKELY(a.ndim > kMaxDims)) {  // an empty one: others have that few dimensions left
    TORCH_INTERNAL_ASSERT(iter.numel() == 0);
    a.ndim = 0;
  }
  a.ordered = at::globalContext().deterministicAlgorithms();
  a.dtype = float8 && at::isFloat8Type(iter.dtype(self)) ? DType::U8 : to_dtype(iter.dtype(self));
  a.numel = iter.numel();
  const auto set_strides = [&](int64_t* to, int operand) {
    const auto from = iter.strides(operand);
    for (int d = 0; d < a.ndim; d++) to[d] = iter.ndim() == 0 ? 0 : from[d];
  };
  for (int d = 0; d < a.ndim; d++) a.sizes[d] = iter.ndim() == 0 ? 1 : iter.shape()[d];
  a.values = static_cast<char*>(iter.data_ptr(values));
  a.self = static_cast<char*>(iter.data_ptr(self));
  set_strides(a.values_strides, values);
  set_strides(a.self_strides, self);
  for (size_t k = 0; k < sizes.size(); k++) {
    const int operand = first_index + static_cast<int>(k);
    if (!reaches_kernel(sizes, k)) {
      check_names_one_place(iter.tensor(operand), k);
      continue;
    }
    TORCH_CHECK(a.num_indices < kMaxIndices, "minitorch: indexing takes at most ", kMaxIndices,
                " index tensors of dimensions with more than one element, got ", sizes.size(), " in all");
    const int to = a.num_indices++;
    a.index[to] = static_cast<const char*>(iter.data_ptr(operand));
    a.indexed_size[to] = sizes[k];
    a.indexed_stride[to] = strides_in_bytes[k];
    set_strides(a.index_strides[to], operand);
  }
  return a;
}

}  // namespace minitorch
