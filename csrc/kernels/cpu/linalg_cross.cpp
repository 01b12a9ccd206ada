// Cross products of vectors of three.
#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

using CrossTypes =
    Types<float, double, Half, BFloat16, Complex<float>, Complex<double>, uint8_t, int8_t, int16_t, int32_t, int64_t>;

void cross(const TensorView& out, const TensorView& a, const TensorView& b) {
  const bool known = dispatch(out.dtype, CrossTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const int64_t so = out.strides[out.ndim - 1], sa = a.strides[a.ndim - 1], sb = b.strides[b.ndim - 1];
    parallel_for(batch_count(out, 1), kGrainSize / 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        T* const o = batch_item<T>(out, i, 1);
        const T *const x = batch_item<T>(a, i, 1), *const y = batch_item<T>(b, i, 1);
        const C x0(x[0]), x1(x[sa]), x2(x[2 * sa]), y0(y[0]), y1(y[sb]), y2(y[2 * sb]);
        o[0] = T(C(x1 * y2 - x2 * y1));
        o[so] = T(C(x2 * y0 - x0 * y2));
        o[2 * so] = T(C(x0 * y1 - x1 * y0));
      }
    });
  });
  if (!known) missing_kernel("cross", name_of(out.dtype));
}

MT_REGISTER_KERNEL(cross_kernel, &cross);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
