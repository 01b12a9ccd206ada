// MT_ACTIVATION_OPS of kernels/pointwise.h for the CPU.
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/functors/activation.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
MT_DEFINE_BLOCKS(activation_block, MT_ACTIVATION_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
