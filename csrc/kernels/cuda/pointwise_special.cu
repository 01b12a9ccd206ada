// MT_SPECIAL_OPS of kernels/pointwise.h for CUDA.
#include "kernels/cuda/pointwise_engine.cuh"
#include "kernels/functors/special.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
constexpr engine::Dense kDense = engine::Dense::none;
}
MT_DEFINE_ENTRIES(special_entry, MT_SPECIAL_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
