// cat. PyTorch's meta checks the inputs, skips legacy empty ones, promotes dtypes and chooses the memory format.
#include <ATen/ops/cat_meta.h>

#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/shape.h"

namespace minitorch {
namespace {

using at::Tensor;

// PyTorch has always let a one-dimensional empty tensor be concatenated with anything.
bool skipped(const Tensor& t) { return t.numel() == 0 && t.dim() == 1; }

// A tensor as a matrix with the dimensions from `dim` on as its contiguous rows. False if it does not have that form.
bool as_rows(const Tensor& t, int64_t dim, int64_t& row_elements, int64_t& row_stride) {
  row_elements = 1;
  for (int64_t d = t.dim() - 1; d >= dim; d--) {
    if (t.size(d) != 1 && t.stride(d) != row_elements) return false;
    row_elements *= t.size(d);
  }
  int64_t rows = 1;
  row_stride = 0;
  for (int64_t d = dim - 1; d >= 0; d--) {
    if (t.size(d) == 1) continue;
    if (rows == 1) row_stride = t.stride(d);
    if (t.stride(d) != row_stride * rows) return false;
    rows *= t.size(d);
  }
  return true;
}

// For channels-last tensors: the dimensions in memory order.
Tensor in_memory_order(const Tensor& t, at::MemoryFormat format) {
  switch (format) {
    case at::MemoryFormat::ChannelsLast: return t.permute({0, 2, 3, 1});
    case at::MemoryFormat::ChannelsLast3d: return t.permute({0, 2, 3, 4, 1});
    default: return t;
  }
}

int64_t dim_in_memory_order(int64_t dim, int64_t ndim, at::MemoryFormat format) {
  if (format == at::MemoryFormat::Contiguous) return dim;
  return dim == 0 ? 0 : dim == 1 ? ndim - 1 : dim - 1;
}

// One pass over all inputs, where every one of them is rows.
bool cat_rows(const at::ITensorListRef& tensors, int64_t dim, at::MemoryFormat format, const Tensor& out) {
  if (format != at::MemoryFormat::Contiguous && format != at::MemoryFormat::ChannelsLast &&
      format != at::MemoryFormat::ChannelsLast3d)
    return false;
  const int64_t size = static_cast<int64_t>(out.element_size());
  const Tensor target = in_memory_order(out, format);
  dim = dim_in_memory_order(dim, out.dim(), format);
  int64_t row_elements, row_stride;
  if (!as_rows(target, dim, row_elements, row_stride)) return false;
  c10::SmallVector<CatInput, 8> inputs;
  for (const Tensor& t : tensors) {
    if (skipped(t)) continue;
    int64_t elements, stride;
    if (!as_rows(in_memory_order(t, format), dim, elements, stride)) return false;
    inputs.push_back({static_cast<const char*>(t.const_data_ptr()), elements * size, stride * size});
  }
  CatArgs args;
  args.inputs = inputs.data();
  args.count = static_cast<int64_t>(inputs.size());
  args.rows = out.numel() / row_elements;
  args.element_size = size;
  args.out = static_cast<char*>(out.data_ptr());
  args.out_row_stride = row_stride * size;
  cat_kernel(args);
  return true;
}

struct Cat : at::meta::structured_cat {
  void impl(const meta_return_ty& pre, const at::ITensorListRef& tensors, int64_t, const Tensor& out) {
    if (out.numel() == 0) return;
    if (pre.all_same_dtype && cat_rows(tensors, pre.dim, pre.memory_format, out)) return;
    int64_t offset = 0;
    for (const Tensor& t : tensors) {
      if (skipped(t)) continue;
      const int64_t length = t.size(pre.dim);
      out.narrow(pre.dim, offset, length).copy_(t);
      offset += length;
    }
  }
};

MT_OPERATORS(aten, PrivateUse1, m) { structured<Cat>(m, "cat", nullptr, "cat.out"); }

}  // namespace
}  // namespace minitorch
