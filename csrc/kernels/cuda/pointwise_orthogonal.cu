// MT_ORTHOGONAL_OPS of kernels/pointwise.h for CUDA.
#include "kernels/cuda/pointwise_engine.cuh"
#include "kernels/functors/orthogonal.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
constexpr engine::Dense kDense = engine::Dense::none;
}
MT_DEFINE_ENTRIES(orthogonal_entry, MT_ORTHOGONAL_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
