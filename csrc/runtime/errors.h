// The exceptions of the runtime. The bridge turns them into PyTorch's.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>

namespace minitorch {

// Becomes torch.OutOfMemoryError.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A device index that does not exist. Becomes torch.AcceleratorError's stand-in, a RuntimeError.
class InvalidDevice : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "1.50 GiB", "512.00 MiB", "64 bytes": the notation of PyTorch's own memory messages.
std::string format_bytes(size_t bytes);

}  // namespace minitorch
