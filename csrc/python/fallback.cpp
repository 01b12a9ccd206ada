// The fallback ledger and policy for Python.
#include <pybind11/stl.h>

#include "bridge/fallback.h"
#include "python/bindings.h"

namespace minitorch {
namespace {

// "file:line" of the innermost Python frame outside torch itself, or "" without Python.
std::string python_call_site() {
  if (!Py_IsInitialized()) return "";
  const py::gil_scoped_acquire gil;
  PyFrameObject* frame = PyEval_GetFrame();
  std::string site;
  Py_XINCREF(frame);
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const auto file = py::cast<std::string>(py::handle(code->co_filename));
    site = file + ":" + std::to_string(PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* back = file.find("/torch/") == std::string::npos ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  return site;
}

}  // namespace

void bind_fallback(py::module& m) {
  py::class_<FallbackRecord>(m, "FallbackRecord")
      .def_readonly("op", &FallbackRecord::op)
      .def_readonly("count", &FallbackRecord::count)
      .def_readonly("bytes", &FallbackRecord::bytes)
      .def_readonly("seconds", &FallbackRecord::seconds)
      .def_readonly("call_site", &FallbackRecord::call_site)
      .def("__repr__", [](const FallbackRecord& r) {
        return "FallbackRecord(op='" + r.op + "', count=" + std::to_string(r.count) +
               ", bytes=" + std::to_string(r.bytes) + ", seconds=" + std::to_string(r.seconds) + ", call_site='" +
               r.call_site + "')";
      });
  py::enum_<FallbackPolicy>(m, "FallbackPolicy")
      .value("error", FallbackPolicy::error)
      .value("warn", FallbackPolicy::warn)
      .value("allow", FallbackPolicy::allow);
  m.def("fallback_records", &fallback_records);
  m.def("clear_fallback_records", &clear_fallback_records);
  m.def("fallback_policy", &fallback_policy);
  m.def("set_fallback_policy", &set_fallback_policy);
  set_call_site_provider(&python_call_site);
}

}  // namespace minitorch
