// PyTorch's own functions as operators of ours. Unlike structured kernels they go to their iterator with whatever
// tensors they were given, and an iterator cannot tell whether the storage behind a pointer is large enough.
#pragma once
#include <torch/library.h>

#include <type_traits>
#include <utility>

#include "bridge/tensor.h"

namespace minitorch {

template <auto function>
struct Checked;
template <class R, class... Args, R (*function)(Args...)>
struct Checked<function> {
  static R call(Args... args) {
    AllocationCheck inputs;
    const auto see = [&]<class T>(const T& arg) {
      if constexpr (std::is_same_v<T, c10::List<std::optional<at::Tensor>>>) {
        inputs.see(at::IOptTensorListRef(arg));
      } else if constexpr (std::is_same_v<T, at::TensorList>) {
        inputs.see(at::ITensorListRef(arg));
      } else {
        inputs.see(arg);
      }
    };
    (see(args), ...);
    return function(std::forward<Args>(args)...);
  }
};

}  // namespace minitorch

// In place of TORCH_FN: `function` runs when every tensor among its arguments passes check_allocated.
#define MT_CHECKED(function) TORCH_FN(::minitorch::Checked<&function>::call)
