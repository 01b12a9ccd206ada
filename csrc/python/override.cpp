// Operators that Python replaces while other threads call them.
//
// PyTorch's tables of kernels are read without a lock, so a kernel must not come and go under callers. Here an operator
// is changed once: a trampoline takes its place, and what it leads to is an atomic flag. Set, the call goes to a
// shadow: an operator of the same schema whose kernel is a Python function, registered once and never changed. Not set,
// it goes to the kernel that was there before.
//
// The trampoline has no state of its own, and neither have the kernels that it replaces (they are functions known when
// compiled). So a thread that reads an entry of the table while the trampoline is put there may see parts of both, and
// calls one of them all the same.
#include <ATen/core/dispatch/Dispatcher.h>
#include <pybind11/stl.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "python/bindings.h"
#include "python/quiet.h"

namespace minitorch {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;

struct Hook;
using Hooks = std::unordered_map<const c10::FunctionSchema*, Hook*>;

// The hooks of one dispatch key. Readers take the table as it is; a new hook makes a new table, and old ones stay:
// there are as many as operators were ever replaced.
template <DispatchKey key>
std::atomic<const Hooks*> hooks{new Hooks};

// One operator under one key. Lives as long as the process: a call may be inside at any time.
struct Hook {
  Hook(const OperatorHandle& target, const OperatorHandle& shadow, DispatchKey key)
      : target(target), shadow(shadow), key(key), original(target.getComputedKernelForDispatchKey(key)) {}

  OperatorHandle target, shadow;
  DispatchKey key;
  c10::SafeKernelFunction original;
  std::atomic<bool> active{false};
  std::unique_ptr<torch::Library> registration;
};

template <DispatchKey key>
void trampoline(const OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  const Hook& hook = *hooks<key>.load(std::memory_order_acquire)->at(&op.schema());
  if (hook.active.load(std::memory_order_acquire))
    hook.shadow.redispatchBoxed(keys, stack);
  else
    hook.original.callBoxed(op, keys, stack);
}

struct Level {
  DispatchKey key;
  std::atomic<const Hooks*>* table;
  torch::CppFunction (*make)();
};

template <DispatchKey key>
constexpr Level level() {
  return {key, &hooks<key>, [] { return torch::CppFunction::makeFromBoxedFunction<&trampoline<key>>(); }};
}

const Level& find_level(DispatchKey key) {
  static const Level known[] = {level<DispatchKey::PrivateUse1>(), level<DispatchKey::AutogradPrivateUse1>()};
  for (const Level& found : known)
    if (found.key == key) return found;
  TORCH_CHECK(false, "operators are not replaced under the key ", c10::toString(key));
}

OperatorHandle find_operator(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(), overload.c_str());
}

std::mutex changing;

Hook* make_hook(const std::string& name, const std::string& shadow, const std::string& key) {
  const Level& at = find_level(c10::parseDispatchKey(key));
  auto* hook = new Hook(find_operator(name), find_operator(shadow), at.key);
  const std::lock_guard lock(changing);
  const Hooks* known = at.table->load();
  TORCH_CHECK(known->count(&hook->target.schema()) == 0, name, " has a hook under this key already");
  auto more = std::make_unique<Hooks>(*known);
  more->emplace(&hook->target.schema(), hook);
  at.table->store(more.release(), std::memory_order_release);
  return hook;
}

void put_in(Hook& hook) {
  const std::lock_guard lock(changing);
  if (hook.registration) return;
  const c10::OperatorName& name = hook.target.operator_name();
  const size_t colons = name.name.find("::");
  auto library =
      std::make_unique<torch::Library>(torch::Library::IMPL, name.name.substr(0, colons), hook.key, __FILE__, __LINE__);
  const Quiet quiet;
  const std::string form = name.name.substr(colons + 2) + (name.overload_name.empty() ? "" : "." + name.overload_name);
  library->impl(form.c_str(), find_level(hook.key).make());
  hook.registration = std::move(library);
}

void take_out(Hook& hook) {
  const std::lock_guard lock(changing);
  hook.registration.reset();
}

}  // namespace

void bind_override(py::module& m) {
  py::class_<Hook, std::unique_ptr<Hook, py::nodelete>>(m, "OperatorHook")
      .def(py::init(&make_hook), py::arg("name"), py::arg("shadow"), py::arg("key"))
      .def_property(
          "active", [](const Hook& hook) { return hook.active.load(); },
          [](Hook& hook, bool active) { hook.active.store(active, std::memory_order_release); })
      .def("put_in", &put_in, py::call_guard<py::gil_scoped_release>())
      .def("take_out", &take_out, py::call_guard<py::gil_scoped_release>());
}

}  // namespace minitorch
