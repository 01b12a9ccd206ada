// Numbers of eight bits: conversions. Filling, indexing, where, == and != and abs know them too; everything else
// refuses them by name.
#include "ops/float8.h"

#include <c10/util/Float8_e4m3fn.h>

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

}  // namespace minitorch
