// MT_ACTIVATION_OPS of kernels/pointwise.h for CUDA.
#include "kernels/cuda/pointwise_engine.cuh"
#include "kernels/functors/activation.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
constexpr engine::Dense kDense = engine::Dense::floats;
}
MT_DEFINE_ENTRIES(activation_entry, MT_ACTIVATION_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
