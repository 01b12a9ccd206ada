// MT_COMPARE_OPS of kernels/pointwise.h for the CPU.
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/functors/pointwise.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
MT_DEFINE_BLOCKS(compare_block, MT_COMPARE_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
