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
struct FloatPair {
  float a, b;
};
struct AddPairs {
  __device__ __forceinline__ Pair operator()(Pair x, Pair y) const { return {x.a + y.a, x.b + y.b}; }
};

// From where deviations are taken, so that their squares keep their digits: of three among `count` elements the middle
// one, which a lone outlier or a border does not move. Zero if it is not finite.
template <class T, class F>
__device__ __forceinline__ T middle_of(int64_t count, const F& element) {
  const T a = element(count / 6), b = element(count / 2), c = element(count - 1 - count / 6);
  const T low = a < b ? a : b, high = a < b ? b : a, middle = c < low ? low : c > high ? high : c;
  return isfinite(middle) ? middle : T(0);
}

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

// The sums of `parts` partial pairs of column blockIdx.x * 32 + threadIdx.x, which the lines of a block share; whole in
// line 0. A column takes parts / 32 loads one after the other instead of all of them.
template <class P>
__device__ __forceinline__ Pair column_sums(const P* partial, int64_t parts, int64_t columns) {
  __shared__ Pair shared[32][32];
  const int64_t column = blockIdx.x * int64_t{32} + threadIdx.x;
  Pair sums{0, 0};
  if (column < columns) {
#pragma unroll 4
    for (int64_t k = threadIdx.y; k < parts; k += blockDim.y) {
      const P part = partial[k * columns + column];
      sums = AddPairs()(sums, {part.a, part.b});
    }
  }
  shared[threadIdx.y][threadIdx.x] = sums;
  __syncthreads();
  if (threadIdx.y == 0)
    for (int line = 1; line < static_cast<int>(blockDim.y); line++) sums = AddPairs()(sums, shared[line][threadIdx.x]);
  return sums;
}
dim3 column_threads(int64_t parts) { return dim3(32, static_cast<unsigned>(std::clamp<int64_t>(parts, 1, 32))); }
unsigned column_blocks(int64_t columns) { return static_cast<unsigned>(ceil_div(columns, 32)); }

// Into two parameter gradients.
template <class T, class P>
__global__ void __launch_bounds__(1024)
    add_partials_kernel(const P* partial, int64_t parts, int64_t columns, void* first, void* second, DType dtype) {
  const int64_t column = blockIdx.x * int64_t{32} + threadIdx.x;
  const Pair sums = column_sums(partial, parts, columns);
  if (threadIdx.y != 0 || column >= columns) return;
  write<T>(first, dtype, column, static_cast<T>(sums.a));
  write<T>(second, dtype, column, static_cast<T>(sums.b));
}
template <class T, class P>
void add_partials(const P* partial, int64_t parts, int64_t columns, void* first, void* second, DType dtype) {
  add_partials_kernel<T><<<column_blocks(columns), column_threads(parts), 0, cuda::current_stream()>>>(
      partial, parts, columns, first, second, dtype);
}

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
