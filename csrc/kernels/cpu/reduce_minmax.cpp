// Maxima and minima, with and without the index of the first occurrence. NaN wins over every number.
#include <limits>

#include "kernels/cpu/reduce_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class T, bool Max>
constexpr T extreme() {
  using L = std::numeric_limits<T>;
  if constexpr (L::has_infinity)
    return Max ? -L::infinity() : L::infinity();
  else
    return Max ? L::lowest() : L::max();
}

template <class T, bool Max>
struct Extremum {
  static constexpr bool scalar_only = false;
  static T identity() { return extreme<T, Max>(); }
  template <class V>
  static MT_INLINE V map(V x) {
    return x;
  }
  // A NaN in `a` stays because every comparison with it is false.
  template <class V>
  static MT_INLINE V merge(V a, V b) {
    if constexpr (std::is_floating_point_v<T>) {
      const V larger = Max ? (b > a ? b : a) : (b < a ? b : a);
      return b != b ? b : larger;
    } else {
      return Max ? (b > a ? b : a) : (b < a ? b : a);
    }
  }
};

// True if x replaces the running value: strictly better, or the first NaN.
template <class T, bool Max>
MT_INLINE bool replaces(T x, T value) {
  const bool better = Max ? x > value : x < value;
  if constexpr (std::is_floating_point_v<T>)
    return better | ((x != x) & (value == value));
  else
    return better;
}

// Planes: the value (as T, in 8-byte slots' room), the index.
template <class T, bool Max>
struct IndexLoops {
  static T* values(void* acc) { return static_cast<T*>(acc); }
  static int64_t* indices(void* acc, int64_t n) { return static_cast<int64_t*>(acc) + n; }

  static void init(void* acc, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
      values(acc)[j] = extreme<T, Max>();
      indices(acc, n)[j] = 0;
    }
  }

  // The maximum of a block first, vectorised; its position only when the block improves on the value so far.
  static void row(void* acc, const RowRange& r, const void* x, int64_t count, const ReduceParams&) {
    r.for_each<T>(x, [&](int64_t i, const T* v) { find(acc, i, r.n, v, count, r.base); });
  }
  static MT_INLINE void find(void* acc, int64_t i, int64_t n, const T* v, int64_t count, int64_t base) {
    constexpr int64_t kSearch = 512;
    T value = values(acc)[i];
    for (int64_t b = 0; b < count; b += kSearch) {
      const int64_t m = std::min(kSearch, count - b);
      const T found = fold_contiguous(Extremum<T, Max>{}, v + b, m);
      if (!replaces<T, Max>(found, value)) continue;
      int64_t k = 0;
      if (found != found)
        while (v[b + k] == v[b + k]) k++;
      else
        while (v[b + k] != found) k++;
      value = found;
      values(acc)[i] = value;
      indices(acc, n)[i] = base + b + k;
    }
  }

  static void columns(void* acc, int64_t n, const void* const* rows, int64_t count, int64_t base, const ReduceParams&) {
    constexpr int64_t kTile = 128;
    for (int64_t j0 = 0; j0 < n; j0 += kTile) {
      const int64_t m = std::min(kTile, n - j0);
      T* MT_RESTRICT value = values(acc) + j0;
      int32_t position[kTile];  // row within this call, -1: none of them
      for (int64_t j = 0; j < m; j++) position[j] = -1;
      for (int64_t r = 0; r < count; r++) {
        const T* x = static_cast<const T*>(rows[r]) + j0;
        const int32_t row = static_cast<int32_t>(r);
        for (int64_t j = 0; j < m; j++) {
          const bool better = replaces<T, Max>(x[j], value[j]);
          value[j] = better ? x[j] : value[j];
          position[j] = better ? row : position[j];
        }
      }
      int64_t* MT_RESTRICT index = indices(acc, n) + j0;
      for (int64_t j = 0; j < m; j++) index[j] = position[j] >= 0 ? base + position[j] : index[j];
    }
  }

  static void merge(void* acc, const void* other, int64_t n) {
    void* o = const_cast<void*>(other);
    for (int64_t j = 0; j < n; j++) {
      if (!replaces<T, Max>(values(o)[j], values(acc)[j])) continue;
      values(acc)[j] = values(o)[j];
      indices(acc, n)[j] = indices(o, n)[j];
    }
  }

  static void finish_both(void* const* out, const void* acc, int64_t n, int64_t, const ReduceParams&) {
    memmove(out[0], acc, n * sizeof(T));
    memmove(out[1], static_cast<const int64_t*>(acc) + n, n * sizeof(int64_t));
  }
  static void finish_index(void* const* out, const void* acc, int64_t n, int64_t, const ReduceParams&) {
    memmove(out[0], static_cast<const int64_t*>(acc) + n, n * sizeof(int64_t));
  }

  static constexpr Reducer make(bool both) {
    return {dtype_of<T>, 16,   false,    both ? 2 : 1, {both ? dtype_of<T> : DType::I64, DType::I64},
            &init,       &row, &columns, &merge,       both ? &finish_both : &finish_index};
  }
};

// Planes: minimum, maximum (as T, in 8-byte slots' room).
template <class T>
struct AminmaxLoops {
  using Min = FoldLoops<Extremum<T, false>, T>;
  using Max = FoldLoops<Extremum<T, true>, T>;
  static void* high(void* acc, int64_t n) { return static_cast<int64_t*>(acc) + n; }

  static void init(void* acc, int64_t n) {
    Min::init(acc, n);
    Max::init(high(acc, n), n);
  }
  static void row(void* acc, const RowRange& r, const void* x, int64_t count, const ReduceParams& p) {
    Min::row(acc, r, x, count, p);
    Max::row(high(acc, r.n), r, x, count, p);
  }
  static void columns(void* acc, int64_t n, const void* const* rows, int64_t count, int64_t base,
                      const ReduceParams& p) {
    Min::columns(acc, n, rows, count, base, p);
    Max::columns(high(acc, n), n, rows, count, base, p);
  }
  static void merge(void* acc, const void* other, int64_t n) {
    Min::merge(acc, other, n);
    Max::merge(high(acc, n), high(const_cast<void*>(other), n), n);
  }
  static void finish(void* const* out, const void* acc, int64_t n, int64_t, const ReduceParams&) {
    memmove(out[0], acc, n * sizeof(T));
    memmove(out[1], high(const_cast<void*>(acc), n), n * sizeof(T));
  }
  static constexpr Reducer make() {
    return {dtype_of<T>, 16, false, 2, {dtype_of<T>, dtype_of<T>}, &init, &row, &columns, &merge, &finish};
  }
};

}  // namespace

bool find_minmax_reducer(ReduceOp op, DType dtype, Reducer& r) {
  DType compute = compute_dtype(dtype);
  if (dtype == DType::Bool || dtype == DType::U8 || dtype == DType::I8 || dtype == DType::I16) compute = DType::I32;
  return dispatch(compute, Types<float, double, int32_t, int64_t>{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    switch (op) {
      case ReduceOp::max: r = fold_reducer<Extremum<T, true>, T>(false); break;
      case ReduceOp::min: r = fold_reducer<Extremum<T, false>, T>(false); break;
      case ReduceOp::aminmax: r = AminmaxLoops<T>::make(); break;
      case ReduceOp::max_index:
      case ReduceOp::argmax: r = IndexLoops<T, true>::make(op == ReduceOp::max_index); break;
      default: r = IndexLoops<T, false>::make(op == ReduceOp::min_index); break;
    }
  });
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
