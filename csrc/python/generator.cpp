// The default generators for Python.
#include <torch/csrc/Generator.h>

#include "bridge/generator.h"
#include "python/bindings.h"
#include "runtime/backend.h"

namespace minitorch {

void bind_generator(py::module& m) {
  m.def(
      "default_generator",
      [](int device) {
        if (device != -1) check_device(device);
        return py::reinterpret_steal<py::object>(
            THPGenerator_Wrap(default_generator(static_cast<c10::DeviceIndex>(device))));
      },
      "The generator that torch.manual_seed seeds for a device; -1 means the current one.");
}

}  // namespace minitorch
