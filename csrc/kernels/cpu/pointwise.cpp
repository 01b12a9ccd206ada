// The pointwise kernel: finds the block of an operator and compute type in the tables, which the other pointwise_*.cpp
// compile a part of each, and runs it.
#include "kernels/pointwise.h"

#include <string>

#include "kernels/cpu/pointwise_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

const Block* find_block(PointwiseOp op, DType compute) {
  for (auto lookup : {&arithmetic_block, &compare_block, &math_block, &activation_block, &integer_block, &special_block,
                      &bessel_block, &orthogonal_block, &pathwise_block})
    if (const Block* block = lookup(op, compute)) return block;
  return nullptr;
}

void pointwise(PointwiseOp op, const PointwiseView& v, const PointwiseParams& params) {
  const Block* block = find_block(op, compute_dtype(v.compute));
  // The few operators on the bits of a 16-bit float are built for it.
  if (is_half(v.compute) && op == PointwiseOp::nextafter) block = find_block(op, v.compute);
  if (block == nullptr) missing_kernel(name_of(op), name_of(v.compute));
  if (v.numel > 0) run_pointwise(v, *block, params);
}

MT_REGISTER_KERNEL(pointwise_kernel, &pointwise);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
