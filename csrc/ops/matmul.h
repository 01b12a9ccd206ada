// Matrix products for other operators.
#pragma once
#include <ATen/core/Tensor.h>

namespace minitorch {

// out = alpha * a @ b + beta * d for matrices, or batches of them (3-D, all three). `d` is broadcast to `out` and may
// be `out` itself or undefined. dtypes must be equal. Any layout, lazy conjugation and overlap of out with a or b are
// fine.
void matrix_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& d,
                    const at::Scalar& alpha, const at::Scalar& beta);

// input (..., in) @ weight (out, in)^T + bias (out), the bias being added as results are stored. Shapes and dtypes are
// checked as native linear checks them.
at::Tensor linear_forward(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

}  // namespace minitorch
