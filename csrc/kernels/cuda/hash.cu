// The exclusive-or hash on CUDA: a warp joins its elements when they have one output, then atomics join the rest.
// Exclusive or is exact in any order.
#include "kernels/hash.h"

#include "kernels/cuda/draw.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct Outputs {
  Space space;
  int64_t numel, strides[kCudaDims];
  char* data;
};
__global__ void __launch_bounds__(kThreads) clear_outputs(const __grid_constant__ Outputs a) {
  MT_GRID_LOOP(i, a.numel) {
    char* p = a.data;
    a.space.each(i, [&](int d, int64_t at) { p += at * a.strides[d]; });
    *reinterpret_cast<uint64_t*>(p) = 0;
  }
}

__device__ __forceinline__ uint64_t bits_of(const char* p, DType dtype, bool floating) {
  if (floating) return static_cast<uint64_t>(__double_as_longlong(load_as<double>(p, dtype)));
  return static_cast<uint64_t>(load_as<int64_t>(p, dtype));
}
__device__ __forceinline__ void join(char* p, uint64_t bits) {
  atomicXor(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(bits));
}

// One output: each thread joins what it meets, then its warp.
__global__ void __launch_bounds__(kThreads) hash_all(const __grid_constant__ PairArgs a, bool floating) {
  uint64_t bits = 0;
  MT_GRID_LOOP(i, a.numel) {
    char* p[2];
    addresses(a, i, p);
    bits ^= bits_of(p[1], a.dtype[1], floating);
  }
  bits = warp_reduce(bits, [](uint64_t x, uint64_t y) { return x ^ y; });
  if (threadIdx.x % 32 == 0) join(a.data[0], bits);
}
__global__ void __launch_bounds__(kThreads) hash_elements(const __grid_constant__ PairArgs a, bool floating) {
  MT_GRID_LOOP(i, a.numel) {
    char* p[2];
    addresses(a, i, p);
    join(p[0], bits_of(p[1], a.dtype[1], floating));
  }
}

void xor_hash(const PointwiseView& v) {
  if (v.dtype[0] != DType::U64) missing_kernel("xor_hash", name_of(v.dtype[0]));
  const cudaStream_t stream = cuda::current_stream();
  Outputs outputs{};
  int64_t sizes[kMaxDims];
  int dims = 0;
  outputs.numel = 1;
  outputs.data = v.data[0];
  for (int d = 0; d < v.ndim; d++) {
    if (v.strides[0][d] == 0 || v.sizes[d] == 1) continue;
    if (dims == kCudaDims) throw std::runtime_error("minitorch: more than 16 dimensions after merging");
    sizes[dims] = v.sizes[d];
    outputs.strides[dims++] = v.strides[0][d];
    outputs.numel *= v.sizes[d];
  }
  if (outputs.numel == 0) return;
  outputs.space = Space(dims, sizes, outputs.numel);
  clear_outputs<<<grid_for(outputs.numel), kThreads, 0, stream>>>(outputs);
  if (v.numel > 0) {
    const bool floating = is_floating(v.dtype[1]);
    const PairArgs args = pair_args<2>(v);
    if (outputs.numel == 1) {
      hash_all<<<grid_for(v.numel, 4), kThreads, 0, stream>>>(args, floating);
    } else {
      hash_elements<<<grid_for(v.numel), kThreads, 0, stream>>>(args, floating);
    }
  }
  cuda::check_launch("launching xor_hash");
}

MT_REGISTER_KERNEL(xor_hash_kernel, &xor_hash);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
