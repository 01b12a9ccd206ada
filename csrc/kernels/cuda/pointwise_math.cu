// MT_MATH_OPS of kernels/pointwise.h for CUDA.
#include "kernels/cuda/pointwise_engine.cuh"
#include "kernels/functors/binary.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
constexpr engine::Dense kDense = engine::Dense::floats;
}
MT_DEFINE_ENTRIES(math_entry, MT_MATH_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
