// cdist and pdist. Native's own functions refuse devices that they do not know by name, so their checks and their
// choice between direct distances and a matrix product are repeated here.
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/distance.h"

namespace minitorch {
namespace {

using at::Tensor;
using Mode = std::optional<int64_t>;

void check_rank_and_columns(const Tensor& x1, const Tensor& x2) {
  TORCH_CHECK(x1.dim() >= 2, "cdist only supports at least 2D tensors, X1 got: ", x1.dim(), "D");
  TORCH_CHECK(x2.dim() >= 2, "cdist only supports at least 2D tensors, X2 got: ", x2.dim(), "D");
  TORCH_CHECK(x1.sym_size(-1) == x2.sym_size(-1),
              "X1 and X2 must have the same number of columns. X1: ", x1.sym_size(-1), " X2: ", x2.sym_size(-1));
}
int64_t check_arguments(const Tensor& x1, const Tensor& x2, double p, Mode compute_mode) {
  TORCH_CHECK(at::isFloatingType(x1.scalar_type()),
              "cdist only supports floating-point dtypes, X1 got: ", x1.scalar_type());
  TORCH_CHECK(at::isFloatingType(x2.scalar_type()),
              "cdist only supports floating-point dtypes, X2 got: ", x2.scalar_type());
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  TORCH_CHECK(x1.device().type() == x2.device().type(),
              "X1 and X2 must have the same device type. X1: ", x1.device().type(), " X2: ", x2.device().type());
  const int64_t mode = compute_mode.value_or(0);
  TORCH_CHECK(mode >= 0 && mode <= 2, "possible modes: 0, 1, 2, but was: ", mode);
  return mode;
}
// Native's measure of when the Euclidean distance pays as a matrix product.
bool as_product(const Tensor& x1, const Tensor& x2, double p, int64_t mode) {
  return p == 2 && (mode == 1 || (mode == 0 && (x1.sym_size(-2) > 25 || x2.sym_size(-2) > 25)));
}

// Both arguments with their batch dimensions broadcast.
struct Pair {
  std::vector<int64_t> batch;
  Tensor x1, x2;
  Pair(const Tensor& a, const Tensor& b) {
    check_rank_and_columns(a, b);
    batch = at::infer_size(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
    x1 = expand(a);
    x2 = expand(b);
  }
  std::vector<int64_t> shape(int64_t rows, int64_t columns) const {
    std::vector<int64_t> sizes = batch;
    sizes.push_back(rows);
    sizes.push_back(columns);
    return sizes;
  }
  Tensor expand(const Tensor& x) const { return x.expand(shape(x.size(-2), x.size(-1))).contiguous(); }
  DistanceArgs arguments(double p) const {
    return {to_dtype(x1.scalar_type()), c10::multiply_integers(batch), x1.size(-2), x2.size(-2), x1.size(-1), p,
            x1.const_data_ptr(),        x2.const_data_ptr(),           nullptr,     nullptr,     nullptr};
  }
};

void check_kernel_dtype(const Tensor& x, const char* name) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(type == at::kFloat || type == at::kDouble, '"', name, "\" not implemented for '",
                              c10::toString(type), "'");
}

void check_same_types(std::initializer_list<const Tensor*> tensors) {
  const at::ScalarType first = (*tensors.begin())->scalar_type();
  for (const Tensor* t : tensors)
    TORCH_CHECK(t->scalar_type() == first, "expected scalar type ", first, " but found ", t->scalar_type());
}

Tensor cdist_forward(const Tensor& x1, const Tensor& x2, double p, Mode compute_mode) {
  check_same_device({&x1, &x2});
  check_rank_and_columns(x1, x2);
  const int64_t mode = check_arguments(x1, x2, p, compute_mode);
  const Pair pair(x1, x2);
  const auto shape = pair.shape(x1.size(-2), x2.size(-2));
  const Tensor result = empty(shape, x1.scalar_type());
  if (result.numel() == 0) return result;
  if (x1.size(-1) == 0) return result.zero_();
  if (as_product(x1, x2, p, mode)) return at::_euclidean_dist(pair.x1, pair.x2).view(shape);
  check_kernel_dtype(x1, "cdist");
  check_same_types({&x1, &x2});
  DistanceArgs a = pair.arguments(p);
  a.distance = result.mutable_data_ptr();
  cdist_kernel(a);
  return result;
}

Tensor cdist_backward(const Tensor& dy, const Tensor& x1, const Tensor& x2, double p, const Tensor& distance) {
  check_same_device({&dy, &x1, &x2, &distance});
  const Pair pair(x1, x2);
  const Tensor dx = empty(pair.x1.sizes(), x1.scalar_type());
  const auto shape = pair.shape(x1.size(-2), x2.size(-2));
  // vmap brings them with a dimension of size 1 more.
  const int64_t count = c10::multiply_integers(shape);
  TORCH_CHECK(dy.numel() == count && distance.numel() == count, "Expected a gradient and distances of shape ", shape,
              ", got ", dy.sizes(), " and ", distance.sizes());
  if (dx.numel() == 0) return dx;
  if (x2.size(-2) == 0) return dx.zero_();
  check_kernel_dtype(x1, "cdist_backward");
  check_same_types({&x1, &x2, &dy, &distance});
  const Tensor gradient = dy.contiguous(), r = distance.contiguous();
  DistanceArgs a = pair.arguments(p);
  a.distance = const_cast<void*>(r.const_data_ptr());
  a.dy = gradient.const_data_ptr();
  a.dx1 = dx.mutable_data_ptr();
  cdist_backward_kernel(a);
  return dx;
}

// Composite, as in PyTorch: autograd differentiates what it calls.
Tensor cdist(const Tensor& x1, const Tensor& x2, double p, Mode compute_mode) {
  check_rank_and_columns(x1, x2);
  const bool empty = x1.numel() == 0 || x2.numel() == 0;
  if (empty || !as_product(x1, x2, p, compute_mode.value_or(0))) return at::_cdist_forward(x1, x2, p, compute_mode);
  check_arguments(x1, x2, p, compute_mode);
  const auto batch = at::infer_size(x1.sizes().slice(0, x1.dim() - 2), x2.sizes().slice(0, x2.dim() - 2));
  const auto with_batch = [&](int64_t rows, int64_t columns) {
    std::vector<int64_t> sizes = batch;
    sizes.push_back(rows);
    sizes.push_back(columns);
    return sizes;
  };
  const auto flat = [&](const Tensor& x) {
    return x.expand(with_batch(x.size(-2), x.size(-1))).contiguous().view({-1, x.size(-2), x.size(-1)});
  };
  const bool single = c10::multiply_integers(batch) == 1;
  const Tensor distance = single ? at::_euclidean_dist(x1, x2) : at::_euclidean_dist(flat(x1), flat(x2));
  return distance.view(with_batch(x1.size(-2), x2.size(-2)));
}

DistanceArgs pair_arguments(const Tensor& x, double p) {
  return {to_dtype(x.scalar_type()), 1,       x.size(0), x.size(0), x.size(1), p,
          x.const_data_ptr(),        nullptr, nullptr,   nullptr,   nullptr};
}
Tensor pdist_forward(const Tensor& self, double p) {
  check_allocated(self);
  TORCH_CHECK(self.dim() == 2, "pdist only supports 2D tensors, got: ", self.dim(), "D");
  const Tensor x = self.contiguous();
  const int64_t n = x.size(0), pairs = n * (n - 1) / 2;
  const Tensor result = empty({n <= 1 ? 0 : pairs}, x.scalar_type());
  if (n <= 1) return result;
  if (x.size(1) == 0) return result.zero_();
  check_kernel_dtype(x, "pdist");
  DistanceArgs a = pair_arguments(x, p);
  a.distance = result.mutable_data_ptr();
  pdist_kernel(a);
  return result;
}
Tensor pdist_backward(const Tensor& dy, const Tensor& self, double p, const Tensor& distance) {
  check_same_device({&dy, &self, &distance});
  TORCH_CHECK(self.dim() == 2, "pdist only supports 2D tensors, got: ", self.dim(), "D");
  const Tensor x = self.contiguous(), gradient = dy.contiguous(), r = distance.contiguous();
  const int64_t n = x.size(0), pairs = n <= 1 ? 0 : n * (n - 1) / 2;
  TORCH_CHECK(dy.numel() == pairs && distance.numel() == pairs, "Expected a gradient and distances of ", pairs,
              " pairs, got ", dy.numel(), " and ", distance.numel());
  const Tensor dx = empty(x.sizes(), x.scalar_type());
  if (dx.numel() == 0) return dx;
  if (n <= 1) return dx.zero_();
  check_kernel_dtype(x, "pdist_backward");
  check_same_types({&self, &dy, &distance});
  DistanceArgs a = pair_arguments(x, p);
  a.distance = const_cast<void*>(r.const_data_ptr());
  a.dy = gradient.const_data_ptr();
  a.dx1 = dx.mutable_data_ptr();
  pdist_backward_kernel(a);
  return dx;
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("cdist", MT_CHECKED(cdist));
  m.impl("_cdist_forward", MT_CHECKED(cdist_forward));
  m.impl("_cdist_backward", MT_CHECKED(cdist_backward));
  m.impl("_pdist_forward", MT_CHECKED(pdist_forward));
  m.impl("_pdist_backward", MT_CHECKED(pdist_backward));
}
MT_OPERATORS(aten, AutogradPrivateUse1, m) { m.impl("cdist", TORCH_FN(cdist)); }

}  // namespace
}  // namespace minitorch
