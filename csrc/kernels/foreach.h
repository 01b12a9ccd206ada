// Operators over lists of tensors: one call, one parallel loop, however many tensors there are.
#pragma once
#include <vector>

#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// One tensor of each list taking part. All hold `numel` elements in the same memory order without gaps. data[0] is the
// output; it may be the memory of an input (in place). `s` is this tensor's scalar argument.
struct ForeachItem {
  int64_t numel;
  char* data[4];
  double s;
};

// X(enumerator, expression in a, b, c and s, number of inputs)
#define MT_FOREACH_OPS(X)                                             \
  X(add_scalar, a + s, 1)                                             \
  X(mul_scalar, a* s, 1)                                              \
  X(div_scalar, a / s, 1)                                             \
  X(add, a + s * b, 2)                                                \
  X(mul, a* b, 2)                                                     \
  X(div, a / b, 2)                                                    \
  X(maximum, a != a || a > b ? a : b, 2)                              \
  X(lerp, s < T(0.5) ? a + s * (b - a) : b - (b - a) * (T(1) - s), 2) \
  X(addcmul, a + s * b * c, 3)                                        \
  X(addcdiv, a + s * (b / c), 3)                                      \
  X(sqrt, std::sqrt(a), 1)                                            \
  X(neg, -a, 1)

enum class ForeachOp : uint8_t {
#define MT_ENUM(name, expression, inputs) name,
  MT_FOREACH_OPS(MT_ENUM)
#undef MT_ENUM
};

// Floating-point tensors of one dtype. With `device_scalar` (an element of that dtype in device memory), it is the
// scalar of all items.
extern Kernel<void(ForeachOp, const std::vector<ForeachItem>&, DType, const char* device_scalar)> foreach_kernel;

// data[0] of each item receives the vector norm of data[1]: order 1, 2 or infinity. The result has the inputs' dtype.
extern Kernel<void(const std::vector<ForeachItem>&, DType, double order)> foreach_norm_kernel;

// data[0] *= *inv_scale in place; *found_inf becomes 1 if any element is not finite.
extern Kernel<void(const std::vector<ForeachItem>&, DType, const float* inv_scale, float* found_inf)> unscale_kernel;

// One step of a gradient scaler: back off after an overflow, grow after `interval` steps without one.
extern Kernel<void(float* scale, int32_t* growth_tracker, const float* found_inf, double growth, double backoff,
                   int64_t interval)>
    update_scale_kernel;

}  // namespace minitorch
