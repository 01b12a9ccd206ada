// What the pooling operators share: the kernel's view of shapes and window arguments, and outputs in a dense format.
#pragma once
#include <ATen/ATen.h>

#include "bridge/tensor.h"
#include "kernels/pool.h"

namespace minitorch {

// The format a kernel writes `out` in, given the number of spatial dimensions: channels last if `out` is laid out so.
inline at::MemoryFormat pool_format(const at::Tensor& out, int dims) {
  const auto last = dims == 2 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
  return out.dim() == dims + 2 && !out.is_contiguous() && out.is_contiguous(last) ? last : at::MemoryFormat::Contiguous;
}

// An output in the given format: itself if it is laid out so, else a temporary that finish() copies back.
class DenseOutput {
 public:
  DenseOutput(const at::Tensor& out, at::MemoryFormat format)
      : out_(out), dense_(out.is_contiguous(format) ? out : empty(out.sizes(), out.scalar_type(), format)) {}
  void* get() const { return dense_.mutable_data_ptr(); }
  void finish() const {
    if (!dense_.is_same(out_)) out_.copy_(dense_);
  }

 private:
  const at::Tensor& out_;
  at::Tensor dense_;
};

inline PoolShape pool_shape(const at::Tensor& in, const at::Tensor& out, int dims, at::MemoryFormat format) {
  PoolShape s{
      format != at::MemoryFormat::Contiguous, in.dim() == dims + 2 ? in.size(0) : 1, in.size(-dims - 1), {}, {}};
  for (int d = 0; d < 3; d++) {
    const int spatial = d - 3;
    s.in[d] = d < 3 - dims ? 1 : in.size(spatial);
    s.out[d] = d < 3 - dims ? 1 : out.size(spatial);
  }
  return s;
}

// A window argument for three dimensions: `lead` for those that the operator does not have.
inline void fill_window(int64_t (&target)[3], at::IntArrayRef values, int dims, int64_t lead) {
  for (int d = 0; d < 3; d++) target[d] = d < 3 - dims ? lead : values.size() == 1 ? values[0] : values[d - (3 - dims)];
}

inline PoolWindow pool_window(int dims, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                              at::IntArrayRef dilation) {
  PoolWindow w;
  fill_window(w.kernel, kernel, dims, 1);
  fill_window(w.stride, stride.empty() ? kernel : stride, dims, 1);
  fill_window(w.pad, padding, dims, 0);
  fill_window(w.dilation, dilation, dims, 1);
  return w;
}
inline PoolWindow adaptive_window() { return PoolWindow{}; }

// Throws native's error for a dtype that its kernel, named `kernel`, does not have; `named_by_layout`: another one
// computes in channels-last layouts.
enum class PoolInts { none, int64, all };
inline void check_pool_dtype(const char* kernel, const at::Tensor& t, PoolInts ints, bool named_by_layout = false) {
  const at::ScalarType type = t.scalar_type();
  const bool floating = type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
  const bool integral = ints == PoolInts::all     ? at::isIntegralType(type, /*includeBool=*/false) && type <= at::kLong
                        : ints == PoolInts::int64 ? type == at::kLong
                                                  : false;
  if (C10_LIKELY(floating || integral)) return;
  const bool last = named_by_layout && t.suggest_memory_format() != at::MemoryFormat::Contiguous;
  TORCH_CHECK_NOT_IMPLEMENTED(false, '"', kernel, last ? "_channels_last" : "", "\" not implemented for '",
                              c10::toString(type), "'");
}

}  // namespace minitorch
