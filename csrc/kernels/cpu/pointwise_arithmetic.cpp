// MT_ARITHMETIC_OPS of kernels/pointwise.h for the CPU.
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/functors/pointwise.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
MT_DEFINE_BLOCKS(arithmetic_block, MT_ARITHMETIC_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
