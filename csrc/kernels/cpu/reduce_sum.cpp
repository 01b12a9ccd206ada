// Sums, means, products and counts.
#include "kernels/cpu/reduce_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class T>
struct Sum {
  static constexpr bool scalar_only = is_complex_v<T>, componentwise = is_complex_v<T>;
  static T identity() { return T(0); }
  template <class V>
  static MT_INLINE V map(V x) {
    return x;
  }
  template <class V>
  static MT_INLINE V merge(V a, V b) {
    return a + b;
  }
};

template <class T>
struct Mean : Sum<T> {
  static T finish(T sum, int64_t count) { return sum / T(static_cast<real_t<T>>(count)); }
};

template <class T>
struct NanSum : Sum<T> {
  template <class V>
  static MT_INLINE V map(V x) {
    return x == x ? x : V{};
  }
};

template <class T>
struct Prod : Sum<T> {
  static constexpr bool componentwise = false, in_order = is_complex_v<T>;
  static T identity() { return T(1); }
  template <class V>
  static MT_INLINE V merge(V a, V b) {
    return a * b;
  }
};

// Sums of float, or of bfloat16 as float, whose leaves are joined in double: what is lost is lost within a leaf, where
// numbers are small.
template <template <class> class F, bool mean, class S = float>
struct WideLoops {
  static constexpr int64_t kColumns = 256;
  static void init(void* acc, int64_t n) { memset(acc, 0, n * sizeof(double)); }
  static void row(void* acc, const RowRange& r, const void* x, int64_t count, const ReduceParams&) {
    double* a = static_cast<double*>(acc);
    r.for_each<S>(x, [&](int64_t i, const S* v) { a[i] += fold_contiguous(F<float>{}, v, count); });
  }
  static void columns(void* acc, int64_t n, const void* const* rows, int64_t count, int64_t base,
                      const ReduceParams& p) {
    double* a = static_cast<double*>(acc);
    float sums[kColumns];
    const void* block[kLeafRows];
    for (int64_t j = 0; j < n; j += kColumns) {
      const int64_t width = std::min(kColumns, n - j);
      for (int64_t r = 0; r < count; r++) block[r] = static_cast<const S*>(rows[r]) + j;
      FoldLoops<F<float>, float>::init(sums, width);
      FoldLoops<F<float>, float>::template columns<S>(sums, width, block, count, base, p);
      for (int64_t k = 0; k < width; k++) a[j + k] += sums[k];
    }
  }
  static void merge(void* acc, const void* other, int64_t n) { FoldLoops<Sum<double>, double>::merge(acc, other, n); }
  static void finish(void* const* out, const void* acc, int64_t n, int64_t count, const ReduceParams&) {
    const double* a = static_cast<const double*>(acc);
    float* o = static_cast<float*>(out[0]);  // which may be the accumulators' own memory
    for (int64_t j = 0; j < n; j++) o[j] = static_cast<float>(mean ? a[j] / static_cast<double>(count) : a[j]);
  }
  static constexpr Reducer make() {
    return {dtype_of<S>, sizeof(double), true, 1, {DType::F32, DType::F32}, &init, &row, &columns, &merge, &finish};
  }
};

// Counts elements that were converted to bool: bytes are added to bytes as long as those cannot overflow.
struct CountLoops {
  static constexpr int64_t kLanes = LanesOf<uint8_t>::count, kRows = 255;
  static void init(void* acc, int64_t n) { memset(acc, 0, n * sizeof(int64_t)); }
  static void row(void* acc, const RowRange& r, const void* x, int64_t count, const ReduceParams&) {
    r.for_each<uint8_t>(x, [&](int64_t i, const uint8_t* v) {
      int64_t total = 0, k = 0;
      while (k + kLanes <= count) {
        Lanes<uint8_t> lanes{};
        const int64_t rows = std::min(kRows, (count - k) / kLanes);
        for (int64_t row = 0; row < rows; row++, k += kLanes) lanes += *reinterpret_cast<const Lanes<uint8_t>*>(v + k);
        int32_t sum = 0;
        for (int64_t l = 0; l < kLanes; l++) sum += lanes[l];
        total += sum;
      }
      for (; k < count; k++) total += v[k];
      static_cast<int64_t*>(acc)[i] += total;
    });
  }
  static void columns(void* acc, int64_t n, const void* const* rows, int64_t count, int64_t, const ReduceParams&) {
    int64_t* MT_RESTRICT a = static_cast<int64_t*>(acc);
    for (int64_t r = 0; r < count; r++) {
      const uint8_t* x = static_cast<const uint8_t*>(rows[r]);
      for (int64_t j = 0; j < n; j++) a[j] += x[j];
    }
  }
  static void merge(void* acc, const void* other, int64_t n) {
    for (int64_t j = 0; j < n; j++) static_cast<int64_t*>(acc)[j] += static_cast<const int64_t*>(other)[j];
  }
  static void finish(void* const* out, const void* acc, int64_t n, int64_t, const ReduceParams&) {
    memmove(out[0], acc, n * sizeof(int64_t));
  }
};

// any (Or) and all (And) over elements converted to bool; they stop at the first element that decides.
template <bool Or>
struct Logical {
  static constexpr bool scalar_only = false;
  static uint8_t identity() { return !Or; }
  template <class V>
  static MT_INLINE V map(V x) {
    return x;
  }
  template <class V>
  static MT_INLINE V merge(V a, V b) {
    if constexpr (Or)
      return a | b;
    else
      return a & b;
  }
};
template <bool Or>
struct LogicalLoops : FoldLoops<Logical<Or>, uint8_t> {
  using Base = FoldLoops<Logical<Or>, uint8_t>;
  static void row(void* acc, const RowRange& r, const void* x, int64_t count, const ReduceParams& p) {
    constexpr int64_t kBlock = 4096;
    uint8_t* a = static_cast<uint8_t*>(acc);
    r.for_each<uint8_t>(x, [&](int64_t i, const uint8_t* v) {
      for (int64_t b = 0; b < count && a[i] != Or; b += kBlock)
        Base::row(acc, {r.n, i, 1, 0, 0}, v + b, std::min(kBlock, count - b), p);
    });
  }
};

template <class L>
constexpr Reducer byte_reducer(int acc_size, DType result) {
  return {DType::Bool, acc_size, false, 1, {result, result}, &L::init, &L::row, &L::columns, &L::merge, &L::finish};
}

}  // namespace

bool find_sum_reducer(ReduceOp op, DType dtype, DType input, Reducer& r) {
  const DType compute = is_integral(dtype) || dtype == DType::Bool ? DType::I64 : compute_dtype(dtype);
  using All = Types<float, double, int64_t, Complex<float>, Complex<double>>;
  const auto wide = [&](auto tag) {
    using S = typename decltype(tag)::type;
    if (op == ReduceOp::sum) return r = WideLoops<Sum, false, S>::make(), true;
    if (op == ReduceOp::mean) return r = WideLoops<Sum, true, S>::make(), true;
    if (op == ReduceOp::nansum) return r = WideLoops<NanSum, false, S>::make(), true;
    return false;
  };
  if (compute == DType::F32 && (input == DType::BF16 ? wide(Tag<BFloat16>{}) : wide(Tag<float>{}))) return true;
  switch (op) {
    case ReduceOp::sum:
      return dispatch(compute, All{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        r = fold_reducer<Sum<T>, T>(true);
      });
    case ReduceOp::mean:
      return dispatch(compute, Types<float, double, Complex<float>, Complex<double>>{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        r = fold_reducer<Sum<T>, T>(true);
        r.finish = &FoldLoops<Mean<T>, T>::finish;
      });
    case ReduceOp::nansum:
      return dispatch(compute, FloatTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        r = fold_reducer<NanSum<T>, T>(true);
      });
    case ReduceOp::prod:
      return dispatch(compute, All{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        r = fold_reducer<Prod<T>, T>(false);
      });
    case ReduceOp::count_nonzero: r = byte_reducer<CountLoops>(sizeof(int64_t), DType::I64); return true;
    case ReduceOp::any: r = byte_reducer<LogicalLoops<true>>(1, DType::Bool); return true;
    case ReduceOp::all: r = byte_reducer<LogicalLoops<false>>(1, DType::Bool); return true;
    default: return false;
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
