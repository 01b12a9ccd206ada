// MT_BESSEL_OPS of kernels/pointwise.h for CUDA.
#include "kernels/cuda/pointwise_engine.cuh"
#include "kernels/functors/bessel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
constexpr engine::Dense kDense = engine::Dense::none;
}
MT_DEFINE_ENTRIES(bessel_entry, MT_BESSEL_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
