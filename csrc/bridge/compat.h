// Differences between the PyTorch versions we build against (2.11 to 2.14), all in this file.
#pragma once
#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>
#include <torch/headeronly/version.h>

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11 && TORCH_VERSION_MINOR <= 14,
              "minitorch supports torch 2.11 to 2.14");

// Structured metas hand dimension names to set_output_* up to 2.12.
#if TORCH_VERSION_MINOR <= 12
#define MT_NAMES_PARAM , at::DimnameList names
#define MT_NAMES_ARG , names
#else
#define MT_NAMES_PARAM
#define MT_NAMES_ARG
#endif

namespace minitorch {

// The dtype that TensorIterator's type promotion settled on; Undefined for iterators without promotion. The public
// accessor that does not throw came with 2.13; the protected member behind it is older.
inline at::ScalarType common_dtype_or_undefined(const at::TensorIteratorBase& iter) {
  struct Access : at::TensorIteratorBase {
    using at::TensorIteratorBase::common_dtype_;
  };
  return iter.*(&Access::common_dtype_);
}

}  // namespace minitorch
