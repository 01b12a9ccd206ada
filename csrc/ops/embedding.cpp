// Embedding tables. The lookup itself is PyTorch's composite over index_select.
#include <ATen/TensorUtils.h>
#include <ATen/ops/_embedding_bag_backward_native.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "kernels/embedding.h"
#include "ops/index_common.h"

namespace minitorch {
namespace {

using at::Tensor;
using at::TensorArg;

template <class T>
T* data_or_null(const Tensor& t) {
  return t.defined() && t.numel() != 0 ? static_cast<T*>(const_cast<void*>(t.const_data_ptr())) : nullptr;
}

Tensor longs(const Tensor& indices) { return as_long(indices.contiguous()); }

Tensor embedding_dense_backward(const Tensor& grad_output, const Tensor& indices, int64_t num_weights,
                                int64_t padding_idx, bool scale_grad_by_freq) {
  check_same_device({&grad_output, &indices});
  at::checkScalarTypes("embedding_backward", TensorArg(indices, "indices", 2), {at::kLong, at::kInt});
  const Tensor positions = longs(indices);
  const int64_t dim = grad_output.size(-1);
  const Tensor grad = grad_output.contiguous();
  TORCH_CHECK(num_weights >= 0 && grad.numel() == positions.numel() * dim, "Expected a gradient row for each of ",
              positions.numel(), " indices, got a gradient of shape ", grad.sizes());
  const Tensor out = at::empty({num_weights, dim}, grad_output.options());
  EmbeddingBackwardArgs args{};
  args.dtype = to_dtype(grad.scalar_type());
  args.grad = data_or_null<char>(grad);
  args.grad_stride = dim;
  args.grad_rows = positions.numel();
  args.indices = data_or_null<int64_t>(positions);
  args.count = positions.numel();
  args.scale_by_frequency = scale_grad_by_freq;
  args.padding_idx = padding_idx;
  args.out = data_or_null<char>(out);
  args.rows = num_weights;
  args.dim = dim;
  embedding_backward_kernel(args);
  return out;
}

// The rows that these are the numbers of, in place.
void renorm_complex_rows(const Tensor& self, const Tensor& numbers, double max_norm, double norm_type) {
  const Tensor each = std::get<0>(at::_unique(numbers.reshape(-1)));
  const Tensor rows = self.index_select(0, each);
  const Tensor norm = at::linalg_vector_norm(rows, norm_type, at::IntArrayRef{1}, /*keepdim=*/true);
  const Tensor scale = at::where(norm > max_norm, (norm + 1e-7).reciprocal() * max_norm, at::ones_like(norm));
  Tensor target = self;
  target.index_copy_(0, each, rows * scale);
}

Tensor& embedding_renorm_(Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
  check_same_device({&self, &indices});
  const TensorArg self_arg(self, "self", 1), indices_arg(indices, "indices", 2);
  at::checkDim("embedding_renorm_", self_arg, 2);
  at::checkScalarTypes("embedding_renorm_", indices_arg, {at::kLong, at::kInt});
  const Tensor rows = longs(indices);
  if (rows.numel() == 0) return self;
  const at::ScalarType type = self.scalar_type();
  TORCH_CHECK(at::isFloatingType(type) || at::isComplexType(type),
              "norm(): input dtype should be either floating point or complex. Got ", type, " instead.");
  check_native_has(!at::isFloat8Type(type), "norm_cpu", type);
  with_index_errors(
      [&] {
        if (self.is_complex())
          renorm_complex_rows(self, rows, max_norm, norm_type);
        else
          embedding_renorm_kernel({view_of(self), data_or_null<int64_t>(rows), rows.numel(), max_norm, norm_type});
      },
      [&](const IndexOutOfRange& e) {
        // Native renormalises the row that a negative index counts to, and the lookup that follows raises this.
        TORCH_CHECK_INDEX(e.index < -self.size(0) || e.index >= 0, "index out of range in self");
        TORCH_CHECK_INDEX(false, "select(): index ", e.index, " out of range for tensor of size ", self.sizes(),
                          " at dimension 0");
      });
  return self;
}

void check_bag_arguments(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t mode,
                         const Tensor& sample_weights, bool include_last_offset) {
  check_same_device({&weight, &indices, &offsets, &sample_weights});
  // Native promotes both to one type before it checks the first of them.
  const Tensor promoted = indices.to(at::promote_types(indices.scalar_type(), offsets.scalar_type()));
  at::checkScalarTypes("embedding_bag", TensorArg(promoted, "indices", 1), {at::kLong, at::kInt});
  const TensorArg weight_arg(weight, "weight", 1);
  at::checkScalarTypes("embedding_bag", weight_arg, {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble});
  if (offsets.size(0) > 0 && backend().synchronous()) {  // else the kernel looks at them
    const int64_t first = offsets[0].item<int64_t>(), last = offsets[-1].item<int64_t>();
    TORCH_CHECK(first == 0, "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from ",
                "position 0. However, got ", first);
    TORCH_CHECK(last <= indices.size(0), "offsets[-1] can not be greater than input's length ", indices.size(0),
                " but got offsets[-1] of ", last);
  }
  if (sample_weights.defined()) {
    TORCH_CHECK(mode == static_cast<int64_t>(BagMode::sum),
                "embedding_bag: per_sample_weights only supported with mode='sum'");
    at::checkSameType("embedding_bag", weight_arg, TensorArg(sample_weights, "per_sample_weights", 1));
    TORCH_CHECK(sample_weights.dim() == 1);
    TORCH_CHECK(sample_weights.numel() == indices.numel());
  }
  TORCH_CHECK(!include_last_offset || offsets.size(0) >= 1,
              "include_last_offset: number of offset should be at least 1");
}

using BagResult = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Returns (output, offset2bag, bag_size, max_indices), of which native fills only what its own backward needs.
BagResult embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool, int64_t mode_number,
                        bool, const std::optional<Tensor>& per_sample_weights, bool include_last_offset,
                        int64_t padding_idx) {
  TORCH_CHECK(indices.dim() == 1 || indices.dim() == 2,
              "input has to be a 1D or 2D Tensor, but got Tensor of dimension ", indices.dim());
  if (indices.dim() == 1)
    TORCH_CHECK(offsets.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ", offsets.dim());
  TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ", weight.dim());
  const Tensor sample_weights = per_sample_weights.value_or(Tensor());
  check_bag_arguments(weight, indices, offsets, mode_number, sample_weights, include_last_offset);
  const auto mode = static_cast<BagMode>(mode_number);
  const auto index_type = at::promote_types(indices.scalar_type(), offsets.scalar_type());
  const Tensor rows = longs(indices), starts = longs(offsets),
               factors = sample_weights.defined() ? sample_weights.contiguous() : Tensor();
  const int64_t bags = offsets.size(0) - (include_last_offset ? 1 : 0), dim = weight.size(1), count = rows.numel();

  // Where native has a fast path it leaves offset2bag out of sums, and has another message for a bad index.
  const bool fast =
      mode != BagMode::max && padding_idx < 0 && weight.scalar_type() != at::kDouble && weight.stride(1) == 1;
  const bool plain_sum = fast && mode == BagMode::sum;
  const auto options = weight.options().dtype(at::kLong);
  const Tensor out = at::empty({bags, dim}, weight.options());
  const Tensor offset2bag = plain_sum ? at::empty({0}, options) : at::zeros({count}, options);
  const Tensor bag_size = mode == BagMode::sum ? at::zeros({bags}, options) : at::empty({bags}, options);
  const Tensor max_indices = mode == BagMode::max ? at::empty({bags, dim}, options) : Tensor();

  EmbeddingBagArgs args{};
  args.dtype = to_dtype(weight.scalar_type());
  args.mode = mode;
  args.weight = data_or_null<char>(weight);
  args.weight_strides[0] = weight.stride(0);
  args.weight_strides[1] = weight.stride(1);
  args.rows = weight.size(0);
  args.dim = dim;
  args.indices = data_or_null<int64_t>(rows);
  args.count = count;
  args.offsets = data_or_null<int64_t>(starts);
  args.bags = bags;
  args.end = !include_last_offset ? count : backend().synchronous() ? starts[-1].item<int64_t>() : kNextOffset;
  args.padding_idx = padding_idx;
  args.sample_weights = data_or_null<char>(factors);
  args.out = data_or_null<char>(out);
  args.position_bag = data_or_null<int64_t>(offset2bag);
  args.bag_sizes = mode == BagMode::sum ? nullptr : data_or_null<int64_t>(bag_size);
  args.max_indices = data_or_null<int64_t>(max_indices);
  with_index_errors(
      [&] {
        try {
          embedding_bag_kernel(args);
        } catch (const OffsetOutOfRange& e) {
          // Native says less, or reads memory that is not the table's.
          TORCH_CHECK(false, "embedding_bag: offsets must not decrease or pass input's length ", e.most,
                      ", but offsets[", e.bag, "] is ", e.offset, " after ", e.least);
        }
      },
      [&](const IndexOutOfRange& e) {
        TORCH_CHECK(!fast, "Index ", e.which, " of input takes value ", e.index,
                    " which is not in the valid range [0, ", e.size, ")");
        TORCH_CHECK(false, "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be ", e.index);
      });
  const Tensor sizes = bag_size.to(index_type);
  return {out, offset2bag.to(index_type), sizes, max_indices.defined() ? max_indices.to(index_type) : sizes.clone()};
}

Tensor embedding_bag_dense_backward(const Tensor& grad_output, const Tensor& indices, const Tensor& offset2bag,
                                    const Tensor& bag_size, const Tensor& max_indices, int64_t num_weights,
                                    bool scale_grad_by_freq, int64_t mode_number,
                                    const std::optional<Tensor>& per_sample_weights, int64_t padding_idx) {
  check_same_device({&grad_output, &indices, &offset2bag, &bag_size, &max_indices});
  at::checkScalarTypes("embedding_bag", TensorArg(grad_output, "grad", 1),
                       {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble});
  const auto mode = static_cast<BagMode>(mode_number);
  const Tensor grad = grad_output.contiguous(), rows = longs(indices), bags = longs(offset2bag),
               sizes = longs(bag_size);
  TORCH_CHECK(grad.dim() == 2 && mode_number >= 0 && mode_number <= 2 && num_weights >= 0 &&
                  (mode == BagMode::sum || sizes.numel() == grad.size(0)) &&
                  (mode == BagMode::max ? max_indices.sizes() == grad.sizes() : bags.numel() == rows.numel()),
              "embedding_bag_backward: the gradient, of shape ", grad.sizes(),
              ", does not fit the bags that the forward pass gave");
  const int64_t dim = grad.size(1);
  if (mode == BagMode::max) {
    const Tensor out = at::zeros({num_weights, dim}, grad.options()), winners = longs(max_indices);
    embedding_bag_max_backward_kernel({to_dtype(grad.scalar_type()), data_or_null<char>(grad),
                                       data_or_null<int64_t>(winners), data_or_null<int64_t>(sizes), grad.size(0), dim,
                                       data_or_null<char>(out), num_weights});
    return out;
  }
  const Tensor factors =
      per_sample_weights && per_sample_weights->defined() ? per_sample_weights->contiguous() : Tensor();
  if (factors.defined()) {
    check_same_device({&grad, &factors});
    TORCH_CHECK(factors.numel() == rows.numel() && factors.scalar_type() == grad.scalar_type(),
                "embedding_bag_backward: expected a weight of the gradient's dtype for each of ", rows.numel(),
                " indices");
  }
  const Tensor out = at::empty({num_weights, dim}, grad.options());
  EmbeddingBackwardArgs args{};
  args.dtype = to_dtype(grad.scalar_type());
  args.grad = data_or_null<char>(grad);
  args.grad_stride = dim;
  args.grad_rows = grad.size(0);
  args.indices = data_or_null<int64_t>(rows);
  args.count = rows.numel();
  args.source = data_or_null<int64_t>(bags);
  args.sample_weights = data_or_null<char>(factors);
  args.bag_sizes = mode == BagMode::mean ? data_or_null<int64_t>(sizes) : nullptr;
  args.scale_by_frequency = scale_grad_by_freq;
  args.padding_idx = padding_idx;
  args.out = data_or_null<char>(out);
  args.rows = num_weights;
  args.dim = dim;
  embedding_backward_kernel(args);
  return out;
}

Tensor sample_weights_backward(const Tensor& grad, const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                               const Tensor& offset2bag, int64_t mode, int64_t padding_idx) {
  check_same_device({&grad, &weight, &indices, &offsets, &offset2bag});
  TORCH_CHECK(mode == static_cast<int64_t>(BagMode::sum),
              "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  TORCH_CHECK(grad.dim() == 2 && indices.dim() == 1 && weight.dim() == 2 && weight.size(1) == grad.size(1));
  const Tensor rows = longs(indices), out = at::empty({indices.size(0)}, grad.options());
  Tensor bags = longs(offset2bag);
  if (rows.numel() != 0 && bags.numel() == 0) {
    // The forward left it out: the bag of a position is the number of later bags' starts up to it.
    bags = at::zeros({rows.numel() + 1}, rows.options());
    const Tensor starts = longs(offsets);
    bags.index_add_(0, starts, at::ones_like(starts));
    bags = bags.cumsum(0).narrow(0, 0, rows.numel()).sub(1);
  }
  SampleWeightsBackwardArgs args{};
  args.dtype = to_dtype(grad.scalar_type());
  args.grad = data_or_null<char>(grad);
  args.weight = data_or_null<char>(weight);
  for (int d = 0; d < 2; d++) args.grad_strides[d] = grad.stride(d), args.weight_strides[d] = weight.stride(d);
  args.rows = weight.size(0);
  args.dim = grad.size(1);
  args.indices = data_or_null<int64_t>(rows);
  args.bags = data_or_null<int64_t>(bags);
  args.count = rows.numel();
  args.grad_rows = grad.size(0);
  args.padding_idx = padding_idx;
  args.out = data_or_null<char>(out);
  TORCH_CHECK(bags.numel() == rows.numel(), "embedding_bag_backward: expected a bag for each of ", rows.numel(),
              " indices, got ", bags.numel());
  with_index_errors([&] { sample_weights_backward_kernel(args); },
                    [](const IndexOutOfRange&) { TORCH_CHECK_INDEX(false, "index out of range in self"); });
  return out;
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("embedding_dense_backward", MT_CHECKED(embedding_dense_backward));
  m.impl("embedding_renorm_", MT_CHECKED(embedding_renorm_));
  m.impl("_embedding_bag", MT_CHECKED(embedding_bag));
  m.impl("_embedding_bag_forward_only", MT_CHECKED(embedding_bag));
  m.impl("_embedding_bag_backward", TORCH_FN(at::native::_embedding_bag_backward_symint));
  m.impl("_embedding_bag_dense_backward", MT_CHECKED(embedding_bag_dense_backward));
  m.impl("_embedding_bag_per_sample_weights_backward", MT_CHECKED(sample_weights_backward));
}

}  // namespace
}  // namespace minitorch
