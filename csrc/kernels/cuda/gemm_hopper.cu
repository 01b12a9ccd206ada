// Matrix products on Hopper's matrix units, by the kernel of gemm_hopper.cuh.
#include "kernels/cuda/gemm_hopper_plan.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace products;

// Brings `Lines` rows of an operand by kDepth of k. Along k a box is 64 of k by all the rows; across it, boxes of 64
// rows by 64 of k follow each other.
template <bool AlongK, int Lines>
__device__ __forceinline__ void copy_panel(uint32_t to, const CUtensorMap& map, int row, int k, int batch,
                                           uint32_t barrier) {
  if constexpr (AlongK) {
    hopper::copy_box(to, map, k, row, batch, barrier);
  } else {
#pragma unroll
    for (int r = 0; r < Lines; r += 64) hopper::copy_box(to + r * kLine, map, row + r, k, batch, barrier);
  }
}

template <class S, int Columns, bool AK, bool BK>
struct MatrixLoader : LoaderBase {
  CUtensorMap a_map, b_map;
  int a_batch, b_batch;  // 0: all of the batch share the operand

  struct State {};
  __device__ __forceinline__ State begin(const Unit&) const { return {}; }
  __device__ __forceinline__ void load(uint32_t a, uint32_t b, const Unit& u, State&, int step,
                                       uint32_t barrier) const {
    const int k = static_cast<int>(u.begin) + step * kDepth<S>;
    copy_panel<AK, kRows>(a, a_map, static_cast<int>(u.i), k, u.batch * a_batch, barrier);
    copy_panel<BK, Columns>(b, b_map, static_cast<int>(u.j), k, u.batch * b_batch, barrier);
  }
};

template <class S, int Columns, bool AK, bool BK>
bool multiply(const Strided<S>& p, const Plan& plan) {
  MatrixLoader<S, Columns, AK, BK> loader;
  loader.a_batch = p.a_view.batch != 0 && p.batch > 1;
  loader.b_batch = p.b_view.batch != 0 && p.batch > 1;
  const auto map = [&](CUtensorMap* to, const MatrixView& v, bool along_k, int64_t rows, bool whole_batch, int box) {
    const int64_t pitch = along_k ? v.row : v.col, width = along_k ? p.k : rows, lines = along_k ? rows : p.k;
    return hopper::make_map<3>(to, dtype_of<S>, v.data, {width, lines, whole_batch ? p.batch : 1},
                               {pitch, whole_batch ? v.batch : pitch * lines}, along_k ? box : kDepth<S>, true);
  };
  const MatrixView b_rows{p.b_view.data, p.b_view.col, p.b_view.row, p.b_view.batch};  // B with n for its rows
  if (!map(&loader.a_map, p.a_view, AK, p.m, loader.a_batch, kRows) ||
      !map(&loader.b_map, b_rows, BK, p.n, loader.b_batch, Columns))
    return false;
  return run<Columns, AK, BK>(p, loader, plan);
}

template <class S, int Columns>
bool by_layout(const Strided<S>& p, const Plan& plan) {
  if constexpr (std::is_same_v<S, float>) {
    return p.a_along_k && p.b_along_k && multiply<S, Columns, true, true>(p, plan);
  } else if (p.a_along_k) {
    return p.b_along_k ? multiply<S, Columns, true, true>(p, plan) : multiply<S, Columns, true, false>(p, plan);
  } else {
    return p.b_along_k ? multiply<S, Columns, false, true>(p, plan) : multiply<S, Columns, false, false>(p, plan);
  }
}

}  // namespace

bool on_hopper() {
  static const bool hopper = [] {
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9 && hopper::encoder() != nullptr;
  }();
  return hopper;
}

template <class S>
bool gemm_hopper(const Strided<S>& p) {
  constexpr int64_t limit = int64_t{1} << 31;
  const auto maps = [](const MatrixView& v, int64_t pitch) { return pitch > 0 && v.batch >= 0; };
  if (!on_hopper() || !p.a_vectors || !p.b_vectors || p.k == 0 || std::max({p.m, p.n, p.k, p.batch}) >= limit ||
      !maps(p.a_view, p.a_along_k ? p.a_view.row : p.a_view.col) ||
      !maps(p.b_view, p.b_along_k ? p.b_view.col : p.b_view.row))
    return false;
  const Plan plan = plan_tiles(kMatrixWidths, p.m, p.n, p.batch, ceil_div(p.k, kDepth<S>), 64, false);
  switch (plan.columns) {
    case 64: return by_layout<S, 64>(p, plan);
    case 128: return by_layout<S, 128>(p, plan);
    default: return by_layout<S, 256>(p, plan);
  }
}
template bool gemm_hopper(const Strided<BFloat16>&);
template bool gemm_hopper(const Strided<Half>&);
template bool gemm_hopper(const Strided<float>&);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
