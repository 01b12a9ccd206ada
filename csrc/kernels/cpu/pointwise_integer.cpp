// MT_INTEGER_OPS of kernels/pointwise.h for the CPU.
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/functors/binary.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
MT_DEFINE_BLOCKS(integer_block, MT_INTEGER_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
