// Max pooling: regular, adaptive and fractional, their shared backward, and max unpooling.
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/native/FractionalMaxPooling.h>
#include <ATen/native/MaxPooling.h>
#include <ATen/native/Pool.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>
#include <ATen/ops/fractional_max_pool2d_backward_meta.h>
#include <ATen/ops/fractional_max_pool2d_meta.h>
#include <ATen/ops/fractional_max_pool3d_meta.h>
#include <ATen/ops/max_pool1d_native.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "ops/pool_common.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

using at::IntArrayRef;
using at::Tensor;

void maximum(const Tensor& x, const Tensor& out, const Tensor& indices, int dims, const PoolWindow& window) {
  if (out.numel() == 0) return;
  const at::MemoryFormat format = pool_format(out, dims);
  const Tensor dense = x.contiguous(format);
  const DenseOutput y(out, format), index(indices, format);
  max_pool_kernel({to_dtype(x.scalar_type()), pool_shape(x, out, dims, format), window, dense.const_data_ptr(), y.get(),
                   index.get()});
  y.finish();
  index.finish();
}

// out[indices] += or = values, per channel. Returns the first bad index found, if any.
std::optional<int64_t> scatter(const Tensor& values, const Tensor& indices, const Tensor& out, int dims,
                               bool accumulate, const PoolWindow* window = nullptr) {
  const auto leading = [dims](const Tensor& t) { return t.sizes().slice(0, std::max<int64_t>(t.dim() - dims, 0)); };
  TORCH_CHECK(values.sizes() == indices.sizes() && values.dim() == out.dim() && leading(values) == leading(out),
              "Expected values and indices of one shape and with the batch and channels of ", out.sizes(), ", got ",
              values.sizes(), " and ", indices.sizes());
  if (out.numel() == 0) return std::nullopt;
  if (accumulate && window == nullptr && values.numel() > 0 && !backend().synchronous() &&
      at::globalContext().deterministicAlgorithms()) {
    // The kernel's additions come in any order; scatter_add_ keeps its own when asked for.
    const int64_t plane = c10::multiply_integers(out.sizes().slice(out.dim() - dims));
    const int64_t planes = out.numel() / plane;
    const Tensor sums = at::zeros({planes, plane}, out.options());
    sums.scatter_add_(1, indices.reshape({planes, -1}), values.reshape({planes, -1}));
    out.copy_(sums.view(out.sizes()));
    return std::nullopt;
  }
  const at::MemoryFormat format = pool_format(out, dims);
  const Tensor x = values.contiguous(format), index = indices.contiguous(format);
  const DenseOutput y(out, format);
  bool failed = false;
  int64_t bad = 0;
  pool_scatter_kernel({to_dtype(x.scalar_type()), pool_shape(out, values, dims, format), accumulate, x.const_data_ptr(),
                       index.const_data_ptr(), y.get(), &failed, &bad, window != nullptr,
                       window != nullptr ? *window : PoolWindow{}});
  if (failed) return bad;
  y.finish();
  return std::nullopt;
}

void max_backward(const char* kernel, const Tensor& dy, const Tensor& x, const Tensor& indices, const Tensor& dx,
                  int dims, PoolInts ints, const PoolWindow* window = nullptr) {
  check_pool_dtype(kernel, x, ints);
  TORCH_CHECK(dy.dtype() == x.dtype(), "expected dtype ", x.dtype(), " for `gradOutput` but got dtype ", dy.dtype());
  TORCH_CHECK(indices.scalar_type() == at::kLong, "expected dtype long for `indices` but got dtype ", indices.dtype());
  const auto bad = scatter(dy, indices, dx, dims, /*accumulate=*/true, window);
  TORCH_CHECK_INDEX(!bad, kernel, ": index ", *bad, " is out of bounds for an input of sizes ", x.sizes());
}

struct MaxPool2d : at::meta::structured_max_pool2d_with_indices {
  void impl(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool,
            const Tensor& out, const Tensor& indices) {
    check_pool_dtype("max_pool2d", x, PoolInts::all, true);
    maximum(x, out, indices, 2, pool_window(2, kernel, stride, padding, dilation));
  }
};
struct MaxPool2dBackward : at::meta::structured_max_pool2d_with_indices_backward {
  void impl(const Tensor& dy, const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
            IntArrayRef dilation, bool, const Tensor& indices, const Tensor& dx) {
    const PoolWindow window = pool_window(2, kernel, stride, padding, dilation);
    max_backward("max_pool2d_backward", dy, x, indices, dx, 2, PoolInts::none, &window);
  }
};
struct AdaptiveMaxPool2d : at::meta::structured_adaptive_max_pool2d {
  void impl(const Tensor& x, IntArrayRef, const Tensor& out, const Tensor& indices) {
    check_pool_dtype("adaptive_max_pool2d", x, PoolInts::none, true);
    maximum(x, out, indices, 2, adaptive_window());
  }
};
struct AdaptiveMaxPool3d : at::meta::structured_adaptive_max_pool3d {
  void impl(const Tensor& x, IntArrayRef, const Tensor& out, const Tensor& indices) {
    check_pool_dtype("adaptive_max_pool3d_cpu", x, PoolInts::none);
    maximum(x, out, indices, 3, adaptive_window());
  }
};
struct AdaptiveMaxPool2dBackward : at::meta::structured_adaptive_max_pool2d_backward {
  void impl(const Tensor& dy, const Tensor& x, const Tensor& indices, const Tensor& dx) {
    const PoolWindow window = adaptive_window();
    max_backward("adaptive_max_pool2d_backward", dy, x, indices, dx, 2, PoolInts::none, &window);
  }
};
struct AdaptiveMaxPool3dBackward : at::meta::structured_adaptive_max_pool3d_backward {
  void impl(const Tensor& dy, const Tensor& x, const Tensor& indices, const Tensor& dx) {
    const PoolWindow window = adaptive_window();
    max_backward("adaptive_max_pool3d_backward", dy, x, indices, dx, 3, PoolInts::none, &window);
  }
};

// ---- 1-D max pooling: a composite in PyTorch, whose indices only a gradient needs ----------------------------------

Tensor max_pool1d(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                  bool ceil_mode) {
  const bool batched = x.dim() == 3;
  if (backend().host_accessible() && (batched || x.dim() == 2) && x.numel() > 0) {
    at::native::check_max_pool1d(x, kernel, stride, padding, dilation, ceil_mode);
    check_pool_dtype("max_pool1d_impl", x, PoolInts::none);
  }
  if (!at::isFloatingType(x.scalar_type()) || at::isFloat8Type(x.scalar_type()) || !(batched || x.dim() == 2) ||
      x.numel() == 0)
    return at::native::max_pool1d(x, kernel, stride, padding, dilation, ceil_mode);
  at::native::check_max_pool1d(x, kernel, stride, padding, dilation, ceil_mode);
  const PoolWindow w = pool_window(1, kernel, stride, padding, dilation);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = at::native::pooling_output_shape<int64_t>(x.size(-1), w.kernel[2], w.pad[2], w.stride[2],
                                                           w.dilation[2], ceil_mode);
  const Tensor out = empty(sizes, x.scalar_type()), dense = x.contiguous();
  if (out.numel() > 0)
    max_pool_kernel({to_dtype(x.scalar_type()), pool_shape(x, out, 1, at::MemoryFormat::Contiguous), w,
                     dense.const_data_ptr(), out.mutable_data_ptr(), nullptr});
  return out;
}

Tensor differentiable_max_pool1d(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                                 IntArrayRef dilation, bool ceil_mode) {
  const bool differentiated = (at::GradMode::is_enabled() && x.requires_grad()) || x._fw_grad(/*level=*/0).defined();
  if (differentiated || at::isTensorSubclassLike(x))
    return at::native::max_pool1d(x, kernel, stride, padding, dilation, ceil_mode);
  const at::AutoDispatchBelowADInplaceOrView below;
  return at::max_pool1d(x, kernel, stride, padding, dilation, ceil_mode);
}

// ---- 3-D max pooling: not structured in PyTorch --------------------------------------------------------------------

void check_triples(IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation) {
  const auto single_or_triple = [](IntArrayRef v) { return v.size() == 1 || v.size() == 3; };
  TORCH_CHECK(single_or_triple(kernel),
              "max_pool3d: kernel_size must either be a single int, or a tuple of three ints");
  TORCH_CHECK(stride.empty() || single_or_triple(stride),
              "max_pool3d: stride must either be omitted, a single int, or a tuple of three ints");
  TORCH_CHECK(single_or_triple(padding), "max_pool3d: padding must either be a single int, or a tuple of three ints");
  TORCH_CHECK(single_or_triple(dilation), "max_pool3d: dilation must be either a single int, or a tuple of three ints");
}

at::MemoryFormat format_3d(const Tensor& x) {
  return x.dim() == 5 ? x.suggest_memory_format() : at::MemoryFormat::Contiguous;
}

struct Plan3d {
  PoolWindow window;
  std::vector<int64_t> sizes;
};
Plan3d plan_max_pool3d(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                       IntArrayRef dilation, bool ceil_mode) {
  check_triples(kernel, stride, padding, dilation);
  TORCH_CHECK(x.dim() == 4 || x.dim() == 5, "non-empty 4D or 5D (batch mode) tensor expected for input");
  Plan3d plan{pool_window(3, kernel, stride, padding, dilation), x.sizes().vec()};
  const PoolWindow& w = plan.window;
  int64_t out[3];
  for (int d = 0; d < 3; d++) {
    out[d] = at::native::pooling_output_shape<int64_t>(x.size(d - 3), w.kernel[d], w.pad[d], w.stride[d], w.dilation[d],
                                                       ceil_mode);
    plan.sizes[plan.sizes.size() - 3 + d] = out[d];
  }
  at::native::pool3d_shape_check(
      x, x.size(-4), static_cast<int>(w.kernel[0]), static_cast<int>(w.kernel[1]), static_cast<int>(w.kernel[2]),
      static_cast<int>(w.stride[0]), static_cast<int>(w.stride[1]), static_cast<int>(w.stride[2]),
      static_cast<int>(w.pad[0]), static_cast<int>(w.pad[1]), static_cast<int>(w.pad[2]),
      static_cast<int>(w.dilation[0]), static_cast<int>(w.dilation[1]), static_cast<int>(w.dilation[2]), x.size(-3),
      x.size(-2), x.size(-1), out[0], out[1], out[2], "max_pool3d_with_indices_out_cpu_template()");
  check_pool_dtype("max_pool3d", x, PoolInts::all, true);
  return plan;
}

std::tuple<Tensor, Tensor> max_pool3d(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                                      IntArrayRef dilation, bool ceil_mode) {
  const Plan3d plan = plan_max_pool3d(x, kernel, stride, padding, dilation, ceil_mode);
  Tensor out = empty(plan.sizes, x.scalar_type(), format_3d(x)), indices = empty(plan.sizes, at::kLong, format_3d(x));
  maximum(x, out, indices, 3, plan.window);
  return {out, indices};
}

std::tuple<Tensor&, Tensor&> max_pool3d_out(const Tensor& x, IntArrayRef kernel, IntArrayRef stride,
                                            IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, Tensor& out,
                                            Tensor& indices) {
  check_same_device({&x, &out, &indices});
  const Plan3d plan = plan_max_pool3d(x, kernel, stride, padding, dilation, ceil_mode);
  TORCH_CHECK(out.dtype() == x.dtype(), "Expected out tensor to have dtype ", x.dtype(), ", but got ", out.dtype(),
              " instead");
  TORCH_CHECK(indices.scalar_type() == at::kLong, "Expected out tensor to have dtype long int, but got ",
              indices.dtype(), " instead");
  at::native::resize_output(out, plan.sizes);
  at::native::resize_output(indices, plan.sizes);
  maximum(x, out, indices, 3, plan.window);
  return {out, indices};
}

Tensor max_pool3d_backward(const Tensor& dy, const Tensor& x, IntArrayRef kernel, IntArrayRef stride,
                           IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, const Tensor& indices) {
  check_same_device({&dy, &x, &indices});
  TORCH_CHECK(dy.dtype() == x.dtype(), "expected dtype ", x.dtype(), " for `gradOutput` but got dtype ", dy.dtype());
  const Plan3d plan = plan_max_pool3d(x, kernel, stride, padding, dilation, ceil_mode);
  for (const Tensor* t : {&dy, &indices})
    for (int64_t d = 0; d < x.dim(); d++) at::check_dim_size(*t, x.dim(), d, plan.sizes[static_cast<size_t>(d)]);
  Tensor dx = empty(x.sizes(), x.scalar_type(), format_3d(x));
  max_backward("max_pool3d_backward", dy, x, indices, dx, 3, PoolInts::none, &plan.window);
  return dx;
}
Tensor& max_pool3d_backward_out(const Tensor& dy, const Tensor& x, IntArrayRef kernel, IntArrayRef stride,
                                IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, const Tensor& indices,
                                Tensor& dx) {
  return copy_into(max_pool3d_backward(dy, x, kernel, stride, padding, dilation, ceil_mode, indices), dx);
}

// ---- Fractional
// ------------------------------------------------------------------------------------------------------

void fractional(const Tensor& x, IntArrayRef kernel, const Tensor& samples, const Tensor& out, const Tensor& indices,
                int dims) {
  for (const int64_t size : kernel)
    TORCH_CHECK(size >= 0, "fractional_max_pool", dims, "d: kernel_size must not be negative, got ", kernel);
  if (out.numel() == 0) return;
  const auto format = at::MemoryFormat::Contiguous;
  const Tensor dense = x.contiguous(), u = samples.contiguous();
  const DenseOutput y(out, format), index(indices, format);
  FractionalMaxPoolArgs args{to_dtype(x.scalar_type()),
                             pool_shape(x, out, dims, format),
                             {},
                             u.const_data_ptr(),
                             dims,
                             {0, 0, 0},
                             dense.const_data_ptr(),
                             y.get(),
                             index.get()};
  fill_window(args.kernel, kernel, dims, 1);
  // Native draws for width and height in that order in 2-D, and for depth, height and width in 3-D.
  for (int d = 3 - dims; d < 3; d++) args.sample_index[d] = dims == 2 ? 2 - d : d;
  fractional_max_pool_kernel(args);
  y.finish();
  index.finish();
}

struct FractionalMaxPool2d : at::meta::structured_fractional_max_pool2d {
  void impl(const Tensor& x, IntArrayRef kernel, IntArrayRef, const Tensor& samples, const Tensor& out,
            const Tensor& indices) {
    at::native::fractional_max_pool_check_shape<2>(x, samples);
    check_pool_dtype("fractional_max_pool2d_out_frame", x, PoolInts::none);
    fractional(x, kernel, samples, out, indices, 2);
  }
};
struct FractionalMaxPool3d : at::meta::structured_fractional_max_pool3d {
  void impl(const meta_return_ty&, const Tensor& x, IntArrayRef kernel, IntArrayRef, const Tensor& samples,
            const Tensor& out, const Tensor& indices) {
    at::native::fractional_max_pool_check_shape<3>(x, samples);
    check_pool_dtype("fractional_max_pool3d_out_frame", x, PoolInts::none);
    fractional(x, kernel, samples, out, indices, 3);
  }
};
struct FractionalMaxPool2dBackward : at::meta::structured_fractional_max_pool2d_backward {
  void meta(const Tensor& dy, const Tensor& x, IntArrayRef kernel, IntArrayRef output, const Tensor& indices) {
    TORCH_CHECK(output.size() == 2 && (x.dim() == 3 || x.dim() == 4) && dy.dim() == x.dim(),
                "fractional_max_pool2d_backward: expected two output sizes and a gradient of the input's 3 or 4 "
                "dimensions, got ",
                output, ", ", dy.sizes(), " and ", x.sizes());
    at::meta::structured_fractional_max_pool2d_backward::meta(dy, x, kernel, output, indices);
  }
  void impl(const Tensor& dy, const Tensor& x, IntArrayRef, IntArrayRef, const Tensor& indices, const Tensor& dx) {
    max_backward("fractional_max_pool2d_backward_out_frame", dy, x, indices, dx, 2, PoolInts::none);
  }
};

Tensor fractional_3d_backward(const Tensor& dy, const Tensor& x, IntArrayRef, IntArrayRef output_size,
                              const Tensor& indices) {
  check_same_device({&dy, &x, &indices});
  TORCH_CHECK(output_size.size() == 3, "fractional_max_pool3d_backward_out(): output_size must be 3");
  const char* names[] = {"time", "height", "width"};
  for (int d = 0; d < 3; d++)
    TORCH_CHECK(dy.size(d - 3) == output_size[d], "fractional_max_pool3d_backward_out(): gradOutput ", names[d],
                " unexpected");
  TORCH_CHECK(dy.sizes() == indices.sizes(), "fractional_max_pool3d_backward_out(): indices must have the sizes of ",
              "gradOutput ", dy.sizes(), ", but got ", indices.sizes());
  Tensor dx = empty(x.sizes(), x.scalar_type());
  max_backward("fractional_max_pool3d_backward_out_frame", dy, x, indices, dx, 3, PoolInts::none);
  return dx;
}
Tensor& fractional_3d_backward_out(const Tensor& dy, const Tensor& x, IntArrayRef kernel, IntArrayRef output_size,
                                   const Tensor& indices, Tensor& dx) {
  return copy_into(fractional_3d_backward(dy, x, kernel, output_size, indices), dx);
}

// ---- Unpooling
// -------------------------------------------------------------------------------------------------------

std::vector<int64_t> unpooled_sizes(const Tensor& x, const Tensor& indices, IntArrayRef output_size, int dims) {
  check_same_device({&x, &indices});
  TORCH_CHECK(indices.scalar_type() == at::kLong, "elements in indices should be type int64",
              dims == 2 ? c10::str(" but got: ", indices.scalar_type()) : std::string());
  TORCH_CHECK(static_cast<int>(output_size.size()) == dims, "There should be exactly ",
              dims == 2 ? "two elements (height, width)" : "three elements (depth, height, width)",
              " in output_size, but got ", output_size.size(), " elements.");
  TORCH_CHECK(x.dim() == dims + 1 || x.dim() == dims + 2, "Input to max_unpooling", dims, "d should be a ", dims + 1,
              "d or ", dims + 2, "d Tensor, but got a tensor with ", x.dim(), " dimensions.");
  TORCH_CHECK(x.sizes() == indices.sizes(), "Expected shape of indices to be same as that of the input tensor (",
              x.sizes(), ") but got indices tensor with shape: ", indices.sizes());
  for (int64_t i = 1; i < x.dim(); i++)
    TORCH_CHECK(x.size(i) > 0, "max_unpooling", dims,
                "d_forward_out_cpu(): Expected input to have non-zero size for non-batch dimensions, but got ",
                x.sizes(), " with dimension ", i, " being empty.");
  if (x.numel() != 0)
    check_pool_dtype(dims == 2 ? "max_unpool2d" : "max_unpool3d", x, PoolInts::none, /*named_by_layout=*/dims == 2);
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end() - dims);
  sizes.insert(sizes.end(), output_size.begin(), output_size.end());
  return sizes;
}

void unpool(const Tensor& x, const Tensor& indices, const Tensor& out, int dims) {
  // Of values with one index any may stay.
  at::globalContext().alertNotDeterministic(dims == 2 ? "max_unpooling2d_forward_out" : "max_unpooling3d_forward_out");
  if (const auto bad = scatter(x, indices, out, dims, /*accumulate=*/false))
    TORCH_CHECK(false, "Found an invalid max index: ", *bad, " (output volumes are of size ",
                c10::Join("x", out.sizes().slice(out.dim() - dims)), ")");
}

Tensor unpool_2d(const Tensor& x, const Tensor& indices, IntArrayRef output_size) {
  const auto sizes = unpooled_sizes(x, indices, output_size, 2);
  Tensor out = empty(sizes, x.scalar_type(), x.dim() == 4 ? x.suggest_memory_format() : at::MemoryFormat::Contiguous);
  unpool(x, indices, out, 2);
  return out;
}
Tensor& unpool_2d_out(const Tensor& x, const Tensor& indices, IntArrayRef output_size, Tensor& out) {
  check_same_device({&x, &out});
  return copy_into(unpool_2d(x, indices, output_size), out);
}

Tensor unpool_3d(const Tensor& x, const Tensor& indices, IntArrayRef output_size, IntArrayRef stride,
                 IntArrayRef padding) {
  TORCH_CHECK(output_size.size() == 3,
              "There should be exactly three elements (depth, height, width) in output_size, but got ",
              output_size.size(), " elements.");
  TORCH_CHECK(stride.size() == 3,
              "There should be exactly three elements (depth, height, width) in stride, but got: ", stride.size(),
              " elements.");
  TORCH_CHECK(padding.size() == 3,
              "There should be exactly three elements (depth, height, width) in padding, but got: ", padding.size(),
              " elements.");
  const auto sizes = unpooled_sizes(x, indices, output_size, 3);
  TORCH_CHECK(stride[0] > 0 && stride[1] > 0 && stride[2] > 0,
              "strides should be greater than zero, but got stride: ", stride);
  Tensor out = empty(sizes, x.scalar_type());
  unpool(x, indices, out, 3);
  return out;
}
Tensor& unpool_3d_out(const Tensor& x, const Tensor& indices, IntArrayRef output_size, IntArrayRef stride,
                      IntArrayRef padding, Tensor& out) {
  check_same_device({&x, &out});
  return copy_into(unpool_3d(x, indices, output_size, stride, padding), out);
}

MT_OPERATORS(aten, AutogradPrivateUse1, m) { m.impl("max_pool1d", TORCH_FN(differentiable_max_pool1d)); }
MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("max_pool1d", MT_CHECKED(max_pool1d));
  structured<MaxPool2d>(m, "max_pool2d_with_indices", nullptr, "max_pool2d_with_indices.out");
  structured<MaxPool2dBackward>(m, "max_pool2d_with_indices_backward", nullptr,
                                "max_pool2d_with_indices_backward.grad_input");
  structured<AdaptiveMaxPool2d>(m, "adaptive_max_pool2d", nullptr, "adaptive_max_pool2d.out");
  structured<AdaptiveMaxPool3d>(m, "adaptive_max_pool3d", nullptr, "adaptive_max_pool3d.out");
  structured<AdaptiveMaxPool2dBackward>(m, "adaptive_max_pool2d_backward", nullptr,
                                        "adaptive_max_pool2d_backward.grad_input");
  structured<AdaptiveMaxPool3dBackward>(m, "adaptive_max_pool3d_backward", nullptr,
                                        "adaptive_max_pool3d_backward.grad_input");
  structured<FractionalMaxPool2d>(m, "fractional_max_pool2d", nullptr, "fractional_max_pool2d.output");
  structured<FractionalMaxPool3d>(m, "fractional_max_pool3d", nullptr, "fractional_max_pool3d.output");
  structured<FractionalMaxPool2dBackward>(m, "fractional_max_pool2d_backward", nullptr,
                                          "fractional_max_pool2d_backward.grad_input");
  m.impl("fractional_max_pool3d_backward", MT_CHECKED(fractional_3d_backward));
  m.impl("fractional_max_pool3d_backward.grad_input", MT_CHECKED(fractional_3d_backward_out));
  m.impl("max_pool3d_with_indices", MT_CHECKED(max_pool3d));
  m.impl("max_pool3d_with_indices.out", MT_CHECKED(max_pool3d_out));
  m.impl("max_pool3d_with_indices_backward", MT_CHECKED(max_pool3d_backward));
  m.impl("max_pool3d_with_indices_backward.grad_input", MT_CHECKED(max_pool3d_backward_out));
  m.impl("max_unpool2d", MT_CHECKED(unpool_2d));
  m.impl("max_unpool2d.out", MT_CHECKED(unpool_2d_out));
  m.impl("max_unpool3d", MT_CHECKED(unpool_3d));
  m.impl("max_unpool3d.out", MT_CHECKED(unpool_3d_out));
}

}  // namespace
}  // namespace minitorch
