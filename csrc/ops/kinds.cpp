// Kinds of tensors that the device does not have, each a dispatch key of its own: quantized ones and those in
// compressed sparse layouts.
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/_nnz_native.h>
#include <torch/library.h>

#include "bridge/fallback.h"
#include "bridge/operators.h"

namespace minitorch {
namespace {

constexpr char kQuantized[] = "quantized tensors";

template <const char* kind>
void refuse_call(const c10::OperatorHandle& op, torch::jit::Stack*) {
  refuse_kind(op.operator_name(), kind);
}

#define MT_REFUSE(key, kind) \
  TORCH_LIBRARY_IMPL(_, key, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_call<kind>>()); }
MT_REFUSE(QuantizedPrivateUse1, kQuantized)
MT_REFUSE(SparseCsrPrivateUse1, kCompressedSparse)
#undef MT_REFUSE

// PyTorch makes compressed sparse tensors from their parts without asking the device. They can be looked at and taken
// apart.
MT_OPERATORS(aten, SparseCsrPrivateUse1, m) {
  m.impl("_nnz", TORCH_FN(at::native::_nnz_sparse_csr));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse_csr));
  m.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse_csr));
  m.impl("values", TORCH_FN(at::native::values_sparse_csr));
  m.impl("crow_indices", TORCH_FN(at::native::crow_indices_sparse_csr));
  m.impl("col_indices", TORCH_FN(at::native::col_indices_sparse_csr));
  m.impl("ccol_indices", TORCH_FN(at::native::ccol_indices_sparse_csr));
  m.impl("row_indices", TORCH_FN(at::native::row_indices_sparse_csr));
}

}  // namespace
}  // namespace minitorch
