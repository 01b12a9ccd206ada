// Vector norms: a sum (or an extremum) of powers of the absolute value, and a root at the end.
#include <cmath>
#include <limits>

#include "kernels/cpu/reduce_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class V>
MT_INLINE V absolute(V x) {
  return x < V{} ? -x : x;
}

template <class T>
struct AddMerge {
  static constexpr bool scalar_only = false;
  static T identity() { return T(0); }
  template <class V>
  static MT_INLINE V merge(V a, V b) {
    return a + b;
  }
};

template <class T>
struct Norm0 : AddMerge<T> {
  template <class V>
  static MT_INLINE V map(V x) {
    return x != V{} ? V{} + T(1) : V{};
  }
};

template <class T>
struct Norm1 : AddMerge<T> {
  template <class V>
  static MT_INLINE V map(V x) {
    return absolute(x);
  }
};

template <class T>
struct Norm2 : AddMerge<T> {
  template <class V>
  static MT_INLINE V map(V x) {
    return x * x;
  }
  static T finish(T sum, int64_t) { return std::sqrt(sum); }
};

// |x|^p, NaN-propagating maximum or minimum of |x|.
template <class T, bool Max>
struct NormInf {
  static constexpr bool scalar_only = false;
  static T identity() { return Max ? T(0) : std::numeric_limits<T>::infinity(); }
  template <class V>
  static MT_INLINE V map(V x) {
    return absolute(x);
  }
  template <class V>
  static MT_INLINE V merge(V a, V b) {
    const V r = Max ? (b > a ? b : a) : (b < a ? b : a);
    return b != b ? b : r;
  }
};

template <class T>
struct NormP : AddMerge<T> {
  static constexpr bool scalar_only = true;
  T p;
  explicit NormP(const ReduceParams& params) : p(static_cast<T>(params.p)) {}
  T map(T x) const { return std::pow(std::abs(x), p); }
  T finish(T sum, int64_t) const { return std::pow(sum, T(1) / p); }
};

// A norm of complex elements: their absolute values a block at a time, then the real loops.
template <class F, class T>
struct ComplexLoops {
  using Real = FoldLoops<F, T>;
  static constexpr int64_t kBlock = 256;

  static void magnitudes(T* out, const void* x, int64_t n) {
    const Complex<T>* z = static_cast<const Complex<T>*>(x);
    for (int64_t i = 0; i < n; i++) out[i] = std::hypot(z[i].re, z[i].im);
  }
  static void row(void* acc, const RowRange& r, const void* x, int64_t count, const ReduceParams& p) {
    T buffer[kBlock];
    r.for_each<Complex<T>>(x, [&](int64_t i, const Complex<T>* z) {
      for (int64_t b = 0; b < count; b += kBlock) {
        const int64_t m = std::min(kBlock, count - b);
        magnitudes(buffer, z + b, m);
        Real::row(acc, {r.n, i, 1, 0, 0}, buffer, m, p);
      }
    });
  }
  static void columns(void* acc, int64_t n, const void* const* rows, int64_t count, int64_t base,
                      const ReduceParams& p) {
    T buffer[kBlock];
    const void* row = buffer;
    for (int64_t r = 0; r < count; r++) {
      for (int64_t b = 0; b < n; b += kBlock) {
        const int64_t m = std::min(kBlock, n - b);
        magnitudes(buffer, static_cast<const Complex<T>*>(rows[r]) + b, m);
        Real::columns(static_cast<T*>(acc) + b, m, &row, 1, base + r, p);
      }
    }
  }
};

template <class F, class T>
Reducer norm_reducer(bool complex, bool cascade) {
  Reducer r = fold_reducer<F, T>(cascade);
  if (complex) {
    r.compute = dtype_of<Complex<T>>;
    r.row = &ComplexLoops<F, T>::row;
    r.columns = &ComplexLoops<F, T>::columns;
  }
  return r;
}

}  // namespace

bool find_norm_reducer(ReduceOp op, DType dtype, double p, Reducer& r) {
  const DType compute = compute_dtype(dtype);
  const bool complex = is_complex(compute);
  const DType real = compute == DType::C64 ? DType::F32 : compute == DType::C128 ? DType::F64 : compute;
  return dispatch(real, FloatTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (p == 0)
      r = norm_reducer<Norm0<T>, T>(complex, true);
    else if (p == 1)
      r = norm_reducer<Norm1<T>, T>(complex, true);
    else if (p == 2)
      r = norm_reducer<Norm2<T>, T>(complex, true);
    else if (p == std::numeric_limits<double>::infinity())
      r = norm_reducer<NormInf<T, true>, T>(complex, false);
    else if (p == -std::numeric_limits<double>::infinity())
      r = norm_reducer<NormInf<T, false>, T>(complex, false);
    else
      r = norm_reducer<NormP<T>, T>(complex, true);
    if (op == ReduceOp::power_sum) r.finish = &FoldLoops<Norm1<T>, T>::finish;
  });
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
