// Reflection and replication padding in one to three dimensions. PyTorch has structured metas for most of them; the
// others repeat native's checks here.
#include <ATen/native/Padding.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad3d_backward_meta.h>
#include <ATen/ops/reflection_pad3d_meta.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad3d_meta.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/shape.h"

namespace minitorch {
namespace {

using at::IntArrayRef;
using at::Tensor;

// Sizes and strides as [N, C, D, H, W]. `padding` has the last dimension's pair first.
PadArgs pad_args(const Tensor& in, const Tensor& out, IntArrayRef padding, bool reflect) {
  const int64_t spatial = static_cast<int64_t>(padding.size()) / 2;
  PadArgs a;
  a.reflect = reflect;
  a.dtype = to_dtype(in.scalar_type());
  a.in = static_cast<char*>(const_cast<void*>(in.const_data_ptr()));
  a.out = static_cast<char*>(const_cast<void*>(out.const_data_ptr()));
  for (int d = 0; d < 5; d++) a.in_sizes[d] = a.out_sizes[d] = 1, a.in_strides[d] = a.out_strides[d] = 0;
  for (int d = 0; d < 3; d++) a.before[d] = d < 3 - spatial ? 0 : padding[2 * (2 - d)];
  // Spatial dimensions go to the end, channels and batch to the front.
  for (int64_t from = 0; from < in.dim(); from++) {
    const int64_t from_end = in.dim() - 1 - from;
    const int64_t d = from_end < spatial ? 4 - from_end : 1 - (from_end - spatial);
    a.in_sizes[d] = in.size(from);
    a.in_strides[d] = in.stride(from);
    a.out_sizes[d] = out.size(from);
    a.out_strides[d] = out.stride(from);
  }
  return a;
}

// Our kernels move elements of any dtype.
void check_pad_dtype(const char* name, int64_t spatial, const Tensor& self) {
  const at::ScalarType dtype = self.scalar_type();
  if (C10_LIKELY(dtype != at::kBool && !is_rare_or_float8(dtype))) return;
  const bool last = spatial == 2 && self.dim() == 4 && self.suggest_memory_format() != at::MemoryFormat::Contiguous;
  check_native_has(false, c10::str(name, "_pad", spatial, "d", last ? "_channels_last" : "").c_str(), dtype);
}

// PyTorch's metas read the pairs of a padding before they count them: an empty list is one that Python lets through.
void check_pairs(IntArrayRef padding) {
  TORCH_CHECK(!padding.empty() && padding.size() % 2 == 0, "padding size is expected to be even and positive, got ",
              padding.size());
}

template <class Meta, bool reflect>
struct Pad : Meta {
  void meta(const Tensor& self, IntArrayRef padding) {
    check_pairs(padding);
    Meta::meta(self, padding);
  }
  void impl(const Tensor& self, IntArrayRef padding, const Tensor& out) {
    // Native gives the result the input's format here rather than in the meta.
    if (padding.size() > 2) out.resize_(out.sizes(), self.suggest_memory_format());
    check_pad_dtype(reflect ? "reflection" : "replication", static_cast<int64_t>(padding.size()) / 2, self);
    pad_kernel(pad_args(self, out, padding, reflect));
  }
};

// The backward ones do not count dimensions everywhere.
void check_dims(const Tensor& grad, const Tensor& self, int64_t spatial) {
  TORCH_CHECK((self.dim() == spatial + 1 || self.dim() == spatial + 2) && grad.dim() == self.dim(),
              "Expected an input ", "and a gradient of ", spatial + 1, " or ", spatial + 2, " dimensions, got ",
              self.sizes(), " and ", grad.sizes());
  TORCH_CHECK(grad.sizes().slice(0, grad.dim() - spatial) == self.sizes().slice(0, self.dim() - spatial),
              "Expected a gradient with the batch and channels of the input, got ", grad.sizes(), " and ",
              self.sizes());
}

template <class Meta, bool reflect>
struct PadBackward : Meta {
  void meta(const Tensor& grad, const Tensor& self, IntArrayRef padding) {
    check_pairs(padding);
    check_dims(grad, self, static_cast<int64_t>(padding.size()) / 2);
    Meta::meta(grad, self, padding);
  }
  void impl(const Tensor& grad, const Tensor& self, IntArrayRef padding, const Tensor& grad_in) {
    if (padding.size() > 2) grad_in.resize_(self.sizes(), self.suggest_memory_format());
    pad_backward_kernel(pad_args(grad_in, grad, padding, reflect));
  }
};

Tensor& reflection_pad2d_out(const Tensor& self, IntArrayRef padding, Tensor& out) {
  check_same_device({&out, &self});
  at::native::padding::check_valid_input<2>(self, padding);
  const int64_t h = self.dim() - 2, w = self.dim() - 1;
  const auto check_smaller = [&](int argument, int64_t before, int64_t after, int64_t dim) {
    TORCH_CHECK(before < self.size(dim) && after < self.size(dim), "Argument #", argument,
                ": Padding size should be less than the corresponding input dimension, but got: padding (", before,
                ", ", after, ") at dimension ", dim, " of input ", self.sizes());
  };
  check_smaller(4, padding[0], padding[1], w);
  check_smaller(6, padding[2], padding[3], h);
  at::DimVector sizes(self.sizes());
  sizes[w] += padding[0] + padding[1];
  sizes[h] += padding[2] + padding[3];
  TORCH_CHECK(sizes[w] >= 1 || sizes[h] >= 1, "input (H: ", self.size(h), ", W: ", self.size(w),
              ") is too small. Calculated output H: ", sizes[h], " W: ", sizes[w]);
  if (self.dim() == 3) {
    out.resize_(sizes);
  } else {
    out.resize_(sizes, self.suggest_memory_format());
  }
  check_pad_dtype("reflection", 2, self);
  pad_kernel(pad_args(self, out, padding, true));
  return out;
}

Tensor reflection_pad2d(const Tensor& self, IntArrayRef padding) {
  Tensor out = at::empty({0}, self.options());
  reflection_pad2d_out(self, padding, out);
  return out;
}

// The backward operators without a meta.
template <int spatial, bool reflect>
Tensor& pad_backward_out(const Tensor& grad, const Tensor& self, IntArrayRef padding, Tensor& grad_in) {
  static constexpr const char* kNames[] = {"width", "height", "depth"};
  check_same_device({&grad_in, &grad, &self});
  TORCH_CHECK(padding.size() == 2 * spatial, "padding size is expected to be ", 2 * spatial);
  check_dims(grad, self, spatial);
  for (int i = 0; i < spatial; i++) {
    const int64_t dim = self.dim() - 1 - i, expected = self.size(dim) + padding[2 * i] + padding[2 * i + 1];
    TORCH_CHECK(expected == grad.size(dim), "gradOutput ", kNames[i], " unexpected. Expected: ", expected,
                ", Got: ", grad.size(dim));
  }
  grad_in.resize_(self.sizes(), self.suggest_memory_format());
  pad_backward_kernel(pad_args(grad_in, grad, padding, reflect));
  return grad_in;
}

template <int spatial, bool reflect>
Tensor pad_backward(const Tensor& grad, const Tensor& self, IntArrayRef padding) {
  Tensor grad_in = at::empty({0}, self.options());
  pad_backward_out<spatial, reflect>(grad, self, padding, grad_in);
  return grad_in;
}

namespace meta = at::meta;

MT_OPERATORS(aten, PrivateUse1, m) {
  structured<Pad<meta::structured_reflection_pad1d, true>>(m, "reflection_pad1d", nullptr, "reflection_pad1d.out");
  structured<Pad<meta::structured_reflection_pad3d, true>>(m, "reflection_pad3d", nullptr, "reflection_pad3d.out");
  structured<Pad<meta::structured_replication_pad1d, false>>(m, "replication_pad1d", nullptr, "replication_pad1d.out");
  structured<Pad<meta::structured_replication_pad2d, false>>(m, "replication_pad2d", nullptr, "replication_pad2d.out");
  structured<Pad<meta::structured_replication_pad3d, false>>(m, "replication_pad3d", nullptr, "replication_pad3d.out");
  structured<PadBackward<meta::structured_reflection_pad1d_backward, true>>(m, "reflection_pad1d_backward", nullptr,
                                                                            "reflection_pad1d_backward.grad_input");
  structured<PadBackward<meta::structured_reflection_pad3d_backward, true>>(m, "reflection_pad3d_backward", nullptr,
                                                                            "reflection_pad3d_backward.grad_input");
  structured<PadBackward<meta::structured_replication_pad1d_backward, false>>(m, "replication_pad1d_backward", nullptr,
                                                                              "replication_pad1d_backward.grad_input");
  m.impl("reflection_pad2d", MT_CHECKED(reflection_pad2d));
  m.impl("reflection_pad2d.out", MT_CHECKED(reflection_pad2d_out));
  m.impl("reflection_pad2d_backward", MT_CHECKED((pad_backward<2, true>)));
  m.impl("reflection_pad2d_backward.grad_input", MT_CHECKED((pad_backward_out<2, true>)));
  m.impl("replication_pad2d_backward", MT_CHECKED((pad_backward<2, false>)));
  m.impl("replication_pad2d_backward.grad_input", MT_CHECKED((pad_backward_out<2, false>)));
  m.impl("replication_pad3d_backward", MT_CHECKED((pad_backward<3, false>)));
  m.impl("replication_pad3d_backward.grad_input", MT_CHECKED((pad_backward_out<3, false>)));
}

}  // namespace
}  // namespace minitorch
