// What the processor can do at best, measured: the limits that the benchmark states its results as shares of.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/kernel.h"

namespace minitorch {

// The streaming ones go past the caches: without that, memory that is to be overwritten is read first.
enum class ProbeOp : uint8_t { copy, copy_streaming, read, update, write, write_streaming, multiply_add };

struct ProbeArgs {
  ProbeOp op;
  DType dtype;          // of multiply_add: F32, F64 or BF16
  char* a;              // copy and write write it, read reads it, update does both
  const char* b;        // copy reads it
  int64_t bytes;        // in each of the two; every thread works on its own part
  int64_t repeats;      // passes over the memory, or iterations of the arithmetic loop
  int64_t* operations;  // out: bytes moved (read and written) or floating-point operations done
};

extern Kernel<void(const ProbeArgs&)> probe_kernel;

}  // namespace minitorch
