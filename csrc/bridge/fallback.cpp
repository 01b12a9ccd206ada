// The boxed fallback and its ledger. On the CPU backend a tensor of ours and a CPU tensor can share memory, so nothing
// is copied: arguments are seen as CPU tensors over the same storage, and results adopt the memory native allocated.
// On a GPU the storages of the arguments are copied to the host, those that the operator writes to are copied back, and
// results are copied to the device.
#include "bridge/fallback.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "bridge/refusal.h"
#include "bridge/tensor.h"
#include "bridge/transfer.h"
#include "kernels/kernel.h"
#include "runtime/backend.h"
#include "runtime/environment.h"
#include "runtime/errors.h"

namespace minitorch {
namespace {

std::mutex mutex;
std::map<std::string, FallbackRecord> records;
std::set<std::string> warned;  // operators; clearing the records does not forget them
std::string (*call_site_provider)() = nullptr;

FallbackPolicy& policy() {
  static FallbackPolicy value = environment().fallback;
  return value;
}

at::Tensor over_storage(const at::Tensor& geometry, const c10::Storage& storage, c10::Device device) {
  at::Tensor t = at::empty({0}, geometry.options().device(device));
  t.set_(storage, geometry.storage_offset(), geometry.sizes(), geometry.strides());
  if (geometry.is_conj()) t._set_conj(true);
  if (geometry.is_neg()) t._set_neg(true);
  return t;
}

// Maps tensors of ours to CPU tensors and back for one call. Tensors that share a storage still share one over there.
class Crossing {
 public:
  int64_t bytes = 0;

  // `written`: the operator may write to the tensor.
  at::Tensor to_host(const at::Tensor& t, bool written) {
    if (!t.defined() || t.device().type() != kDevice) return t;
    bytes += static_cast<int64_t>(t.nbytes());
    const bool shares = backend().host_accessible();
    auto it = storages_.find(t.storage().unsafeGetStorageImpl());
    const bool fresh = it == storages_.end();
    at::Tensor host;
    if (shares) {
      host = alias_as_host(t);
      if (!fresh) host.unsafeGetTensorImpl()->set_storage_keep_dtype(it->second);
    } else {
      host = over_storage(t, fresh ? storage_to_host(t.storage()) : it->second, c10::kCPU);
    }
    if (fresh) storages_.emplace(t.storage().unsafeGetStorageImpl(), host.storage());
    pairs_.push_back({t, host, host.storage().data(), written && !shares});
    return host;
  }

  c10::IValue to_host(const c10::IValue& v, bool written) {
    if (v.isTensor()) return to_host(v.toTensor(), written);
    if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(to_host(t, written));
      return list;
    }
    if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& t : v.toOptionalTensorVector())
        list.push_back(t ? std::optional<at::Tensor>(to_host(*t, written)) : std::nullopt);
      return list;
    }
    if (v.isDevice() && v.toDevice().type() == kDevice) return c10::Device(c10::kCPU);
    return v;
  }

  // Native may have resized an out= argument: then its memory or geometry is no longer the one we lent.
  void write_back() {
    for (const Pair& p : pairs_) {
      const bool moved = p.host.storage().data() != p.lent;
      if (!moved && p.copy_back) storage_from_host(p.device.storage(), p.host.storage());
      if (!moved && p.host.sizes() == p.device.sizes() && p.host.strides() == p.device.strides()) continue;
      if (p.host.sizes() != p.device.sizes()) p.device.resize_(p.host.sizes());
      if (p.host.strides() != p.device.strides()) p.device.as_strided_(p.host.sizes(), p.host.strides());
      if (moved) p.device.copy_(p.host);
    }
  }

  at::Tensor to_device(const at::Tensor& t) {
    if (!t.defined() || t.device().type() != c10::kCPU) return t;
    TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == at::kStrided && !t.is_quantized(), "minitorch has no tensors of layout ",
                                t.layout(), " and dtype ", t.scalar_type(), "; call .cpu() before this operator");
    for (const Pair& p : pairs_)
      if (p.host.is_same(t)) return p.device;
    for (const Pair& p : pairs_) {  // a view of an argument becomes a view of the original
      if (!p.host.storage().is_alias_of(t.storage())) continue;
      if (!backend().host_accessible()) return over_storage(t, p.device.storage(), p.device.device());
      at::Tensor view = alias_as_device(t);
      view.unsafeGetTensorImpl()->set_storage_keep_dtype(p.device.storage());
      return view;
    }
    if (!backend().host_accessible())
      return t.to(c10::Device(kDevice, static_cast<c10::DeviceIndex>(backend().current_device())));
    return alias_as_device(t);
  }

  c10::IValue to_device(const c10::IValue& v) {
    if (v.isTensor()) return to_device(v.toTensor());
    if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(to_device(t));
      return list;
    }
    return v;
  }

 private:
  struct Pair {
    at::Tensor device, host;
    const void* lent;
    bool copy_back;
  };
  std::vector<Pair> pairs_;
  std::unordered_map<c10::StorageImpl*, c10::Storage> storages_;
};

// Whether it is the operator's first.
bool record(const std::string& op, int64_t bytes, double seconds) {
  std::string site;
  {
    const std::lock_guard lock(mutex);
    if (!records.count(op)) site = "?";
  }
  if (!site.empty() && call_site_provider != nullptr) site = call_site_provider();  // takes the GIL: not under our lock
  const std::lock_guard lock(mutex);
  FallbackRecord& r = records[op];
  if (r.count == 0) {
    r.op = op;
    r.call_site = site;
  }
  r.count++;
  r.bytes += bytes;
  r.seconds += seconds;
  return warned.insert(op).second;
}

// Native CPU would compute a mix of host and device tensors without a word, since both are host memory to it.
void check_devices(const std::string& name, at::ArrayRef<c10::IValue> args) {
  DeviceCheck devices(DeviceCheck::allowed, name);
  for (const c10::IValue& v : args) {
    if (v.isTensor()) devices.see(v.toTensor());
    if (v.isTensorList())
      for (const at::Tensor& t : v.toTensorVector()) devices.see(t);
  }
}

// What these return could not come back from native CPU.
void check_kind_of_result(const c10::OperatorName& op) {
  static constexpr std::pair<const char*, const char*> kKinds[] = {{"aten::quantize_per_", "quantized tensors"},
                                                                   {"aten::to_mkldnn", "tensors in oneDNN's layout"},
                                                                   {"aten::_to_sparse_c", kCompressedSparse},
                                                                   {"aten::_to_sparse_b", kCompressedSparse}};
  for (const auto& [prefix, kind] : kKinds)
    if (op.name.starts_with(prefix)) refuse_kind(op, kind);
}

// Throws unless native CPU may take the call.
void require_fallback(const std::string& name, const char* dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(policy() != FallbackPolicy::error, "minitorch has no kernel for '", name, "' (dtype ",
                              dtype, ") on the ", backend().name(),
                              " backend. Set MINITORCH_FALLBACK=warn or =allow to run it on native "
                              "CPU instead; torch.minitorch.fallbacks() lists such calls.");
}

// Puts a call that native CPU took into the ledger, and warns if that is the policy.
void finish_fallback(const std::string& name, int64_t bytes, std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (record(name, bytes, elapsed.count()) && policy() == FallbackPolicy::warn) {
    TORCH_WARN("minitorch has no kernel for '", name,
               "': it ran on native CPU. MINITORCH_FALLBACK=error|warn|allow "
               "decides what happens; torch.minitorch.fallbacks() lists all such calls.");
  }
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = c10::toString(op.operator_name());
  const size_t arguments = op.schema().arguments().size();
  const auto args = torch::jit::last(*stack, arguments);
  check_devices(name, args);
  check_kind_of_result(op.operator_name());
  const char* dtype = "none";
  for (const c10::IValue& v : args)
    if (v.isTensor() && v.toTensor().defined()) {
      dtype = c10::toString(v.toTensor().scalar_type());
      break;
    }
  require_fallback(name, dtype);
  Crossing crossing;
  const size_t begin = stack->size() - arguments;
  for (size_t i = 0; i < arguments; i++) {
    const c10::AliasInfo* alias = op.schema().arguments()[i].alias_info();
    (*stack)[begin + i] = crossing.to_host((*stack)[begin + i], alias != nullptr && alias->isWrite());
  }
  const auto start = std::chrono::steady_clock::now();
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  crossing.write_back();
  const size_t returns = op.schema().returns().size();
  for (size_t i = stack->size() - returns; i < stack->size(); i++) (*stack)[i] = crossing.to_device((*stack)[i]);
  finish_fallback(name, crossing.bytes, start);
}

// Kernels write dtypes as Python does, native's errors as C++ does.
void report_missing_kernel(const char* kernel, const char*, const char* detail) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); i++)
    if (std::strcmp(name_of(static_cast<DType>(i)), detail) == 0)
      throw NoKernel(kernel, static_cast<at::ScalarType>(i));
  throw NoKernel(kernel, std::string(detail));
}

void report_index_fault(const char* what, int64_t index, int64_t size) {
  TORCH_CHECK_INDEX(false, what, ": index ", index, " is out of bounds for dimension with size ", size,
                    " (found by the device; the call that passed it was made before this one)");
}

void report_out_of_memory(const std::string& text) { TORCH_CHECK_WITH(OutOfMemoryError, false, text); }

const bool installed =
    (set_missing_kernel_handler(&report_missing_kernel), set_index_fault_handler(&report_index_fault),
     set_out_of_memory_handler(&report_out_of_memory), true);

}  // namespace

void fall_back(const char* name, const at::Tensor& tensor, const std::function<void()>& native) {
  require_fallback(name, c10::toString(tensor.scalar_type()));
  const auto start = std::chrono::steady_clock::now();
  native();
  finish_fallback(name, static_cast<int64_t>(tensor.nbytes()), start);
}

void refuse_kind(const c10::OperatorName& op, const char* kind) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "minitorch has no ", kind, ", which '", c10::toString(op),
                              "' makes or takes. Keep them on the CPU: call .cpu() before this operator.");
}

FallbackPolicy fallback_policy() { return policy(); }
void set_fallback_policy(FallbackPolicy value) { policy() = value; }

std::vector<FallbackRecord> fallback_records() {
  const std::lock_guard lock(mutex);
  std::vector<FallbackRecord> list;
  for (const auto& [name, r] : records) list.push_back(r);
  return list;
}

void clear_fallback_records() {
  const std::lock_guard lock(mutex);
  records.clear();
}

void set_call_site_provider(std::string (*provider)()) { call_site_provider = provider; }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace minitorch
