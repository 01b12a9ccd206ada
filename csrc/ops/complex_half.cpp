// See complex_half.h.
#include "ops/complex_half.h"

namespace minitorch {

void check_complex_half(c10::ScalarType result, PointwiseOp op) {
  if (result == c10::ScalarType::ComplexFloat || result == c10::ScalarType::ComplexDouble) return;
  using enum PointwiseOp;
  switch (op) {
    case exp:
    case exp2:
    case expm1:
    case log:
    case log2:
    case log10:
    case log1p:
    case sin:
    case cos:
    case tan:
    case asin:
    case acos:
    case atan:
    case sinh:
    case cosh:
    case tanh:
    case asinh:
    case acosh:
    case atanh:
    case sigmoid:
    case sinc:
    case angle:
    case sqrt:
    case rsqrt:
    case reciprocal:
    case square:
    case pow:
    case pow_scalar:
    case div:
    case logaddexp:
    case addcdiv:
    case lerp_scalar:
    case lerp_tensor:
    case logical_not:
    case logical_and:
    case logical_or:
    case logical_xor: refuse_complex_half(c10::ScalarType::ComplexHalf, "pointwise"); break;
    default: break;
  }
}

}  // namespace minitorch
