// The extension module minitorch_backend._C.
#include <ATen/Parallel.h>

#include "bridge/allocator.h"
#include "core/parallel.h"
#include "python/bindings.h"
#include "runtime/backend.h"
#include "runtime/device_memory.h"

namespace minitorch {

PYBIND11_MODULE(_C, m) {
  m.doc() = "minitorch's operators and runtime; use torch.minitorch instead.";
  backend();  // an environment variable with a bad value shows itself at import
  // A process that forks while another thread makes the allocators would leave the child waiting for that thread.
  if (backend().device_count() > 0) caching_allocator(0);
  install_memory_checks();
  set_num_threads_source(&at::get_num_threads);
  bind_runtime(m);
  bind_memory_trace(m);
  bind_fallback(m);
  bind_generator(m);
  bind_bench(m);
  bind_compare(m);
  bind_storage(m);
}

}  // namespace minitorch
