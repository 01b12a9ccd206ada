// PyTorch's own functions as operators of ours. Unlike structured kernels they go to their iterator with whatever
// tensors they were given, and an iterator cannot tell whether the storage behind a pointer is large enough.
#pragma once
#include <torch/library.h>

#include <utility>

#include "bridge/tensor.h"

namespace minitorch {

template <auto function>
struct Checked;
template <class R, class... Args, R (*function)(Args...)>
struct Checked<function> {
  static R call(Args... args) {
    AllocationCheck inputs;
    (inputs.see(args), ...);
    return function(std::forward<Args>(args)...);
  }
};

template <auto function>
auto checked() {
  return TORCH_FN(Checked<function>::call);
}

}  // namespace minitorch

// In place of TORCH_FN: the function, which may be a cast to one of several of a name, runs when every tensor among its
// arguments passes check_allocated.
#define MT_CHECKED(...) ::minitorch::checked<__VA_ARGS__>()
