// A Kernel is one entry point with a slot per implementation: one for each CPU instruction set, one for CUDA.
// The process uses exactly one slot (active_slot), chosen when the backend starts. A CPU source file fills the slot of
// the instruction set it was compiled for; the CUDA library fills its own when it is loaded.
#pragma once
#include <cstdint>

#include "core/macros.h"

namespace minitorch {

// In `idle` every kernel does nothing: the benchmark runs operators so to see what they cost without their kernels.
enum class Slot : uint8_t { baseline, avx2, avx512, cuda, idle };
inline constexpr int kSlots = 5;

// The slot every kernel call uses. Settled once, by select_cpu_slot() or by the CUDA library.
extern Slot active_slot;
const char* slot_name(Slot slot);

// Calls the handler that the bridge installed (it throws NotImplementedError); throws std::runtime_error without one.
[[noreturn]] void missing_kernel(const char* kernel, const char* detail = "");
void set_missing_kernel_handler(void (*handler)(const char* kernel, const char* backend, const char* detail));

// A kernel on an asynchronous device met an index outside [0, size) and the device has been waited for since. Calls the
// handler that the bridge installed (it throws IndexError); throws std::out_of_range without one.
[[noreturn]] void index_fault(const char* what, int64_t index, int64_t size);
void set_index_fault_handler(void (*handler)(const char* what, int64_t index, int64_t size));

// Whether what this thread launches was asked for by another, as in a backward pass: the handler that the bridge
// installed says so. Without one no thread does.
bool launches_for_another();
void set_launches_for_another_handler(bool (*handler)());

template <class Signature>
class Kernel;

template <class... Args>
class Kernel<void(Args...)> {
 public:
  using Function = void (*)(Args...);

  constexpr explicit Kernel(const char* name) : name_(name) {}
  Kernel(const Kernel&) = delete;

  MT_INLINE void operator()(Args... args) const {
    const Function f = functions_[static_cast<int>(active_slot)];
    if (MT_UNLIKELY(f == nullptr)) missing_kernel(name_);
    f(static_cast<Args>(args)...);
  }

  const char* name() const { return name_; }
  bool available(Slot slot) const { return functions_[static_cast<int>(slot)] != nullptr; }
  MT_INLINE void set(Slot slot, Function f) { functions_[static_cast<int>(slot)] = f; }

 private:
  static void idle(Args...) {}

  const char* name_;
  Function functions_[kSlots] = {nullptr, nullptr, nullptr, nullptr, &idle};
};

// MT_REGISTER_KERNEL(kernel, function) in a source under kernels/cpu or kernels/cuda: fills the slot of this build.
struct KernelRegistration {
  template <class Signature, class F>
  MT_INLINE KernelRegistration(Kernel<Signature>& kernel, Slot slot, F function) {
    kernel.set(slot, function);
  }
};
#define MT_REGISTER_KERNEL(kernel, function)                                                                         \
  static const ::minitorch::KernelRegistration register_##kernel##_kernel(kernel, ::minitorch::Slot::MINITORCH_ARCH, \
                                                                          function)

}  // namespace minitorch
