// MT_INTEGER_OPS of kernels/pointwise.h for CUDA.
#include "kernels/cuda/pointwise_engine.cuh"
#include "kernels/functors/binary.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
constexpr engine::Dense kDense = engine::Dense::usual;
}
MT_DEFINE_ENTRIES(integer_entry, MT_INTEGER_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
