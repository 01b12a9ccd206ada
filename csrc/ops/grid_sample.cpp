// grid_sampler_2d and grid_sampler_3d with their gradients; affine_grid is PyTorch's composite.
#include <ATen/native/GridSamplerUtils.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/grid_sample.h"

namespace minitorch {
namespace {

using at::Tensor;

template <int D>
void check(const Tensor& x, const Tensor& grid, int64_t interpolation, const char* kernel) {
  at::native::check_grid_sampler_common(x, grid);
  if constexpr (D == 2) {
    at::native::check_grid_sampler_2d(x, grid);
  } else {
    at::native::check_grid_sampler_3d(x, grid, interpolation);
  }
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16,
                              '"', kernel, "\" not implemented for '", c10::toString(type), "'");
  TORCH_CHECK(grid.scalar_type() == type, "expected scalar type ", type, " but found ", grid.scalar_type());
}

template <int D>
GridSampleArgs arguments(const Tensor& x, const Tensor& grid, int64_t interpolation, int64_t padding,
                         bool align_corners) {
  GridSampleArgs a{};
  a.dtype = to_dtype(x.scalar_type());
  a.dims = D;
  a.interpolation = static_cast<GridInterpolation>(interpolation);
  a.padding = static_cast<GridPadding>(padding);
  a.align_corners = align_corners;
  a.n = x.size(0);
  a.c = x.size(1);
  for (int d = 0; d < 3; d++) {
    const bool real = d >= 3 - D;
    a.in[d] = real ? x.size(d - 3) : 1;
    a.out[d] = real ? grid.size(d - 4) : 1;
    a.x_strides[d] = real ? x.stride(d - 3) : 0;
  }
  a.x = x.const_data_ptr();
  a.x_n = x.stride(0);
  a.x_c = x.stride(1);
  a.grid = grid.const_data_ptr();
  return a;
}

// Of the result, for an input and a grid that check<D> has accepted.
template <int D>
at::DimVector result_sizes(const Tensor& x, const Tensor& grid) {
  at::DimVector sizes{x.size(0), x.size(1)};
  for (int d = 0; d < D; d++) sizes.push_back(grid.size(1 + d));
  return sizes;
}

template <int D>
Tensor grid_sampler(const Tensor& x, const Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners) {
  check<D>(x, grid, interpolation, D == 2 ? "grid_sampler_2d_cpu_kernel_impl" : "grid_sampler3d_cpu");
  const Tensor y = empty(result_sizes<D>(x, grid), x.scalar_type());
  if (y.numel() == 0) return y;
  const Tensor points = grid.contiguous();
  GridSampleArgs a = arguments<D>(x, points, interpolation, padding, align_corners);
  a.y = y.mutable_data_ptr();
  grid_sample_kernel(a);
  return y;
}

template <int D>
std::tuple<Tensor, Tensor> grid_sampler_backward(const Tensor& dy, const Tensor& x, const Tensor& grid,
                                                 int64_t interpolation, int64_t padding, bool align_corners,
                                                 std::array<bool, 2> wanted) {
  check_same_device({&dy, &x, &grid});
  check<D>(x, grid, interpolation,
           D == 2 ? "grid_sampler_2d_backward_cpu_kernel_impl" : "grid_sampler_3d_backward_cpu");
  TORCH_CHECK(dy.scalar_type() == x.scalar_type(), "expected scalar type ", x.scalar_type(), " but found ",
              dy.scalar_type());
  TORCH_CHECK(dy.sizes() == at::IntArrayRef(result_sizes<D>(x, grid)), "grid_sampler(): expected a gradient of sizes ",
              at::IntArrayRef(result_sizes<D>(x, grid)), ", got ", dy.sizes());
  // Native computes the gradient of the grid whether or not it is wanted.
  Tensor dx, dgrid = empty(grid.sizes(), grid.scalar_type());
  if (wanted[0]) dx = empty(x.sizes(), x.scalar_type());
  if (dy.numel() == 0) {
    if (wanted[0]) dx.zero_();
    dgrid.zero_();
    return {dx, dgrid};
  }
  const Tensor points = grid.contiguous(), gradient = dy.contiguous();
  GridSampleArgs a = arguments<D>(x, points, interpolation, padding, align_corners);
  a.dy = gradient.const_data_ptr();
  a.dx = wanted[0] ? dx.mutable_data_ptr() : nullptr;
  a.dgrid = dgrid.mutable_data_ptr();
  grid_sample_backward_kernel(a);
  return {dx, dgrid};
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("grid_sampler_2d", MT_CHECKED(grid_sampler<2>));
  m.impl("grid_sampler_3d", MT_CHECKED(grid_sampler<3>));
  m.impl("grid_sampler_2d_backward", MT_CHECKED(grid_sampler_backward<2>));
  m.impl("grid_sampler_3d_backward", MT_CHECKED(grid_sampler_backward<3>));
}

}  // namespace
}  // namespace minitorch
