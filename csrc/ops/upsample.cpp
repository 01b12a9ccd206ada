// Upsampling and its gradients: PyTorch's metas, one kernel for all modes.
#include <ATen/ops/_upsample_bicubic2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>
#if __has_include(<ATen/ops/_upsample_lanczos2d_aa_meta.h>)
#define MT_HAS_LANCZOS 1
#include <ATen/ops/_upsample_lanczos2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_meta.h>
#endif

#include <limits>

#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/resample.h"
#include "ops/pool_common.h"

namespace minitorch {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Scale = std::optional<double>;

// What native knows an operator by.
struct Upsampling {
  ResampleMode mode;
  int dims;
  const char* name;
  bool nearest() const { return mode == ResampleMode::nearest || mode == ResampleMode::nearest_exact; }
  bool antialiased() const { return mode >= ResampleMode::linear_aa; }
};

// Throws what native's dispatch macro does.
void check_upsample_dtype(const Upsampling& u, const Tensor& t, bool channels_last, bool backward) {
  const at::ScalarType type = t.scalar_type();
  const bool half = type == at::kHalf || type == at::kBFloat16;
  const bool bytes = type == at::kByte && !backward && (u.dims == 2 || u.nearest());
  if (type == at::kFloat || type == at::kDouble || (half && !u.antialiased()) || bytes) return;
  std::string name;
  if (backward) {
    std::string base = u.antialiased() ? u.name + 1 : u.name;
    if (channels_last && u.mode == ResampleMode::nearest && u.dims == 3) base = "_" + base;
    name = base + "_backward" +
           (u.antialiased()                                   ? "_cpu"
            : !channels_last || u.mode == ResampleMode::cubic ? ""
            : u.nearest()                                     ? "_cl"
                                                              : "_channels_last");
  } else if (u.antialiased()) {
    name = "compute_index_ranges_weights";
  } else if (u.mode == ResampleMode::cubic) {
    name = "compute_indices_weights_cubic";
  } else if (u.dims == 2 || (channels_last && t.size(1) > 3)) {
    const std::string dims = u.dims == 2 ? "2d" : "3d";
    name = u.nearest() ? "upsample_nearest" + dims + "_channels_last" : std::string(u.name) + "_channels_last";
  } else {
    name = u.nearest() ? "compute_indices_weights_nearest" : "compute_indices_weights_linear";
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, '"', name, "\" not implemented for '", c10::toString(type), "'");
}

// `source` is read, `target` written: input and output, or for a gradient the reverse.
void resample(const Upsampling& u, const Tensor& source, const Tensor& target, bool backward, bool align_corners,
              std::initializer_list<Scale> scales) {
  const int dims = u.dims;
  const at::MemoryFormat last = dims == 3 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  const bool source_last = dims > 1 && !source.is_contiguous() && source.is_contiguous(last);
  if (u.antialiased() && !backward && source.sizes() == target.sizes()) {
    target.copy_(source);  // of any dtype: native looks for the axes to resample first
    return;
  }
  check_upsample_dtype(u, source, source_last, backward);
  if (target.numel() == 0) return;
  const at::MemoryFormat format = dims > 1 ? pool_format(target, dims) : at::MemoryFormat::Contiguous;
  const Tensor x = source.contiguous(format);
  const DenseOutput y(target, format);
  const Tensor &in = backward ? target : source, &out = backward ? source : target;
  ResampleArgs a{};
  a.dtype = to_dtype(x.scalar_type());
  a.mode = u.mode;
  a.align_corners = align_corners;
  a.channels_last = format != at::MemoryFormat::Contiguous;
  a.backward = backward;
  a.n = x.size(0);
  a.c = x.size(1);
  for (int d = 0; d < 3; d++) {
    const bool real = d >= 3 - dims;
    a.axis[d] =
        real ? ResampleAxis{in.size(d - 3), out.size(d - 3), (scales.begin() + (d - (3 - dims)))->value_or(0.0), true}
             : ResampleAxis{1, 1, 0.0, false};
    TORCH_CHECK_NOT_IMPLEMENTED(
        std::max(a.axis[d].in, a.axis[d].out) * (a.channels_last ? a.c : 1) < std::numeric_limits<int32_t>::max(),
        "minitorch: ", u.name, " takes rows of less than 2^31 elements");
  }
  a.nearest_shortcut = backward || (source_last && a.c > 3) || (dims == 2 && out.size(2) + out.size(3) <= 128);
  a.x = x.const_data_ptr();
  a.y = y.get();
  resample_kernel(a);
  y.finish();
}

// impl's parameters follow from meta's: sizes, align_corners where the mode has it, a scale for each dimension.
template <class Meta, const Upsampling& u, class F = decltype(&Meta::meta)>
struct Upsample;
template <class Meta, const Upsampling& u, class C, class... S>
struct Upsample<Meta, u, void (C::*)(const Tensor&, IntArrayRef, S...)> : Meta {
  void impl(const Tensor& x, IntArrayRef, S... scales, const Tensor& y) {
    resample(u, x, y, false, false, {scales...});
  }
};
template <class Meta, const Upsampling& u, class C, class... S>
struct Upsample<Meta, u, void (C::*)(const Tensor&, IntArrayRef, bool, S...)> : Meta {
  void impl(const Tensor& x, IntArrayRef, bool align_corners, S... scales, const Tensor& y) {
    resample(u, x, y, false, align_corners, {scales...});
  }
};
template <class Meta, const Upsampling& u, class C, class... S>
struct Upsample<Meta, u, void (C::*)(const Tensor&, IntArrayRef, IntArrayRef, S...)> : Meta {
  void impl(const Tensor& dy, IntArrayRef, IntArrayRef, S... scales, const Tensor& dx) {
    resample(u, dy, dx, true, false, {scales...});
  }
};
template <class Meta, const Upsampling& u, class C, class... S>
struct Upsample<Meta, u, void (C::*)(const Tensor&, IntArrayRef, IntArrayRef, bool, S...)> : Meta {
  void impl(const Tensor& dy, IntArrayRef, IntArrayRef, bool align_corners, S... scales, const Tensor& dx) {
    resample(u, dy, dx, true, align_corners, {scales...});
  }
};

// X(operator, mode, spatial dimensions)
#define MT_UPSAMPLINGS(X)                        \
  X(upsample_nearest1d, nearest, 1)              \
  X(upsample_nearest2d, nearest, 2)              \
  X(upsample_nearest3d, nearest, 3)              \
  X(_upsample_nearest_exact1d, nearest_exact, 1) \
  X(_upsample_nearest_exact2d, nearest_exact, 2) \
  X(_upsample_nearest_exact3d, nearest_exact, 3) \
  X(upsample_linear1d, linear, 1)                \
  X(upsample_bilinear2d, linear, 2)              \
  X(upsample_trilinear3d, linear, 3)             \
  X(upsample_bicubic2d, cubic, 2)                \
  X(_upsample_bilinear2d_aa, linear_aa, 2)       \
  X(_upsample_bicubic2d_aa, cubic_aa, 2)

#define MT_DEFINE(op, mode, dims) constexpr Upsampling k_##op{ResampleMode::mode, dims, #op};
MT_UPSAMPLINGS(MT_DEFINE)
#ifdef MT_HAS_LANCZOS
MT_DEFINE(_upsample_lanczos2d_aa, lanczos_aa, 2)
#endif
#undef MT_DEFINE

MT_OPERATORS(aten, PrivateUse1, m) {
#define MT_REGISTER(op, mode, dims)                                                               \
  structured<Upsample<at::meta::structured_##op, k_##op>>(m, #op, nullptr, #op ".out");           \
  structured<Upsample<at::meta::structured_##op##_backward, k_##op>>(m, #op "_backward", nullptr, \
                                                                     #op "_backward.grad_input");
  MT_UPSAMPLINGS(MT_REGISTER)
#ifdef MT_HAS_LANCZOS
  MT_REGISTER(_upsample_lanczos2d_aa, lanczos_aa, 2)
#endif
#undef MT_REGISTER
}

}  // namespace
}  // namespace minitorch
