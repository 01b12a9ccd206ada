// MT_PATHWISE_OPS of kernels/pointwise.h for CUDA.
#include "kernels/cuda/pointwise_engine.cuh"
#include "kernels/functors/pathwise.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
constexpr engine::Dense kDense = engine::Dense::none;
}
MT_DEFINE_ENTRIES(pathwise_entry, MT_PATHWISE_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
