// Tables of operators. PyTorch's code generator puts a device guard around every kernel of its own devices; so does
//
//   MT_OPERATORS(aten, PrivateUse1, m) {
//     m.impl("exp", TORCH_FN(exp));
//   }
//
// around ours: a function of the table runs with the device of its first tensor as the current one, on whose stream
// kernels are launched and whose memory is allocated. Errors about missing kernels learn the operator's name there.
#pragma once
#include <torch/library.h>

#include <type_traits>
#include <utility>

#include "bridge/refusal.h"
#include "bridge/tensor.h"
#include "runtime/backend.h"

namespace minitorch {

inline bool several_devices() {
  static const bool several = backend().device_count() > 1;
  return several;
}

// The guard. With one device it costs a comparison.
class OperatorGuard {
 public:
  template <class... Args>
  explicit OperatorGuard(const Args&... args) {
    if (C10_LIKELY(!several_devices())) return;
    FirstDevice first;
    (first.see(args), ...);
    if (first.device >= 0) enter(first.device);
  }
  ~OperatorGuard() {
    if (C10_UNLIKELY(previous_ >= 0)) leave();
  }
  OperatorGuard(const OperatorGuard&) = delete;

 private:
  struct FirstDevice : ArgumentVisitor<FirstDevice> {
    int device = -1;
    void see_tensor(const at::Tensor& t) {
      if (device < 0 && t.defined() && t.device().type() == kDevice) device = t.device().index();
    }
  };
  void enter(int device);
  void leave() const noexcept;

  int previous_ = -1;  // the device to go back to
};

// Refuses tensors of a dtype that native refuses to an operator that moves elements.
class RareCheck : public ArgumentVisitor<RareCheck> {
 public:
  void see_tensor(const at::Tensor& t) {
    if (t.defined() && is_rare_or_float8(t.scalar_type())) found_ = t.scalar_type();
  }
  template <class... Args>
  static void run(const char* name, const Args&... args) {
    RareCheck check;
    (check.see(args), ...);
    if (C10_UNLIKELY(check.found_ != c10::ScalarType::Undefined)) refuse_as_native(name, check.found_);
  }

 private:
  c10::ScalarType found_ = c10::ScalarType::Undefined;
};

// torch::Library, whose functions are guarded.
class Operators {
 public:
  explicit Operators(torch::Library& library) : library_(library) {}

  template <class F>
  void impl(const char* name, F f) const {
    if constexpr (std::is_function_v<std::remove_pointer_t<F>>) {
      library_.impl(name, guarded(f, name_for_errors(name)));
    } else if constexpr (requires { typename Guarded<F>::Pointer; }) {
      if (Guarded<F>::name == nullptr) {
        Guarded<F>::name = name_for_errors(name);
        Guarded<F>::moves = moves_elements(Guarded<F>::name);
      }
      library_.impl(name, typename Guarded<F>::Pointer());
    } else {
      library_.impl(name, std::move(f));
    }
  }
  operator torch::Library&() const { return library_; }

 private:
  template <class F>
  struct Guarded;
  template <class R, class... Args, R (*f)(Args...)>
  struct Guarded<c10::CompileTimeFunctionPointer<R(Args...), f>> {
    static inline const char* name = nullptr;  // of a function that several operators have, the first one's
    static inline bool moves = false;
    static R call(Args... args) {
      const OperatorGuard guard(args...);
      try {
        if (moves) RareCheck::run(name, args...);
        return f(std::forward<Args>(args)...);
      } catch (const NoKernel& missing) {
        refuse(name, missing);
      }
    }
    using Pointer = c10::CompileTimeFunctionPointer<R(Args...), &call>;
  };
  template <class R, class... Args>
  static auto guarded(R (*f)(Args...), const char* name) {
    return [f, name, moves = moves_elements(name)](Args... args) -> R {
      const OperatorGuard guard(args...);
      try {
        if (moves) RareCheck::run(name, args...);
        return f(std::forward<Args>(args)...);
      } catch (const NoKernel& missing) {
        refuse(name, missing);
      }
    };
  }

  torch::Library& library_;
};

#define MT_OPERATORS(ns, key, m)                                                            \
  static void C10_CONCATENATE(operators_of_line_, __LINE__)(const ::minitorch::Operators&); \
  TORCH_LIBRARY_IMPL(ns, key, library) {                                                    \
    C10_CONCATENATE(operators_of_line_, __LINE__)(::minitorch::Operators(library));         \
  }                                                                                         \
  static void C10_CONCATENATE(operators_of_line_, __LINE__)(const ::minitorch::Operators& m)

}  // namespace minitorch
