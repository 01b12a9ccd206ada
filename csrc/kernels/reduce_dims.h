// What the reductions of every backend begin with: the view's dimensions, sorted into kept and reduced ones.
#pragma once
#include "kernels/view.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// Sizes and byte strides of some of the view's dimensions, smallest input stride first. The input is the last operand.
struct Dims {
  int ndim = 0;
  int64_t numel = 1;
  int64_t size[kMaxDims], in[kMaxDims], out[2][kMaxDims];

  static uint64_t key(int64_t stride) { return static_cast<uint64_t>(stride) - 1; }  // broadcast dimensions come last

  void add(const PointwiseView& v, int d) {
    const int64_t stride = v.strides[v.num_operands - 1][d];
    int at = ndim++;
    for (; at > 0 && key(in[at - 1]) > key(stride); at--) {
      size[at] = size[at - 1];
      in[at] = in[at - 1];
      out[0][at] = out[0][at - 1];
      out[1][at] = out[1][at - 1];
    }
    size[at] = v.sizes[d];
    in[at] = stride;
    out[0][at] = v.strides[0][d];
    out[1][at] = v.num_outputs > 1 ? v.strides[1][d] : 0;
    numel *= v.sizes[d];
  }

  // Without dimensions there is one of size 1.
  void finish(int64_t element) {
    if (ndim > 0) return;
    ndim = 1;
    size[0] = 1;
    in[0] = element;
    out[0][0] = out[1][0] = 0;
  }
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
