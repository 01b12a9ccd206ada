// The pointwise kernel on CUDA, for the first few operators: the engine compiles any functor of the CPU's tables, and
// grows by lines here.
#include "kernels/pointwise.h"

#include "kernels/cuda/pointwise_engine.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <template <class> class F>
void run(const PointwiseView& v, const PointwiseParams& params) {
  if (!dispatch(compute_dtype(v.compute), FloatTypes{},
                [&](auto tag) { Launcher<F<typename decltype(tag)::type>>::run(v, params); }))
    missing_kernel("pointwise", name_of(v.compute));
}

void pointwise(PointwiseOp op, const PointwiseView& v, const PointwiseParams& params) {
  switch (op) {
    case PointwiseOp::exp: return run<functors::Exp>(v, params);
    case PointwiseOp::neg: return run<functors::Neg>(v, params);
    case PointwiseOp::add: return run<functors::Add>(v, params);
    case PointwiseOp::mul: return run<functors::Mul>(v, params);
    default: missing_kernel("pointwise", name_of(v.compute));
  }
}

MT_REGISTER_KERNEL(pointwise_kernel, &pointwise);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
