// MT_COMPARE_OPS of kernels/pointwise.h for CUDA.
#include "kernels/cuda/pointwise_engine.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
constexpr engine::Dense kDense = engine::Dense::usual;
}
MT_DEFINE_ENTRIES(compare_entry, MT_COMPARE_OPS)
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
