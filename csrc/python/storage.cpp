// Storages that share memory across the host and the device, for Python; minitorch_backend/_exchange.py uses them.
#include "bridge/storage.h"

#include <pybind11/stl.h>

#include "bridge/tensor.h"
#include "python/bindings.h"
#include "runtime/backend.h"

namespace minitorch {

void bind_storage(py::module& m) {
  m.def("host_accessible", [] { return backend().host_accessible(); });
  m.def("device_alias", [](const at::Storage& host) {
    TORCH_CHECK(backend().host_accessible() && host.device().is_cpu(), "Expected a CPU storage and the CPU backend");
    return alias_storage(host, c10::Device(kDevice, static_cast<c10::DeviceIndex>(backend().current_device())));
  });
  m.def("lender", [](const at::Storage& storage) -> std::optional<at::Storage> {
    at::Storage lender = lender_of(storage);
    return lender ? std::optional(lender) : std::nullopt;
  });
  m.def("adopt", &adopt);
}

}  // namespace minitorch
