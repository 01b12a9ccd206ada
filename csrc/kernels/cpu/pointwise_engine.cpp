// The staging loop shared by all pointwise operators (see the header).
#include "kernels/cpu/pointwise_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

void run_pointwise(const PointwiseView& v, const DType* types, BlockFn block, const PointwiseParams& params) {
  bool direct[kMaxOperands];
  bool all_direct = true;
  for (int k = 0; k < v.num_operands; k++) {
    const int64_t size = static_cast<int64_t>(size_of(v.dtype[k]));
    direct[k] = v.dtype[k] == types[k] && (v.ndim == 0 || v.strides[k][0] == size);
    all_direct = all_direct && direct[k];
  }
  if (all_direct) {
    for_each_row(v, [&](char* const* ptrs, int64_t n) { block(params, ptrs, n); });
    return;
  }
  for_each_row(v, [&](char* const* ptrs, int64_t n) {
    alignas(64) char buffers[kMaxOperands][kBlock * 16];
    char* staged[kMaxOperands];
    int64_t stride[kMaxOperands], advance[kMaxOperands];
    for (int k = 0; k < v.num_operands; k++) {
      stride[k] = v.ndim > 0 ? v.strides[k][0] : 0;
      advance[k] = direct[k] ? static_cast<int64_t>(size_of(v.dtype[k])) : 0;
      staged[k] = direct[k] ? ptrs[k] : buffers[k];
      // A broadcast operand is converted once for the whole row.
      if (!direct[k] && k >= v.num_outputs && stride[k] == 0)
        load_fn(v.dtype[k], types[k])(staged[k], ptrs[k], 0, std::min(kBlock, n));
    }
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      for (int k = v.num_outputs; k < v.num_operands; k++)
        if (!direct[k] && stride[k] != 0)
          load_fn(v.dtype[k], types[k])(staged[k], ptrs[k] + i * stride[k], stride[k], m);
      block(params, staged, m);
      for (int k = 0; k < v.num_outputs; k++)
        if (!direct[k]) store_fn(types[k], v.dtype[k])(ptrs[k] + i * stride[k], stride[k], staged[k], m);
      for (int k = 0; k < v.num_operands; k++) staged[k] += m * advance[k];
    }
  });
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
