// The extension module minitorch_backend._C.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include "bridge/allocator.h"
#include "core/parallel.h"
#include "python/bindings.h"
#include "runtime/backend.h"
#include "runtime/device_memory.h"
#include "runtime/environment.h"

namespace minitorch {

PYBIND11_MODULE(_C, m) {
  m.doc() = "minitorch's operators and runtime; use torch.minitorch instead.";
  backend();  // an environment variable with a bad value shows itself at import
  if (const std::string warning = misspelt_variable(environ); !warning.empty())
    if (PyErr_WarnEx(PyExc_UserWarning, warning.c_str(), 1) != 0) throw pybind11::error_already_set();
  // A process that forks while another thread makes the allocators would leave the child waiting for that thread.
  if (backend().device_count() > 0) caching_allocator(0);
  // PyTorch takes no memory for pinned before a device is in use, though torch.cuda's is pinned for ours as well.
  at::globalContext().lazyInitDevice(c10::DeviceType::PrivateUse1);
  install_memory_checks();
  set_num_threads_source(&at::get_num_threads);
  bind_runtime(m);
  bind_memory_trace(m);
  bind_fallback(m);
  bind_generator(m);
  bind_bench(m);
  bind_override(m);
  bind_compare(m);
  bind_storage(m);
}

}  // namespace minitorch
