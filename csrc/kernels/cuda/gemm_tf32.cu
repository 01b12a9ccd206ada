// Matrix products of floats that may be rounded to tf32, on Hopper's matrix units. These want both operands along k, in
// lines that begin at multiples of 16 bytes: what lies otherwise is copied into that order first, which costs k times
// less than the product.
#include "kernels/cuda/gemm_problem.cuh"
#include "kernels/cuda/lines.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// An operand of `rows` x k that runs along k: itself, or a copy that lives as long as this.
struct AlongK {
  Scratch memory;
  MatrixView view;

  static bool ready(const MatrixView& v) {
    return v.col == 1 && v.row > 0 && v.row % 4 == 0 && v.batch >= 0 && v.batch % 4 == 0 &&
           reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
  }
  static int64_t pitch(int64_t k) { return ceil_div(k, 4) * 4; }

  AlongK(const MatrixView& v, int64_t rows, int64_t k, int64_t batch)
      : memory(ready(v) ? 0 : (v.batch == 0 ? 1 : batch) * rows * pitch(k) * 4), view(v) {
    if (ready(v)) return;
    if (v.batch == 0) batch = 1;
    const lines::Matrices<float> from{reinterpret_cast<const float*>(v.data), rows, k, v.row, v.col, v.batch};
    lines::copy(from, memory.get<float>(), pitch(k), rows * pitch(k), pitch(k), batch, from.across());
    view.data = memory.get();
    view.row = pitch(k), view.col = 1, view.batch = v.batch == 0 ? 0 : rows * pitch(k);
  }
};

}  // namespace

bool gemm_tf32(const GemmArgs& g) {
  if (g.dtype != DType::F32 || !g.tf32 || g.k < 32 || g.batch > 65535 || !on_hopper()) return false;
  if (g.c.col != 1 && g.c.row == 1) return gemm_tf32(transposed(g));
  const MatrixView b_rows{g.b.data, g.b.col, g.b.row, g.b.batch};  // B with n for its rows
  // Copies are for products of some size.
  if (std::min(g.m, g.n) < (AlongK::ready(g.a) && AlongK::ready(b_rows) ? 32 : 64)) return false;
  const AlongK a(g.a, g.m, g.k, g.batch), b(b_rows, g.n, g.k, g.batch);
  GemmArgs staged = g;
  staged.a = a.view;
  staged.b = {b.view.data, b.view.col, b.view.row, b.view.batch};
  return gemm_hopper(strided_problem<float>(staged));
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
