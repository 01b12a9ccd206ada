// Numbers of eight bits: conversions. Filling, indexing, where, == and != and abs know them too, and any pointwise
// operator writes them; everything else refuses them by name.
#include "ops/float8.h"

#include <c10/util/Float8_e4m3fn.h>

#include "bridge/compat.h"
#include "bridge/refusal.h"
#include "bridge/tensor.h"
#include "kernels/float8.h"

namespace minitorch {
namespace {

Float8 format_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat8_e5m2: return Float8::e5m2;
    case at::kFloat8_e4m3fn: return Float8::e4m3fn;
    case at::kFloat8_e5m2fnuz: return Float8::e5m2fnuz;
    case at::kFloat8_e4m3fnuz: return Float8::e4m3fnuz;
    case at::kFloat8_e8m0fnu: return Float8::e8m0fnu;
    default: TORCH_INTERNAL_ASSERT(false, "not a float8 type: ", type);
  }
}

}  // namespace

at::Tensor float8_decoded(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.view(at::kByte).contiguous();
  at::Tensor values = empty(tensor.sizes(), at::kFloat);
  check_allocated(bytes);
  float8_decode_kernel(format_of(tensor.scalar_type()), bytes.const_data_ptr<uint8_t>(),
                       values.mutable_data_ptr<float>(), bytes.numel());
  return values;
}

at::Tensor float8_encoded(const at::Tensor& tensor, at::ScalarType format) {
  // Torch's own conversion says what becomes of numbers beyond the range: they saturate since 2.13, before they were
  // NaN.
  static const uint8_t overflow = c10::Float8_e4m3fn(1e9f).x;
  const at::Tensor values = tensor.to(at::kFloat).contiguous();
  at::Tensor bytes = empty(tensor.sizes(), at::kByte);
  check_allocated(values);
  float8_encode_kernel(format_of(format), overflow, values.const_data_ptr<float>(), bytes.mutable_data_ptr<uint8_t>(),
                       bytes.numel());
  return bytes.view(format);
}

bool computes_wide(const at::TensorIteratorBase& iter, c10::function_ref<void(const at::TensorIteratorBase&)> compute) {
  const at::ScalarType common = common_dtype_or_undefined(iter);
  if (common == at::ScalarType::Undefined || iter.noutputs() != 1) return false;
  if (at::isFloat8Type(common)) throw NoKernel("pointwise", common);
  const at::Tensor& out = iter.tensor(0);
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).allow_cpu_scalars(true).promote_inputs_to_common_dtype(true).add_owned_output(
      at::empty(out.sizes(), out.options().dtype(common)));
  for (int k = 1; k < iter.ntensors(); k++) config.add_owned_const_input(iter.tensor(k).to(common));
  const at::TensorIterator wide = config.build();
  compute(wide);
  out.copy_(wide.tensor(0));
  return true;
}

}  // namespace minitorch
