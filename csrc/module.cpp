// The extension module minitorch_backend._C.
#include <ATen/Parallel.h>

#include "bridge/allocator.h"
#include "core/parallel.h"
#include "python/bindings.h"
#include "runtime/backend.h"

namespace minitorch {

PYBIND11_MODULE(_C, m) {
  m.doc() = "minitorch's operators and runtime; use torch.minitorch instead.";
  backend();  // an environment variable with a bad value shows itself at import
  install_memory_checks();
  set_num_threads_source(&at::get_num_threads);
  bind_runtime(m);
  bind_fallback(m);
  bind_generator(m);
}

}  // namespace minitorch
