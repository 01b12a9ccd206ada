// What the sources for normalisation share: pairs of sums in double, parameters of any type, and the merge of partial
// sums.
#pragma once
#include "kernels/cuda/rows.cuh"
#include "kernels/norm.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kLines = 8;  // threads that share a column

struct Pair {
  double a, b;
};
struct AddPairs {
  __device__ __forceinline__ Pair operator()(Pair x, Pair y) const { return {x.a + y.a, x.b + y.b}; }
};

// Null pointers read as `absent`.
template <class T>
__device__ __forceinline__ T read(const void* p, DType dtype, int64_t i, T absent) {
  return p == nullptr ? absent
                      : load_as<T>(static_cast<const char*>(p) + i * static_cast<int64_t>(size_of(dtype)), dtype);
}
template <class T>
__device__ __forceinline__ void write(void* p, DType dtype, int64_t i, T value) {
  if (p != nullptr) store_as<T>(static_cast<char*>(p) + i * static_cast<int64_t>(size_of(dtype)), dtype, value);
}

template <class F>
void by_compute(const char* name, DType dtype, const F& f) {
  if (!dispatch(compute_dtype(dtype), FloatTypes{}, f)) missing_kernel(name, name_of(dtype));
}

unsigned threads_for(int64_t extent) {
  return static_cast<unsigned>(std::clamp<int64_t>(ceil_div(extent, 4 * 32) * 32, 32, 512));
}
unsigned blocks_for(int64_t groups) { return static_cast<unsigned>(std::min<int64_t>(groups, int64_t{1} << 20)); }

// Sums of `parts` partial pairs of every column into two parameter gradients.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_partials(const Pair* partial, int64_t parts, int64_t columns, void* first, void* second, DType dtype) {
  MT_GRID_LOOP(i, columns) {
    Pair sums{0, 0};
#pragma unroll 4
    for (int64_t k = 0; k < parts; k++) sums = AddPairs()(sums, partial[k * columns + i]);
    write<T>(first, dtype, i, static_cast<T>(sums.a));
    write<T>(second, dtype, i, static_cast<T>(sums.b));
  }
}

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
