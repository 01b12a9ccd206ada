// quantile and nanquantile stay PyTorch's composites. They check the values of a tensor q only for CPU tensors, because
// a GPU would have to be waited for; here that is asked of the backend.
#include <ATen/ops/nanquantile_native.h>
#include <ATen/ops/quantile_native.h>

#include "bridge/operators.h"
#include "bridge/transforms.h"

namespace minitorch {
namespace {

using at::Tensor;
using Composite = Tensor(const Tensor&, const Tensor&, std::optional<int64_t>, bool, std::string_view);

// The composite's other checks come first, so this one is left out where they refuse.
void check_range(const Tensor& self, const Tensor& q) {
  const bool has_values = !q.key_set().has(c10::DispatchKey::Python) && !in_transform() && backend().synchronous();
  if (!has_values || q.device() != self.device() || q.scalar_type() != self.scalar_type() || self.numel() == 0 ||
      q.dim() > 1 || !(q.scalar_type() == at::kFloat || q.scalar_type() == at::kDouble))
    return;
  const c10::InferenceMode unrecorded;
  TORCH_CHECK(q.ge(0).logical_and_(q.le(1)).all().item<bool>(), "quantile() q values must be in the range [0, 1]");
}

template <Composite* composite>
Tensor quantile(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  check_range(self, q);
  return composite(self, q, dim, keepdim, interpolation);
}

using OutComposite = Tensor&(const Tensor&, const Tensor&, std::optional<int64_t>, bool, std::string_view, Tensor&);

template <OutComposite* composite>
Tensor& quantile_out(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                     std::string_view interpolation, Tensor& out) {
  check_range(self, q);
  return composite(self, q, dim, keepdim, interpolation, out);
}

void table(const Operators& m) {
  m.impl("quantile", TORCH_FN(quantile<at::native::quantile>));
  m.impl("nanquantile", TORCH_FN(quantile<at::native::nanquantile>));
  m.impl("quantile.out", TORCH_FN(quantile_out<at::native::quantile_out>));
  m.impl("nanquantile.out", TORCH_FN(quantile_out<at::native::nanquantile_out>));
}
MT_OPERATORS(aten, PrivateUse1, m) { table(m); }
MT_OPERATORS(aten, AutogradPrivateUse1, m) { table(m); }

}  // namespace
}  // namespace minitorch
