// What minitorch_backend.compare needs for every operator call, where Python would take too long: tensors of one memory
// on another device, and the distance of two results.
#include <ATen/ATen.h>
#include <pybind11/stl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cmath>
#include <cstring>
#include <limits>

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

// The same with the content copied.
at::Storage host_copy(const at::Storage& storage) {
  const at::Storage from = host_storage(storage);
  const int64_t bytes = static_cast<int64_t>(from.nbytes());
  at::Storage copy = at::empty({bytes}, at::device(at::kCPU).dtype(at::kByte)).storage();
  if (bytes > 0) std::memcpy(copy.mutable_data(), from.data(), from.nbytes());
  return copy;
}

at::Tensor host_view(const at::Tensor& t) { return window(host_storage(t.storage()), t); }

py::object key_of(const at::Storage& storage) {
  return py::reinterpret_steal<py::object>(PyLong_FromVoidPtr(storage.unsafeGetStorageImpl()));
}

// Calls `one` with each tensor in a value, through lists and tuples, until it says false. Returns whether it never did.
template <class One>
bool each_tensor(PyObject* value, const One& one) {
  if (THPVariable_Check(value)) return one(value);
  if (!PyList_Check(value) && !PyTuple_Check(value)) return true;
  PyObject** items = PySequence_Fast_ITEMS(value);
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(value);
  for (Py_ssize_t i = 0; i < n; i++)
    if (!each_tensor(items[i], one)) return false;
  return true;
}

// Whether a tensor is a window on a storage: not sparse, not nested, not lazy, not a zero of forward-mode derivatives.
bool has_memory(PyObject* value) {
  const at::Tensor& t = THPVariable_Unpack(value);
  if (t.layout() != at::kStrided || t.is_nested() || t._is_zerotensor() || !t.has_storage()) return false;
  if (Py_TYPE(value) == reinterpret_cast<PyTypeObject*>(THPVariableClass)) return true;
  // Lives as long as torch does.
  static PyObject* const lazy =
      py::object(py::module::import("torch.nn.parameter").attr("UninitializedTensorMixin")).release().ptr();
  return PyObject_IsInstance(value, lazy) == 0;
}

// The tensors of a call's arguments; None if one of them is no window on a storage.
std::optional<py::list> tensors(const py::tuple& args, const py::dict& kwargs) {
  py::list found;
  const auto add = [&](PyObject* value) {
    if (!has_memory(value)) return false;
    found.append(py::handle(value));
    return true;
  };
  if (!each_tensor(args.ptr(), add)) return std::nullopt;
  for (const auto& [name, value] : kwargs)
    if (!each_tensor(value.ptr(), add)) return std::nullopt;
  return found;
}

// The version counters of tensors; 0 for those that count none.
std::vector<int64_t> versions(const py::list& all) {
  std::vector<int64_t> found;
  found.reserve(all.size());
  for (const py::handle item : all) {
    const at::Tensor& t = THPVariable_Unpack(item.ptr());
    found.push_back(t.is_inference() ? 0 : t._version());
  }
  return found;
}

// Whether one of the tensors lies in a storage that `known` has.
bool touches(const py::list& all, const py::dict& known) {
  for (const py::handle item : all)
    if (PyDict_Contains(known.ptr(), key_of(THPVariable_Unpack(item.ptr()).storage()).ptr()) == 1) return true;
  return false;
}

// Calls `one` with the tensors of two results, pair by pair. False when the results are not built alike, hold anything
// but tensors and None, or `one` said so.
template <class One>
bool each_pair(PyObject* a, PyObject* b, const One& one) {
  if (THPVariable_Check(a) && THPVariable_Check(b)) return one(THPVariable_Unpack(a), THPVariable_Unpack(b));
  if (a == Py_None && b == Py_None) return true;
  const auto sequence = [](PyObject* value) { return PyList_Check(value) || PyTuple_Check(value); };
  if (!sequence(a) || !sequence(b) || PySequence_Fast_GET_SIZE(a) != PySequence_Fast_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(a); i++)
    if (!each_pair(PySequence_Fast_ITEMS(a)[i], PySequence_Fast_ITEMS(b)[i], one)) return false;
  return true;
}

// Whether two results are windows of one kind on memory of their own: dtype, shape, strides and offset the same, and no
// argument's storage among theirs. `seen` has the arguments' storages (see below). When in doubt, false.
bool alike(const py::object& result, const py::object& reference, const py::dict& seen) {
  return each_pair(result.ptr(), reference.ptr(), [&](const at::Tensor& a, const at::Tensor& b) {
    if (a.device().type() != kDevice || a.layout() != at::kStrided || b.layout() != at::kStrided) return false;
    if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.strides() != b.strides() ||
        a.storage_offset() != b.storage_offset())
      return false;
    if (PyDict_Contains(seen.ptr(), key_of(a.storage()).ptr()) != 0) return false;
    for (const auto& [key, storage] : seen)
      if (py::cast<at::Storage>(storage).unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl()) return false;
    return true;
  });
}

// Makes the storages of a shadow's results the shadows of those of the results, where every pair is laid out alike:
// entries of `known`, by the address of the result's storage, as `expired` reads them. Storages that are `seen` are the
// arguments'. Returns (bytes that are new, bytes more that are held), or nothing, and then nothing is done.
std::optional<std::pair<int64_t, int64_t>> take_shadows(const py::dict& known, const py::dict& seen,
                                                        const py::object& result, const py::object& shadowed) {
  std::vector<std::pair<at::Storage, at::Storage>> pairs;
  const bool plain = each_pair(result.ptr(), shadowed.ptr(), [&](const at::Tensor& a, const at::Tensor& b) {
    if (a.device().type() != kDevice) return true;
    if (PyDict_Contains(seen.ptr(), key_of(a.storage()).ptr()) != 0) return true;
    if (!b.device().is_cpu() || b.layout() != at::kStrided || b.is_conj() || b.is_neg() ||
        a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.strides() != b.strides() ||
        a.storage_offset() != b.storage_offset() || a.storage().nbytes() != b.storage().nbytes())
      return false;
    pairs.emplace_back(a.storage(), b.storage());
    return true;
  });
  if (!plain) return std::nullopt;
  int64_t fresh = 0, more = 0;
  for (const auto& [own, shadow] : pairs) {
    const py::object key = key_of(own);
    const int64_t bytes = static_cast<int64_t>(own.nbytes());
    py::object weak;
    if (PyObject* entry = PyDict_GetItem(known.ptr(), key.ptr())) {
      weak = py::reinterpret_borrow<py::object>(PyTuple_GetItem(entry, 1));
      more += bytes - PyLong_AsLongLong(PyTuple_GetItem(entry, 2));
    } else {
      weak = py::reinterpret_steal<py::object>(
          PyLong_FromVoidPtr(c10::raw::intrusive_ptr::make_weak(own.unsafeGetStorageImpl())));
      fresh += bytes;
      more += bytes;
    }
    known[key] = py::make_tuple(py::cast(shadow), weak, bytes);
  }
  return std::pair(fresh, more);
}

double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

// An argument of a call as the host sees it: the device becomes the CPU, its tensors, also in lists, become windows on
// the storages of `seen`, by the address of the device's storage. A storage that is not there yet is taken from
// `known`, if that has one of the same size, or is the device's memory itself; then `seen` has it.
py::object see(const py::dict& seen, const std::optional<py::dict>& known, const py::object& value) {
  if (PyList_CheckExact(value.ptr()) || PyTuple_CheckExact(value.ptr())) {
    py::list all;
    for (const py::handle item : value) all.append(see(seen, known, py::reinterpret_borrow<py::object>(item)));
    return PyTuple_CheckExact(value.ptr()) ? py::object(py::tuple(all)) : py::object(all);
  }
  if (THPDevice_Check(value.ptr()))
    return reinterpret_cast<THPDevice*>(value.ptr())->device.type() == kDevice ? py::cast(at::Device(at::kCPU)) : value;
  if (!THPVariable_Check(value.ptr())) return value;
  const at::Tensor& t = THPVariable_Unpack(value.ptr());
  if (t.device().type() != kDevice) return value;
  const at::Storage& storage = t.storage();
  const py::object key = key_of(storage);
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

// (steps, span, scale) of two real tensors whose elements lie in the same order without gaps, the first of the device
// or the CPU, the second of the CPU; nothing of others. Those of integers and booleans are infinite, or 0 where all are
// equal. Longer tensors than `stretches` stretches of `length` elements can be measured on those: with stretches > 0
// the steps, and if not `whole` the rest as well.
std::optional<std::tuple<double, double, double>> gap(const at::Tensor& a, const at::Tensor& b, int64_t stretches,
                                                      int64_t length, bool whole) {
  // A backend that reads the device's memory only has no such kernel: then torch's operators do the work.
  if (!gap_kernel.available(active_slot)) return std::nullopt;
  if (!(a.device().is_cpu() || a.device().type() == kDevice) || !b.device().is_cpu() || a.layout() != at::kStrided ||
      b.layout() != at::kStrided || a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.is_complex() ||
      !has_kernels(a.scalar_type()) || a.is_neg() || b.is_neg())
    return std::nullopt;
  const bool alike =
      a.is_contiguous() ? b.is_contiguous() : a.strides() == b.strides() && a.is_non_overlapping_and_dense();
  if (!alike) return std::nullopt;
  const char *x = static_cast<const char*>(a.const_data_ptr()), *y = static_cast<const char*>(b.const_data_ptr());
  const int64_t n = a.numel();
  if (n == 0) return std::tuple(0.0, 0.0, 0.0);
  if (!a.is_floating_point()) {
    const bool equal = std::memcmp(x, y, static_cast<size_t>(n) * a.element_size()) == 0;
    const double off = equal ? 0.0 : std::numeric_limits<double>::infinity();
    return std::tuple(off, off, off);
  }
  const DType dtype = to_dtype(a.scalar_type());
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
  m.def("host_copy", &host_copy);
  m.def("host_view", &host_view);
  m.def("tensors", &tensors);
  m.def("versions", &versions);
  m.def("touches", &touches);
  m.def("alike", &alike);
  m.def("take_shadows", &take_shadows);
  m.def("see", &see);
  m.def("gap", &gap);
  m.def("expired", &expired);
}

}  // namespace minitorch
