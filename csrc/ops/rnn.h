// What the recurrent operators share: operands as contiguous memory, null for those that are absent.
#pragma once
#include "bridge/tensor.h"

namespace minitorch {

inline at::Tensor dense(const std::optional<at::Tensor>& t) {
  return t.has_value() && t->defined() ? t->contiguous() : at::Tensor();
}
inline const char* read(const at::Tensor& t) {
  return t.defined() ? static_cast<const char*>(t.const_data_ptr()) : nullptr;
}
inline char* write(const at::Tensor& t) { return t.defined() ? static_cast<char*>(t.data_ptr()) : nullptr; }

}  // namespace minitorch
