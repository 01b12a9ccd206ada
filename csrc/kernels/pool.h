// Pooling over one to three spatial dimensions. An input is [n, c, spatial...], or [n, spatial..., c] when
// channels_last; pooling in fewer than three dimensions has leading dimensions of one element.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/kernel.h"

namespace minitorch {

struct PoolShape {
  bool channels_last;
  int64_t n, c;
  int64_t in[3], out[3];
};

// Windows of `kernel` elements, `dilation` apart, that start every `stride` elements from -pad. With kernel[0] == 0 the
// windows are adaptive: [floor(i * in / out), ceil((i + 1) * in / out)).
struct PoolWindow {
  int64_t kernel[3], stride[3], pad[3], dilation[3];
};

// Indices are int64 and count elements of one channel of one sample: (d * H + h) * W + w. Null: they are not wanted.
struct MaxPoolArgs {
  DType dtype;
  PoolShape shape;
  PoolWindow window;
  const void* x;
  void* y;
  void* indices;
};

// Windows of `kernel` elements whose starts are drawn per channel: along a dimension of more than one output, start i
// is trunc((i + u) * alpha) - trunc(u * alpha) with alpha = (in - kernel) / (out - 1), and the last one in - kernel.
// Source: B. Graham, "Fractional Max-Pooling", arXiv:1412.6071.
struct FractionalMaxPoolArgs {
  DType dtype;
  PoolShape shape;  // channels first
  int64_t kernel[3];
  const void* samples;  // u, [n, c, sample_count] in the dtype of x
  int sample_count;
  int sample_index[3];  // which of a channel's samples serves the dimension
  const void* x;
  void* y;
  void* indices;
};

// y[indices[i]] += x[i] (or = x[i]) for each channel of each sample; all of y is written. The gradient of every max
// pooling, and max unpooling: shape.in are y's sizes, shape.out those of x and indices. windowed: what accumulates
// comes from the windows of `window`, each index from its own, so that an element of y need not wait for what adds to
// it.
struct PoolScatterArgs {
  DType dtype;
  PoolShape shape;
  bool accumulate;
  const void* x;
  const void* indices;
  void* y;
  // On the CPU: an index outside [0, product of shape.in) if there is one, known when the kernel returns.
  bool* failed;
  int64_t* bad_index;
  bool windowed = false;
  PoolWindow window = {};
};

struct AvgPoolArgs {
  DType dtype;
  PoolShape shape;
  PoolWindow window;
  bool count_include_pad;
  int64_t divisor;  // 0: the number of elements in the window
  const void* x;    // backward: the gradient of the output
  void* y;          // backward: the gradient of the input, all of which is written
};

extern Kernel<void(const MaxPoolArgs&)> max_pool_kernel;
extern Kernel<void(const FractionalMaxPoolArgs&)> fractional_max_pool_kernel;
extern Kernel<void(const PoolScatterArgs&)> pool_scatter_kernel;
extern Kernel<void(const AvgPoolArgs&)> avg_pool_kernel;
extern Kernel<void(const AvgPoolArgs&)> avg_pool_backward_kernel;

}  // namespace minitorch
