// Sparse COO tensors, as far as training with them goes: the gradients of embedding(sparse=True), their accumulation,
// SGD, SparseAdam and Adagrad, conversion from and to dense, and products with dense matrices (a graph's adjacency
// times its features). A sparse tensor is two dense ones, indices [sparse dims, nnz] and values [nnz, dense dims...];
// PyTorch's own class holds them, and what follows is written in dense operators, so it serves every backend. Other
// operators on sparse tensors raise an error that names them.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>
#include <ATen/native/SparseTensorUtils.h>
#include <torch/library.h>

#include <array>

#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

using at::Tensor;

Tensor make(const Tensor& like, const Tensor& indices, const Tensor& values, bool coalesced) {
  return at::_sparse_coo_tensor_with_dims_and_tensors(like.sparse_dim(), like.dense_dim(), like.sizes(), indices,
                                                      values, like.options().dtype(values.scalar_type()), coalesced);
}

// Positions of the elements in row-major order.
Tensor places(const Tensor& self) {
  const Tensor indices = self._indices();
  const Tensor place = at::zeros({self._nnz()}, indices.options());
  for (int64_t d = 0; d < self.sparse_dim(); d++) place.mul_(self.size(d)).add_(indices.select(0, d));
  return place;
}

// Sorts by position and sums the values of each.
Tensor coalesce(const Tensor& self) {
  const Tensor indices = self._indices(), values = self._values();
  if (self._nnz() < 2) return make(self, indices.clone(), values.clone(), true);
  const auto [position, order] = places(self).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor first = at::ones({self._nnz()}, position.options().dtype(at::kBool));
  first.narrow(0, 1, self._nnz() - 1).copy_(position.slice(0, 1).ne(position.slice(0, 0, -1)));
  const Tensor segment = first.cumsum(0).sub_(1), kept = indices.index_select(1, order.masked_select(first));
  auto sizes = values.sizes().vec();
  sizes[0] = kept.size(1);
  const Tensor sums = at::zeros(sizes, values.options());
  return make(self, kept, sums.index_add_(0, segment, values.index_select(0, order)), true);
}

// dense += alpha * sparse
void add_to_dense(const Tensor& dense, const Tensor& sparse, const at::Scalar& alpha) {
  if (sparse._nnz() == 0) return;
  const Tensor values = sparse._values().to(dense.scalar_type()), indices = sparse._indices();
  if (sparse.sparse_dim() == 1) {
    Tensor target = dense;
    target.index_add_(0, indices.select(0, 0), values, alpha);
    return;
  }
  if (sparse.sparse_dim() == 0) {
    Tensor target = dense;
    for (const Tensor& value : values.unbind(0)) target.add_(value, alpha);  // native has no sum for every dtype
    return;
  }
  c10::List<std::optional<Tensor>> places;
  for (const Tensor& row : indices.unbind(0)) places.push_back(row);
  Tensor target = dense;
  target.index_put_(places, values.mul(alpha), /*accumulate=*/true);
}

Tensor add_sparse_sparse(const Tensor& self, const Tensor& other, const at::Scalar& alpha, at::ScalarType type) {
  TORCH_CHECK(self.sizes() == other.sizes(), "add: expected sizes of 'self' and 'other' to match, but ", self.sizes(),
              " != ", other.sizes());
  TORCH_CHECK(at::sparse::is_same_density(self, other),
              "add: expected 'self' and 'other' to have same density, but 'self' has ", self.sparse_dim(),
              " sparse dimensions while 'other' has ", other.sparse_dim(), " sparse dimensions");
  const Tensor scaled = other._values().to(type).mul(alpha);
  const Tensor sum = make(self, at::cat({self._indices(), other._indices()}, 1),
                          at::cat({self._values().to(type), scaled}, 0), /*coalesced=*/false);
  return self.is_coalesced() && other.is_coalesced() ? sum.coalesce() : sum;
}

// Makes `out` hold the elements of `result`.
Tensor& put(const Tensor& result, Tensor& out) {
  if (out.sizes() != result.sizes() || !at::sparse::is_same_density(out, result))
    out.sparse_resize_and_clear_(result.sizes(), result.sparse_dim(), result.dense_dim());
  at::sparse::alias_into_sparse(out, result._indices(), result._values().to(out.scalar_type()));
  return out._coalesced_(result.is_coalesced());
}

Tensor& add_out(const Tensor& self, const Tensor& other, const at::Scalar& alpha, Tensor& out) {
  check_same_device({&self, &other, &out});
  const auto type = at::native::result_type(self, other);
  TORCH_CHECK(at::canCast(type, out.scalar_type()), "Can't convert result type ", type, " to output ",
              out.scalar_type(), " in add operation");
  if (!self.is_sparse()) {
    TORCH_CHECK(!out.is_sparse(), "add: expected 'out' to be dense, but it is sparse");
    TORCH_CHECK(self.sizes().equals(other.sizes()),
                "add: expected 'self' and 'other' to have same size, but self has size ", self.sizes(),
                " while other has size ", other.sizes(),
                " (FYI: dense-sparse addition does not currently support broadcasting)");
    if (out.is_same(self)) {
      add_to_dense(out, other, alpha);
      return out;
    }
    const Tensor sum = self.to(type, /*non_blocking=*/false, /*copy=*/true);
    add_to_dense(sum, other, alpha);
    at::native::resize_output(out, self.sizes());
    return out.copy_(sum);
  }
  TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(out.is_sparse(), "add: expected 'out' to be sparse, but it is dense");
  return put(add_sparse_sparse(self, other, alpha, type), out);
}

Tensor add(const Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  const auto type = at::native::result_type(self, other);
  Tensor out = at::empty({0}, (self.is_sparse() ? self : other).options().dtype(type).layout(self.layout()));
  return add_out(self, other, alpha, out);
}

// Products and quotients with one number.
void check_number(const Tensor& self, const Tensor& other, const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(self.is_sparse() && !other.is_sparse() && other.dim() == 0,
                              "minitorch has no kernel for '", name, "' of a sparse tensor and anything but a number");
}
Tensor scale(const Tensor& self, const Tensor& other) {
  const bool swap = !self.is_sparse();
  const Tensor &sparse = swap ? other : self, &number = swap ? self : other;
  check_number(sparse, number, "aten::mul");
  return make(sparse, sparse._indices().clone(), sparse._values().mul(number), sparse.is_coalesced());
}
Tensor& scale_out(const Tensor& self, const Tensor& other, Tensor& out) { return put(scale(self, other), out); }
Tensor& scale_(Tensor& self, const Tensor& other) { return scale_out(self, other, self); }
Tensor quotient(const Tensor& self, const Tensor& other) {
  check_number(self, other, "aten::div");
  return make(self, self._indices().clone(), self._values().div(other), self.is_coalesced());
}
Tensor& quotient_out(const Tensor& self, const Tensor& other, Tensor& out) { return put(quotient(self, other), out); }
Tensor& quotient_(Tensor& self, const Tensor& other) { return quotient_out(self, other, self); }
Tensor neg(const Tensor& self) {
  return make(self, self._indices().clone(), self._values().neg(), self.is_coalesced());
}

// beta * self + alpha * sparse @ dense: rows of the dense matrix, each times an element, are added up by row.
Tensor addmm(const Tensor& self, const Tensor& sparse, const Tensor& dense, const at::Scalar& beta,
             const at::Scalar& alpha) {
  check_same_device({&self, &sparse, &dense});
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_sparse() && sparse.is_sparse() && !dense.is_sparse(),
                              "minitorch has no kernel for 'aten::addmm' but of a sparse matrix with a dense one");
  TORCH_CHECK(sparse.sparse_dim() == 2, "addmm: matrices expected, got ", sparse.sparse_dim(), "D tensor");
  TORCH_CHECK(sparse.dense_dim() == 0, "addmm: scalar values expected, got ", sparse.dense_dim(), "D values");
  TORCH_CHECK(dense.dim() == 2, "addmm: matrices expected, got ", dense.dim(), "D tensor");
  TORCH_CHECK(sparse.size(1) == dense.size(0), "addmm: Argument #3 (dense): Expected dim 0 size ", sparse.size(1),
              ", got ", dense.size(0));
  const std::array<int64_t, 2> sizes = {sparse.size(0), dense.size(1)};
  const Tensor addend = self.expand(sizes);
  const bool ignored = beta.toComplexDouble() == 0.0;  // also what is not finite there
  const Tensor out = ignored ? at::zeros(sizes, dense.options()) : addend.mul(beta).contiguous();
  if (sparse._nnz() == 0) return out;
  const Tensor indices = sparse._indices();
  const Tensor rows = dense.index_select(0, indices.select(0, 1)).mul_(sparse._values().unsqueeze(1));
  return out.index_add(0, indices.select(0, 0), rows, alpha);
}
Tensor& addmm_out(const Tensor& self, const Tensor& sparse, const Tensor& dense, const at::Scalar& beta,
                  const at::Scalar& alpha, Tensor& out) {
  return resize_and_copy(minitorch::addmm(self, sparse, dense, beta, alpha), out);
}

Tensor& mm_out(const Tensor& self, const Tensor& other, Tensor& out) {
  return resize_and_copy(at::native::_sparse_mm(self, other), out);
}

// The elements of a tensor at the positions that `mask` has.
Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  check_same_device({&self, &mask});
  TORCH_CHECK_NOT_IMPLEMENTED(mask.is_sparse() && (mask.sparse_dim() > 0 || !self.is_sparse()),
                              "minitorch has no kernel for 'aten::sparse_mask' but by a sparse tensor");
  TORCH_CHECK(self.sizes().equals(mask.sizes()), "sparse_mask(): operands have incompatible sizes; self has size ",
              self.sizes(), " but mask has size ", mask.sizes());
  if (!self.is_sparse()) {
    if (mask.sparse_dim() == 0) {  // each element of the mask is all of self
      at::DimVector sizes(self.sizes());
      sizes.insert(sizes.begin(), mask._nnz());
      return make(mask, mask._indices().clone(), self.unsqueeze(0).expand(sizes).clone(), mask.is_coalesced());
    }
    c10::List<std::optional<Tensor>> places;
    for (const Tensor& row : mask._indices().unbind(0)) places.push_back(row);
    return make(mask, mask._indices().clone(), self.index(places), mask.is_coalesced());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(self.sparse_dim() == mask.sparse_dim(),
                              "minitorch has no kernel for 'aten::sparse_mask' of sparse tensors of different sparse "
                              "dimensions");
  const Tensor from = self.coalesce(), wanted = places(mask), values = from._values();
  auto sizes = values.sizes().vec();
  sizes[0] = mask._nnz();
  if (from._nnz() == 0)
    return make(mask, mask._indices().clone(), at::zeros(sizes, values.options()), mask.is_coalesced());
  const Tensor there = places(from), nearest = at::searchsorted(there, wanted).clamp_max_(from._nnz() - 1);
  const Tensor missed = there.index_select(0, nearest).ne_(wanted).nonzero().squeeze(1);
  const Tensor found = values.index_select(0, nearest).index_fill_(0, missed, 0);
  return make(mask, mask._indices().clone(), found, mask.is_coalesced());
}

void no_kernel(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "minitorch has no kernel for '", c10::toString(op.operator_name()),
                              "' on sparse tensors, on the ", backend().name(),
                              " backend. Use to_dense(), or .cpu() and native PyTorch.");
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&no_kernel>()); }

MT_OPERATORS(aten, SparsePrivateUse1, m) {
  // Making and taking apart: PyTorch's own functions, which compute nothing.
  m.impl("empty.memory_format", TORCH_FN(at::native::empty_sparse_symint));
  m.impl("_sparse_coo_tensor_with_dims", TORCH_FN(at::native::new_with_dims_sparse));
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", TORCH_FN(at::native::new_with_dims_and_tensor_sparse_symint));
  m.impl("sparse_resize_", TORCH_FN(at::native::sparse_resize_));
  m.impl("sparse_resize_and_clear_", TORCH_FN(at::native::sparse_resize_and_clear_));
  m.impl("_indices", TORCH_FN(at::native::_indices_sparse));
  m.impl("_values", TORCH_FN(at::native::_values_sparse));
  m.impl("indices", TORCH_FN(at::native::indices_sparse));
  m.impl("values", TORCH_FN(at::native::values_sparse));
  m.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  m.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  m.impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  m.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  m.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  m.impl("clone", TORCH_FN(at::native::clone_sparse));
  m.impl("zero_", TORCH_FN(at::native::zero_sparse_));
  m.impl("_to_dense", TORCH_FN(at::native::sparse_to_dense));

  m.impl("_coalesce", TORCH_FN(coalesce));
  m.impl("add.Tensor", TORCH_FN(add));
  m.impl("add_.Tensor", TORCH_FN(at::native::add_sparse_));
  m.impl("add.out", TORCH_FN(add_out));
  m.impl("sub.Tensor", TORCH_FN(at::native::sub_sparse));
  m.impl("sub_.Tensor", TORCH_FN(at::native::sub_sparse_));
  m.impl("sub.out", TORCH_FN(at::native::sub_out_sparse));
  m.impl("mul.Tensor", TORCH_FN(scale));
  m.impl("mul_.Tensor", TORCH_FN(scale_));
  m.impl("mul.out", TORCH_FN(scale_out));
  m.impl("div.Tensor", TORCH_FN(quotient));
  m.impl("div_.Tensor", TORCH_FN(quotient_));
  m.impl("div.out", TORCH_FN(quotient_out));
  m.impl("neg", TORCH_FN(neg));
  m.impl("addmm", TORCH_FN(addmm));
  m.impl("addmm.out", TORCH_FN(addmm_out));
  m.impl("mm", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(&at::native::_sparse_mm));
  m.impl("mm.out", TORCH_FN(mm_out));
  m.impl("mv", TORCH_FN(at::native::mv_sparse));
  m.impl("sparse_mask", TORCH_FN(sparse_mask));
}

MT_OPERATORS(aten, PrivateUse1, m) {
  using ToSparseDim = Tensor(const Tensor&, int64_t);
  using ToSparse = Tensor(const Tensor&, std::optional<at::Layout>, at::OptionalIntArrayRef, std::optional<int64_t>);
  m.impl("_to_sparse.sparse_dim", static_cast<ToSparseDim*>(&at::native::dense_to_sparse));
  m.impl("_to_sparse", static_cast<ToSparse*>(&at::native::dense_to_sparse));
}

}  // namespace
}  // namespace minitorch
