// What the reductions compute: how a reducer starts, folds in an element, merges two partial results and finishes.
// `first` is the slice's first element where a reducer is centred on it, and any value elsewhere.
#pragma once
#include <cmath>
#include <limits>

#include "kernels/cuda/launch.cuh"
#include "kernels/reduce.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace reduction {

struct Params {
  ReduceOp op;
  double p, correction;
};

// Offsets in bytes along at most two dimensions.
struct Steps {
  bool single;  // there is but one
  Divider inner_size;
  int64_t inner, outer;
  __device__ __forceinline__ int64_t offset(int64_t i) const {
    if (single) return i * inner;
    const uint32_t quotient = inner_size.quotient(static_cast<uint32_t>(i));
    return quotient * outer + (static_cast<uint32_t>(i) - quotient * inner_size.divisor) * inner;
  }
};

struct Args {
  int64_t outputs, extent;
  int64_t segments;  // of a slice: the same number of blocks take its elements in turn
  Space kept, reduced;
  int64_t kept_in[kCudaDims], kept_out[2][kCudaDims], reduced_in[kCudaDims];
  const char* in;
  char* out[2];
  DType in_dtype, out_dtype[2];
  bool packed;  // memory runs along the slices, and is read 16 bytes at a time
  Steps steps;  // from pack to pack along a slice
  char* partial;
};

// What most reducers have in common.
template <class T>
struct Reducer {
  using Element = T;
  static constexpr bool kPacked = true;    // worth the code that reads 16 bytes at a time
  static constexpr bool kCentred = false;  // fold() and finish() want the slice's first element
  static constexpr bool kSums = false;     // in a type wider than Element; fold() takes an Element to add to as well
};

// What sums of T are carried in: their only rounding is the one into the result. Conversion and addition in double take
// less time than four bytes take to arrive.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float>, double,
                                std::conditional_t<std::is_same_v<T, Complex<float>>, Complex<double>, T>>;

// What a thread adds a few neighbours of storage type S up in: of 16-bit floats too many arrive to be taken one by one.
template <class R, class S>
using Chain = std::conditional_t<R::kSums && is_half_v<S>, typename R::Element, typename R::Acc>;

template <class T>
struct SumReducer : Reducer<T> {  // sum, mean
  using Acc = Wide<T>;
  static constexpr bool kSums = true;
  static __device__ Acc init(const Params&) { return Acc(0); }
  template <class A>
  static __device__ void fold(A& acc, T x, int64_t, T, const Params&) {
    acc = acc + static_cast<A>(x);
  }
  static __device__ Acc merge(Acc a, Acc b, const Params&) { return a + b; }
  static __device__ void finish(Acc acc, T, const Args& a, char* const* out, const Params& p) {
    if constexpr (!std::is_integral_v<T>) {
      if (p.op == ReduceOp::mean) acc = acc / Acc(static_cast<real_t<Acc>>(a.extent));
    }
    store_as<T>(out[0], a.out_dtype[0], static_cast<T>(acc));
  }
};

template <class T>
struct NansumReducer : SumReducer<T> {
  template <class A>
  static __device__ void fold(A& acc, T x, int64_t, T, const Params&) {
    acc = acc + static_cast<A>(x != x ? T(0) : x);
  }
};

template <class T>
struct ProdReducer : Reducer<T> {
  using Acc = T;
  static __device__ T init(const Params&) { return T(1); }
  static __device__ void fold(T& acc, T x, int64_t, T, const Params&) { acc = acc * x; }
  static __device__ T merge(T a, T b, const Params&) { return a * b; }
  static __device__ void finish(T acc, T, const Args& a, char* const* out, const Params&) {
    store_as<T>(out[0], a.out_dtype[0], acc);
  }
};

struct CountReducer : Reducer<bool> {
  using Acc = int64_t;
  static __device__ Acc init(const Params&) { return 0; }
  static __device__ void fold(Acc& acc, bool x, int64_t, bool, const Params&) { acc += x; }
  static __device__ Acc merge(Acc a, Acc b, const Params&) { return a + b; }
  static __device__ void finish(Acc acc, bool, const Args& a, char* const* out, const Params& p) {
    if (p.op == ReduceOp::count_nonzero) {
      store_as<int64_t>(out[0], a.out_dtype[0], acc);
    } else {
      store_as<bool>(out[0], a.out_dtype[0], p.op == ReduceOp::any ? acc > 0 : acc == a.extent);
    }
  }
};

template <class T>
__device__ __forceinline__ T highest() {
  if constexpr (std::is_floating_point_v<T>) {
    return std::numeric_limits<T>::infinity();
  } else {
    return std::numeric_limits<T>::max();
  }
}
template <class T>
__device__ __forceinline__ T lowest() {
  if constexpr (std::is_floating_point_v<T>) {
    return -std::numeric_limits<T>::infinity();
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

template <class T>
struct Located {
  T value;
  int64_t index;
};

// Where the maximum or minimum first occurs, and the value too. NaN wins.
template <class T>
struct ExtremumReducer : Reducer<T> {
  using Acc = Located<T>;
  static __device__ bool is_max(const Params& p) { return p.op == ReduceOp::max_index || p.op == ReduceOp::argmax; }
  static __device__ Acc init(const Params& p) {
    return {is_max(p) ? lowest<T>() : highest<T>(), std::numeric_limits<int64_t>::max()};
  }
  // A thread meets indices in rising order, so an equal value never replaces the one it holds.
  static __device__ void fold(Acc& acc, T x, int64_t index, T, const Params& p) {
    const bool better = is_max(p) ? x > acc.value : x < acc.value;
    if (better || (x != x && acc.value == acc.value)) acc = {x, index};
  }
  static __device__ Acc merge(Acc a, Acc b, const Params& p) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool better = is_max(p) ? b.value > a.value : b.value < a.value;
    const bool equal = a.value == b.value || (nan_a && nan_b);
    const bool take = equal ? b.index < a.index : nan_b || (better && !nan_a);
    return take ? b : a;
  }
  static __device__ void finish(Acc acc, T, const Args& a, char* const* out, const Params& p) {
    // Nothing was better than the initial value: all are equal to it.
    if (acc.index == std::numeric_limits<int64_t>::max()) acc.index = 0;
    if (p.op == ReduceOp::argmax || p.op == ReduceOp::argmin) {
      store_as<int64_t>(out[0], a.out_dtype[0], acc.index);
    } else {
      store_as<T>(out[0], a.out_dtype[0], acc.value);
      store_as<int64_t>(out[1], a.out_dtype[1], acc.index);
    }
  }
};

template <class T>
struct Bounds {
  T low, high;
};
// max, min and aminmax: one instruction an element finds each bound of floats, so that one reducer serves them all.
template <class T>
struct AminmaxReducer : Reducer<T> {
  using Acc = Bounds<T>;
  static __device__ Acc init(const Params&) { return {highest<T>(), lowest<T>()}; }
  static __device__ T min(T a, T b) {
    if constexpr (std::is_same_v<T, float>) {
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
      return a;
    } else {
      return a != a ? a : (b != b || b < a ? b : a);
    }
  }
  static __device__ T max(T a, T b) {
    if constexpr (std::is_same_v<T, float>) {
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
      return a;
    } else {
      return a != a ? a : (b != b || b > a ? b : a);
    }
  }
  static __device__ void fold(Acc& acc, T x, int64_t, T, const Params&) {
    acc.low = min(acc.low, x);
    acc.high = max(acc.high, x);
  }
  static __device__ Acc merge(Acc a, Acc b, const Params&) { return {min(a.low, b.low), max(a.high, b.high)}; }
  static __device__ void finish(Acc acc, T, const Args& a, char* const* out, const Params& p) {
    store_as<T>(out[0], a.out_dtype[0], p.op == ReduceOp::max ? acc.high : acc.low);
    if (p.op == ReduceOp::aminmax) store_as<T>(out[1], a.out_dtype[1], acc.high);
  }
};

// (sum |x|^p)^(1/p) for p = 0, 1, 2, inf and -inf.
template <class In>
struct NormReducer : Reducer<In> {
  using T = real_t<In>;
  using Acc = Wide<T>;
  static constexpr bool kSums = true;
  static bool takes(const Params& p) { return std::isinf(p.p) || p.p == 0 || p.p == 1 || p.p == 2; }
  static __device__ bool infinite(const Params& p) { return isinf(p.p); }
  static __device__ Acc init(const Params& p) { return infinite(p) && p.p < 0 ? highest<Acc>() : Acc(0); }
  static __device__ T magnitude(In x) {
    if constexpr (is_complex_v<In>) {
      return ::hypot(x.re, x.im);
    } else {
      return ::fabs(x);
    }
  }
  template <class A>
  static __device__ void fold(A& acc, In x, int64_t, In, const Params& p) {
    const T m = magnitude(x);
    if (p.p == 2) {
      acc += m * m;
    } else if (p.p == 1) {
      acc += m;
    } else if (p.p == 0) {
      acc += m != T(0) ? A(1) : A(0);
    } else {
      acc = extreme(acc, static_cast<A>(m), p);
    }
  }
  template <class A>
  static __device__ A extreme(A a, A b, const Params& p) {
    return a != a ? a : (b != b || (p.p > 0 ? b > a : b < a) ? b : a);
  }
  static __device__ Acc merge(Acc a, Acc b, const Params& p) { return infinite(p) ? extreme(a, b, p) : a + b; }
  static __device__ void finish(Acc acc, In, const Args& a, char* const* out, const Params& p) {
    if (p.op == ReduceOp::norm && p.p == 2) acc = ::sqrt(acc);
    store_as<T>(out[0], a.out_dtype[0], static_cast<T>(acc));
  }
};

// Not in line: it is large, and rare.
template <class T>
static __device__ __noinline__ T power(T x, T exponent) {
  return ::pow(x, exponent);
}

// The same for any other p.
template <class In>
struct PowerReducer : NormReducer<In> {
  using T = real_t<In>;
  using Acc = Wide<T>;
  static constexpr bool kPacked = false;
  static __device__ Acc init(const Params&) { return Acc(0); }
  static __device__ void fold(Acc& acc, In x, int64_t, In, const Params& p) {
    acc += power(NormReducer<In>::magnitude(x), static_cast<T>(p.p));
  }
  static __device__ Acc merge(Acc a, Acc b, const Params&) { return a + b; }
  static __device__ void finish(Acc acc, In, const Args& a, char* const* out, const Params& p) {
    const T sum = static_cast<T>(acc);
    store_as<T>(out[0], a.out_dtype[0], p.op == ReduceOp::norm ? power(sum, T(1) / static_cast<T>(p.p)) : sum);
  }
};

// Sums of deviations from the slice's first element and of their squares, in double: one pass, and what cancels is far
// below single precision (T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample variance", 1983).
struct Deviations {
  double sum, squares;
};
template <class T>
struct MomentReducer : Reducer<T> {
  static constexpr bool kCentred = true;
  using Acc = Deviations;
  static __device__ Acc init(const Params&) { return {0, 0}; }
  static __device__ double centre(T first) { return isfinite(first) ? static_cast<double>(first) : 0.0; }
  static __device__ void fold(Acc& acc, T x, int64_t, T first, const Params&) {
    const double d = static_cast<double>(x) - centre(first);
    acc.sum += d;
    acc.squares += d * d;
  }
  static __device__ Acc merge(Acc a, Acc b, const Params&) { return {a.sum + b.sum, a.squares + b.squares}; }
  static __device__ void finish(Acc acc, T first, const Args& a, char* const* out, const Params& p) {
    const double n = static_cast<double>(a.extent), divisor = n - p.correction;
    double spread = acc.squares - acc.sum * acc.sum / n;
    spread = spread < 0 ? 0 : spread;
    const double variance = spread / (divisor > 0 ? divisor : 0.0);
    store_as<double>(out[0], a.out_dtype[0], p.op == ReduceOp::std ? ::sqrt(variance) : variance);
    if (out[1] != nullptr) store_as<double>(out[1], a.out_dtype[1], centre(first) + acc.sum / n);
  }
};

}  // namespace reduction
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
