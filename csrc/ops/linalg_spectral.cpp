// Eigenvalues, singular values and least squares. PyTorch's structured kernels arrange layouts and call the
// DispatchStubs that the functions here stand for.
#include <ATen/ops/_linalg_eigh_native.h>
#include <ATen/ops/_linalg_svd_native.h>
#include <ATen/ops/linalg_ldl_factor_ex_native.h>
#include <ATen/ops/linalg_ldl_solve_native.h>
#include <ATen/ops/linalg_lstsq_native.h>

#include "bridge/apart.h"
#include "bridge/checked.h"
#include "bridge/operators.h"
#include "ops/linalg.h"

namespace minitorch {
namespace {

using at::Tensor;

void eigh(const Tensor& eigenvalues, const Tensor& eigenvectors, const Tensor& infos, bool upper, bool vectors) {
  check_dtype("linalg_eigh_cpu", eigenvectors);
  eigh_kernel(view_of(eigenvalues), view_of(eigenvectors), view_of(infos), upper, vectors);
}

void svd(const Tensor& a, const bool, const bool vectors, const std::optional<std::string_view>&, const Tensor& u,
         const Tensor& s, const Tensor& vh, const Tensor& info) {
  check_dtype("linalg_svd_cpu", a);
  const Tensor matrix = resolved(a);
  SvdArgs args{view_of(matrix), {}, view_of(s), {}, view_of(info), vectors};
  if (vectors) args.u = view_of(u), args.vh = view_of(vh);
  svd_kernel(args);
}

// LAPACK's information for matrices with a NaN: the number of the argument, with a minus. infos has one dimension.
bool refuse_nans(const Tensor& a, const Tensor& b, bool gels, const Tensor& infos) {
  const auto found = [&](const Tensor& t) { return t.isnan().flatten(-2).any(-1).reshape(infos.sizes()); };
  infos.masked_fill_(found(b.narrow(-2, 0, a.size(-2))), gels ? -7 : -6).masked_fill_(found(a), gels ? -5 : -4);
  return infos.ne(0).any().item<bool>();
}
Tensor has_infinity(const Tensor& a) { return a.isinf().flatten(-2).any(-1); }

struct Svd {
  Tensor u, s, vh, info;
};
// Without raising what `info` says.
Svd decompose(const Tensor& input) {
  const Tensor a = resolved(input);
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const auto batch = a.sizes().slice(0, a.dim() - 2);
  const auto matrices = [&](int64_t rows, int64_t columns) {
    std::vector<int64_t> sizes = batch.vec();
    sizes.push_back(rows), sizes.push_back(columns);
    return empty_strided(sizes, at::native::batched_matrix_contiguous_strides(sizes, true), a.scalar_type());
  };
  std::vector<int64_t> values = batch.vec();
  values.push_back(k);
  Svd d{matrices(m, k), empty(values, c10::toRealValueType(a.scalar_type())), matrices(k, n),
        at::zeros(batch, a.options().dtype(at::kInt))};
  if (a.numel() > 0) svd_kernel({view_of(a), view_of(d.u), view_of(d.s), view_of(d.vh), view_of(d.info), true});
  return d;
}

// LAPACK divides right sides with an infinity by it, and multiplies what becomes of them by it in the end: all
// solutions are NaN. What lies below the n rows of the solution, of which the residuals are made, is multiplied no
// more.
void spoil_infinite(const Tensor& b, const Tensor& infinite, int64_t n) {
  const Tensor any = infinite.any(-1).unsqueeze(-1).unsqueeze(-1), column = infinite.unsqueeze(-2);
  constexpr double value = std::numeric_limits<double>::quiet_NaN();
  const at::Scalar nan = b.is_complex() ? at::Scalar(c10::complex<double>(value, value)) : at::Scalar(value);
  b.narrow(-2, 0, n).masked_fill_(any, nan);
  b.narrow(-2, n, b.size(-2) - n).masked_fill_(any, 0).masked_fill_(column, nan);
}

// By QR, for which a has full rank. As LAPACK has it, an infinity makes everything else vanish, an exact zero on the
// diagonal is information, and the solution for a matrix of zeros is zero.
void lstsq_by_qr(const Tensor& a, const Tensor& b, const Tensor& infos) {
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const auto triangular = [](const Tensor& r, const Tensor& x, bool upper, MatrixOp op) {
    if (x.numel() > 0) triangular_solve_kernel({view_of(r), view_of(x), true, upper, false, op});
  };
  const Tensor factors = at::native::cloneBatchedColumnMajor(m >= n ? a : a.mH());
  at::DimVector sizes(a.sizes().slice(0, a.dim() - 2));
  sizes.push_back(k);
  const Tensor tau = empty(sizes, a.scalar_type());
  if (factors.numel() == 0) {
    b.zero_();  // as LAPACK does, from which the residuals are taken
    return;
  }
  const Tensor infinite = has_infinity(a);
  if (infinite.any().item<bool>()) {
    const Tensor parts = a.is_complex() ? at::view_as_real(factors) : factors;  // scaled by a real number
    Tensor scale = infinite.logical_not();
    while (scale.dim() < parts.dim()) scale = scale.unsqueeze(-1);
    parts.mul_(scale);
  }
  const Tensor vanishes = factors.eq(0).flatten(-2).all(-1);
  qr_factor_kernel(view_of(factors), view_of(tau));
  const Tensor zeros = factors.diagonal(0, -2, -1).eq(0);
  const Tensor first = zeros.to(at::kInt).argmax(-1).add(1).to(at::kInt);
  infos.copy_(first.mul(zeros.any(-1).logical_and_(vanishes.logical_not())).reshape(infos.sizes()));
  const Tensor r = factors.narrow(-2, 0, k), x = b.narrow(-2, 0, std::max(m, n));
  if (m >= n) {
    qr_multiply_kernel(view_of(factors), view_of(tau), view_of(x), true, true);
    triangular(r, x.narrow(-2, 0, n), true, MatrixOp::none);
  } else {
    // a = r^H q^H: r^H y = b, x = q (y, 0).
    triangular(r, x.narrow(-2, 0, m), true, MatrixOp::adjoint);
    x.narrow(-2, m, n - m).zero_();
    qr_multiply_kernel(view_of(factors), view_of(tau), view_of(x), true, false);
  }
  b.masked_fill_(vanishes.unsqueeze(-1).unsqueeze(-1), 0);
}

// The solution of least norm replaces the first rows of b. gels takes a to have full rank and works by QR, the others
// find the rank: from singular values for all three of them, gelsy's columns being pivoted in LAPACK, in an order that
// native leaves to chance.
void lstsq(const Tensor& a, Tensor& b, Tensor& rank, Tensor&, Tensor& infos, double rcond, std::string driver) {
  infos.zero_();
  if (c10::multiply_integers(a.sizes().slice(0, a.dim() - 2)) == 0) return;  // infos has a number all the same
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  if (refuse_nans(a, b, driver == "gels", infos)) return;
  const Tensor infinite = b.narrow(-2, 0, m).isinf().any(-2);
  const bool spoiled = infinite.any().item<bool>();
  if (driver == "gels") {
    lstsq_by_qr(a, b, infos);
    if (spoiled) spoil_infinite(b, infinite.logical_and(a.ne(0).flatten(-2).any(-1, true)), n);
    return;
  }
  const Svd d = decompose(a);
  const Tensor largest = d.s.narrow(-1, 0, std::min<int64_t>(k, 1));
  const Tensor kept = d.s.gt(largest * rcond);
  rank.copy_(kept.sum(-1));
  const Tensor projected = at::matmul(d.u.mH(), b.narrow(-2, 0, m));
  const Tensor scaled = at::where(kept.unsqueeze(-1), projected * d.s.reciprocal().unsqueeze(-1), 0);
  const Tensor failed = d.info.ne(0).unsqueeze(-1).unsqueeze(-1);
  b.narrow(-2, 0, n).copy_(at::matmul(d.vh.mH(), scaled).masked_fill_(failed, 0));
  if (spoiled) spoil_infinite(b, infinite.logical_and(largest.ne(0)), n);
}

// LAPACK's information for matrices with an infinity, by drivers that look for singular values: of those that converge
// gelsd then refuses the NaN to which it would scale them.
void refuse_infinite(const Tensor& a, bool divided) {
  if (a.dim() < 2 || a.numel() == 0 || at::isReducedFloatingType(a.scalar_type())) return;
  const Tensor infinite = has_infinity(a);
  if (!infinite.any().item<bool>() || a.isnan().any().item<bool>()) return;
  const Tensor failed = decompose(a).info;
  const Tensor info = divided ? at::where(failed.eq(0).logical_and(infinite), -4, failed) : failed;
  at::_linalg_check_errors(info, "torch.linalg.lstsq", info.numel() <= 1);
}

// Native lets devices other than the CPU choose no driver but gels. Its default there is gelsy, for which our stub uses
// singular values; so gelsd and gelss, which return them too, are that and a little more.
std::tuple<Tensor&, Tensor&, Tensor&, Tensor&> lstsq_out(const Tensor& input, const Tensor& other,
                                                         std::optional<double> rcond,
                                                         std::optional<std::string_view> driver, Tensor& solution,
                                                         Tensor& residuals, Tensor& rank, Tensor& singular_values) {
  std::string name(driver.value_or("gelsy"));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  TORCH_CHECK(input.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  TORCH_CHECK(other.dim() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  const bool by_values = name == "gelsd" || name == "gelss";
  TORCH_CHECK(by_values || name == "gels" || name == "gelsy",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  const std::optional<std::string_view> passed =
      name == "gels" ? std::optional<std::string_view>("gels") : std::nullopt;
  Tensor unused = at::empty({0}, singular_values.options()), none = at::empty({0}, residuals.options());
  // It takes numbers that are no part of one for none, and then the rounding error.
  if (name == "gelsd" && rcond.has_value() && (*rcond <= 0 || *rcond >= 1))
    rcond = (input.scalar_type() == at::kDouble || input.scalar_type() == at::kComplexDouble ? 0x1p-53 : 0x1p-24);
  if (name == "gelsy" && rcond.has_value() && *rcond >= 1) rcond = 1 - 0x1p-20;  // it keeps the first column
  if (by_values) refuse_infinite(input, name == "gelsd");
  at::native::linalg_lstsq_out(input, other, rcond, passed, solution, by_values ? none : residuals, rank,
                               by_values ? unused : singular_values);
  if (!by_values) return {solution, residuals, rank, singular_values};
  const Tensor s = at::linalg_svdvals(input);
  at::native::resize_output(singular_values, s.sizes());
  singular_values.copy_(s);
  if (input.size(-2) > input.size(-1) && rank.eq(input.size(-1)).all().item<bool>()) {
    const bool vectors = other.dim() < input.dim();
    const Tensor x = vectors ? solution.unsqueeze(-1) : solution, b = vectors ? other.unsqueeze(-1) : other;
    const Tensor squares = (at::matmul(input, x) - b).abs().square().sum(-2), infinite = b.isinf().any(-2);
    squares.masked_fill_(infinite.any(-1, true), 0);
    squares.masked_fill_(infinite, std::numeric_limits<double>::quiet_NaN());
    at::native::resize_output(residuals, squares.sizes());
    residuals.copy_(squares);
  } else {
    at::native::resize_output(residuals, {0});
  }
  return {solution, residuals, rank, singular_values};
}

void ldl_factor(const Tensor& ld, const Tensor& pivots, const Tensor& info, bool upper, bool hermitian) {
  TORCH_INTERNAL_ASSERT(!upper);
  if (ld.numel() == 0) return;
  ldl_factor_kernel(view_of(ld), view_of(pivots), view_of(info), hermitian);
}

// What linalg_ldl_factor gives: row numbers from 1, negative ones in pairs. Native hands anything else to LAPACK, which
// then reads and writes outside of the matrices.
void check_ldl_pivots(const Tensor& pivots, int64_t rows) {
  const Tensor row = pivots.abs(), unpaired = pivots.lt(0).cumsum(-1).remainder(2).ne(0);
  const Tensor bad = row.lt(1).logical_or_(row.gt(rows)).logical_or_(unpaired.logical_and(pivots.gt(0)));
  TORCH_CHECK(!bad.logical_or_(unpaired.narrow(-1, rows - 1, 1)).any().item<bool>(),
              "linalg.ldl_solve: Expected pivots as linalg.ldl_factor returns them for a matrix of ", rows, " rows");
}

void ldl_solve(const Tensor& ld, const Tensor& pivots, const Tensor& result, bool upper, bool hermitian) {
  TORCH_INTERNAL_ASSERT(!upper);
  if (result.numel() == 0) return;
  check_ldl_pivots(pivots, ld.size(-1));
  const Tensor factors = with_batch_of(resolved(ld), 2, result, 2),
               exchanges = with_batch_of(pivots.to(at::kInt), 1, result, 2);
  ldl_solve_kernel(view_of(factors), view_of(exchanges), view_of(result), hermitian);
}

// Native's own function hands LAPACK's packed real eigenvectors to a second stub; ours come complex at once.
std::tuple<Tensor, Tensor> eig(const Tensor& input, bool vectors) {
  at::native::squareCheckInputs(input, vectors ? "linalg.eig" : "linalg.eigvals");
  if (input.scalar_type() == at::kComplexHalf) check_dtype("linalg_eig_out_cpu", input);
  TORCH_CHECK(input.isfinite().all().item<bool>(), "torch.linalg.eig: input tensor should not contain infs or NaNs.");
  const Tensor a = at::native::cloneBatchedColumnMajor(resolved(input));
  const auto dtype = c10::toComplexType(input.scalar_type());
  const auto batch = input.sizes().slice(0, input.dim() - 2);
  const Tensor w = empty(input.sizes().slice(0, input.dim() - 1), dtype),
               info = at::zeros(batch, a.options().dtype(at::kInt));
  const Tensor v = vectors
                       ? empty_strided(a.sizes(), at::native::batched_matrix_contiguous_strides(a.sizes(), true), dtype)
                       : empty({0}, dtype);
  if (a.numel() > 0) {
    EigArgs args{view_of(a), view_of(w), {}, view_of(info), vectors};
    if (vectors) args.v = view_of(v);
    eig_kernel(args);
  }
  at::_linalg_check_errors(info, vectors ? "torch.linalg.eig" : "torch.linalg.eigvals", input.dim() == 2);
  return {w, v};
}

std::tuple<Tensor, Tensor> linalg_eig(const Tensor& input) { return eig(input, true); }
Tensor linalg_eigvals_impl(const Tensor& input) { return std::get<0>(eig(input, false)); }

void check_eig_output(const char* name, const Tensor& input, const Tensor& out, const char* what) {
  at::native::checkSameDevice(name, out, input, what);
  at::native::checkLinalgCompatibleDtype(name, out.scalar_type(), c10::toComplexType(input.scalar_type()), what);
}

std::tuple<Tensor&, Tensor&> linalg_eig_out(const Tensor& input, Tensor& values, Tensor& vectors) {
  at::native::squareCheckInputs(input, "linalg.eig");
  check_eig_output("torch.linalg.eig", input, values, "eigenvalues");
  check_eig_output("torch.linalg.eig", input, vectors, "eigenvectors");
  const auto [w, v] = eig(input, true);
  const bool fresh = vectors.numel() == 0;
  if (at::native::resize_output(vectors, v.sizes()) && fresh) vectors.as_strided_(v.sizes(), v.strides());
  at::native::resize_output(values, w.sizes());
  values.copy_(w), vectors.copy_(v);
  return {values, vectors};
}

Tensor& linalg_eigvals_out(const Tensor& input, Tensor& values) {
  at::native::squareCheckInputs(input, "linalg.eigvals");
  check_eig_output("torch.linalg.eigvals", input, values, "eigenvalues");
  const Tensor w = linalg_eigvals_impl(input);
  at::native::resize_output(values, w.sizes());
  return values.copy_(w);
}

}  // namespace

MT_OPERATORS(aten, PrivateUse1, m) {
  structured_apart<at::native::structured__linalg_eigh_out>(m, "_linalg_eigh", nullptr, "_linalg_eigh.eigenvalues");
  structured_apart<at::native::structured__linalg_svd_out>(m, "_linalg_svd", nullptr, "_linalg_svd.U");
  structured_apart<at::native::structured_linalg_ldl_factor_ex_out>(m, "linalg_ldl_factor_ex", nullptr,
                                                                    "linalg_ldl_factor_ex.out");
  structured_apart<at::native::structured_linalg_ldl_solve_out>(m, "linalg_ldl_solve", nullptr, "linalg_ldl_solve.out");
  m.impl("linalg_eig", MT_CHECKED(linalg_eig));
  m.impl("linalg_eig.out", MT_CHECKED(linalg_eig_out));
  m.impl("_linalg_eigvals", MT_CHECKED(linalg_eigvals_impl));
  m.impl("linalg_eigvals.out", MT_CHECKED(linalg_eigvals_out));
  m.impl("linalg_lstsq.out", MT_CHECKED(lstsq_out));
}

}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(linalg_eigh_stub, &minitorch::eigh)
REGISTER_PRIVATEUSE1_DISPATCH(svd_stub, &minitorch::svd)
REGISTER_PRIVATEUSE1_DISPATCH(ldl_factor_stub, &minitorch::ldl_factor)
REGISTER_PRIVATEUSE1_DISPATCH(ldl_solve_stub, &minitorch::ldl_solve)
REGISTER_PRIVATEUSE1_DISPATCH(lstsq_stub, &minitorch::lstsq)
}  // namespace at::native
