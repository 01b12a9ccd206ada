// Small helpers of the CUDA side: error checks, and the stream that a kernel launch belongs to.
#pragma once
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace minitorch::cuda {

// Throws std::runtime_error "minitorch: WHAT failed: REASON" unless the call succeeded.
inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // forget it: the next call must not see this error again
  throw std::runtime_error(std::string("minitorch: ") + what + " failed: " + cudaGetErrorString(error));
}

// After a launch: a bad configuration shows itself here, and with MINITORCH_LAUNCH_BLOCKING=1 a fault in the kernel
// too.
void check_launch(const char* kernel);

// The calling thread's current stream on its current device.
cudaStream_t current_stream();

// Number of multiprocessors of the current device.
int multiprocessors();

}  // namespace minitorch::cuda
