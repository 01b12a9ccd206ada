// From tensors to the iteration space of the index kernels (kernels/index.h).
#pragma once
#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>

#include "bridge/tensor.h"
#include "kernels/index.h"

namespace minitorch {

// The kernels take int64 indices.
inline at::Tensor as_long(const at::Tensor& index) {
  return index.scalar_type() == at::kLong ? index : index.to(at::kLong);
}

// The space of gather and scatter: that of `index`. values[i, j, ...] meets self[i, index[i, j, ...], ...] for dim 1.
// `index` is int64 and may be expanded; 0-dim tensors count as one-dimensional. A `values` with one element is a fill
// value. `name`: of the operator, a string that stays.
IndexArgs along_dim(const char* name, const at::Tensor& values, const at::Tensor& self, int64_t dim,
                    const at::Tensor& index);

// The space of index_select and index_add: that of `values`. values[i, j, ...] meets self[i, index[j], ...] for dim 1;
// `index` has at most one dimension.
IndexArgs along_dim_vector(const char* name, const at::Tensor& values, const at::Tensor& self, int64_t dim,
                           const at::Tensor& index);

// The space of an iterator that PyTorch's advanced indexing made: operands `values` and `self`, then from `first_index`
// on one operand for each entry of `sizes`. With `float8` numbers of eight bits go as bytes. Index tensors that do not
// reach the kernel are checked here.
IndexArgs from_iterator(const at::TensorIteratorBase& iter, int values, int self, int first_index,
                        at::IntArrayRef sizes, at::IntArrayRef strides_in_bytes, bool float8 = false);

// Of more index tensors than a kernel takes those that can only name one place are left out.
inline bool reaches_kernel(at::IntArrayRef sizes, size_t k) { return sizes.size() <= kMaxIndices || sizes[k] != 1; }

// True for a result that the operator itself has just made: nobody else will see what a failed call leaves in it.
inline bool unseen(const at::TensorBase& result) { return result.use_count() <= 1; }

// Runs f and hands an IndexOutOfRange that it throws to `fail`, which raises the operator's own error.
template <class F, class Fail>
void with_index_errors(const F& f, const Fail& fail) {
  try {
    f();
  } catch (const IndexOutOfRange& error) {
    fail(error);
    throw;
  }
}

}  // namespace minitorch
