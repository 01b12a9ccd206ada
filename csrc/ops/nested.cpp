// Jagged nested tensors: their dense values to a padded tensor and back, by one layout of the positions.
#include <ATen/ATen.h>

#include "bridge/checked.h"
#include "bridge/operators.h"

namespace minitorch {
namespace {

using at::Tensor;

// Which of (batch, longest) positions are of a sequence, and the rows of the values that stand there.
struct Positions {
  Tensor inside, row;
};
Positions positions(const Tensor& offsets, int64_t longest) {
  const Tensor bounds = offsets.to(at::kLong), begin = bounds.slice(0, 0, -1).unsqueeze(1),
               end = bounds.slice(0, 1).unsqueeze(1);
  const Tensor row = begin + at::arange(longest, bounds.options());
  return {row.lt(end), row};
}

Tensor broadcast_to(const Tensor& mask, const Tensor& like) {
  std::vector<int64_t> shape(like.dim(), 1);
  shape[0] = mask.size(0), shape[1] = mask.size(1);
  return mask.view(shape);
}

Tensor to_padded(const Tensor& values, at::TensorList offsets, c10::SymIntArrayRef max_lengths, double padding) {
  TORCH_CHECK(offsets.size() == 1 && max_lengths.size() == 1,
              "_jagged_to_padded_dense_forward(): only a single jagged dim is supported for now");
  const int64_t longest = max_lengths[0].expect_int(), total = values.size(0);
  std::vector<int64_t> sizes{offsets[0].size(0) - 1, longest};
  for (const int64_t size : values.sizes().slice(1)) sizes.push_back(size);
  if (total == 0) return at::full(sizes, padding, values.options());
  const auto [inside, row] = positions(offsets[0], longest);
  const Tensor padded = values.index_select(0, row.clamp(0, total - 1).flatten()).view(sizes);
  return padded.masked_fill_(broadcast_to(inside.logical_not(), padded), padding);
}

Tensor to_jagged(const Tensor& dense, at::TensorList offsets, std::optional<c10::SymInt> total) {
  TORCH_CHECK(offsets.size() == 1, "_padded_dense_to_jagged_forward(): only a single jagged dim is supported for now");
  const int64_t last = offsets[0].select(0, -1).item<int64_t>(), longest = dense.size(1);
  TORCH_CHECK(!total || total->expect_int() == last,
              "_padded_dense_to_jagged_forward(): final offset should match total_L value");
  const int64_t found = offsets[0].size(0) > 1 ? offsets[0].diff().max().item<int64_t>() : 0;
  TORCH_CHECK(found <= longest, "_padded_dense_to_jagged_forward(): found batch item of length ", found,
              " when max length specified by padded input is ", longest);
  const c10::List<std::optional<Tensor>> inside({positions(offsets[0], longest).inside});
  return dense.index(inside);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_jagged_to_padded_dense_forward", MT_CHECKED(to_padded));
  m.impl("_padded_dense_to_jagged_forward", MT_CHECKED(to_jagged));
}

}  // namespace
}  // namespace minitorch
