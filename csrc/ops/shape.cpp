// Triangles of matrices, repeat_interleave, im2col and col2im, narrow_copy.
#include <ATen/native/Repeat.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/triu_meta.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/shape.h"

namespace minitorch {
namespace {

using at::IntArrayRef;
using at::Tensor;

template <class Meta, bool upper>
struct Triangle : Meta {
  void impl(const Tensor& self, int64_t k, const Tensor& out) {
    if (self.numel() == 0) return;
    const at::ScalarType dtype = self.scalar_type();
    check_native_has(dtype == at::kComplexHalf || !is_rare_or_float8(dtype), upper ? "triu" : "tril", dtype);
    triangle_kernel({view_of(self), view_of(out), k, upper});
  }
};
using Tril = Triangle<at::meta::structured_tril, false>;
using Triu = Triangle<at::meta::structured_triu, true>;

template <bool upper>
Tensor triangle_indices(int64_t rows, int64_t columns, int64_t k, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout> layout, std::optional<at::Device> device,
                        std::optional<bool> /*pin_memory*/) {
  at::native::check_args(rows, columns, layout);
  const auto type = dtype.value_or(at::kLong);
  TORCH_CHECK_NOT_IMPLEMENTED(type == at::kLong || type == at::kInt, '"', upper ? "triu" : "tril",
                              "_indices\" not implemented for '", type, "'");
  int64_t all;
  TORCH_CHECK(!__builtin_mul_overflow(rows, columns, &all), "Expected a matrix of less than 2^63 elements, got ", rows,
              " rows and ", columns, " columns");
  k = std::clamp(k, -rows, columns);  // beyond, nothing changes
  const c10::OptionalDeviceGuard guard(device);
  const int64_t below = at::native::get_tril_size(rows, columns, upper ? k - 1 : k);
  const int64_t count = upper ? all - below : below;
  const Tensor indices = empty({2, count}, at::kLong);
  if (count != 0) triangle_indices_kernel({static_cast<char*>(indices.data_ptr()), count, rows, columns, k, upper});
  return indices.to(type);
}

template <class T>
void repeat_interleave_compute(const T* repeats, const int64_t* ends, T* out, int64_t count, int64_t total) {
  repeat_interleave_kernel({repeats, ends, out, count, total, dtype_of<T>});
}

Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  if (output_size && backend().synchronous() && repeats.dim() == 1 && repeats.numel() != 0 &&
      at::isIntegralType(repeats.scalar_type(), false)) {
    TORCH_CHECK(repeats.sum().item<int64_t>() == *output_size, "allocated size does not match required size");
    TORCH_CHECK((repeats >= 0).all().item<bool>(), "repeats can not be negative");
  }
  Tensor out;
  AT_DISPATCH_INDEX_TYPES(repeats.scalar_type(), "repeat_interleave_cpu", [&] {
    out = at::native::repeat_interleave_common<index_t, repeat_interleave_compute<index_t>>(repeats, output_size);
  });
  return out;
}

ColumnArgs column_args(const Tensor& image, const Tensor& columns, IntArrayRef kernel, IntArrayRef dilation,
                       IntArrayRef padding, IntArrayRef stride, const int64_t (&windows)[2]) {
  ColumnArgs a;
  a.dtype = to_dtype(image.scalar_type());
  a.image = static_cast<char*>(const_cast<void*>(image.const_data_ptr()));
  a.columns = static_cast<char*>(const_cast<void*>(columns.const_data_ptr()));
  a.batch = image.size(0);
  a.channels = image.size(1);
  for (int d = 0; d < 2; d++) {
    a.size[d] = image.size(d + 2);
    a.kernel[d] = kernel[d];
    a.dilation[d] = dilation[d];
    a.padding[d] = padding[d];
    a.stride[d] = stride[d];
    a.windows[d] = windows[d];
  }
  return a;
}

void check_pair(const char* name, IntArrayRef pair) {
  TORCH_CHECK(pair.size() == 2, "It is expected ", name, " equals to 2, but got size ", pair.size());
}

int64_t window_count(int64_t size, int64_t kernel, int64_t dilation, int64_t padding, int64_t stride) {
  return (size + 2 * padding - (dilation * (kernel - 1) + 1)) / stride + 1;
}

Tensor& im2col_out(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
                   IntArrayRef stride, Tensor& out) {
  check_same_device({&out, &self});
  check_pair("kernel_size", kernel);
  check_pair("dilation", dilation);
  check_pair("padding", padding);
  check_pair("stride", stride);
  at::native::im2col_shape_check(self, Tensor(), kernel[0], kernel[1], dilation[0], dilation[1], padding[0], padding[1],
                                 stride[0], stride[1]);
  const Tensor contiguous = self.contiguous(), image = self.dim() == 3 ? contiguous.unsqueeze(0) : contiguous;
  int64_t windows[2];
  for (int d = 0; d < 2; d++)
    windows[d] = window_count(image.size(d + 2), kernel[d], dilation[d], padding[d], stride[d]);
  const int64_t rows = image.size(1) * kernel[0] * kernel[1], length = windows[0] * windows[1];
  if (self.dim() == 3) {
    at::native::resize_output(out, {rows, length});
  } else {
    at::native::resize_output(out, {image.size(0), rows, length});
  }
  if (at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) refuse_as_native("im2col", self.scalar_type());
  const Tensor target = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
  im2col_kernel(column_args(image, target, kernel, dilation, padding, stride, windows));
  if (!target.is_same(out)) out.copy_(target);
  return out;
}

Tensor im2col(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
  Tensor out = at::empty({0}, self.options());
  im2col_out(self, kernel, dilation, padding, stride, out);
  return out;
}

Tensor& col2im_out(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel, IntArrayRef dilation,
                   IntArrayRef padding, IntArrayRef stride, Tensor& out) {
  check_same_device({&out, &self});
  check_pair("output_size", output_size);
  check_pair("kernel_size", kernel);
  check_pair("dilation", dilation);
  check_pair("padding", padding);
  check_pair("stride", stride);
  at::native::col2im_shape_check(self, Tensor(), output_size[0], output_size[1], kernel[0], kernel[1], dilation[0],
                                 dilation[1], padding[0], padding[1], stride[0], stride[1]);
  const bool batched = self.dim() == 3;
  const Tensor contiguous = self.contiguous(), columns = batched ? contiguous : contiguous.unsqueeze(0);
  const int64_t channels = columns.size(1) / (kernel[0] * kernel[1]);
  int64_t windows[2];
  for (int d = 0; d < 2; d++) windows[d] = window_count(output_size[d], kernel[d], dilation[d], padding[d], stride[d]);
  if (batched) {
    at::native::resize_output(out, {columns.size(0), channels, output_size[0], output_size[1]});
  } else {
    at::native::resize_output(out, {channels, output_size[0], output_size[1]});
  }
  const Tensor target = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
  const Tensor image = batched ? target : target.unsqueeze(0);
  named("im2col", "col2im_out_cpu",
        [&] { col2im_kernel(column_args(image, columns, kernel, dilation, padding, stride, windows)); });
  if (!target.is_same(out)) out.copy_(target);
  return out;
}

Tensor col2im(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  Tensor out = at::empty({0}, self.options());
  col2im_out(self, output_size, kernel, dilation, padding, stride, out);
  return out;
}

// Native's checks in native's words, some of which are its expressions.
Tensor& narrow_copy_out(const Tensor& self, int64_t dim, int64_t start, int64_t length, Tensor& output) {
  TORCH_CHECK(self.dim() > 0, "narrow() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK(self.dtype() == output.dtype());
  const IntArrayRef self_sizes = self.sizes();
  TORCH_CHECK(dim < static_cast<int64_t>(self_sizes.size()));
  const int64_t size = self_sizes[at::maybe_wrap_dim(dim, self.dim())];
  TORCH_CHECK_INDEX(-size <= start && start <= size, "start out of range (expected to be in range of [", -size, ", ",
                    size, "], but got ", start, ")");
  const int64_t first = start < 0 ? start + size : start;
  TORCH_CHECK(length >= 0 && first <= size - length, "start (", first, ") + length (", length,
              ") exceeds dimension size (", size, ").");
  const Tensor part = self.narrow(dim, first, length);
  at::native::resize_output(output, part.sizes());
  return output.copy_(part);
}
Tensor narrow_copy(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  Tensor output = at::empty({0}, self.options());
  return narrow_copy_out(self, dim, start, length, output);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  structured<Tril>(m, "tril", "tril_", "tril.out");
  structured<Triu>(m, "triu", "triu_", "triu.out");
  m.impl("tril_indices", TORCH_FN(triangle_indices<false>));
  m.impl("triu_indices", TORCH_FN(triangle_indices<true>));
  m.impl("repeat_interleave.Tensor", MT_CHECKED(repeat_interleave));
  m.impl("im2col", MT_CHECKED(im2col));
  m.impl("im2col.out", MT_CHECKED(im2col_out));
  m.impl("col2im", MT_CHECKED(col2im));
  m.impl("col2im.out", MT_CHECKED(col2im_out));
  m.impl("narrow_copy", MT_CHECKED(narrow_copy));
  m.impl("narrow_copy.out", MT_CHECKED(narrow_copy_out));
}

}  // namespace
}  // namespace minitorch
