// softmax and log_softmax of sparse COO tensors, in which what is not specified counts as minus infinity. Along a dense
// dimension it is the values' own. Along a sparse one the elements with the same other indices make a row: rows are
// numbered, and maxima and sums gathered by number.
#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include "bridge/operators.h"
#include "bridge/tensor.h"

namespace minitorch {
namespace {

using at::Tensor;

Tensor with_values(const Tensor& like, const Tensor& values) {
  return at::_sparse_coo_tensor_with_dims_and_tensors(like.sparse_dim(), like.dense_dim(), like.sizes(),
                                                      like._indices().clone(), values,
                                                      like.options().dtype(values.scalar_type()), like.is_coalesced());
}

// The rows along a sparse dimension: for each element its row's number, and how many there are.
struct Rows {
  Tensor number;
  int64_t count;

  Rows(const Tensor& self, int64_t dim) {
    const Tensor indices = self._indices();
    Tensor place = at::zeros({self._nnz()}, indices.options());
    for (int64_t d = 0; d < self.sparse_dim(); d++)
      if (d != dim) place = place.mul(self.size(d)).add(indices.select(0, d));
    const auto [rows, inverse, counts] = at::unique_dim(place, 0, /*sorted=*/true, /*return_inverse=*/true);
    number = inverse, count = rows.size(0);
  }
  std::vector<int64_t> sizes(const Tensor& values) const {
    std::vector<int64_t> result = values.sizes().vec();
    result[0] = count;
    return result;
  }
  // Of each row, for each of its elements.
  Tensor maximum(const Tensor& values) const {
    const Tensor rows = number.view(ones(values)).expand_as(values);
    return at::full(sizes(values), -std::numeric_limits<double>::infinity(), values.options())
        .scatter_reduce(0, rows, values, "amax")
        .index_select(0, number);
  }
  Tensor sum(const Tensor& values) const {
    return at::zeros(sizes(values), values.options()).index_add(0, number, values).index_select(0, number);
  }

 private:
  static std::vector<int64_t> ones(const Tensor& values) {
    std::vector<int64_t> result(values.dim(), 1);
    result[0] = values.size(0);
    return result;
  }
};

void check(const Tensor& self, bool half_to_float, const char* name) {
  TORCH_CHECK(!half_to_float, name, ": with half to float conversion is not supported on CPU");
  const auto type = self.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(type == at::kFloat || type == at::kDouble, '"', name, "\" not implemented for '", type,
                              "'");
}

template <bool log>
Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  check(self, half_to_float, log ? "log_softmax" : "softmax");
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  const Tensor input = self.coalesce(), values = input._values();
  if (values.numel() == 0) return with_values(input, values.clone());
  if (d >= self.sparse_dim()) {
    const int64_t within = d - self.sparse_dim() + 1;
    return with_values(input, log ? at::_log_softmax(values, within, false) : at::_softmax(values, within, false));
  }
  const Rows rows(input, d);
  const Tensor shifted = values - rows.maximum(values), exponentials = shifted.exp(), sum = rows.sum(exponentials);
  return with_values(input, log ? shifted - sum.log() : exponentials / sum);
}

template <bool log>
Tensor softmax_backward(const Tensor& grad_output, const Tensor& output_in, int64_t dim, const Tensor& self) {
  check(grad_output, false, log ? "log_softmax_backward" : "softmax_backward");
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  const Tensor output = output_in.coalesce(), values = output._values();
  if (values.numel() == 0) return with_values(output, values.clone());
  const Tensor grad = grad_output.sparse_mask(output)._values();
  if (d >= self.sparse_dim()) {
    const int64_t within = d - self.sparse_dim() + 1;
    const auto type = values.scalar_type();
    return with_values(output, log ? at::_log_softmax_backward_data(grad, values, within, type)
                                   : at::_softmax_backward_data(grad, values, within, type));
  }
  const Rows rows(output, d);
  return with_values(output, log ? grad - values.exp() * rows.sum(grad) : values * (grad - rows.sum(grad * values)));
}

MT_OPERATORS(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_softmax", TORCH_FN(softmax<false>));
  m.impl("_sparse_log_softmax", TORCH_FN(softmax<true>));
  m.impl("_sparse_softmax_backward_data", TORCH_FN(softmax_backward<false>));
  m.impl("_sparse_log_softmax_backward_data", TORCH_FN(softmax_backward<true>));
}

}  // namespace
}  // namespace minitorch
