// Conversions of float8 on CUDA, an element a lane.
#include "kernels/float8.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/functors/float8.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

__global__ void __launch_bounds__(kThreads) decode_each(Float8 format, const uint8_t* from, float* to, int64_t n) {
  MT_GRID_LOOP(i, n) {
    to[i] = format == Float8::e8m0fnu ? functors::exponent_decode(from[i]) : functors::float8_decode(from[i], format);
  }
}
__global__ void __launch_bounds__(kThreads)
    encode_each(Float8 format, functors::Float8Layout layout, const float* from, uint8_t* to, int64_t n) {
  MT_GRID_LOOP(i, n) {
    to[i] = format == Float8::e8m0fnu ? functors::exponent_encode(from[i]) : functors::float8_encode(from[i], layout);
  }
}

void decode(Float8 format, const uint8_t* from, float* to, int64_t n) {
  if (n == 0) return;
  decode_each<<<grid_for(n), kThreads, 0, cuda::current_stream()>>>(format, from, to, n);
  cuda::check_launch("float8_decode");
}

void encode(Float8 format, uint8_t overflow, const float* from, uint8_t* to, int64_t n) {
  if (n == 0) return;
  const auto layout = functors::float8_layout(format, overflow);
  encode_each<<<grid_for(n), kThreads, 0, cuda::current_stream()>>>(format, layout, from, to, n);
  cuda::check_launch("float8_encode");
}

MT_REGISTER_KERNEL(float8_decode_kernel, &decode);
MT_REGISTER_KERNEL(float8_encode_kernel, &encode);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
