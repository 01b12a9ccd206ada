// Argument checks and pointers shared by the normalisation operators.
#pragma once
#include <ATen/ATen.h>
#include <ATen/native/cpu/mixed_data_type.h>

#include <limits>

#include "bridge/tensor.h"

namespace minitorch {

inline at::Tensor value_or_undefined(const std::optional<at::Tensor>& t) { return t.has_value() ? *t : at::Tensor(); }
inline at::Tensor contiguous_or_undefined(const at::Tensor& t) { return t.defined() ? t.contiguous() : t; }
inline const void* input_ptr(const at::Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }
inline void* output_ptr(const at::Tensor& t) { return t.defined() ? t.mutable_data_ptr() : nullptr; }

// `kernel` is the name native's dispatch macro reports.
inline void check_floating(const char* kernel, const at::Tensor& t) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(t.scalar_type()) && size_of(static_cast<DType>(t.scalar_type())) != 0,
                              '"', kernel, "\" not implemented for '", c10::toString(t.scalar_type()), "'");
}

// What rms_norm adds where no eps is given.
inline double rms_norm_eps(at::ScalarType compute) {
  return compute == at::kDouble ? std::numeric_limits<double>::epsilon()
                                : static_cast<double>(std::numeric_limits<float>::epsilon());
}

// The dtype of parameters and statistics: the input's, or float when a 16-bit input has float parameters. The first
// defined parameter decides, and the others must agree.
template <class... Params>
at::ScalarType param_dtype(const at::Tensor& input, const Params&... params) {
  const bool mixed = at::native::is_mixed_type(input, params...);
  if (mixed) at::native::check_mixed_data_type(input, params...);
  const at::ScalarType expected = at::native::param_scalar_type(input, mixed);
  for (const at::Tensor* p : {&params...})
    TORCH_CHECK(!p->defined() || p->scalar_type() == expected, "expected scalar type ", expected, " but found ",
                p->scalar_type());
  return expected;
}

}  // namespace minitorch
