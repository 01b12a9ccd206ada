// Matrix products on CUDA: strided matrices as a Problem of tile.cuh, and the textbook loop that tests compare with.
#include "kernels/gemm.h"

#include "kernels/cuda/tile.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class S>
struct Strided {
  using C = tile::sum_t<S>;
  int64_t m, n, k, batch;
  bool a_along_k, b_along_k;
  MatrixView a_view, b_view, c_view, d_view;
  C alpha, beta;
  bool adds;

  __device__ __forceinline__ static S element(const MatrixView& v, int64_t batch, int64_t row, int64_t col) {
    S x = reinterpret_cast<const S*>(v.data)[batch * v.batch + row * v.row + col * v.col];
    if constexpr (is_complex_v<S>) {
      if (v.conj) x = conj(x);
    }
    return x;
  }
  __device__ __forceinline__ S a(int64_t b, int64_t i, int64_t kk) const { return element(a_view, b, i, kk); }
  __device__ __forceinline__ S b(int64_t b, int64_t kk, int64_t j) const { return element(b_view, b, kk, j); }
  __device__ __forceinline__ void store(int64_t b, int64_t i, int64_t j, C sum) const {
    C result = tile::multiply_add(alpha, sum, C(0));
    if (adds) result = tile::multiply_add(beta, convert<C>(element(d_view, b, i, j)), result);
    reinterpret_cast<S*>(c_view.data)[b * c_view.batch + i * c_view.row + j * c_view.col] = convert<S>(result);
  }
};

template <class S>
Strided<S> problem(const GemmArgs& g) {
  using C = tile::sum_t<S>;
  Strided<S> p;
  p.m = g.m, p.n = g.n, p.k = g.k, p.batch = g.batch;
  const auto size = [](int64_t stride) { return stride < 0 ? -stride : stride; };
  p.a_along_k = size(g.a.col) <= size(g.a.row);
  p.b_along_k = size(g.b.row) < size(g.b.col);
  p.a_view = g.a, p.b_view = g.b, p.c_view = g.c, p.d_view = g.d;
  p.alpha = g.alpha.to<C>();
  p.beta = g.beta.to<C>();
  p.adds = !(p.beta == C(0)) && g.d.data != nullptr;
  return p;
}

template <class S>
__global__ void __launch_bounds__(kThreads) reference_kernel(const __grid_constant__ Strided<S> p) {
  using C = tile::sum_t<S>;
  MT_GRID_LOOP(at, p.batch * p.m * p.n) {
    const int64_t j = at % p.n, i = at / p.n % p.m, batch = at / (p.n * p.m);
    C sum = C(0);
    for (int64_t k = 0; k < p.k; k++)
      sum = tile::multiply_add(convert<C>(p.a(batch, i, k)), convert<C>(p.b(batch, k, j)), sum);
    p.store(batch, i, j, sum);
  }
}

using GemmTypes = Types<float, double, Half, BFloat16, Complex<float>, Complex<double>, uint8_t, int8_t, int16_t,
                        int32_t, int64_t, bool>;

void gemm(const GemmArgs& g) {
  if (!dispatch(g.dtype, GemmTypes{}, [&](auto tag) {
        using S = typename decltype(tag)::type;
        tile::run<S>(problem<S>(g));
      }))
    missing_kernel("gemm", name_of(g.dtype));
  cuda::check_launch("launching a matrix product");
}

void reference(const GemmArgs& g) {
  if (g.batch * g.m * g.n == 0) return;
  if (!dispatch(g.dtype, GemmTypes{}, [&](auto tag) {
        using S = typename decltype(tag)::type;
        reference_kernel<S><<<grid_for(g.batch * g.m * g.n), kThreads, 0, cuda::current_stream()>>>(problem<S>(g));
      }))
    missing_kernel("gemm_reference", name_of(g.dtype));
  cuda::check_launch("launching a reference matrix product");
}

MT_REGISTER_KERNEL(gemm_kernel, &gemm);
MT_REGISTER_KERNEL(gemm_reference_kernel, &reference);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
