// segment_reduce: PyTorch's checks, our kernels behind its stubs.
#include <ATen/native/SegmentReduce.h>
#include <ATen/ops/_segment_reduce_backward_native.h>
#include <ATen/ops/segment_reduce_native.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/segment.h"

namespace minitorch {
namespace {

using at::Tensor;
using at::native::ReductionType;
using Initial = std::optional<at::Scalar>;

SegmentReduction reduction_of(ReductionType type) {
  switch (type) {
    case ReductionType::MAX: return SegmentReduction::max;
    case ReductionType::MEAN: return SegmentReduction::mean;
    case ReductionType::MIN: return SegmentReduction::min;
    case ReductionType::SUM: return SegmentReduction::sum;
    default: return SegmentReduction::prod;
  }
}

// Lengths or offsets, [outer..., count], as bounds of segments within a dimension of `length` elements.
Tensor bounds_of(const Tensor& segments, bool from_lengths, int64_t length) {
  const at::ScalarType type = segments.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(type == at::kInt || type == at::kLong, "\"_segment_reduce_cpu\" not implemented for '",
                              c10::toString(type), "'");
  const Tensor dense = segments.contiguous();
  const int64_t count = dense.size(-1), outer = c10::multiply_integers(dense.sizes().slice(0, dense.dim() - 1));
  const Tensor bounds = empty({outer, from_lengths ? count + 1 : count}, at::kLong);
  bool failed = false;
  segment_bounds_kernel({to_dtype(type), from_lengths, outer, count, length, dense.const_data_ptr(),
                         static_cast<int64_t*>(bounds.mutable_data_ptr()), &failed});
  TORCH_CHECK(!failed, "segment_reduce(): ", from_lengths ? "lengths" : "offsets",
              " contains a segment that is negative or reaches beyond the ", length,
              " elements of data along its axis");
  return bounds;
}

SegmentArgs arguments(ReductionType reduction, const Tensor& data, const Tensor& bounds, int64_t axis,
                      const Initial& initial, const char* name) {
  const at::ScalarType type = data.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(type), '"', name, "\" not implemented for '", c10::toString(type),
                              "'");
  SegmentArgs a{};
  a.dtype = to_dtype(type);
  a.reduction = reduction_of(reduction);
  a.outer = c10::multiply_integers(data.sizes().slice(0, axis));
  a.length = data.size(axis);
  a.inner = c10::multiply_integers(data.sizes().slice(axis + 1));
  a.segments = bounds.size(1) - 1;
  TORCH_CHECK(bounds.size(0) == a.outer && a.segments >= 0,
              "segment_reduce(): lengths or offsets must have the sizes of data before the axis, and offsets at least "
              "one element");
  a.bounds = static_cast<const int64_t*>(bounds.const_data_ptr());
  a.has_initial = initial.has_value();
  a.initial = initial.has_value() ? initial->toDouble() : 0.0;
  a.data = data.const_data_ptr();
  return a;
}

at::DimVector result_sizes(const Tensor& data, int64_t axis, int64_t segments) {
  at::DimVector sizes(data.sizes());
  sizes[axis] = segments;
  return sizes;
}

template <bool from_lengths>
Tensor reduce(ReductionType reduction, const Tensor& data, const Tensor& segments, int64_t axis,
              const Initial& initial) {
  const Tensor x = data.contiguous(), bounds = bounds_of(segments, from_lengths, x.size(axis));
  SegmentArgs a = arguments(reduction, x, bounds, axis, initial, "_segment_reduce_cpu");
  const Tensor result = empty(result_sizes(x, axis, a.segments), x.scalar_type());
  a.result = result.mutable_data_ptr();
  if (result.numel() > 0) segment_reduce_kernel(a);
  return result;
}

template <bool from_lengths>
Tensor reduce_backward(const Tensor& grad, const Tensor& output, const Tensor& data, ReductionType reduction,
                       const Tensor& segments, int64_t axis, const Initial& initial) {
  const Tensor x = data.contiguous(), y = output.contiguous(), dy = grad.contiguous();
  const Tensor bounds = bounds_of(segments, from_lengths, x.size(axis));
  SegmentArgs a = arguments(reduction, x, bounds, axis, initial, "_segment_reduce_cpu");
  for (const Tensor* t : {&dy, &y})
    TORCH_CHECK(t->sizes() == at::IntArrayRef(result_sizes(x, axis, a.segments)) && t->dtype() == x.dtype(),
                "_segment_reduce_backward(): expected the output and its gradient to have sizes ",
                at::IntArrayRef(result_sizes(x, axis, a.segments)), " and dtype ", x.dtype(), ", got ", t->sizes(),
                " and ", t->dtype());
  const Tensor dx = empty(x.sizes(), dy.scalar_type());
  dx.zero_();  // elements outside every segment
  a.result = const_cast<void*>(y.const_data_ptr());
  a.dresult = dy.const_data_ptr();
  a.ddata = dx.mutable_data_ptr();
  if (y.numel() > 0 && dx.numel() > 0) segment_reduce_backward_kernel(a);
  return dx;
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_lengths_stub, &minitorch::reduce<true>)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_offsets_stub, &minitorch::reduce<false>)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_lengths_backward_stub, &minitorch::reduce_backward<true>)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_offsets_backward_stub, &minitorch::reduce_backward<false>)
}  // namespace at::native

namespace minitorch {
namespace {

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("segment_reduce", MT_CHECKED(at::native::segment_reduce_kernel));
  m.impl("_segment_reduce_backward", MT_CHECKED(at::native::_segment_reduce_backward_kernel));
}

}  // namespace
}  // namespace minitorch
