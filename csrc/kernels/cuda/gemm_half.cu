// Matrix products of 16-bit floats: chooses the tensor-core kernel for the layout of the operands.
#include "kernels/cuda/gemm_tensor.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class S, int Columns, bool AK, bool BK>
void launch(const Strided<S>& p) {
  constexpr int bytes = (tensor::kRows + Columns) * tensor::kDepth * 2 * tensor::kStages;
  launch_tiles(&tensor::multistage_kernel<S, Columns, AK, BK>, p, tensor::kRows, Columns, tensor::kDepth, Columns,
               bytes, Columns == 128 ? 2 : 1);
}

template <class S, int Columns>
void by_layout(const Strided<S>& p) {
  if (p.a_along_k) {
    p.b_along_k ? launch<S, Columns, true, true>(p) : launch<S, Columns, true, false>(p);
  } else {
    p.b_along_k ? launch<S, Columns, false, true>(p) : launch<S, Columns, false, false>(p);
  }
}

template <class S>
void run(const GemmArgs& g) {
  const Strided<S> p = strided_problem<S>(g.c.col != 1 && g.c.row == 1 ? transposed(g) : g);
  static const int forced = std::getenv("MINITORCH_GEMM_COLUMNS") ? atoi(std::getenv("MINITORCH_GEMM_COLUMNS")) : 0;
  const bool wide =
      forced ? forced == 256 : ceil_div(p.m, 128) * ceil_div(p.n, 256) * p.batch >= cuda::multiprocessors();
  wide ? by_layout<S, 256>(p) : by_layout<S, 128>(p);
}

}  // namespace

bool gemm_half(const GemmArgs& g) {
  if (!is_half(g.dtype) || !has_unit_strides(g)) return false;
  g.dtype == DType::BF16 ? run<BFloat16>(g) : run<Half>(g);
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
