// The micro-kernel: a tile of rows x vectors accumulators, updated by one outer product for each k.
#include <utility>

#include "kernels/cpu/gemm_core.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace gemm {
namespace {

template <class R, int kTileRows, int kTileVectors>
void micro(int64_t k, const R* a, const R* b, int64_t ldb, R* tile) {
  Vector<R> acc[kTileRows][kTileVectors] = {};
  for (; k > 0; k--) {
    Vector<R> bv[kTileVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; v++) bv[v] = load_vector(b + v * kLanes<R>);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; r++) {
      const R av = a[r];
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; v++) acc[r][v] += av * bv[v];
    }
    a += kTileRows;
    b += ldb;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; v++) store_vector(tile + r * kColumns<R> + v * kLanes<R>, acc[r][v]);
}

template <class R, int... kIndex>
MicroKernel<R> lookup(int rows, int vectors, std::integer_sequence<int, kIndex...>) {
  static constexpr MicroKernel<R> table[kMaxRows][kVectors] = {{&micro<R, kIndex + 1, 1>, &micro<R, kIndex + 1, 2>}...};
  return table[rows - 1][vectors - 1];
}

}  // namespace

template <class R>
MicroKernel<R> micro_kernel(int rows, int vectors) {
  return lookup<R>(rows, vectors, std::make_integer_sequence<int, kMaxRows>{});
}
template MicroKernel<float> micro_kernel<float>(int, int);
template MicroKernel<double> micro_kernel<double>(int, int);
template MicroKernel<uint32_t> micro_kernel<uint32_t>(int, int);
template MicroKernel<uint64_t> micro_kernel<uint64_t>(int, int);

}  // namespace gemm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
