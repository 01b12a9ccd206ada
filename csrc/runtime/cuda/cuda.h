// Small helpers of the CUDA side: error checks, and the stream that a kernel launch belongs to.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace minitorch::cuda {

// Throws std::runtime_error "minitorch: WHAT failed: REASON".
[[noreturn]] void fail(cudaError_t error, const char* what);
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(error, what);
}

// After a launch: a bad configuration shows itself here, and with MINITORCH_LAUNCH_BLOCKING=1 a fault in the kernel and
// what it reports too. `which` names the operator where a kernel serves many.
void check_launch(const char* kernel, const char* which = nullptr);

// Makes a device current for a scope. cudaSetDevice is cheap when nothing changes.
class ScopedDevice {
 public:
  explicit ScopedDevice(int device) {
    check(cudaGetDevice(&previous_), "reading the current device");
    changed_ = device != previous_;
    if (changed_) check(cudaSetDevice(device), "changing the device");
  }
  ~ScopedDevice() {
    if (changed_) cudaSetDevice(previous_);
  }
  ScopedDevice(const ScopedDevice&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

// The calling thread's current stream on its current device.
cudaStream_t current_stream();

// Number of multiprocessors of the current device.
int multiprocessors();
int threads_per_multiprocessor();

// Whether `device` can read and write the memory of `peer`, another device, directly, and may (MINITORCH_PEER_ACCESS).
bool reaches(int device, int peer) noexcept;

// A bad index, or another fault in its arguments, that a kernel met: it is written to memory that the host sees, and
// the next synchronisation raises it. The first one of a thread stays (see faults.cu).
struct Fault {
  unsigned* claimed;  // in the device's own memory: not every bus lets a device compare and swap in the host's
  unsigned ready;
  const char* what;  // a host string: the operator, or the message when size is negative
  int64_t index, size;
};
inline constexpr int64_t kMessage = -1, kMessageAndNumber = -2;  // sizes of faults that are no bad indices
// Where kernels that this thread launches report. For the launch at hand: it is another one in a backward pass.
Fault* fault_record();
// Raises a fault that was reported, if any, and clears it: of this thread's kernels first. Call when the device is
// known to have finished.
void raise_fault();
void raise_own_fault();  // none of other threads' kernels
// Copies to the host what kernels of the current stream computed, and waits for it, as a synchronisation does.
void read_back(void* to, const void* from, int64_t bytes, const char* what);

#if defined(__CUDACC__)
// `what` is a pointer to a string in host memory.
__device__ inline void report_fault(Fault* fault, const char* what, int64_t index, int64_t size) {
  if (atomicCAS(fault->claimed, 0u, 1u) != 0) return;
  fault->what = what;
  fault->index = index;
  fault->size = size;
  __threadfence_system();
  *reinterpret_cast<volatile unsigned*>(&fault->ready) = 1;
}
// A fault that is no bad index: `message` becomes a RuntimeError, with the number that was found at its end.
__device__ inline void report_fault(Fault* fault, const char* message) { report_fault(fault, message, 0, kMessage); }
__device__ inline void report_fault(Fault* fault, const char* message, int64_t found) {
  report_fault(fault, message, found, kMessageAndNumber);
}
#endif

}  // namespace minitorch::cuda
