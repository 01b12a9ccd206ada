// MT_BESSEL_OPS of kernels/pointwise.h for the CPU.
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/functors/bessel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
MT_DEFINE_BLOCKS(bessel_block, MT_BESSEL_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
