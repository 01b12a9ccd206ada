// The gradient of unfold: every element of the input sums over the folds that contain it.
#include "kernels/index.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class T>
void unfold_backward_typed(const UnfoldBackwardArgs& args) {
  using C = compute_t<T>;
  const TensorView &out = args.out, &grad = args.grad;
  const int64_t folds = grad.sizes[args.dim], fold_stride = grad.strides[args.dim];
  const int64_t within_stride = grad.strides[out.ndim];
  parallel_for(out.numel, kGrainSize / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const T* g = grad.ptr<T>();
      int64_t rest = i, position = 0;
      for (int d = out.ndim - 1; d >= 0; d--) {
        const int64_t coordinate = rest % out.sizes[d];
        rest /= out.sizes[d];
        if (d == args.dim) {
          position = coordinate;
        } else {
          g += coordinate * grad.strides[d];
        }
      }
      const int64_t first = position < args.size ? 0 : (position - args.size) / args.step + 1;
      C sum(0);
      for (int64_t f = first; f < folds && f * args.step <= position; f++)
        sum += static_cast<C>(g[f * fold_stride + (position - f * args.step) * within_stride]);
      out.ptr<T>()[i] = static_cast<T>(sum);
    }
  });
}

using SumTypes =
    Types<float, double, Half, BFloat16, uint8_t, int8_t, int16_t, int32_t, int64_t, Complex<float>, Complex<double>>;

void unfold_backward(const UnfoldBackwardArgs& args) {
  if (args.out.numel == 0) return;
  if (!dispatch(args.out.dtype, SumTypes{},
                [&](auto tag) { unfold_backward_typed<typename decltype(tag)::type>(args); }))
    missing_kernel("unfold_backward", name_of(args.out.dtype));
}

MT_REGISTER_KERNEL(unfold_backward_kernel, &unfold_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
