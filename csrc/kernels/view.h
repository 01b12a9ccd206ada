// What a pointwise kernel works on: operands over one common iteration space, with dimension 0 the fastest moving.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "core/scalar.h"

namespace minitorch {

inline constexpr int kMaxDims = 64;
inline constexpr int kMaxOperands = 8;

// Outputs come first. Strides are in bytes; broadcast dimensions have stride 0. The bridge builds it from a
// TensorIterator, which has reordered and merged dimensions, so a contiguous case has ndim 1.
struct PointwiseView {
  int ndim;
  int num_outputs;
  int num_operands;
  DType compute;               // the dtype that type promotion settled on for the inputs
  uint32_t host_operands = 0;  // bit k: operand k is one value in host memory (a CPU scalar among device tensors)
  int64_t numel;
  int64_t sizes[kMaxDims];
  char* data[kMaxOperands];
  DType dtype[kMaxOperands];
  int64_t strides[kMaxOperands][kMaxDims];
};

// A strided tensor, for kernels that are not pointwise. Strides are in elements.
struct TensorView {
  char* data;
  DType dtype;
  int ndim;
  int64_t numel;
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxDims];

  template <class T>
  MT_INLINE T* ptr() const {
    return reinterpret_cast<T*>(data);
  }
};

// Scalar arguments of a pointwise operator, in the order of its schema.
struct PointwiseParams {
  Scalar s[4];
};

}  // namespace minitorch
