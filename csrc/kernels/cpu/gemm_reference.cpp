// The definition of the matrix product, without any of the machinery: tests hold the fast kernel against it.
#include "kernels/gemm.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class T>
MT_INLINE T element(const MatrixView& v, int64_t batch, int64_t i, int64_t j) {
  const T x = reinterpret_cast<const T*>(v.data)[batch * v.batch + i * v.row + j * v.col];
  if constexpr (is_complex_v<T>) return v.conj ? conj(x) : x;
  return x;
}

template <class T>
void reference(const GemmArgs& args) {
  using E = compute_t<T>;
  const E alpha = args.alpha.to<E>(), beta = args.beta.to<E>();
  for (int64_t batch = 0; batch < args.batch; batch++)
    for (int64_t i = 0; i < args.m; i++)
      for (int64_t j = 0; j < args.n; j++) {
        E sum(0);
        for (int64_t k = 0; k < args.k; k++)
          sum += static_cast<E>(element<T>(args.a, batch, i, k)) * static_cast<E>(element<T>(args.b, batch, k, j));
        sum = alpha * sum;
        if (!(beta == E(0)) && args.d.data != nullptr) sum += beta * static_cast<E>(element<T>(args.d, batch, i, j));
        reinterpret_cast<T*>(args.c.data)[batch * args.c.batch + i * args.c.row + j * args.c.col] = static_cast<T>(sum);
      }
}

using ProductTypes =
    Types<float, double, BFloat16, Half, Complex<float>, Complex<double>, uint8_t, int8_t, int16_t, int32_t, int64_t>;

void gemm_reference(const GemmArgs& args) {
  if (!dispatch(args.dtype, ProductTypes{}, [&](auto tag) { reference<typename decltype(tag)::type>(args); }))
    missing_kernel("gemm_reference", name_of(args.dtype));
}

MT_REGISTER_KERNEL(gemm_reference_kernel, &gemm_reference);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
