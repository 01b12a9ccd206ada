// What Python sees, a function a subject; module.cpp calls them all.
#pragma once
#include <torch/csrc/utils/pybind.h>

namespace minitorch {

void bind_bench(py::module& m);
void bind_compare(py::module& m);
void bind_fallback(py::module& m);
void bind_generator(py::module& m);
void bind_memory_trace(py::module& m);
void bind_override(py::module& m);
void bind_runtime(py::module& m);
void bind_storage(py::module& m);

}  // namespace minitorch
