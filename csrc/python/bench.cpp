// What the benchmark needs from inside: the processor's limits, and operators with a part of their path left out.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <map>
#include <memory>

#include "bridge/tensor.h"
#include "kernels/probe.h"
#include "python/bindings.h"
#include "python/quiet.h"
#include "runtime/backend.h"
#include "runtime/cpu/round_trip.h"

namespace minitorch {
namespace {

int64_t run_probe(ProbeOp op, at::ScalarType dtype, const at::Tensor& a, const at::Tensor& b, int64_t repeats) {
  TORCH_CHECK(a.is_contiguous() && b.is_contiguous() && a.nbytes() == b.nbytes(), "two buffers of one size expected");
  for (const at::Tensor& buffer : {a, b})
    TORCH_CHECK(buffer.device().type() == kDevice || backend().host_accessible(), "probe: the kernels of backend ",
                backend().name(), " cannot reach a buffer on ", buffer.device());
  int64_t operations = 0;
  const ProbeArgs args{op,
                       to_dtype(dtype),
                       static_cast<char*>(a.mutable_data_ptr()),
                       static_cast<const char*>(b.const_data_ptr()),
                       static_cast<int64_t>(a.nbytes()),
                       repeats,
                       &operations};
  const py::gil_scoped_release release;
  probe_kernel(args);
  return operations;
}

// Kernels that return an argument at once. What remains of a call is Python's part and the dispatcher's.
namespace hollow {
at::Tensor unary(const at::Tensor& self) { return self; }
at::Tensor binary(const at::Tensor& self, const at::Tensor&) { return self; }
at::Tensor binary_alpha(const at::Tensor& self, const at::Tensor&, const at::Scalar&) { return self; }
at::Tensor& inplace_alpha(at::Tensor& self, const at::Tensor&, const at::Scalar&) { return self; }
at::Tensor addmm(const at::Tensor& self, const at::Tensor&, const at::Tensor&, const at::Scalar&, const at::Scalar&) {
  return self;
}
at::Tensor softmax(const at::Tensor& self, int64_t, bool) { return self; }
at::Tensor sum(const at::Tensor& self, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>) { return self; }
}  // namespace hollow

using Install = void (*)(torch::Library&, const char*);
template <auto function>
void install(torch::Library& library, const char* name) {
  library.impl(name, TORCH_FN(function));
}

const std::map<std::string, Install>& hollow_operators() {
  static const std::map<std::string, Install> table = {
      {"exp", &install<&hollow::unary>},
      {"relu", &install<&hollow::unary>},
      {"silu", &install<&hollow::unary>},
      {"mul.Tensor", &install<&hollow::binary>},
      {"mm", &install<&hollow::binary>},
      {"add.Tensor", &install<&hollow::binary_alpha>},
      {"add_.Tensor", &install<&hollow::inplace_alpha>},
      {"addmm", &install<&hollow::addmm>},
      {"_softmax", &install<&hollow::softmax>},
      {"sum.dim_IntList", &install<&hollow::sum>},
  };
  return table;
}

// While it lives, an operator of one device is hollow.
class HollowOperator {
 public:
  HollowOperator(const std::string& name, const std::string& key)
      : library_(std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::parseDispatchKey(key), __FILE__,
                                                  __LINE__)) {
    const auto found = hollow_operators().find(name);
    TORCH_CHECK(found != hollow_operators().end(), "aten::", name, " has no hollow form");
    const Quiet quiet;
    found->second(*library_, found->first.c_str());
  }
  void restore() { library_.reset(); }

 private:
  std::unique_ptr<torch::Library> library_;
};

// Exchanges all kernels for ones that do nothing; what comes out of operators is then meaningless.
void set_kernels_idle(bool idle) {
  static const Slot working = active_slot;
  active_slot = idle ? Slot::idle : working;
}

}  // namespace

void bind_bench(py::module& m) {
  py::enum_<ProbeOp>(m, "ProbeOp")
      .value("copy", ProbeOp::copy)
      .value("copy_streaming", ProbeOp::copy_streaming)
      .value("read", ProbeOp::read)
      .value("update", ProbeOp::update)
      .value("write", ProbeOp::write)
      .value("write_streaming", ProbeOp::write_streaming)
      .value("multiply_add", ProbeOp::multiply_add);
  m.def("probe", &run_probe, py::arg("op"), py::arg("dtype"), py::arg("a"), py::arg("b"), py::arg("repeats"));
  m.def("cache_line_round_trip", &cpu::cache_line_round_trip, py::call_guard<py::gil_scoped_release>());
  m.def("set_kernels_idle", &set_kernels_idle);
  m.def("hollow_operators", [] {
    std::vector<std::string> names;
    for (const auto& [name, _] : hollow_operators()) names.push_back(name);
    return names;
  });
  py::class_<HollowOperator>(m, "HollowOperator")
      .def(py::init<const std::string&, const std::string&>(), py::arg("name"), py::arg("key"))
      .def("restore", &HollowOperator::restore);
}

}  // namespace minitorch
