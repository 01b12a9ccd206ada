// What the bindings of linear algebra share.
#pragma once
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>

#include "bridge/structured.h"
#include "kernels/linalg.h"

namespace minitorch {

inline MatrixOp matrix_op(at::native::TransposeType type) {
  switch (type) {
    case at::native::TransposeType::Transpose: return MatrixOp::transpose;
    case at::native::TransposeType::ConjTranspose: return MatrixOp::adjoint;
    default: return MatrixOp::none;
  }
}

// Native's error for dtypes without factorisations.
inline void check_dtype(const char* name, const at::Tensor& t) {
  const auto dtype = t.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kComplexFloat || dtype == at::kComplexDouble, '"',
      name, "\" not implemented for '", dtype, "'");
}

// An input for a kernel, its lazy conjugation and negation done.
inline at::Tensor resolved(const at::Tensor& t) { return t.resolve_conj().resolve_neg(); }

// The matrices of `t` with its batch dimensions expanded to those of `like`, of which the last `trailing` are no batch.
inline at::Tensor with_batch_of(const at::Tensor& t, int64_t t_trailing, const at::Tensor& like, int64_t trailing) {
  at::DimVector sizes(like.sizes().slice(0, like.dim() - trailing));
  const auto own = t.sizes().slice(t.dim() - t_trailing);
  sizes.append(own.begin(), own.end());
  return t.expand(sizes);
}

}  // namespace minitorch
