// Matrix products on CUDA: floats go to kernels of their own, everything else through tile.cuh; and the textbook loop
// that tests compare with.
#include "kernels/gemm.h"

#include "kernels/cuda/gemm_problem.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using GemmTypes = Types<float, double, Half, BFloat16, Complex<float>, Complex<double>, uint8_t, int8_t, int16_t,
                        int32_t, int64_t, bool>;

// Whether alpha, in the type of the sums, takes no part of the product: NaNs in the factors do not spread then.
bool only_addend(const GemmArgs& g) {
  bool zero = false;
  dispatch(g.dtype, GemmTypes{}, [&](auto tag) {
    using C = tile::sum_t<typename decltype(tag)::type>;
    zero = g.alpha.to<C>() == C(0);
  });
  return zero;
}

void gemm(const GemmArgs& given) {
  if (given.m == 0 || given.n == 0 || given.batch == 0) return;
  GemmArgs g = given;
  if (only_addend(g)) g.k = 0;
  if (gemm_half(g) || gemm_tf32(g) || gemm_thin(g) || gemm_float(g))
    return cuda::check_launch("launching a matrix product");
  if (!dispatch(g.dtype, GemmTypes{}, [&](auto tag) {
        using S = typename decltype(tag)::type;
        tile::run<S>(strided_problem<S>(g));
      }))
    missing_kernel("gemm", name_of(g.dtype));
  cuda::check_launch("launching a matrix product");
}

void reference(const GemmArgs& g) {
  if (g.batch * g.m * g.n == 0) return;
  if (!dispatch(g.dtype, GemmTypes{}, [&](auto tag) {
        using S = typename decltype(tag)::type;
        tile::reference_kernel<S>
            <<<grid_for(g.batch * g.m * g.n), kThreads, 0, cuda::current_stream()>>>(strided_problem<S>(g));
      }))
    missing_kernel("gemm_reference", name_of(g.dtype));
  cuda::check_launch("launching a reference matrix product");
}

MT_REGISTER_KERNEL(gemm_kernel, &gemm);
MT_REGISTER_KERNEL(gemm_reference_kernel, &reference);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
