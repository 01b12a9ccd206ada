// Matrix products. PyTorch's metas check the structured ones; whatever their layout, one kernel computes them all.
// mv, matmul, linear, einsum, tensordot and outer are PyTorch's composites of these.
#include "bridge/checked.h"
#include "ops/matmul.h"

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/OpMathType.h>
#include <ATen/native/LinearAlgebra.h>
#include <ATen/ops/_addmm_activation_meta.h>
#include <ATen/ops/addbmm_native.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/mm_meta.h>

#include "bridge/operators.h"
#include "bridge/apart.h"
#include "bridge/conversions.h"
#include "bridge/tensor.h"
#include "kernels/gemm.h"
#include "ops/complex_half.h"

namespace minitorch {
namespace {

// Native's errors for dtypes without products, and for scalars that the dtype cannot hold.
void check_dtype(const char* name, at::ScalarType dtype, const at::Scalar& alpha, const at::Scalar& beta) {
  const bool known = at::isFloatingType(dtype) ||
                     (at::isIntegralType(dtype, false) && !at::isBarebonesUnsignedType(dtype)) ||
                     dtype == at::kComplexFloat || dtype == at::kComplexDouble;
  TORCH_CHECK_NOT_IMPLEMENTED(known && !at::isFloat8Type(dtype), '"', name, "\" not implemented for '", dtype, "'");
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND2(at::kHalf, at::kBFloat16, dtype, "matrix product", [&] {
    alpha.to<at::opmath_type<scalar_t>>();
    beta.to<at::opmath_type<scalar_t>>();
  });
}

// A matrix or a batch of them; the conjugate bit is left to the kernel.
MatrixView matrix(const at::Tensor& t) {
  const auto strides = t.strides();
  const size_t dim = strides.size();
  return {static_cast<char*>(const_cast<void*>(t.const_data_ptr())), strides[dim - 2], strides[dim - 1],
          dim == 3 ? strides[0] : 0, t.is_conj()};
}

bool overlaps(const at::Tensor& out, const at::Tensor& in) {
  return out.is_alias_of(in) && at::get_overlap_status(out, in) != at::MemOverlapStatus::No;
}

// What torch.set_float32_matmul_precision("high") allows a GPU.
bool rounding_allowed() {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
             at::Float32Precision::TF32 &&
         !at::NoTF32Guard::should_disable_tf32();
}

at::Tensor without_neg(const at::Tensor& t) { return t.is_neg() ? t.resolve_neg() : t; }

}  // namespace

void matrix_product(const at::Tensor& out, const at::Tensor& a_in, const at::Tensor& b_in, const at::Tensor& d_in,
                    const at::Scalar& alpha, const at::Scalar& beta) {
  at::assert_no_internal_overlap(out);
  if (d_in.defined() && beta.toComplexDouble() != 0.0) at::assert_no_partial_overlap(out, d_in);
  if (out.is_conj() || out.is_neg() || overlaps(out, a_in) || overlaps(out, b_in)) {
    const at::Tensor result = empty(out.sizes(), out.scalar_type());
    matrix_product(result, a_in, b_in, d_in, alpha, beta);
    out.copy_(result);
    return;
  }
  const at::Tensor a = without_neg(a_in), b = without_neg(b_in);
  GemmArgs args;
  args.dtype = to_dtype(out.scalar_type());
  const int64_t dim = out.dim();
  args.batch = dim == 3 ? out.size(0) : 1;
  args.m = out.size(-2), args.n = out.size(-1), args.k = a.size(-1);
  args.a = matrix(a), args.b = matrix(b), args.c = matrix(out);
  args.alpha = to_scalar(alpha), args.beta = to_scalar(beta);
  args.tf32 = args.dtype == DType::F32 && rounding_allowed();
  at::Tensor d;
  if (d_in.defined()) {
    d = without_neg(d_in.is_conj() ? d_in.resolve_conj() : d_in).expand(out.sizes());
    if (!d.is_same(out) && overlaps(out, d) && at::get_overlap_status(out, d) != at::MemOverlapStatus::Full)
      d = d.clone();
    args.d = matrix(d);
  }
  gemm_kernel(args);
}

namespace {

// Whether nothing is summed in a dtype that native has no products for: it then has beta d all the same.
bool is_beta_times_addend(const at::Tensor& out, int64_t summed, const at::Tensor& d, const at::Scalar& beta) {
  const auto type = out.scalar_type();
  const bool zero = !d.defined() || beta.toComplexDouble() == 0.0;
  if (summed != 0 || !(type == at::kBool || is_rare(type) || (zero && at::isFloat8Type(type)))) return false;
  if (zero) {
    out.zero_();
  } else {
    out.copy_(d).mul_(beta);
  }
  return true;
}

// Native first copies the addend to the output, which refuses one whose elements share memory before any dtype is.
void check_copied(const at::Tensor& out, const at::Scalar& beta) {
  if (beta.toComplexDouble() != 0.0) at::assert_no_internal_overlap(out);
}

void product_2d(const char* name, const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& d,
                const at::Scalar& alpha, const at::Scalar& beta) {
  TORCH_CHECK(a.dtype() == b.dtype(), "expected m1 and m2 to have the same dtype, but got: ", a.dtype(),
              " != ", b.dtype());
  if (out.numel() == 0) return;
  if (d.defined()) check_copied(out, beta);
  if (is_beta_times_addend(out, a.size(1), d, beta)) return;
  if (at::isFloat8Type(out.scalar_type()) && out.scalar_type() != at::kFloat8_e8m0fnu) {
    // As native's: summed in float, rounded once.
    const at::Tensor wide_a = a.to(at::kFloat), wide_b = b.to(at::kFloat);
    out.copy_(d.defined() ? at::addmm(d.to(at::kFloat), wide_a, wide_b, beta, alpha) : at::mm(wide_a, wide_b));
    return;
  }
  check_dtype(name, out.scalar_type(), alpha, beta);
  matrix_product(out, a, b, d, alpha, beta);
}

void product_3d(const char* name, const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& d,
                const at::Scalar& alpha, const at::Scalar& beta) {
  if (out.numel() == 0 || is_beta_times_addend(out, a.size(2), d, beta)) return;
  // Native multiplies large matrices by other kernels.
  const auto dtype = out.scalar_type();
  if (a.size(2) * out.size(1) * out.size(2) >= 400)
    name = at::isFloatingType(dtype) || at::isComplexType(dtype) ? "baddbmm_with_gemm" : "addmm_impl_cpu_";
  check_dtype(name, dtype, alpha, beta);
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "expected scalar type ", a.scalar_type(), " but found ",
              b.scalar_type());
  matrix_product(out, a, b, d, alpha, beta);
}

struct Mm : at::meta::structured_mm {
  void impl(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
    product_2d("addmm_impl_cpu_", out, self, mat2, {}, 1, 0);
  }
};

struct Addmm : at::meta::structured_addmm {
  void impl(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
            const at::Scalar& alpha, const at::Tensor& out) {
    const auto addend = at::expand_size(self, {mat1.size(0), mat2.size(1)}, "addmm_out");
    product_2d("addmm_impl_cpu_", out, mat1, mat2, *addend, alpha, beta);
  }
};

struct AddmmActivation : at::meta::structured__addmm_activation {
  void impl(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
            const at::Scalar& alpha, bool use_gelu, const at::Tensor& out) {
    const auto addend = at::expand_size(self, {mat1.size(0), mat2.size(1)}, "addmm_out");
    product_2d("addmm_impl_cpu_", out, mat1, mat2, *addend, alpha, beta);
    if (use_gelu) {
      at::gelu_(const_cast<at::Tensor&>(out));
    } else {
      at::relu_(const_cast<at::Tensor&>(out));
    }
  }
};

struct Bmm : at::meta::structured_bmm {
  void impl(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
    product_3d("bmm", out, self, mat2, {}, 1, 0);
  }
};

// Unless beta is zero, its meta would copy self into out.
struct Baddbmm : at::meta::structured_baddbmm {
  void meta(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar&,
            const at::Scalar& alpha) {
    structured_baddbmm::meta(self, batch1, batch2, 0, alpha);
  }
  void impl(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
            const at::Scalar& alpha, const at::Tensor& out) {
    product_3d("baddbmm", out, batch1, batch2, self, alpha, beta);
  }
};

struct Addmv : at::meta::structured_addmv {
  void impl(const at::Tensor& self, const at::Tensor& mat, const at::Tensor& vec, const at::Scalar& beta,
            const at::Scalar& alpha, const at::Tensor& out) {
    const auto addend = at::expand_size(self, {mat.size(0)});
    // Native rounds beta to the dtype here, so that bool has it, too.
    const at::Scalar factor = out.scalar_type() == at::kBool ? at::Scalar(beta.toComplexDouble() != 0.0) : beta;
    if (out.numel() == 0) return;
    check_copied(out, beta);
    if (is_beta_times_addend(out, mat.size(1), *addend, factor)) return;
    if (backend().synchronous() &&
        (out.scalar_type() == at::kHalf || out.scalar_type() == at::kBFloat16))  // here native takes them in 16 bits
      for (const at::Scalar& s : {alpha, beta}) check_convertible(s, out.scalar_type());
    check_dtype("addmv_impl_cpu", out.scalar_type(), alpha, beta);
    // Where all sums go to one element, the last one stays.
    const int64_t first = out.stride(0) == 0 ? out.size(0) - 1 : 0, rows = out.size(0) - first;
    matrix_product(out.narrow(0, first, rows).unsqueeze(1), mat.narrow(0, first, rows), vec.unsqueeze(1),
                   addend->narrow(0, first, rows).unsqueeze(1), alpha, beta);
  }
};

at::Tensor dot_product(const char* name, const at::Tensor& self, const at::Tensor& other) {
  check_same_device({&self, &other});
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(), "D and ", other.dim(),
              "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "dot : expected both vectors to have same dtype, but found ",
              self.scalar_type(), " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [", self.numel(), "] and src [",
              other.numel(), "] to have the same number of elements, but got ", self.numel(), " and ", other.numel(),
              " elements respectively");
  check_dtype(name, self.scalar_type(), 1, 0);
  const at::Tensor out = empty({}, self.scalar_type());
  matrix_product(out.view({1, 1}), self.unsqueeze(0), other.unsqueeze(1), {}, 1, 0);
  return out;
}

// Where conjugation can wait until after the sum, it does, as native's: the result is then conjugated lazily.
at::Tensor dot(const at::Tensor& self, const at::Tensor& other) {
  if (self.is_conj() && other.is_conj()) return dot_product("dot", self.conj(), other.conj()).conj();
  return dot_product("dot", self, other);
}

at::Tensor vdot(const at::Tensor& self, const at::Tensor& other) {
  if (self.is_complex() && !self.is_conj() && other.is_conj()) return dot_product("vdot", self, other.conj()).conj();
  return dot_product(self.is_complex() ? "vdot" : "dot", self.is_complex() ? self.conj() : self, other);
}

// A column, a row and what their product is added to, as PyTorch's addr has prepared them.
void addr_stub(at::TensorIterator& iter, const at::Scalar& self_scale, const at::Scalar& scale) {
  const at::ScalarType dtype = iter.common_dtype();
  refuse_as_native("addr", dtype);
  for (const at::Scalar& s : {self_scale, scale}) check_convertible(s, dtype);
  const at::Scalar beta = held_by(dtype, self_scale), alpha = held_by(dtype, scale);
  at::Tensor sum = at::mul(iter.tensor(2).to(dtype), iter.tensor(3).to(dtype));
  if (!alpha.equal(1)) sum = sum.mul(alpha);
  if (beta.equal(1)) {
    sum = at::add(iter.tensor(1), sum);
  } else if (!beta.equal(0)) {
    sum = at::add(at::mul(iter.tensor(1), beta), sum);
  }
  iter.tensor(0).copy_(sum);
}

}  // namespace

at::Tensor linear_forward(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const bool has_bias = bias.has_value() && bias->defined();
  check_same_device({&input, &weight, has_bias ? &*bias : &weight});
  if (weight.dim() != 2 || input.dim() == 0 || input.size(-1) != weight.size(1) ||
      input.scalar_type() != weight.scalar_type() ||
      (has_bias && (bias->dim() != 1 || bias->size(0) != weight.size(0) || bias->scalar_type() != input.scalar_type())))
    return at::linear(input, weight, bias);  // the composite has native's error, or the rare case that is none
  at::DimVector sizes(input.sizes());
  sizes.back() = weight.size(0);
  const at::Tensor out = empty(sizes, input.scalar_type());
  if (out.numel() == 0) return out;
  product_2d("addmm_impl_cpu_", out.view({-1, weight.size(0)}), input.reshape({-1, weight.size(1)}), weight.t(),
             has_bias ? *bias : at::Tensor(), 1, has_bias ? 1 : 0);
  return out;
}

}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(addr_stub, &minitorch::addr_stub)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  structured_apart<Mm>(m, "mm", nullptr, "mm.out");
  structured_apart<Addmm>(m, "addmm", "addmm_", "addmm.out");
  structured_apart<AddmmActivation>(m, "_addmm_activation", nullptr, "_addmm_activation.out");
  structured_apart<Bmm>(m, "bmm", nullptr, "bmm.out");
  structured_apart<Baddbmm>(m, "baddbmm", "baddbmm_", "baddbmm.out");
  structured_apart<Addmv>(m, "addmv", "addmv_", "addmv.out");
  m.impl("dot", MT_CHECKED(dot));
  m.impl("vdot", MT_CHECKED(vdot));
  m.impl("addr", MT_CHECKED(at::native::addr));
  m.impl("addr.out", MT_CHECKED(at::native::addr_out));
  m.impl("addr_", MT_CHECKED(at::native::addr_));
  m.impl("addbmm", MT_CHECKED(at::native::addbmm));
  m.impl("addbmm_", MT_CHECKED(at::native::addbmm_));
  m.impl("addbmm.out", MT_CHECKED(at::native::addbmm_out));
}

}  // namespace minitorch
