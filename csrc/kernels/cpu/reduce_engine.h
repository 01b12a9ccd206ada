// What the CPU reduction driver (reduce.cpp) needs to know of one reduction over one compute type, and the vectorised
// folds that most reductions are made of.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "core/macros.h"
#include "kernels/reduce.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // 64-byte vectors never cross a call: what takes them is inlined

namespace minitorch {
inline namespace MINITORCH_ARCH {

// Which of n accumulators a fold of rows goes to.
struct RowRange {
  int64_t n, first, rows;
  int64_t pitch;  // bytes from row to row
  int64_t base;   // position of the first element in the reduced slice

  // Calls f(accumulator, its row).
  template <class T, class F>
  MT_INLINE void for_each(const void* x, const F& f) const {
    for (int64_t j = 0; j < rows; j++)
      f(first + j, reinterpret_cast<const T*>(static_cast<const char*>(x) + j * pitch));
  }
};

// Accumulators of n outputs lie in planes: plane p starts at p * n elements of 8 bytes or, when there is one plane
// only, holds elements of acc_size bytes.
struct Reducer {
  DType compute;    // the dtype that the loops read
  int acc_size;     // bytes of one output's accumulator
  bool cascade;     // rounding: fold short blocks and merge them pairwise
  int results;      // number of outputs
  DType result[2];  // the dtypes that finish() writes

  void (*init)(void* acc, int64_t n);
  // Folds `count` elements at x + r.pitch * j bytes into accumulator r.first + j, for j < r.rows.
  void (*row)(void* acc, const RowRange& r, const void* x, int64_t count, const ReduceParams& p);
  // Folds rows[r][j] into accumulator j, for r < count and j < n.
  void (*columns)(void* acc, int64_t n, const void* const* rows, int64_t count, int64_t base, const ReduceParams& p);
  // Merges the accumulators of a later part of the slice into acc.
  void (*merge)(void* acc, const void* other, int64_t n);
  // Writes the results of n outputs, each reduced from `count` elements. out[k] may be the same memory as acc's plane
  // k.
  void (*finish)(void* const* out, const void* acc, int64_t n, int64_t count, const ReduceParams& p);
};

// Each returns false if it does not know the operator for the dtype: that of the first output for sums, the view's
// compute dtype for the others.
bool find_sum_reducer(ReduceOp op, DType dtype, DType input, Reducer& r);
bool find_minmax_reducer(ReduceOp op, DType dtype, Reducer& r);
bool find_norm_reducer(ReduceOp op, DType dtype, double p, Reducer& r);
bool find_moments_reducer(ReduceOp op, DType dtype, int outputs, Reducer& r);

// Rows of a column fold that share one accumulation without merging.
inline constexpr int64_t kLeafRows = 64;

// 64 bytes of T as a GCC vector: one AVX-512 register, or several smaller ones.
template <class T>
struct LanesOf {
  typedef T type __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
  static constexpr int64_t count = 64 / static_cast<int64_t>(sizeof(T));
};
template <class T>
using Lanes = typename LanesOf<T>::type;

// Merges the lanes of v in a tree.
template <class T, class F>
MT_INLINE T merge_lanes(const F& f, Lanes<T> v) {
  constexpr int64_t L = LanesOf<T>::count;
  if constexpr (sizeof(T) >= 4) {
    using Int = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    typedef Int I __attribute__((vector_size(64)));
    I lane;
    for (int64_t k = 0; k < L; k++) lane[k] = static_cast<Int>(k);
#pragma GCC unroll 4
    for (int64_t w = L / 2; w > 0; w /= 2) v = f.merge(v, Lanes<T>(__builtin_shuffle(v, lane ^ static_cast<Int>(w))));
    return v[0];
  } else {
    T lanes[L];
    memcpy(lanes, &v, sizeof(lanes));
    for (int64_t w = L / 2; w > 0; w /= 2)
      for (int64_t k = 0; k < w; k++) lanes[k] = f.merge(lanes[k], lanes[k + w]);
    return lanes[0];
  }
}

// A fold is a map of each element followed by a merge that is associative up to rounding. F has
//   T identity(), map(x), merge(a, b);
// map and merge are generic: they take T and, unless F::scalar_only, vectors of T.
template <class F, class T>
MT_INLINE T fold_contiguous(const F& f, const T* x, int64_t n) {
  int64_t i = 0;
  T result = f.identity();
  if constexpr (!F::scalar_only) {
    using V = Lanes<T>;
    constexpr int64_t L = LanesOf<T>::count;
    if (n >= L) {
      auto at = [&](int64_t k) { return f.map(*reinterpret_cast<const V*>(x + k)); };
      V a0 = at(0);
      i = L;
      if (n >= 4 * L) {
        V a1 = at(L), a2 = at(2 * L), a3 = at(3 * L);
        for (i = 4 * L; i + 4 * L <= n; i += 4 * L) {
          a0 = f.merge(a0, at(i));
          a1 = f.merge(a1, at(i + L));
          a2 = f.merge(a2, at(i + 2 * L));
          a3 = f.merge(a3, at(i + 3 * L));
        }
        a0 = f.merge(f.merge(a0, a1), f.merge(a2, a3));
      }
      for (; i + L <= n; i += L) a0 = f.merge(a0, at(i));
      result = merge_lanes<T>(f, a0);
    }
  } else {
    if constexpr (requires { requires F::componentwise; }) {  // a sum of pairs is a pair of sums
      using V = Lanes<real_t<T>>;
      constexpr int64_t L = 64 / static_cast<int64_t>(sizeof(T));
      if (n >= 4 * L) {
        V a[4] = {};
        for (; i + 4 * L <= n; i += 4 * L)
          for (int k = 0; k < 4; k++) a[k] += *reinterpret_cast<const V*>(x + i + k * L);
        const V sum = (a[0] + a[1]) + (a[2] + a[3]);
        T lanes[L];
        memcpy(static_cast<void*>(lanes), &sum, sizeof(lanes));
        for (int64_t w = L / 2; w > 0; w /= 2)
          for (int64_t k = 0; k < w; k++) lanes[k] = f.merge(lanes[k], lanes[k + w]);
        result = lanes[0];
      }
    } else if (n >= 8) {
      T a[4] = {f.map(x[0]), f.map(x[1]), f.map(x[2]), f.map(x[3])};
      for (i = 4; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) a[k] = f.merge(a[k], f.map(x[i + k]));
      result = f.merge(f.merge(a[0], a[1]), f.merge(a[2], a[3]));
    }
  }
  for (; i < n; i++) result = f.merge(result, f.map(x[i]));
  return result;
}

// The sum of what f makes of a run of bfloat16: each word is two of them, whose bits are the upper half of a float's.
template <class F>
MT_INLINE float fold_contiguous(const F& f, const BFloat16* x, int64_t n) {
  using V = Lanes<float>;
  using Words = Lanes<uint32_t>;
  constexpr int64_t kStep = 2 * LanesOf<float>::count;
  V sums[4] = {};
  int64_t i = 0;
  const auto add = [&](int64_t at, V& even, V& odd) __attribute__((always_inline)) {
    Words w;
    memcpy(&w, x + at, sizeof(w));
    even += f.map(reinterpret_cast<V>(w << 16));
    odd += f.map(reinterpret_cast<V>(w & 0xffff0000u));
  };
  for (; i + 2 * kStep <= n; i += 2 * kStep) add(i, sums[0], sums[1]), add(i + kStep, sums[2], sums[3]);
  if (i + kStep <= n) add(i, sums[0], sums[1]), i += kStep;
  float sum = merge_lanes<float>(f, (sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; i++) sum += f.map(static_cast<float>(x[i]));
  return sum;
}

// merge(...merge(result, x[0])..., x[n-1]) in the order in which native CPU joins them, lanes of 64 bytes by four: for
// folds in which the order decides what becomes of an infinity.
template <class F, class T>
MT_INLINE T fold_onto(const F& f, T result, const T* x, int64_t n) {
  constexpr int64_t kStep = 4 * 64 / static_cast<int64_t>(sizeof(T)), kLane = kStep / 4;
  int64_t i = 0;
  if (n >= kStep) {
    T a[kStep];
    for (int64_t k = 0; k < kStep; k++) a[k] = x[k];
    for (i = kStep; i + kStep <= n; i += kStep)
      for (int64_t k = 0; k < kStep; k++) a[k] = f.merge(a[k], x[i + k]);
    const auto lane = [&](int64_t k) {
      return f.merge(f.merge(a[k], a[k + kLane]), f.merge(a[k + 2 * kLane], a[k + 3 * kLane]));
    };
    T joined = lane(0);
    for (int64_t k = 1; k < kLane; k++) joined = f.merge(joined, lane(k));
    result = f.merge(result, joined);
  }
  for (; i < n; i++) result = f.merge(result, x[i]);
  return result;
}

// The loops of a Reducer whose accumulator is one T and whose result is finish(T).
template <class F, class T>
struct FoldLoops {
  static constexpr bool in_order = requires { requires F::in_order; };

  static F make(const ReduceParams& p) {
    if constexpr (std::is_constructible_v<F, const ReduceParams&>)
      return F(p);
    else
      return F{};
  }

  static void init(void* acc, int64_t n) {
    T* a = static_cast<T*>(acc);
    const T identity = F::identity();
    for (int64_t j = 0; j < n; j++) a[j] = identity;
  }

  static void row(void* acc, const RowRange& r, const void* x, int64_t count, const ReduceParams& p) {
    const F f = make(p);
    T* a = static_cast<T*>(acc);
    r.for_each<T>(x, [&](int64_t i, const T* v) {
      if constexpr (in_order) {
        a[i] = fold_onto(f, a[i], v, count);
      } else {
        a[i] = f.merge(a[i], fold_contiguous(f, v, count));
      }
    });
  }

  // S: the type of the rows' elements.
  template <class S = T>
  static void columns(void* acc, int64_t n, const void* const* rows, int64_t count, int64_t, const ReduceParams& p) {
    const F f = make(p);
    T* MT_RESTRICT a = static_cast<T*>(acc);
    const auto map = [&](S x) { return f.map(static_cast<T>(x)); };
    int64_t r = 0;
    for (; !in_order && r + 4 <= count; r += 4) {
      const S* x0 = static_cast<const S*>(rows[r]);
      const S* x1 = static_cast<const S*>(rows[r + 1]);
      const S* x2 = static_cast<const S*>(rows[r + 2]);
      const S* x3 = static_cast<const S*>(rows[r + 3]);
      for (int64_t j = 0; j < n; j++)
        a[j] = f.merge(a[j], f.merge(f.merge(map(x0[j]), map(x1[j])), f.merge(map(x2[j]), map(x3[j]))));
    }
    for (; r < count; r++) {
      const S* x = static_cast<const S*>(rows[r]);
      for (int64_t j = 0; j < n; j++) a[j] = f.merge(a[j], map(x[j]));
    }
  }

  static void merge(void* acc, const void* other, int64_t n) {
    T* MT_RESTRICT a = static_cast<T*>(acc);
    const T* b = static_cast<const T*>(other);
    for (int64_t j = 0; j < n; j++) a[j] = F::merge(a[j], b[j]);
  }

  static void finish(void* const* out, const void* acc, int64_t n, int64_t count, const ReduceParams& p) {
    T* o = static_cast<T*>(out[0]);
    const T* a = static_cast<const T*>(acc);
    if constexpr (requires(F f, T t) { f.finish(t, count); }) {
      const F f = make(p);
      for (int64_t j = 0; j < n; j++) o[j] = f.finish(a[j], count);
    } else {
      memmove(o, a, n * sizeof(T));
    }
  }
};

template <class F, class T>
constexpr Reducer fold_reducer(bool cascade) {
  using L = FoldLoops<F, T>;
  return {dtype_of<T>,
          static_cast<int>(sizeof(T)),
          cascade,
          1,
          {dtype_of<T>, dtype_of<T>},
          &L::init,
          &L::row,
          &L::columns,
          &L::merge,
          &L::finish};
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
