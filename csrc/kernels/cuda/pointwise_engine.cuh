// The CUDA kernels under every pointwise operator. A functor is compiled in two forms:
//
//  dense    the output lies dense, and every input too in the functor's own types, or is one value for all elements, or
//           repeats in a regular way (a bias along any dimension): 16-byte accesses, four in flight a thread. Functors
//           on float have it for the 16-bit floats as well, which compute in float;
//  general  any strides and any mix of dtypes: the index of each element is computed with precomputed reciprocals, and
//           operands stored in another dtype than the functor's are converted.
//
// All kernels of a form have one signature, so a functor is a row in a table (PointwiseEntry) and the host side of a
// launch is compiled once. Functors are made from their parameters in the kernel.
#pragma once
#include <tuple>

#include "kernels/cuda/launch.cuh"
#include "kernels/functors/pointwise.h"
#include "kernels/functors/types.h"
#include "kernels/pointwise.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

constexpr int kPointwiseOperands = 6;

struct GeneralArgs {
  int64_t numel;
  Space space;
  int64_t strides[kPointwiseOperands][kCudaDims];
  char* data[kPointwiseOperands];  // null: the value is in host_value
  DType dtype[kPointwiseOperands];
  DType through[kPointwiseOperands];  // a 16-bit float that the operand is rounded to on its way, else its own dtype
  alignas(16) char host_value[kPointwiseOperands][16];
};

// How an input of the dense form meets element i of the output: as element i, as its only element, or as element
// (i / inner) % extent, where either the elements of a pack are neighbours (inner is 1) or they are one (held).
enum class Meets : uint8_t { each, single, cycle, held };

struct DenseArgs {
  int64_t numel;
  char* data[kPointwiseOperands];  // null: the single value is in host_value, in the functor's type
  Meets meets[kPointwiseOperands];
  Divider inner[kPointwiseOperands], extent[kPointwiseOperands];
  alignas(16) char host_value[kPointwiseOperands][16];
};

using GeneralKernel = void (*)(const GeneralArgs, const PointwiseParams);
using DenseKernel = void (*)(const DenseArgs, const PointwiseParams);

struct PointwiseEntry {
  GeneralKernel general;
  DenseKernel dense[3];  // operands of float stored as float, bfloat16, half; null where there is none
  int elements[3];       // that a block of the dense kernel works on
  int width[3];          // of them, that a thread takes at once
  int num_operands;
  DType types[kPointwiseOperands];
  bool wide_scalar;
};

// Runs the functor over the view; `name` is for errors.
void run_pointwise(const char* name, const PointwiseView& v, const PointwiseEntry& entry,
                   const PointwiseParams& params);

namespace engine {

template <class R>
struct Outputs {
  static constexpr int count = 1;
  static constexpr DType types[1] = {dtype_of<R>};
};
template <class A, class B>
struct Outputs<functors::Two<A, B>> {
  static constexpr int count = 2;
  static constexpr DType types[2] = {dtype_of<A>, dtype_of<B>};
};

template <class T>
__device__ __forceinline__ T load(const GeneralArgs& a, int k, int64_t offset) {
  const char* p = a.data[k] == nullptr ? a.host_value[k] : a.data[k] + offset;
  T value = load_as<T>(p, a.dtype[k]);
  if constexpr (std::is_same_v<T, float>) {
    if (a.through[k] != a.dtype[k]) value = a.through[k] == DType::BF16 ? float(BFloat16(value)) : float(Half(value));
  }
  return value;
}
template <class T>
__device__ __forceinline__ void store(const GeneralArgs& a, int k, int64_t offset, T value) {
  if constexpr (std::is_same_v<T, float>) {
    if (a.through[k] != a.dtype[k]) value = a.through[k] == DType::BF16 ? float(BFloat16(value)) : float(Half(value));
  }
  store_as<T>(a.data[k] + offset, a.dtype[k], value);
}

template <class F, class R, class... In>
__global__ void __launch_bounds__(kThreads)
    general_kernel(const __grid_constant__ GeneralArgs a, const __grid_constant__ PointwiseParams params) {
  constexpr int outputs = Outputs<R>::count;
  constexpr int N = outputs + static_cast<int>(sizeof...(In));
  const F f = functors::make_functor<F>(params);
  MT_GRID_LOOP(i, a.numel) {
    int64_t offset[N] = {};
    a.space.each(i, [&](int d, int64_t index) {
#pragma unroll
      for (int k = 0; k < N; k++) offset[k] += index * a.strides[k][d];
    });
    [&]<size_t... I>(std::index_sequence<I...>) {
      const R r = f(load<In>(a, outputs + I, offset[outputs + I])...);
      if constexpr (outputs == 2) {
        store(a, 0, offset[0], r.first);
        store(a, 1, offset[1], r.second);
      } else {
        store(a, 0, offset[0], r);
      }
    }(std::index_sequence_for<In...>{});
  }
}

// S is the storage type of the float operands (float, or a 16-bit type), storage_t<S, T> that of an operand of type T.
template <class S, class T>
using storage_t = std::conditional_t<std::is_same_v<T, float>, S, T>;

// One width for all operands: that of the widest, so that no access is wider than 16 bytes.
template <class S, class... T>
constexpr int dense_width() {
  return std::min({pack_width<storage_t<S, T>>()...});
}
// Packs a thread has in flight. Narrow types have more elements in each, which take registers when they are widened:
// on an H100 one pack of 16-bit floats reaches the memory's speed, four are a fifth slower for want of warps.
constexpr int dense_unroll(int width) { return width >= 8 ? 1 : 4; }

template <class T, class S>
__device__ __forceinline__ T single_value(const DenseArgs& a, int k) {
  if (a.data[k] == nullptr) return *reinterpret_cast<const T*>(a.host_value[k]);
  return convert<T>(*reinterpret_cast<const storage_t<S, T>*>(a.data[k]));
}

// The pack of operand k, storage type E, that meets elements i .. i + V - 1.
template <class E, int V>
__device__ __forceinline__ void load_pack(Pack<E, V>& pack, const DenseArgs& a, int k, int64_t i) {
  if (a.meets[k] == Meets::single) return;
  const E* data = reinterpret_cast<const E*>(a.data[k]);
  if (a.meets[k] != Meets::each) {
    const uint32_t turn = a.inner[k].quotient(static_cast<uint32_t>(i));
    const uint32_t at = turn - a.extent[k].quotient(turn) * a.extent[k].divisor;
    if (a.meets[k] == Meets::held) {
#pragma unroll
      for (int v = 0; v < V; v++) pack.value[v] = data[at];
      return;
    }
    i = at;
  }
  pack = *reinterpret_cast<const Pack<E, V>*>(data + i);
}

// The elements of a pack in the functor's type and its results in the stored one; 16-bit floats are taken in pairs.
template <class T, int V>
struct Values {
  T value[V];
};
template <class T, class E, int V>
__device__ __forceinline__ Values<T, V> values_of(const Pack<E, V>& pack) {
  Values<T, V> to;
  if constexpr (std::is_same_v<T, float> && is_half_v<E> && V % 2 == 0) {
    unpack(pack, to.value);
  } else {
#pragma unroll
    for (int v = 0; v < V; v++) to.value[v] = convert<T>(pack.value[v]);
  }
  return to;
}
template <class E, class T, int V>
__device__ __forceinline__ Pack<E, V> stored(const Values<T, V>& values) {
  if constexpr (std::is_same_v<T, float> && is_half_v<E> && V % 2 == 0) {
    return pack_of<E>(values.value);
  } else {
    Pack<E, V> pack;
#pragma unroll
    for (int v = 0; v < V; v++) pack.value[v] = convert_to_store<E>(values.value[v]);
    return pack;
  }
}

// A functor of one operand meets no single value here (the host side sees to that), others choose for each element.
template <class F, class S, class R, class... In>
__global__ void __launch_bounds__(kThreads)
    dense_kernel(const __grid_constant__ DenseArgs a, const __grid_constant__ PointwiseParams params) {
  constexpr int V = dense_width<S, R, In...>(), kUnroll = dense_unroll(V);
  constexpr bool kSingles = sizeof...(In) > 1;
  const F f = functors::make_functor<F>(params);
  const int64_t base = (blockIdx.x * int64_t{kThreads} * kUnroll + threadIdx.x) * V;
  [&]<size_t... I>(std::index_sequence<I...>) {
    std::tuple<Pack<storage_t<S, In>, V>...> packs[kUnroll];
    const std::tuple<In...> singles{
        (kSingles && a.meets[1 + I] == Meets::single ? single_value<In, S>(a, 1 + I) : In())...};
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      const int64_t i = base + u * int64_t{kThreads} * V;
      if (i + V <= a.numel) (load_pack(std::get<I>(packs[u]), a, 1 + I, i), ...);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      const int64_t i = base + u * int64_t{kThreads} * V;
      if (i + V <= a.numel) {
        const std::tuple<Values<In, V>...> in{values_of<In>(std::get<I>(packs[u]))...};
        Values<R, V> out;
#pragma unroll
        for (int v = 0; v < V; v++)
          out.value[v] =
              f((kSingles && a.meets[1 + I] == Meets::single ? std::get<I>(singles) : std::get<I>(in).value[v])...);
        *reinterpret_cast<Pack<storage_t<S, R>, V>*>(a.data[0] + i * sizeof(storage_t<S, R>)) =
            stored<storage_t<S, R>>(out);
      } else {
#pragma unroll 1
        for (int64_t j = i; j < a.numel; j++) {
          reinterpret_cast<storage_t<S, R>*>(a.data[0])[j] = convert_to_store<storage_t<S, R>>(
              f((kSingles && a.meets[1 + I] == Meets::single
                     ? std::get<I>(singles)
                     : convert<In>(reinterpret_cast<const storage_t<S, In>*>(a.data[1 + I])[j]))...));
        }
      }
    }
  }(std::index_sequence_for<In...>{});
}

// Which compute types of a table have the dense form. It is what the bandwidth of large tensors needs, and most of the
// code: large functors, and types that models seldom hold, do without.
enum class Dense { none, floats, usual };
template <Dense D, class T>
inline constexpr bool has_dense =
    D != Dense::none &&
    (std::is_same_v<T, float> ||
     (D == Dense::usual && (std::is_same_v<T, double> || std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t> ||
                            std::is_same_v<T, uint8_t> || std::is_same_v<T, bool>)));

template <class F, bool HasDense, class Call = decltype(&F::operator())>
struct EntryOf;
template <class F, bool HasDense, class R, class... In>
struct EntryOf<F, HasDense, R (F::*)(In...) const> {
  static PointwiseEntry make() {
    PointwiseEntry e{
        &general_kernel<F, R, In...>, {}, {}, {}, Outputs<R>::count + static_cast<int>(sizeof...(In)), {}, false};
    int k = 0;
    for (const DType t : Outputs<R>::types) e.types[k++] = t;
    for (const DType t : {dtype_of<In>...}) e.types[k++] = t;
    if constexpr (requires { F::wide_scalar; }) e.wide_scalar = true;
    if constexpr (HasDense && Outputs<R>::count == 1) {
      constexpr bool in_float = std::is_same_v<R, float> || (std::is_same_v<In, float> || ...);
      add_dense<float>(e, 0);
      if constexpr (in_float) {
        add_dense<BFloat16>(e, 1);
        add_dense<Half>(e, 2);
      }
    }
    return e;
  }
  template <class S>
  static void add_dense(PointwiseEntry& e, int slot) {
    e.dense[slot] = &dense_kernel<F, S, R, In...>;
    constexpr int width = dense_width<S, R, In...>();
    e.elements[slot] = kThreads * dense_unroll(width) * width;
    e.width[slot] = width;
  }
  static const PointwiseEntry& entry() {
    static const PointwiseEntry made = make();
    return made;
  }
};

template <template <class> class F, Dense D = Dense::usual, class... T>
const PointwiseEntry* find(DType compute, Types<T...>) {
  const PointwiseEntry* found = nullptr;
  ((compute == dtype_of<T> ? (found = &EntryOf<F<T>, has_dense<D, T>>::entry(), true) : false) || ...);
  return found;
}

}  // namespace engine

// A source that compiles one table of operators names the types that have the dense form, and defines its lookup with
// MT_DEFINE_ENTRIES: nullptr where the table has no such operator or the operator is not built for the compute type.
#define MT_DEFINE_ENTRIES(function, TABLE)                        \
  const PointwiseEntry* function(PointwiseOp op, DType compute) { \
    switch (op) {                                                 \
      TABLE(MT_ENTRY_CASE)                                        \
      default: return nullptr;                                    \
    }                                                             \
  }
#define MT_ENTRY_CASE(name, functor, types) \
  case PointwiseOp::name: return engine::find<functors::functor, kDense>(compute, types{});

const PointwiseEntry* arithmetic_entry(PointwiseOp op, DType compute);
const PointwiseEntry* compare_entry(PointwiseOp op, DType compute);
const PointwiseEntry* integer_entry(PointwiseOp op, DType compute);
const PointwiseEntry* math_entry(PointwiseOp op, DType compute);
const PointwiseEntry* special_entry(PointwiseOp op, DType compute);
const PointwiseEntry* bessel_entry(PointwiseOp op, DType compute);
const PointwiseEntry* orthogonal_entry(PointwiseOp op, DType compute);
const PointwiseEntry* pathwise_entry(PointwiseOp op, DType compute);
const PointwiseEntry* activation_entry(PointwiseOp op, DType compute);
// Functors made for a 16-bit float, which take the place of those on float.
const PointwiseEntry* narrow_entry(PointwiseOp op, DType storage);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
