// Operators that native has kernels for and that are a few calls of ours: products of integers, sums with a ReLU, row
// pointers of sparse matrices, the two layouts of a batch of sequences.
#include <ATen/ATen.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr_meta.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo_meta.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "bridge/tensor.h"

namespace minitorch {
namespace {

using at::Scalar;
using at::Tensor;

// max(self + alpha other, 0)
Tensor& add_relu_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  at::add_out(out, self, other, alpha);
  return out.clamp_min_(0);
}
Tensor add_relu(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  return at::add(self, other, alpha).clamp_min_(0);
}
Tensor& add_relu_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  return add_relu_out(self, other, alpha, self);
}
Tensor add_relu_scalar(const Tensor& self, const Scalar& other, const Scalar& alpha) {
  return at::add(self, other, alpha).clamp_min_(0);
}
Tensor& add_relu_scalar_(Tensor& self, const Scalar& other, const Scalar& alpha) {
  return self.add_(other, alpha).clamp_min_(0);
}

// A matrix of int8 or uint8 by one of int8, the product in int32. Checks in native's order and with its words.
Tensor& int_mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  constexpr auto name = "int_mm_out_cpu: ";
  check_same_device({&self, &mat2, &out});
  TORCH_CHECK(self.dim() == 2, name, "Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, name, "Expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(self.size(1) == mat2.size(0), name, "self.size(1) needs to match mat2.size(0) but got ", self.size(1),
              " and ", mat2.size(0));
  TORCH_CHECK(self.scalar_type() == at::kChar || self.scalar_type() == at::kByte, name,
              "Expected self dtype to be int8 or uint8 but got ", self.dtype());
  TORCH_CHECK(mat2.scalar_type() == at::kChar, name, "Expected mat2 dtype to be of type int8 but got ", mat2.dtype());
  TORCH_CHECK(out.scalar_type() == at::kInt, name, "Expected result dtype to be of type kInt but got ", out.dtype());
  TORCH_CHECK(out.size(0) == self.size(0), name, "Expected result.size(0) to be ", self.size(0), " but got ",
              out.size(0));
  TORCH_CHECK(out.size(1) == mat2.size(1), name, "Expected result.size(1) to be ", mat2.size(1), " but got ",
              out.size(1));
  TORCH_CHECK(out.dim() == 2, name, "Expected result to be of dimension 2 but got ", out.dim());
  TORCH_CHECK(out.is_contiguous(), name, "Expected result to be contiguous.");
  return at::mm_out(out, self.to(at::kInt), mat2.to(at::kInt));
}
Tensor int_mm(const Tensor& self, const Tensor& mat2) {
  Tensor out = at::empty({self.size(0), mat2.size(1)}, self.options().dtype(at::kInt));
  return int_mm_out(self, mat2, out);
}

// Sorted row numbers to the place where each row begins: how many row numbers are smaller.
struct CooToCsr : at::meta::structured__convert_indices_from_coo_to_csr {
  void impl(const Tensor& rows, int64_t size, bool out_int32, const Tensor& out) {
    const Tensor numbers = at::arange(size + 1, rows.options());
    out.copy_(at::searchsorted(rows, numbers, out_int32));
  }
};
// The reverse: the row of the k-th element is the last one that begins at k or before.
struct CsrToCoo : at::meta::structured__convert_indices_from_csr_to_coo {
  void impl(const Tensor& crow, const Tensor& col, bool out_int32, bool transpose, const Tensor& out) {
    if (out.numel() == 0) return;
    TORCH_CHECK(crow.dim() == 1 && col.dim() == 1,
                "minitorch has 'aten::_convert_indices_from_csr_to_coo' for one matrix, not for a batch of them");
    const Tensor places = at::arange(col.numel(), crow.options());
    const Tensor rows = at::searchsorted(crow, places, out_int32, /*right=*/true).sub_(1);
    out[transpose ? 1 : 0].copy_(rows);
    out[transpose ? 0 : 1].copy_(col);
  }
};

// out[i] += sum_j coefficients[i, j] input[j]
Tensor& linear_combination_out(const Tensor& input, const Tensor& coefficients, Tensor& out) {
  check_same_device({&input, &coefficients, &out});
  TORCH_CHECK(input.dim() >= 1 && coefficients.dim() == 2 && coefficients.size(1) == input.size(0),
              "Expected coefficients of shape [n, ", input.dim() ? input.size(0) : 0, "], got ", coefficients.sizes());
  return out.add_(at::tensordot(coefficients, input, {1}, {0}));
}
Tensor linear_combination(const Tensor& input, const Tensor& coefficients) {
  TORCH_CHECK(input.dim() >= 1 && coefficients.dim() == 2, "Expected a tensor with dimensions and a matrix");
  auto sizes = input.sizes().vec();
  sizes[0] = coefficients.size(0);
  Tensor out = at::zeros(sizes, input.options());
  return linear_combination_out(input, coefficients, out);
}

Tensor functional_assert_async(const Tensor& self, std::string_view message, const Tensor& dep_token) {
  at::_assert_async(self, message);
  return dep_token.clone();
}
Tensor make_dep_token(std::optional<at::ScalarType>, std::optional<at::Layout>, std::optional<at::Device>,
                      std::optional<bool>, std::optional<at::MemoryFormat>) {
  return empty({}, at::kFloat);
}

// The matrix of weights is int8, with one scale a row.
Tensor int8_mm(const Tensor& self, const Tensor& weight, const Tensor& scales) {
  check_same_device({&self, &weight, &scales});
  TORCH_CHECK(self.dim() == 2 && self.is_contiguous() && at::isFloatingType(self.scalar_type()),
              "_weight_int8pack_mm : expect A to be a contiguous 2D tensor of floating type.");
  TORCH_CHECK(weight.scalar_type() == at::kChar && weight.is_contiguous() && weight.dim() == 2 &&
                  weight.size(1) == self.size(1),
              "_weight_int8pack_mm : expect B to be a contiguous int8 tensor of shape [n, ", self.size(1), "].");
  TORCH_CHECK(scales.dim() == 1 && scales.size(0) == weight.size(0),
              "_weight_int8pack_mm : expect scales to be 1d tensor with size ", weight.size(0));
  const Tensor product = at::mm(self.to(at::kFloat), weight.to(at::kFloat).t());
  return product.mul_(scales.to(at::kFloat)).to(self.scalar_type());
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_add_relu.Tensor", MT_CHECKED(add_relu));
  m.impl("_add_relu_.Tensor", MT_CHECKED(add_relu_));
  m.impl("_add_relu.out", MT_CHECKED(add_relu_out));
  m.impl("_add_relu.Scalar", MT_CHECKED(add_relu_scalar));
  m.impl("_add_relu_.Scalar", MT_CHECKED(add_relu_scalar_));
  m.impl("_int_mm", MT_CHECKED(int_mm));
  m.impl("_int_mm.out", MT_CHECKED(int_mm_out));
  structured<CooToCsr>(m, "_convert_indices_from_coo_to_csr", nullptr, "_convert_indices_from_coo_to_csr.out");
  structured<CsrToCoo>(m, "_convert_indices_from_csr_to_coo", nullptr, "_convert_indices_from_csr_to_coo.out");
  m.impl("_compute_linear_combination", MT_CHECKED(linear_combination));
  m.impl("_compute_linear_combination.out", MT_CHECKED(linear_combination_out));
  m.impl("_functional_assert_async.msg", MT_CHECKED(functional_assert_async));
  m.impl("_make_dep_token", TORCH_FN(make_dep_token));
  m.impl("_weight_int8pack_mm", MT_CHECKED(int8_mm));
}

}  // namespace
}  // namespace minitorch
