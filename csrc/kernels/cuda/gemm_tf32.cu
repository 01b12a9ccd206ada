// Matrix products of floats that may be rounded to tf32, on Hopper's matrix units. These want both operands along k, in
// lines that begin at multiples of 16 bytes: what lies otherwise is copied into that order first, which costs k times
// less than the product.
#include "kernels/cuda/gemm_problem.cuh"
#include "kernels/cuda/hopper.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kTile = 32;

struct CopyArgs {
  const float* from;
  float* to;  // [batch][row][pitch], zeros from `depth` on
  int64_t rows, depth, pitch;
  int64_t row, k, batch;  // strides
  bool across;            // memory runs across k
};

__global__ void __launch_bounds__(256) copy_along_k(const __grid_constant__ CopyArgs a) {
  __shared__ float tile[kTile][kTile + 1];
  const int lane = static_cast<int>(threadIdx.x) % kTile, line = static_cast<int>(threadIdx.x) / kTile;
  const int64_t k0 = int64_t{blockIdx.x} * kTile, r0 = int64_t{blockIdx.y} * kTile;
  const float* const from = a.from + blockIdx.z * a.batch;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int y = line + e * 8, r = a.across ? lane : y, k = a.across ? y : lane;
    tile[r][k] = r0 + r < a.rows && k0 + k < a.depth ? from[(r0 + r) * a.row + (k0 + k) * a.k] : 0.0f;
  }
  __syncthreads();
  float* const to = a.to + int64_t{blockIdx.z} * a.rows * a.pitch;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int64_t r = r0 + line + e * 8, k = k0 + lane;
    if (r < a.rows && k < a.pitch) to[r * a.pitch + k] = tile[line + e * 8][lane];
  }
}

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
    CopyArgs a;
    a.from = reinterpret_cast<const float*>(v.data);
    a.to = memory.get<float>();
    a.rows = rows, a.depth = k, a.pitch = pitch(k);
    a.row = v.row, a.k = v.col, a.batch = v.batch;
    a.across = std::abs(v.row) < std::abs(v.col);
    const dim3 grid(static_cast<unsigned>(ceil_div(a.pitch, kTile)), static_cast<unsigned>(ceil_div(rows, kTile)),
                    static_cast<unsigned>(batch));
    copy_along_k<<<grid, 256, 0, cuda::current_stream()>>>(a);
    view.data = memory.get();
    view.row = a.pitch, view.col = 1, view.batch = v.batch == 0 ? 0 : rows * a.pitch;
  }
};

}  // namespace

bool gemm_tf32(const GemmArgs& g) {
  if (g.dtype != DType::F32 || !g.tf32 || std::min(g.m, g.n) <= 64 || g.k < 32 || g.batch > 65535 ||
      std::max(g.m, g.n) > int64_t{kTile} * 65535 || !on_hopper())
    return false;
  if (g.c.col != 1 && g.c.row == 1) return gemm_tf32(transposed(g));
  const MatrixView b_rows{g.b.data, g.b.col, g.b.row, g.b.batch};  // B with n for its rows
  const AlongK a(g.a, g.m, g.k, g.batch), b(b_rows, g.n, g.k, g.batch);
  GemmArgs staged = g;
  staged.a = a.view;
  staged.b = {b.view.data, b.view.col, b.view.row, b.view.batch};
  return gemm_hopper(strided_problem<float>(staged));
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
