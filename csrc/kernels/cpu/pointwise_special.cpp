// MT_SPECIAL_OPS of kernels/pointwise.h for the CPU.
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/functors/special.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
MT_DEFINE_BLOCKS(special_block, MT_SPECIAL_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
