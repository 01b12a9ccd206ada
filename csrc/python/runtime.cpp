// Devices and memory for Python. Nothing here holds the GIL while it waits for a device or for the system.
#include <pybind11/stl.h>

#include "bridge/engine.h"
#include "bridge/storage.h"
#include "kernels/kernel.h"
#include "python/bindings.h"
#include "runtime/backend.h"
#include "runtime/device_memory.h"
#include "runtime/environment.h"
#include "runtime/errors.h"

namespace minitorch {
namespace {

using WithoutGil = py::call_guard<py::gil_scoped_release>;

void bind_properties(py::module& m) {
  py::class_<DeviceProperties>(m, "DeviceProperties")
      .def_readonly("name", &DeviceProperties::name)
      .def_readonly("backend", &DeviceProperties::backend)
      .def_readonly("isa", &DeviceProperties::isa)
      .def_readonly("total_memory", &DeviceProperties::total_memory)
      .def_readonly("multi_processor_count", &DeviceProperties::multi_processor_count)
      .def_readonly("major", &DeviceProperties::major)
      .def_readonly("minor", &DeviceProperties::minor)
      .def("__repr__", [](const DeviceProperties& p) {
        return "DeviceProperties(name='" + p.name + "', backend='" + p.backend + "', isa='" + p.isa +
               "', total_memory=" + format_bytes(static_cast<size_t>(p.total_memory)) +
               ", multi_processor_count=" + std::to_string(p.multi_processor_count) + ")";
      });
  m.def("device_properties", [](int device) { return backend().properties(device); });
}

void bind_memory(py::module& m) {
  m.def("memory_stats", [](int device) {
    py::dict result;
    for (const auto& [key, value] : flatten(caching_allocator(device).stats())) result[py::str(key)] = value;
    return result;
  });
  m.def("reset_peak_memory_stats", [](int device) { caching_allocator(device).reset_peak_stats(); });
  m.def("reset_accumulated_memory_stats", [](int device) { caching_allocator(device).reset_accumulated_stats(); });
  m.def(
      "empty_cache",
      [] {
        for (int d = 0; d < backend().device_count(); d++) caching_allocator(d).empty_cache();
      },
      WithoutGil());
  m.def("mem_get_info", [](int device) {
    const MemoryInfo info = device_memory_info(device);
    return std::pair(info.free, info.total);
  });
  m.def("memory_block", [](const at::Tensor& tensor) -> py::object {
    const Block* block = Storage::block_of(tensor);
    if (block == nullptr) return py::none();
    py::dict result;
    result["size"] = block->size;
    result["requested_size"] = block->requested;
    result["stream_id"] = stream_of(block).id;
    result["made_by"] = std::string(block->maker);
    return result;
  });
  m.def("set_memory_fraction", &set_memory_fraction, py::arg("fraction"), py::arg("device"));
  m.def("memory_fraction", [](int device) {
    const auto total = static_cast<double>(backend().memory_info(device).total);
    return static_cast<double>(caching_allocator(device).limit()) / total;
  });
}

}  // namespace

void bind_runtime(py::module& m) {
  m.def("backend_name", [] { return std::string(backend().name()); });
  m.def("isa", [] { return std::string(slot_name(active_slot)); });
  m.def("poison", [] { return environment().poison; });
  m.def("in_use", [] { return backend().in_use(); });
  m.def("device_count", [] { return backend().device_count(); });
  m.def("current_device", [] { return backend().current_device(); });
  m.def("set_device", [](int device) { backend().set_device(device); });
  m.def("check_device", &check_device);
  m.def("start_engine_without_threads", &start_engine_without_threads);
  m.def("synchronize", &synchronize, WithoutGil());
  m.def("external_stream", [](int device, uintptr_t handle) {
    return backend().external_stream(device, reinterpret_cast<void*>(handle)).id;
  });
  m.def("stream_handle",
        [](int device, int64_t id) { return reinterpret_cast<uintptr_t>(backend().stream_handle({device, id})); });
  m.def("stream_priority", [](int64_t id) { return Stream{0, id}.priority(); });
  // An event's id is its handle here; 0 until it is recorded.
  m.def("elapsed_ms", [](uintptr_t start, uintptr_t end) {
    if (start == 0 || end == 0)
      throw std::runtime_error("Both events must be recorded before calculating elapsed time.");
    return backend().elapsed_ms(reinterpret_cast<Event*>(start), reinterpret_cast<Event*>(end));
  });
  m.def("can_access_peer", [](int device, int peer) {
    check_device(device);
    check_device(peer);
    return device != peer && backend().can_access_peer(device, peer);
  });
  bind_properties(m);
  bind_memory(m);
}

}  // namespace minitorch
