// Average pooling, regular and adaptive.
#include <ATen/native/AdaptivePooling.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_meta.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "ops/pool_common.h"

namespace minitorch {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr int64_t kOnes[] = {1};

void average(const Tensor& x, const Tensor& out, int dims, const PoolWindow& window, bool count_include_pad,
             std::optional<int64_t> divisor) {
  if (out.numel() == 0) return;
  const at::MemoryFormat format = pool_format(out, dims);
  const Tensor dense = x.contiguous(format);
  const DenseOutput y(out, format);
  avg_pool_kernel({to_dtype(x.scalar_type()), pool_shape(x, out, dims, format), window, count_include_pad,
                   divisor.value_or(0), dense.const_data_ptr(), y.get()});
  y.finish();
}

void average_backward(const Tensor& dy, const Tensor& x, const Tensor& dx, int dims, const PoolWindow& window,
                      bool count_include_pad, std::optional<int64_t> divisor) {
  const auto leading = [&](const Tensor& t) { return t.sizes().slice(0, t.dim() - dims); };
  TORCH_CHECK(dy.dim() == x.dim() && (x.dim() == dims + 1 || x.dim() == dims + 2) && leading(dy) == leading(x),
              "average pooling's gradient: batch and channels of grad_output ", dy.sizes(),
              " must be those of the input ", x.sizes());
  if (dx.numel() == 0) return;
  const at::MemoryFormat format = pool_format(dx, dims);
  const Tensor dense = dy.contiguous(format);
  const DenseOutput result(dx, format);
  avg_pool_backward_kernel({to_dtype(x.scalar_type()), pool_shape(x, dy, dims, format), window, count_include_pad,
                            divisor.value_or(0), dense.const_data_ptr(), result.get()});
  result.finish();
}

struct AvgPool2d : at::meta::structured_avg_pool2d {
  void impl(const meta_return_ty&, const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
            bool /*ceil_mode*/, bool count_include_pad, std::optional<int64_t> divisor, const Tensor& out) {
    check_pool_dtype("avg_pool2d", x, PoolInts::int64, true);
    average(x, out, 2, pool_window(2, kernel, stride, padding, kOnes), count_include_pad, divisor);
  }
};
struct AvgPool3d : at::meta::structured_avg_pool3d {
  void impl(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, bool /*ceil_mode*/,
            bool count_include_pad, std::optional<int64_t> divisor, const Tensor& out) {
    refuse_as_native("avg_pool3d", x.scalar_type());
    check_pool_dtype("avg_pool3d_out_frame", x, PoolInts::int64);
    average(x, out, 3, pool_window(3, kernel, stride, padding, kOnes), count_include_pad, divisor);
  }
};
struct AvgPool2dBackward : at::meta::structured_avg_pool2d_backward {
  void impl(const Tensor& dy, const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
            bool /*ceil_mode*/, bool count_include_pad, std::optional<int64_t> divisor, const Tensor& dx) {
    check_pool_dtype("avg_pool2d_backward", x, PoolInts::int64);
    TORCH_CHECK(dy.dtype() == x.dtype(), "expected dtype ", x.dtype(), " for `gradOutput` but got dtype ", dy.dtype());
    average_backward(dy, x, dx, 2, pool_window(2, kernel, stride, padding, kOnes), count_include_pad, divisor);
  }
};
struct AvgPool3dBackward : at::meta::structured_avg_pool3d_backward {
  void impl(const Tensor& dy, const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
            bool /*ceil_mode*/, bool count_include_pad, std::optional<int64_t> divisor, const Tensor& dx) {
    check_pool_dtype("avg_pool3d_backward_out_frame", x, PoolInts::int64);
    TORCH_CHECK(dy.dtype() == x.dtype(), "expected dtype ", x.dtype(), " for `gradOutput` but got dtype ", dy.dtype());
    average_backward(dy, x, dx, 3, pool_window(3, kernel, stride, padding, kOnes), count_include_pad, divisor);
  }
};

// Names as native's messages have them; 2-D keeps channels last, 3-D does not.
struct Adaptive {
  int dims;
  const char *name, *expected, *forward_dtype, *backward_dtype;
};
constexpr Adaptive kAdaptive2d{2, "adaptive_avg_pool2d", "Expected 3D or 4D tensor, but got ", "adaptive_avg_pool2d",
                               "adaptive_avg_pool2d_backward"};
constexpr Adaptive kAdaptive3d{3, "adaptive_avg_pool3d", "Expected 4D or 5D tensor, but got ",
                               "adaptive_avg_pool3d_cpu", "adaptive_avg_pool3d_backward_cpu"};

std::vector<int64_t> adaptive_sizes(const Adaptive& a, const Tensor& x, IntArrayRef output_size) {
  TORCH_CHECK(static_cast<int>(output_size.size()) == a.dims, a.name, ": output_size must be ", a.dims);
  for (int64_t i = a.dims == 3 ? 1 : x.dim() - a.dims; i < x.dim(); i++)
    TORCH_CHECK(i < 0 || x.size(i) > 0, a.name,
                "(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ", x.sizes(),
                " with dimension ", i, " being empty");
  TORCH_CHECK(x.dim() == a.dims + 1 || x.dim() == a.dims + 2, a.name, "(): ", a.expected, x.sizes());
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end() - a.dims);
  sizes.insert(sizes.end(), output_size.begin(), output_size.end());
  return sizes;
}
at::MemoryFormat adaptive_format(const Adaptive& a, const Tensor& x) {
  return a.dims == 2 && x.dim() == 4 ? x.suggest_memory_format() : at::MemoryFormat::Contiguous;
}

// In two dimensions native does not look at the dtype of what it has nothing to compute of.
template <const Adaptive& a>
void check_adaptive_dtype(const Tensor& x, IntArrayRef sizes) {
  if (a.dims == 2 && c10::multiply_integers(sizes) == 0) return;
  check_pool_dtype(a.forward_dtype, x, PoolInts::none, a.dims == 2);
}

template <const Adaptive& a>
Tensor adaptive_average(const Tensor& x, IntArrayRef output_size) {
  const auto sizes = adaptive_sizes(a, x, output_size);
  check_adaptive_dtype<a>(x, sizes);
  Tensor out = empty(sizes, x.scalar_type(), adaptive_format(a, x));
  average(x, out, a.dims, adaptive_window(), false, std::nullopt);
  return out;
}
template <const Adaptive& a>
Tensor& adaptive_average_out(const Tensor& x, IntArrayRef output_size, Tensor& out) {
  check_same_device({&x, &out});
  const auto sizes = adaptive_sizes(a, x, output_size);
  TORCH_CHECK(x.dtype() == out.dtype(), "expected dtype ", x.dtype(), " for `output` but got dtype ", out.dtype());
  check_adaptive_dtype<a>(x, sizes);
  if (out.sizes() != IntArrayRef(sizes)) out.resize_(sizes, adaptive_format(a, x));
  average(x, out, a.dims, adaptive_window(), false, std::nullopt);
  return out;
}

template <const Adaptive& a>
Tensor adaptive_average_backward(const Tensor& dy, const Tensor& x) {
  check_same_device({&dy, &x});
  at::native::adaptive_pool_empty_output_check(
      dy, a.dims == 2 ? "adaptive_avg_pool2d_backward" : "adaptive_avg_pool3d_backward");
  if (a.dims == 2) {
    TORCH_CHECK(dy.dim() == x.dim(), "adaptive_avg_pool2d_backward_out_cpu_template: Expected dimensions ", x.dim(),
                " for `grad_output` but got dimensions ", dy.dim());
    TORCH_CHECK(dy.dtype() == x.dtype(), "adaptive_avg_pool2d_backward_out_cpu_template: Expected dtype ", x.dtype(),
                " for `grad_output` but got dtype ", dy.dtype());
  } else {
    TORCH_CHECK(dy.dim() == x.dim(), "adaptive_avg_pool3d_backward_out_cpu_template: Expected dimensions ", x.dim(),
                " for `gradOutput_` but got dimensions ", dy.dim());
    TORCH_CHECK(dy.dtype() == x.dtype(), "expected scalar type ", x.scalar_type(), " but found ", dy.scalar_type());
  }
  check_pool_dtype(a.backward_dtype, x, PoolInts::none);
  Tensor dx = empty(x.sizes(), x.scalar_type(), adaptive_format(a, x));
  average_backward(dy, x, dx, a.dims, adaptive_window(), false, std::nullopt);
  return dx;
}
Tensor& adaptive_avg_pool3d_backward_out(const Tensor& dy, const Tensor& x, Tensor& dx) {
  return resize_and_copy(adaptive_average_backward<kAdaptive3d>(dy, x), dx);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  structured<AvgPool2d>(m, "avg_pool2d", nullptr, "avg_pool2d.out");
  structured<AvgPool3d>(m, "avg_pool3d", nullptr, "avg_pool3d.out");
  structured<AvgPool2dBackward>(m, "avg_pool2d_backward", nullptr, "avg_pool2d_backward.grad_input");
  structured<AvgPool3dBackward>(m, "avg_pool3d_backward", nullptr, "avg_pool3d_backward.grad_input");
  m.impl("_adaptive_avg_pool2d", MT_CHECKED(adaptive_average<kAdaptive2d>));
  m.impl("_adaptive_avg_pool3d", MT_CHECKED(adaptive_average<kAdaptive3d>));
  m.impl("adaptive_avg_pool2d.out", MT_CHECKED(adaptive_average_out<kAdaptive2d>));
  m.impl("adaptive_avg_pool3d.out", MT_CHECKED(adaptive_average_out<kAdaptive3d>));
  m.impl("_adaptive_avg_pool2d_backward", MT_CHECKED(adaptive_average_backward<kAdaptive2d>));
  m.impl("_adaptive_avg_pool3d_backward", MT_CHECKED(adaptive_average_backward<kAdaptive3d>));
  m.impl("adaptive_avg_pool3d_backward.grad_input", MT_CHECKED(adaptive_avg_pool3d_backward_out));
}

}  // namespace
}  // namespace minitorch
