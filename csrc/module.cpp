// The extension module minitorch_backend._C.
#include <ATen/Parallel.h>

#include "kernels/kernel.h"
#include "kernels/parallel.h"
#include "python/bindings.h"
#include "runtime/backend.h"

namespace minitorch {

PYBIND11_MODULE(_C, m) {
  m.doc() = "minitorch's operators and runtime; use torch.minitorch instead.";
  backend();  // an environment variable with a bad value shows itself at import
  set_num_threads_source(&at::get_num_threads);
  m.def("backend_name", [] { return std::string(backend().name()); });
  m.def("isa", [] { return std::string(slot_name(active_slot)); });
  m.def("device_count", [] { return backend().device_count(); });
  m.def("current_device", [] { return backend().current_device(); });
  m.def("set_device", [](int device) { backend().set_device(device); });
  bind_fallback(m);
  bind_generator(m);
}

}  // namespace minitorch
