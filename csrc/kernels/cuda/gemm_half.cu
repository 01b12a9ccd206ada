// Matrix products of 16-bit floats: chooses the tensor-core kernel for the layout of the operands.
#include "kernels/cuda/gemm_tensor.cuh"
#include "kernels/cuda/lines.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class S, bool AK, bool BK>
void launch(const Strided<S>& p) {
  constexpr int kColumns = 128, bytes = (tensor::kRows + kColumns) * tensor::kDepth * 2 * tensor::kStages;
  launch_tiles(&tensor::multistage_kernel<S, kColumns, AK, BK>, p,
               {tensor::kRows, kColumns, tensor::kDepth, kColumns, bytes, 2});
}

template <class S>
void by_layout(const Strided<S>& p) {
  if (p.a_along_k) {
    p.b_along_k ? launch<S, true, true>(p) : launch<S, true, false>(p);
  } else {
    p.b_along_k ? launch<S, false, true>(p) : launch<S, false, false>(p);
  }
}

// An operand whose lines begin at multiples of 16 bytes: itself, or a copy that lives as long as this.
struct Aligned {
  Scratch memory;
  MatrixView view;

  Aligned(const MatrixView& v, bool copies, bool along_k, int64_t rows, int64_t k, int64_t batch)
      : memory(copies ? (v.batch == 0 ? 1 : batch) * (along_k ? rows : k) * pitch(along_k ? k : rows) * 2 : 0),
        view(v) {
    if (!copies) return;
    const int64_t count = along_k ? rows : k, length = along_k ? k : rows;
    const lines::Matrices<uint16_t> from{
        reinterpret_cast<const uint16_t*>(v.data), count, length, along_k ? v.row : v.col, 1, v.batch};
    lines::realign(from, memory.get<uint16_t>(), pitch(length), v.batch == 0 ? 1 : batch);
    view.data = memory.get();
    (along_k ? view.row : view.col) = pitch(length);
    view.batch = v.batch == 0 ? 0 : count * pitch(length);
  }
  static int64_t pitch(int64_t length) { return ceil_div(length, 8) * 8; }
};

template <class S>
void run(const GemmArgs& given) {
  const GemmArgs g = given.c.col != 1 && given.c.row == 1 ? transposed(given) : given;
  const Strided<S> p = strided_problem<S>(g);
  if (gemm_hopper(p)) return;
  // A copy costs as much as about 100 rows or columns of a product that loads element by element.
  if (on_hopper() && std::min({p.m, p.n, p.k}) >= 128 && p.batch <= 65535 && !(p.a_vectors && p.b_vectors)) {
    const MatrixView b_rows{g.b.data, g.b.col, g.b.row, g.b.batch};  // B with n for its rows
    const Aligned a(g.a, !p.a_vectors, p.a_along_k, p.m, p.k, p.batch);
    const Aligned b(b_rows, !p.b_vectors, p.b_along_k, p.n, p.k, p.batch);
    GemmArgs aligned = g;
    aligned.a = a.view;
    aligned.b = {b.view.data, b.view.col, b.view.row, b.view.batch};
    if (gemm_hopper(strided_problem<S>(aligned))) return;
  }
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
