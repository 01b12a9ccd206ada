// Matrix products of 16-bit floats: chooses the tensor-core kernel for the layout of the operands.
#include "kernels/cuda/gemm_tensor.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class S, bool AK, bool BK>
void launch(const Strided<S>& p) {
  constexpr int kColumns = 128, bytes = (tensor::kRows + kColumns) * tensor::kDepth * 2 * tensor::kStages;
  launch_tiles(&tensor::multistage_kernel<S, kColumns, AK, BK>, p, tensor::kRows, kColumns, tensor::kDepth, kColumns,
               bytes, 2);
}

template <class S>
void by_layout(const Strided<S>& p) {
  if (p.a_along_k) {
    p.b_along_k ? launch<S, true, true>(p) : launch<S, true, false>(p);
  } else {
    p.b_along_k ? launch<S, false, true>(p) : launch<S, false, false>(p);
  }
}

template <class S>
void run(const GemmArgs& g) {
  const Strided<S> p = strided_problem<S>(g.c.col != 1 && g.c.row == 1 ? transposed(g) : g);
  if (gemm_hopper(p)) return;
  by_layout<S>(p);
}

}  // namespace

bool gemm_half(const GemmArgs& g) {
  if (!is_half(g.dtype) || !has_unit_strides(g)) return false;
  g.dtype == DType::BF16 ? run<BFloat16>(g) : run<Half>(g);
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
