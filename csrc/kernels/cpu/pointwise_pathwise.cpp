// MT_PATHWISE_OPS of kernels/pointwise.h for the CPU.
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/functors/pathwise.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
MT_DEFINE_BLOCKS(pathwise_block, MT_PATHWISE_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
