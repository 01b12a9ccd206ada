// The pointwise kernel objects. Static initialisation fills their slots, so they must be constant initialised.
#include "kernels/pointwise.h"

namespace minitorch {
constinit Kernel<void(PointwiseOp, const PointwiseView&, const PointwiseParams&)> pointwise_kernel{"pointwise"};
constinit Kernel<void(const PointwiseView&)> copy_kernel{"copy"};
constinit Kernel<void(const PointwiseView&, const Scalar&)> fill_kernel{"fill"};

const char* name_of(PointwiseOp op) {
  switch (op) {
#define MT_NAME(name, functor, types) \
  case PointwiseOp::name: return #name;
    MT_POINTWISE_OPS(MT_NAME)
#undef MT_NAME
  }
  return "pointwise";
}

}  // namespace minitorch
