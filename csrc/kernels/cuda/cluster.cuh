// Clusters of blocks, which run together and read each other's shared memory (PTX ISA, "barrier.cluster", "mapa"): from
// sm_90 on.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace cluster {

constexpr int kMost = 8;  // blocks that every device with clusters lets run together

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint32_t blocks() {
  uint32_t count;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return count;
}
// This block's number in its cluster.
__device__ __forceinline__ uint32_t rank() {
  uint32_t own;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(own));
  return own;
}
// Until all threads of the cluster have come here; what they wrote to shared memory is then seen by all of them.
__device__ __forceinline__ void sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// What lies at `own`, an address in this block's shared memory, in another block's.
__device__ __forceinline__ float4 load(const float* own, uint32_t other) {
  uint32_t at;
  float4 x;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(at)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(own))), "r"(other));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(at)
               : "memory");
  return x;
}
#else  // a block is a cluster of its own
__device__ __forceinline__ constexpr uint32_t blocks() { return 1; }
__device__ __forceinline__ uint32_t rank() { return 0; }
__device__ __forceinline__ void sync() { __syncthreads(); }
__device__ __forceinline__ float4 load(const float* own, uint32_t) { return *reinterpret_cast<const float4*>(own); }
#endif

// Launches of `count` blocks of `threads` along y in a cluster.
class Launch {
 public:
  Launch(dim3 grid, int count, int threads, int64_t shared_bytes) {
    together_.id = cudaLaunchAttributeClusterDimension;
    together_.val.clusterDim.x = together_.val.clusterDim.z = 1;
    together_.val.clusterDim.y = static_cast<unsigned>(count);
    config_.gridDim = grid;
    config_.blockDim = dim3(static_cast<unsigned>(threads));
    config_.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config_.attrs = &together_;
    config_.numAttrs = 1;
  }
  Launch(const Launch&) = delete;

  // As after <<<>>>, an error shows at check_launch.
  template <class... Parameters>
  void run(void (*kernel)(Parameters...), const std::type_identity_t<Parameters>&... arguments) {
    allow_shared(reinterpret_cast<const void*>(kernel), static_cast<int64_t>(config_.dynamicSmemBytes));
    config_.stream = cuda::current_stream();
    cudaLaunchKernelEx(&config_, kernel, arguments...);
  }
  // How many such clusters the device has room for at once; 0 where it has none.
  template <class Kernel>
  int resident(Kernel kernel) const {
    int found = 0;
    allow_shared(reinterpret_cast<const void*>(kernel), static_cast<int64_t>(config_.dynamicSmemBytes));
    if (cudaOccupancyMaxActiveClusters(&found, kernel, &config_) != cudaSuccess) found = 0;
    cudaGetLastError();
    return found;
  }

 private:
  cudaLaunchAttribute together_{};
  cudaLaunchConfig_t config_{};
};

// Whether the device has clusters and the build this kernel for such a device.
template <class Kernel>
bool usable(Kernel kernel) {
  cudaFuncAttributes attributes;
  int device = 0, has = 0;
  const bool usable = cudaGetDevice(&device) == cudaSuccess &&
                      cudaDeviceGetAttribute(&has, cudaDevAttrClusterLaunch, device) == cudaSuccess && has != 0 &&
                      cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
  cudaGetLastError();
  return usable;
}

// What a device has room for at once of clusters of a kernel whose blocks have `bytes` of dynamic shared memory.
class Room {
 public:
  template <class Kernel>
  Room(Kernel kernel, int threads, int64_t bytes) : bytes_(bytes) {
    if (!usable(kernel)) return;
    for (int count = 2; count <= kMost; count++)
      clusters_[count] = Launch(dim3(1, static_cast<unsigned>(count)), count, threads, bytes).resident(kernel);
  }
  int64_t clusters(int count) const { return clusters_[count]; }  // 0 where there are none
  int64_t bytes() const { return bytes_; }

 private:
  int64_t clusters_[kMost + 1] = {}, bytes_;
};

}  // namespace cluster
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
