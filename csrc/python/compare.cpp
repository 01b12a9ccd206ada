// What minitorch_backend.compare needs for every operator call, where Python would take too long: tensors of one memory
// on another device, and the distance of two results.
#include <ATen/ATen.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cmath>

#include "bridge/tensor.h"
#include "kernels/gap.h"
#include "python/bindings.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

// A CPU tensor on `storage`, with the dtype, shape, strides and offset of `like`.
at::Tensor window(const at::Storage& storage, const at::Tensor& like) {
  TORCH_CHECK(storage.device().is_cpu(), "Expected a storage of the host");
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                          c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype());
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  return t;
}

// The host's storage on the memory of a device storage. It does not keep the other alive.
at::Storage host_storage(const at::Storage& storage) {
  TORCH_CHECK(backend().host_accessible(), "The memory of backend ", backend().name(), " is not the host's");
  return at::Storage(at::Storage::use_byte_size_t{}, storage.nbytes(),
                     at::DataPtr(storage.mutable_data(), c10::Device(c10::kCPU)));
}

std::pair<at::Storage, at::Tensor> host_view(const at::Tensor& t) {
  at::Storage storage = host_storage(t.storage());
  at::Tensor seen = window(storage, t);
  return {std::move(storage), std::move(seen)};
}

double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

// An argument of a call as the host sees it: tensors of the device, also in lists, become windows on the storages of
// `seen`, by the address of the device's storage. A storage that is not there yet is taken from `known`, if that has
// one of the same size, or is the device's memory itself; then `seen` has it.
py::object see(const py::dict& seen, const std::optional<py::dict>& known, const py::object& value) {
  if (PyList_CheckExact(value.ptr()) || PyTuple_CheckExact(value.ptr())) {
    py::list all;
    for (const py::handle item : value) all.append(see(seen, known, py::reinterpret_borrow<py::object>(item)));
    return PyTuple_CheckExact(value.ptr()) ? py::object(py::tuple(all)) : py::object(all);
  }
  if (!THPVariable_Check(value.ptr())) return value;
  const at::Tensor& t = THPVariable_Unpack(value.ptr());
  if (t.device().type() != kDevice) return value;
  const at::Storage& storage = t.storage();
  const py::object key = py::reinterpret_steal<py::object>(PyLong_FromVoidPtr(storage.unsafeGetStorageImpl()));
  if (PyObject* found = PyDict_GetItem(seen.ptr(), key.ptr())) return py::cast(window(py::cast<at::Storage>(found), t));
  at::Storage host;
  if (PyObject* entry = known ? PyDict_GetItem(known->ptr(), key.ptr()) : nullptr) {
    if (PyLong_AsSize_t(PyTuple_GetItem(entry, 2)) == storage.nbytes())
      host = py::cast<at::Storage>(PyTuple_GetItem(entry, 0));
  }
  if (!host) host = host_storage(storage);
  seen[key] = py::cast(host);
  return py::cast(window(host, t));
}

Gap gap_of(const char* a, const char* b, DType dtype, int64_t n) {
  Gap gap;
  gap_kernel({dtype, a, b, n, &gap});
  return gap;
}

// (steps, span, scale) of two real CPU tensors whose elements lie in the same order without gaps; nothing of others.
// Longer tensors than `stretches` stretches of `length` elements can be measured on those: with stretches > 0 the
// steps, and if not `whole` the rest as well.
std::optional<std::tuple<double, double, double>> gap(const at::Tensor& a, const at::Tensor& b, int64_t stretches,
                                                      int64_t length, bool whole) {
  // A backend that reads the device's memory only has no such kernel: then torch's operators do the work.
  if (!gap_kernel.available(active_slot)) return std::nullopt;
  if (!a.device().is_cpu() || !b.device().is_cpu() || a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() ||
      !a.is_floating_point() || !has_kernels(a.scalar_type()) || a.is_neg() || b.is_neg())
    return std::nullopt;
  const bool alike =
      a.is_contiguous() ? b.is_contiguous() : a.strides() == b.strides() && a.is_non_overlapping_and_dense();
  if (!alike) return std::nullopt;
  const char *x = static_cast<const char*>(a.const_data_ptr()), *y = static_cast<const char*>(b.const_data_ptr());
  const DType dtype = to_dtype(a.scalar_type());
  const int64_t n = a.numel();
  const bool sampled = stretches > 0 && n > stretches * length;
  Gap found;
  if (whole || !sampled) found = gap_of(x, y, dtype, n);
  if (sampled) {
    Gap sample;
    for (int64_t i = 0; i < stretches; i++) {
      const int64_t start = i * (n / stretches) * static_cast<int64_t>(a.element_size());
      const Gap part = gap_of(x + start, y + start, dtype, length);
      sample = {std::max(sample.steps, part.steps), larger(sample.span, part.span), larger(sample.scale, part.scale)};
    }
    // Whether there is any difference is known of the whole.
    found = whole ? Gap{std::min(found.steps, std::max(sample.steps, 1.0)), found.span, found.scale} : sample;
  }
  return std::tuple(found.steps, found.span, found.scale);
}

// The keys of those entries whose storage is gone. A value is a tuple with the storage's weak reference, as
// torch.UntypedStorage._weak_ref gives it, in second place.
py::list expired(const py::dict& entries) {
  py::list found;
  for (const auto& [key, value] : entries) {
    auto* storage = static_cast<c10::StorageImpl*>(PyLong_AsVoidPtr(PyTuple_GetItem(value.ptr(), 1)));
    if (c10::raw::weak_intrusive_ptr::use_count(storage) == 0) found.append(key);
  }
  return found;
}

}  // namespace

void bind_compare(py::module& m) {
  m.def("window", &window);
  m.def("host_storage", &host_storage);
  m.def("host_view", &host_view);
  m.def("see", &see);
  m.def("gap", &gap);
  m.def("expired", &expired);
}

}  // namespace minitorch
