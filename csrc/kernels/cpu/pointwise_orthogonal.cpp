// MT_ORTHOGONAL_OPS of kernels/pointwise.h for the CPU.
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/functors/orthogonal.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
MT_DEFINE_BLOCKS(orthogonal_block, MT_ORTHOGONAL_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
