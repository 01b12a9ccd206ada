// The CUDA loop under every pointwise operator. A functor is compiled in two forms:
//
//  dense    every operand lies dense in the functor's own types, or is one value for all elements: 16-byte accesses,
//           four in flight a thread;
//  general  any strides and any mix of dtypes: the index of each element is computed with precomputed reciprocals, and
//           operands stored in another dtype than the functor's are converted by a function that all operators share.
//
// 16-bit floats have dense forms of their own, since they compute in float.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <tuple>

#include "core/convert.h"
#include "kernels/functors/pointwise.h"
#include "kernels/functors/types.h"
#include "kernels/kernel.h"
#include "kernels/pointwise.h"
#include "runtime/cuda/cuda.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

constexpr int kThreads = 256;
constexpr int kCudaDims = 16;  // after merging; kernel arguments are limited to 4 KiB

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

template <int N>
struct OperandArgs {
  int64_t numel;
  int ndim;
  bool small;  // 32-bit indices suffice
  Divider dividers[kCudaDims];
  int64_t sizes[kCudaDims];
  int64_t strides[N][kCudaDims];
  char* data[N];
  DType dtype[N];
  bool single[N];  // one value for all elements
  alignas(16) char host_value[N][16];
};

template <int N>
OperandArgs<N> operand_args(const PointwiseView& v) {
  if (v.ndim > kCudaDims) throw std::runtime_error("minitorch: more than 16 dimensions after merging");
  OperandArgs<N> a;
  a.numel = v.numel;
  a.ndim = v.ndim;
  a.small = v.numel < (int64_t{1} << 31);
  for (int d = 0; d < v.ndim; d++) {
    a.sizes[d] = v.sizes[d];
    if (a.small) a.dividers[d] = Divider(static_cast<uint32_t>(v.sizes[d]));
  }
  for (int k = 0; k < N; k++) {
    a.dtype[k] = v.dtype[k];
    a.data[k] = v.data[k];
    a.single[k] = k >= v.num_outputs;
    for (int d = 0; d < v.ndim; d++) {
      a.strides[k][d] = v.strides[k][d];
      if (v.strides[k][d] != 0 && v.sizes[d] != 1) a.single[k] = false;
    }
    if (v.host_operands >> k & 1) {
      memcpy(a.host_value[k], v.data[k], size_of(v.dtype[k]));
      a.data[k] = nullptr;
      a.single[k] = true;
    }
  }
  return a;
}

template <int N>
__device__ __forceinline__ void offsets(const OperandArgs<N>& a, int64_t i, int64_t* offset) {
#pragma unroll
  for (int k = 0; k < N; k++) offset[k] = 0;
  if (a.small) {
    uint32_t rest = static_cast<uint32_t>(i);
    for (int d = 0; d < a.ndim; d++) {
      const uint32_t quotient = d + 1 < a.ndim ? a.dividers[d].quotient(rest) : 0;
      const uint32_t index = rest - quotient * a.dividers[d].divisor * (d + 1 < a.ndim);
      rest = quotient;
#pragma unroll
      for (int k = 0; k < N; k++) offset[k] += index * a.strides[k][d];
    }
  } else {
    int64_t rest = i;
    for (int d = 0; d < a.ndim; d++) {
      const int64_t quotient = d + 1 < a.ndim ? rest / a.sizes[d] : 0;
      const int64_t index = d + 1 < a.ndim ? rest - quotient * a.sizes[d] : rest;
      rest = quotient;
#pragma unroll
      for (int k = 0; k < N; k++) offset[k] += index * a.strides[k][d];
    }
  }
}

// Conversions between storage and compute types, one copy per compute type and not per operator.
template <class T>
__device__ __noinline__ T load_as(const char* p, DType dtype) {
  switch (dtype) {
#define MT_CASE(D, S) \
  case DType::D: return convert<T>(*reinterpret_cast<const S*>(p));
    MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
  }
  return T();
}
template <class T>
__device__ __noinline__ void store_as(char* p, DType dtype, T value) {
  switch (dtype) {
#define MT_CASE(D, S) \
  case DType::D: *reinterpret_cast<S*>(p) = convert<S>(value); return;
    MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
  }
}

template <class T, int N>
__device__ __forceinline__ T load(const OperandArgs<N>& a, int k, int64_t offset) {
  const char* p = a.data[k] == nullptr ? a.host_value[k] : a.data[k] + offset;
  return a.dtype[k] == dtype_of<T> ? *reinterpret_cast<const T*>(p) : load_as<T>(p, a.dtype[k]);
}
template <class T, int N>
__device__ __forceinline__ void store(const OperandArgs<N>& a, int k, int64_t offset, T value) {
  char* p = a.data[k] + offset;
  if (a.dtype[k] == dtype_of<T>) {
    *reinterpret_cast<T*>(p) = value;
  } else {
    store_as<T>(p, a.dtype[k], value);
  }
}

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T value[V];
};

template <class R>
struct FirstOutput {
  using type = R;
};
template <class A, class B>
struct FirstOutput<functors::Two<A, B>> {
  using type = A;
};

template <class F, class R, class Indices, class... In>
struct Loops;
template <class F, class R, size_t... I, class... In>
struct Loops<F, R, std::index_sequence<I...>, In...> {
  static constexpr bool two = !std::is_same_v<R, typename FirstOutput<R>::type>;
  static constexpr int outputs = two ? 2 : 1;
  static constexpr int N = outputs + static_cast<int>(sizeof...(In));
  using Args = OperandArgs<N>;

  __device__ static void general(const Args& a, const F& f, int64_t i) {
    int64_t offset[N];
    offsets(a, i, offset);
    const R r = f(load<In>(a, outputs + I, offset[outputs + I])...);
    if constexpr (two) {
      store(a, 0, offset[0], r.first);
      store(a, 1, offset[1], r.second);
    } else {
      store(a, 0, offset[0], r);
    }
  }
};

template <class L, class F, class Args>
__global__ void __launch_bounds__(kThreads)
    general_kernel(const __grid_constant__ Args a, const __grid_constant__ F f) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < a.numel; i += int64_t{kThreads} * gridDim.x)
    L::general(a, f, i);
}

// S is the storage type of the float operands (float, or a 16-bit type), S_of<T> that of an operand of type T.
template <class S, class T>
using storage_t = std::conditional_t<std::is_same_v<T, float>, S, T>;

constexpr int kUnroll = 4;

template <class T>
constexpr int pack_width() {
  return sizeof(T) >= 16 ? 1 : static_cast<int>(16 / sizeof(T));
}

template <class F, class S, class R, class... In>
__global__ void __launch_bounds__(kThreads)
    dense_kernel(const __grid_constant__ OperandArgs<1 + static_cast<int>(sizeof...(In))> a,
                 const __grid_constant__ F f) {
  // One width for all operands: that of the widest, so that no access is wider than 16 bytes.
  constexpr int V = std::min({pack_width<storage_t<S, R>>(), pack_width<storage_t<S, In>>()...});
  constexpr int64_t kPerBlock = int64_t{kThreads} * V * kUnroll;
  const int64_t base = blockIdx.x * kPerBlock + threadIdx.x * V;
  [&]<size_t... I>(std::index_sequence<I...>) {
    std::tuple<Pack<storage_t<S, In>, V>...> packs[kUnroll];
    const std::tuple<In...> singles{(a.single[1 + I] ? load<In>(a, 1 + I, 0) : In())...};
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      const int64_t i = base + u * int64_t{kThreads} * V;
      if (i + V <= a.numel) {
        ((a.single[1 + I] ? void()
                          : void(std::get<I>(packs[u]) = *reinterpret_cast<const Pack<storage_t<S, In>, V>*>(
                                     a.data[1 + I] + i * sizeof(storage_t<S, In>)))),
         ...);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      const int64_t i = base + u * int64_t{kThreads} * V;
      if (i + V <= a.numel) {
        Pack<storage_t<S, R>, V> out;
#pragma unroll
        for (int v = 0; v < V; v++)
          out.value[v] = convert<storage_t<S, R>>(
              f((a.single[1 + I] ? std::get<I>(singles) : convert<In>(std::get<I>(packs[u]).value[v]))...));
        *reinterpret_cast<Pack<storage_t<S, R>, V>*>(a.data[0] + i * sizeof(storage_t<S, R>)) = out;
      } else {
        for (int64_t j = i; j < a.numel; j++) {
          reinterpret_cast<storage_t<S, R>*>(a.data[0])[j] = convert<storage_t<S, R>>(
              f((a.single[1 + I] ? std::get<I>(singles)
                                 : convert<In>(reinterpret_cast<const storage_t<S, In>*>(a.data[1 + I])[j]))...));
        }
      }
    }
  }(std::index_sequence_for<In...>{});
}

// True if the operand lies dense and 16-byte aligned in dtype d, or is a single value.
inline bool dense(const PointwiseView& v, int k, DType d, bool single) {
  if (single) return true;
  return v.dtype[k] == d && v.ndim <= 1 && (v.ndim == 0 || v.strides[k][0] == static_cast<int64_t>(size_of(d))) &&
         reinterpret_cast<uintptr_t>(v.data[k]) % 16 == 0;
}

template <class F, class Call = decltype(&F::operator())>
struct Launcher;
template <class F, class R, class... In>
struct Launcher<F, R (F::*)(In...) const> {
  using L = Loops<F, R, std::index_sequence_for<In...>, In...>;

  template <class S>
  static bool try_dense(const PointwiseView& v, const typename L::Args& a, const F& f) {
    if constexpr (L::two) {
      return false;
    } else {
      bool fits = dense(v, 0, dtype_of<storage_t<S, R>>, false);
      int k = 1;
      ((fits = fits && dense(v, k, dtype_of<storage_t<S, In>>, a.single[k]), k++), ...);
      if (!fits) return false;
      constexpr int V = std::min({pack_width<storage_t<S, R>>(), pack_width<storage_t<S, In>>()...});
      const int64_t per_block = int64_t{kThreads} * V * kUnroll;
      dense_kernel<F, S, R, In...>
          <<<static_cast<unsigned>((v.numel + per_block - 1) / per_block), kThreads, 0, cuda::current_stream()>>>(a, f);
      return true;
    }
  }

  static void run(const PointwiseView& v, const PointwiseParams& params) {
    if (v.numel == 0) return;
    const F f = functors::make_functor<F>(params);
    const auto a = operand_args<L::N>(v);
    constexpr bool in_float = std::is_same_v<R, float> || (std::is_same_v<In, float> || ...);
    bool launched = try_dense<float>(v, a, f);
    if constexpr (in_float) launched = launched || try_dense<BFloat16>(v, a, f) || try_dense<Half>(v, a, f);
    if (!launched) {
      const int64_t blocks =
          std::min<int64_t>((v.numel + kThreads - 1) / kThreads, int64_t{cuda::multiprocessors()} * 32);
      general_kernel<L, F, typename L::Args>
          <<<static_cast<unsigned>(blocks), kThreads, 0, cuda::current_stream()>>>(a, f);
    }
    cuda::check_launch("launching a pointwise kernel");
  }
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
