// The pointwise kernel: finds the block of an operator and compute type in the tables, which the other pointwise_*.cpp
// compile a part of each, and runs it.
#include "kernels/pointwise.h"

#include <string>

#include "kernels/cpu/pointwise_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

const char* op_name(PointwiseOp op) {
  switch (op) {
#define MT_NAME(name, functor, types) \
  case PointwiseOp::name: return #name;
    MT_ARITHMETIC_OPS(MT_NAME)
    MT_COMPARE_OPS(MT_NAME)
    MT_INTEGER_OPS(MT_NAME)
    MT_MATH_OPS(MT_NAME)
    MT_SPECIAL_OPS(MT_NAME)
    MT_ACTIVATION_OPS(MT_NAME)
#undef MT_NAME
  }
  return "pointwise";
}

void pointwise(PointwiseOp op, const PointwiseView& v, const PointwiseParams& params) {
  const DType compute = compute_dtype(v.compute);
  const Block* block = arithmetic_block(op, compute);
  for (auto lookup : {&compare_block, &math_block, &activation_block, &integer_block, &special_block})
    if (block == nullptr) block = lookup(op, compute);
  if (block == nullptr) missing_kernel(op_name(op), name_of(v.compute));
  run_pointwise(v, *block, params);
}

MT_REGISTER_KERNEL(pointwise_kernel, &pointwise);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
