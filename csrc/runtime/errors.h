// The exceptions of the runtime. The bridge turns them into PyTorch's.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>

namespace minitorch {

// What stands for torch.OutOfMemoryError where there is no torch.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// Memory has run out, also in the middle of a kernel. Calls the handler that the bridge installed (it throws PyTorch's
// exception); throws OutOfMemory without one.
[[noreturn]] void out_of_memory(const std::string& text);
void set_out_of_memory_handler(void (*handler)(const std::string& text));

// A device index that does not exist. Becomes torch.AcceleratorError's stand-in, a RuntimeError.
class InvalidDevice : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "1.50 GiB", "512.00 MiB", "64 bytes": the notation of PyTorch's own memory messages.
std::string format_bytes(size_t bytes);

}  // namespace minitorch
