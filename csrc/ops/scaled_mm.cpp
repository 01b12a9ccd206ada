// Products of float8 matrices that carry scales, one for a matrix or one for each row of the first and each column of
// the second. As on native CPU the scaled matrices are multiplied in float. Checks come in native's order and words.
#include <ATen/BlasBackend.h>
#include <ATen/native/Resize.h>

#include "bridge/checked.h"
#include "bridge/operators.h"

namespace minitorch {
namespace {

using at::IntArrayRef;
using at::Tensor;
using at::TensorList;
using at::blas::ScalingType;
using at::blas::SwizzleType;
using OptionalDtype = std::optional<at::ScalarType>;
using OptionalTensor = std::optional<Tensor>;

std::string described(const char* name, const OptionalTensor& scale, bool last) {
  if (!scale) return c10::str(name, "=None");
  return c10::str(name, ".dtype()=", scale->scalar_type(), ", ", name, ".size()=", scale->sizes(),
                  last ? " and " : ", ", name, ".stride()=", scale->strides());
}

[[noreturn]] void fail_scaling(const Tensor& a, const Tensor& b, const OptionalTensor& scale_a,
                               const OptionalTensor& scale_b) {
  C10_THROW_ERROR(
      ValueError,
      c10::str("Invalid scaling configuration.\n"
               "- For TensorWise scaling, a and b should be float8, scales should be float and singletons.\n"
               "- For RowWise scaling, a and b should be float8, scales should be float, scale_a should be (",
               a.size(0), ", 1) and scale_b should be (1, ", b.size(1), "), and both should be contiguous.\n",
               "Got mat_a.dtype()=", a.scalar_type(), ", ", described("scale_a", scale_a, false),
               ", mat_b.dtype()=", b.scalar_type(), scale_b ? ", " : " and ", described("scale_b", scale_b, true)));
}

bool is_float8_with_float(const Tensor& matrix, const Tensor& scale) {
  return at::isFloat8Type(matrix.scalar_type()) && scale.scalar_type() == at::kFloat;
}
bool scales_all(const Tensor& matrix, const Tensor& scale) {
  return is_float8_with_float(matrix, scale) && scale.numel() == 1;
}
bool scales_rows(const Tensor& matrix, const Tensor& scale) {
  return is_float8_with_float(matrix, scale) && scale.dim() == 2 && scale.size(0) == matrix.size(0) &&
         scale.size(1) == 1 && scale.is_contiguous();
}

// What the scales' shapes say.
ScalingType scaling_of(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b) {
  if (scales_all(a, scale_a) && scales_all(b.t(), scale_b.t())) return ScalingType::TensorWise;
  if (scales_rows(a, scale_a) && scales_rows(b.t(), scale_b.t())) return ScalingType::RowWise;
  fail_scaling(a, b, scale_a, scale_b);
}

void check_scales(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, ScalingType scaling) {
  if (scaling == ScalingType::TensorWise) {
    TORCH_CHECK_VALUE(scale_a.numel() == 1, "scale_a must have 1 Float element");
    TORCH_CHECK_VALUE(scale_b.numel() == 1, "scale_b must have 1 Float element");
    return;
  }
  TORCH_CHECK_VALUE(scale_a.size(0) == a.size(0) && scale_a.size(1) == 1, "scale_a must have shape [", a.size(0),
                    ", 1], got [", scale_a.sizes(), "]");
  TORCH_CHECK_VALUE(scale_a.numel() == a.size(0), "scale_a must have ", a.size(0), " Float elements, got ",
                    scale_a.numel());
  TORCH_CHECK_VALUE(scale_b.numel() == b.size(1), "scale_b must have ", b.size(1), " Float elements, got ",
                    scale_b.numel());
  TORCH_CHECK_VALUE(scale_a.stride(1) == 1, "expected scale_a.stride(1) to be 1, but got ", scale_a.stride(1));
  TORCH_CHECK_VALUE(scale_b.stride(1) == 1, "expected scale_b.stride(1) to be 1, but got ", scale_b.stride(1));
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
              const OptionalTensor& bias, const OptionalTensor& scale_result, OptionalDtype out_dtype,
              ScalingType scaling, Tensor& out) {
  TORCH_CHECK(a.dim() == 2, "mat1 must be a matrix");
  TORCH_CHECK(b.dim() == 2, "mat2 must be a matrix");
  TORCH_CHECK(a.size(1) == b.size(0), "mat_a and mat_b shapes cannot be multiplied (", a.size(0), "x", a.size(1),
              " and ", b.size(0), "x", b.size(1), ")");
  check_scales(a, b, scale_a, scale_b, scaling);
  TORCH_CHECK(!scale_result || (scale_result->numel() == 1 && scale_result->scalar_type() == at::kFloat),
              "scale_result must be a float scalar");
  TORCH_CHECK(!bias || bias->numel() == b.size(1), "Bias must be size ", b.size(1), " but got ", bias->numel());
  at::native::resize_output(out, {a.size(0), b.size(1)});

  const auto scaled = [&](const Tensor& matrix, const Tensor& scale) {
    return at::mul(matrix.to(at::kFloat), scaling == ScalingType::TensorWise ? scale.reshape({}) : scale);
  };
  Tensor product = at::matmul(scaled(a, scale_a), scaled(b, scale_b));
  if (bias) product.add_(*bias);
  if (scale_result && (out_dtype == at::kFloat8_e4m3fn || out_dtype == at::kFloat8_e5m2))
    product = at::mul(product, scale_result->reshape({}).reciprocal());
  out.copy_(product.to(out.scalar_type()));
}

Tensor& scaled_mm_out(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                      const OptionalTensor& bias, const OptionalTensor& scale_result, OptionalDtype out_dtype,
                      bool /*use_fast_accum*/, Tensor& out) {
  check_same_device({&a, &b, &scale_a, &scale_b, &out});
  TORCH_CHECK_VALUE(!out_dtype || *out_dtype == out.scalar_type(), "out_dtype must match output matrix type");
  const ScalingType scaling = scaling_of(a, b, scale_a, scale_b);
  multiply(a, b, scale_a, scale_b, bias, scale_result, out_dtype, scaling, out);
  return out;
}

Tensor scaled_mm(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                 const OptionalTensor& bias, const OptionalTensor& scale_result, OptionalDtype out_dtype, bool fast) {
  Tensor out = at::empty({0}, a.options().dtype(out_dtype.value_or(a.scalar_type())));
  return scaled_mm_out(a, b, scale_a, scale_b, bias, scale_result, out_dtype, fast, out);
}

// What the recipes say; the scales' shapes are checked against it later.
ScalingType scaling_of(const Tensor& a, const Tensor& b, TensorList scales_a, IntArrayRef recipes_a,
                       TensorList scales_b, IntArrayRef recipes_b) {
  const bool single = scales_a.size() == 1 && recipes_a.size() == 1 && scales_b.size() == 1 && recipes_b.size() == 1;
  if (single && recipes_a[0] == recipes_b[0] && is_float8_with_float(a, scales_a[0]) &&
      is_float8_with_float(b, scales_b[0])) {
    const auto recipe = static_cast<ScalingType>(recipes_a[0]);
    if (recipe == ScalingType::TensorWise || recipe == ScalingType::RowWise) return recipe;
  }
  const auto first = [](TensorList scales) { return scales.empty() ? OptionalTensor() : OptionalTensor(scales[0]); };
  fail_scaling(a, b, first(scales_a), first(scales_b));
}

void check_sizes(const Tensor& a, const Tensor& b, IntArrayRef contracted) {
  const auto sizes = [&] {
    return c10::str("mat_a and mat_b shapes cannot be multiplied (", a.size(0), "x", a.size(1), " and ", b.size(0), "x",
                    b.size(1), ")");
  };
  if (contracted.empty()) {
    TORCH_CHECK_VALUE(a.size(1) == b.size(0), sizes());
    return;
  }
  TORCH_CHECK_VALUE(contracted.size() == 2, "contraction_dim must have exactly 2 elements");
  TORCH_CHECK_VALUE(a.size(contracted[0]) == b.size(contracted[1]), sizes(),
                    " with contraction dims mat_a: ", contracted[0], ", mat_b: ", contracted[1]);
}

void check_bias_size(const OptionalTensor& bias, int64_t columns) {
  TORCH_CHECK_VALUE(!bias || bias->numel() == columns, "Bias must be size ", columns, " but got ", bias->numel());
}
void check_bias_dtype(const OptionalTensor& bias) {
  if (!bias) return;
  const at::ScalarType type = bias->scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf,
                    "Bias must be Float32 or BFloat16 or Half, but got ", type);
}

Tensor& scaled_mm_v2_out(const Tensor& a, const Tensor& b, TensorList scales_a, IntArrayRef recipes_a,
                         IntArrayRef swizzles_a, TensorList scales_b, IntArrayRef recipes_b, IntArrayRef swizzles_b,
                         const OptionalTensor& bias, OptionalDtype out_dtype, IntArrayRef contracted,
                         bool /*use_fast_accum*/, Tensor& out) {
  check_same_device({&a, &b, &out});
  TORCH_CHECK_VALUE(a.dim() == 2, "mat_a must be a matrix");
  TORCH_CHECK_VALUE(b.dim() == 2, "mat_b must be a matrix");
  if (a.numel() == 0 || b.size(1) == 0) {
    at::native::resize_output(out, {a.size(0), b.size(1)});
    if (a.size(1) == 0) out.zero_();
    return out;
  }
  check_sizes(a, b, contracted);
  check_bias_size(bias, b.size(1));
  TORCH_CHECK_VALUE(!out_dtype || *out_dtype == out.scalar_type(), "out_dtype must match output matrix type");
  check_bias_dtype(bias);
  const auto plain = [](int64_t swizzle) { return static_cast<SwizzleType>(swizzle) == SwizzleType::NO_SWIZZLE; };
  if (!swizzles_a.empty() && !swizzles_b.empty())
    TORCH_CHECK_VALUE(plain(swizzles_a[0]) && plain(swizzles_b[0]), "CPU does not support swizzle.");
  const ScalingType scaling = scaling_of(a, b, scales_a, recipes_a, scales_b, recipes_b);
  check_same_device({&a, &scales_a[0], &scales_b[0]});
  at::native::resize_output(out, {a.size(0), b.size(1)});
  multiply(a, b, scales_a[0], scales_b[0], bias, std::nullopt, out_dtype, scaling, out);
  return out;
}

Tensor scaled_mm_v2(const Tensor& a, const Tensor& b, TensorList scales_a, IntArrayRef recipes_a,
                    IntArrayRef swizzles_a, TensorList scales_b, IntArrayRef recipes_b, IntArrayRef swizzles_b,
                    const OptionalTensor& bias, OptionalDtype out_dtype, IntArrayRef contracted, bool fast) {
  Tensor out = at::empty({0}, a.options().dtype(out_dtype.value_or(a.scalar_type())));
  return scaled_mm_v2_out(a, b, scales_a, recipes_a, swizzles_a, scales_b, recipes_b, swizzles_b, bias, out_dtype,
                          contracted, fast, out);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_scaled_mm", MT_CHECKED(scaled_mm));
  m.impl("_scaled_mm.out", MT_CHECKED(scaled_mm_out));
  m.impl("_scaled_mm_v2", MT_CHECKED(scaled_mm_v2));
  m.impl("_scaled_mm_v2.out", MT_CHECKED(scaled_mm_v2_out));
}

}  // namespace
}  // namespace minitorch
