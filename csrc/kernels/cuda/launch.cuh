// What CUDA kernel sources share: launch shapes, index arithmetic over strided operands, element conversion, and
// reductions over a warp or a block.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "core/convert.h"
#include "core/dtype.h"
#include "kernels/kernel.h"
#include "kernels/view.h"
#include "runtime/cuda/cuda.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

constexpr int kThreads = 256;
constexpr int kCudaDims = 16;  // after merging; kernel arguments are limited to 4 KiB

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of kThreads for a grid-stride loop over n elements.
inline unsigned grid_for(int64_t n, int per_thread = 1) {
  const int64_t wanted = ceil_div(n, int64_t{kThreads} * per_thread);
  return static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, int64_t{cuda::multiprocessors()} * 32));
}

// Lets blocks of `kernel` have this much shared memory besides what it declares.
void allow_shared(const void* kernel, int64_t bytes);

// Starts `kernel` on the current stream with that much shared memory.
template <class... Parameters>
void launch_kernel(void (*kernel)(Parameters...), dim3 grid, int threads, int64_t shared_bytes,
                   const std::type_identity_t<Parameters>&... arguments) {
  allow_shared(reinterpret_cast<const void*>(kernel), shared_bytes);
  kernel<<<grid, static_cast<unsigned>(threads), static_cast<size_t>(shared_bytes), cuda::current_stream()>>>(
      arguments...);
}

// for (int64_t i : each index of the grid) in a kernel.
#define MT_GRID_LOOP(i, n)                                                                           \
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x, end_of_##i = (n); i < end_of_##i; \
       i += int64_t{blockDim.x} * gridDim.x)

// n / d and n % d for 32-bit n by a multiplication (T. Granlund, P. Montgomery, "Division by invariant integers using
// multiplication", PLDI 1994).
struct Divider {
  uint32_t divisor, multiplier, shift;
  Divider() = default;
  explicit Divider(uint32_t d) : divisor(d), shift(0) {
    while (shift < 32 && (uint64_t{1} << shift) < d) shift++;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
  __device__ __forceinline__ uint32_t quotient(uint32_t n) const {
    const uint32_t t = __umulhi(n, multiplier);
    return static_cast<uint32_t>((static_cast<uint64_t>(t) + n) >> shift);
  }
};

// The sizes of an iteration space, dimension 0 the fastest, ready for index arithmetic.
struct Space {
  int ndim;
  bool small;  // 32-bit indices suffice
  Divider dividers[kCudaDims];
  int64_t sizes[kCudaDims];

  Space() = default;
  Space(int dims, const int64_t* from, int64_t numel) : ndim(dims), small(numel < (int64_t{1} << 31)) {
    if (dims > kCudaDims) throw std::runtime_error("minitorch: more than 16 dimensions after merging");
    for (int d = 0; d < dims; d++) {
      sizes[d] = from[d];
      if (small && from[d] > 0) dividers[d] = Divider(static_cast<uint32_t>(from[d]));
    }
  }

  // Calls f(d, index) for every dimension of linear index i.
  template <class F>
  __device__ __forceinline__ void each(int64_t i, const F& f) const {
    if (small) {
      uint32_t rest = static_cast<uint32_t>(i);
      for (int d = 0; d < ndim; d++) {
        const uint32_t quotient = d + 1 < ndim ? dividers[d].quotient(rest) : 0;
        f(d, static_cast<int64_t>(rest - quotient * (d + 1 < ndim ? dividers[d].divisor : 0)));
        rest = quotient;
      }
    } else {
      int64_t rest = i;
      for (int d = 0; d < ndim; d++) {
        const int64_t quotient = d + 1 < ndim ? rest / sizes[d] : 0;
        f(d, d + 1 < ndim ? rest - quotient * sizes[d] : rest);
        rest = quotient;
      }
    }
  }
};

// N operands over one iteration space given outermost dimension first, as TensorViews have it, with strides in
// elements: dimensions of one element are dropped and those that follow each other in all operands merged.
template <int N>
struct Joint {
  Space space;
  int64_t numel = 1;
  int64_t strides[N][kCudaDims];

  Joint(int ndim, const int64_t* sizes, const int64_t* const (&from)[N]) {
    int64_t size[kMaxDims];
    int64_t stride[N][kMaxDims];
    int kept = 0;
    for (int d = ndim - 1; d >= 0; d--) {
      numel *= sizes[d];
      if (sizes[d] == 1) continue;
      bool merges = kept > 0;
      for (int k = 0; merges && k < N; k++) merges = from[k][d] == stride[k][kept - 1] * size[kept - 1];
      if (merges) {
        size[kept - 1] *= sizes[d];
        continue;
      }
      size[kept] = sizes[d];
      for (int k = 0; k < N; k++) stride[k][kept] = from[k][d];
      kept++;
    }
    space = Space(kept, size, numel);
    for (int k = 0; k < N; k++)
      for (int d = 0; d < kept; d++) strides[k][d] = stride[k][d];
  }

  // Offsets in elements of linear index i (row-major).
  __device__ __forceinline__ void offsets(int64_t i, int64_t (&offset)[N]) const {
#pragma unroll
    for (int k = 0; k < N; k++) offset[k] = 0;
    space.each(i, [&](int d, int64_t index) {
#pragma unroll
      for (int k = 0; k < N; k++) offset[k] += index * strides[k][d];
    });
  }
};

// What convert() does, but a float becomes a bfloat16 by one instruction.
template <class To, class From>
__device__ __forceinline__ To convert_to_store(From x) {
  if constexpr (std::is_same_v<To, BFloat16> && std::is_same_v<From, float>) {
    BFloat16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
    return result;
  } else {
    return convert<To>(x);
  }
}

// 2^x and 1 / x by one instruction each, within 2 and 1 ulp; 0 where the result would be denormal.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Conversions between storage and compute types, one copy per compute type and source file.
template <class T>
static __device__ __noinline__ T load_any(const char* p, DType dtype) {
  switch (dtype) {
#define MT_CASE(D, S) \
  case DType::D: return convert<T>(*reinterpret_cast<const S*>(p));
    MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
  }
  return T();
}
template <class T>
static __device__ __noinline__ void store_any(char* p, DType dtype, T value) {
  switch (dtype) {
#define MT_CASE(D, S) \
  case DType::D: *reinterpret_cast<S*>(p) = convert<S>(value); return;
    MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
  }
}

// The common cases in line: T itself and, for float, the 16-bit floats.
template <class T>
__device__ __forceinline__ T load_as(const char* p, DType dtype) {
  if (dtype == dtype_of<T>) return *reinterpret_cast<const T*>(p);
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::BF16) return *reinterpret_cast<const BFloat16*>(p);
    if (dtype == DType::F16) return *reinterpret_cast<const Half*>(p);
  }
  return load_any<T>(p, dtype);
}
template <class T>
__device__ __forceinline__ void store_as(char* p, DType dtype, T value) {
  if (dtype == dtype_of<T>) {
    *reinterpret_cast<T*>(p) = value;
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::BF16) {
      *reinterpret_cast<BFloat16*>(p) = convert_to_store<BFloat16>(value);
      return;
    }
    if (dtype == DType::F16) {
      *reinterpret_cast<Half*>(p) = Half(value);
      return;
    }
  }
  store_any<T>(p, dtype, value);
}

struct alignas(16) Bytes16 {
  uint64_t low, high;
};

// Calls f(Tag<an unsigned integer, or Bytes16, of `size` bytes>): for code that only moves bits.
template <class F>
void by_size(size_t size, F&& f) {
  switch (size) {
    case 1: return f(Tag<uint8_t>{});
    case 2: return f(Tag<uint16_t>{});
    case 4: return f(Tag<uint32_t>{});
    case 8: return f(Tag<uint64_t>{});
    default: return f(Tag<Bytes16>{});
  }
}

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T value[V];
};

// The elements of a pack as floats and back; 16-bit ones are taken two at a time.
template <class S, int V>
__device__ __forceinline__ void unpack(Pack<S, V> pack, float (&to)[V]) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    uint32_t words[V / 2];
    memcpy(words, &pack, sizeof(words));
#pragma unroll
    for (int w = 0; w < V / 2; w++) {
      to[2 * w] = __uint_as_float(words[w] << 16);
      to[2 * w + 1] = __uint_as_float(words[w] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int v = 0; v < V; v++) to[v] = convert<float>(pack.value[v]);
  }
}
template <class S, int V>
__device__ __forceinline__ Pack<S, V> pack_of(const float (&from)[V]) {
  Pack<S, V> pack;
  if constexpr (is_half_v<S>) {
    uint32_t words[V / 2];
#pragma unroll
    for (int w = 0; w < V / 2; w++) {
      if constexpr (std::is_same_v<S, BFloat16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[w]) : "f"(from[2 * w + 1]), "f"(from[2 * w]));
      } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(words[w]) : "f"(from[2 * w + 1]), "f"(from[2 * w]));
      }
    }
    memcpy(&pack, words, sizeof(words));
  } else {
#pragma unroll
    for (int v = 0; v < V; v++) pack.value[v] = convert<S>(from[v]);
  }
  return pack;
}

// Elements in a 16-byte access.
template <class T>
constexpr int pack_width() {
  return sizeof(T) >= 16 ? 1 : static_cast<int>(16 / sizeof(T));
}

// ---- Warps and blocks ----------------------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  if constexpr (sizeof(T) == 4 || sizeof(T) == 8) {
    if constexpr (std::is_arithmetic_v<T>) {
      return __shfl_xor_sync(0xffffffffu, value, mask);
    }
  }
  union {
    T whole;
    int words[(sizeof(T) + 3) / 4];
  } from, to;
  memset(&from, 0, sizeof(from));
  memcpy(&from.whole, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < static_cast<int>((sizeof(T) + 3) / 4); i++)
    to.words[i] = __shfl_xor_sync(0xffffffffu, from.words[i], mask);
  T result;
  memcpy(&result, &to.whole, sizeof(T));
  return result;
}

// combine(a, b) over the lanes of a warp; every lane gets the result, in the same order of combination.
template <class T, class F>
__device__ __forceinline__ T warp_reduce(T value, const F& combine) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const T other = shuffle_xor(value, mask);
    value = (threadIdx.x & mask) ? combine(other, value) : combine(value, other);
  }
  return value;
}

// The same over a block whose size is a multiple of 32. `shared` has room for 32 values. All threads take part.
template <class T, class F>
__device__ __forceinline__ T block_reduce(T value, T* shared, const T& identity, const F& combine) {
  value = warp_reduce(value, combine);
  const int warps = static_cast<int>(blockDim.x) / 32;
  if (warps == 1) return value;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return warp_reduce(lane < warps ? shared[lane] : identity, combine);
}

struct Sum {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {  // NaN wins
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};

// Memory for the length of a kernel's launch: freed memory is only handed out again to later work of the same stream.
class Scratch {
 public:
  explicit Scratch(int64_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  template <class T = char>
  T* get() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void* data_;
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
