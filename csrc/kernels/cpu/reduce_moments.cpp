// Variance, standard deviation and mean in one pass over memory. Each block is centred on its own mean, and blocks are
// merged by the parallel update of T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm
// for computing sample variances" (1979). Deviations are summed in double.
#include <cmath>

#include "kernels/cpu/reduce_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class T>
struct Plain {
  static constexpr bool scalar_only = false;
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

// Planes: mean, sum of squared deviations, number of elements.
struct Moments {
  double *mean, *m2, *count;
  Moments(void* acc, int64_t n) : mean(static_cast<double*>(acc)), m2(mean + n), count(mean + 2 * n) {}

  MT_INLINE void add(int64_t j, double other_mean, double other_m2, double other_count) const {
    const double total = count[j] + other_count, delta = other_mean - mean[j];
    const double share = other_count / total;
    // The first block is taken as it is, so that an infinite mean stays infinite.
    mean[j] = count[j] == 0 ? other_mean : mean[j] + delta * share;
    m2[j] = count[j] == 0 ? other_m2 : m2[j] + other_m2 + delta * delta * count[j] * share;
    count[j] = total;
  }
};

template <class T>
struct MomentLoops {
  static void init(void* acc, int64_t n) { memset(acc, 0, n * 3 * sizeof(double)); }

  static void row(void* acc, const RowRange& r, const void* x, int64_t count, const ReduceParams&) {
    const Moments moments(acc, r.n);
    r.for_each<T>(x, [&](int64_t i, const T* v) { add_row(moments, i, v, count); });
  }

  static void add_row(const Moments& moments, int64_t i, const T* x, int64_t count) {
    constexpr int64_t kBlock = 1024;
    typedef double D __attribute__((vector_size(64)));
    typedef T V __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias));
    for (int64_t b = 0; b < count; b += kBlock) {
      const T* v = x + b;
      const int64_t m = std::min(kBlock, count - b);
      const double centre = fold_contiguous(Plain<T>{}, v, m) / static_cast<T>(m);
      D s1a{}, s1b{}, s2a{}, s2b{};
      int64_t k = 0;
      for (; k + 16 <= m; k += 16) {
        const D da = __builtin_convertvector(*reinterpret_cast<const V*>(v + k), D) - centre;
        const D db = __builtin_convertvector(*reinterpret_cast<const V*>(v + k + 8), D) - centre;
        s1a += da;
        s1b += db;
        s2a += da * da;
        s2b += db * db;
      }
      s1a += s1b;
      s2a += s2b;
      double s1 = 0, s2 = 0;
      for (int l = 0; l < 8; l++) s1 += s1a[l], s2 += s2a[l];
      for (; k < m; k++) {
        const double d = v[k] - centre;
        s1 += d;
        s2 += d * d;
      }
      moments.add(i, centre + s1 / m, s2 - s1 * s1 / m, m);
    }
  }

  static void columns(void* acc, int64_t n, const void* const* rows, int64_t count, int64_t, const ReduceParams&) {
    constexpr int64_t kTile = 128;
    const Moments moments(acc, n);
    for (int64_t j0 = 0; j0 < n; j0 += kTile) {
      const int64_t m = std::min(kTile, n - j0);
      double centre[kTile] = {}, s1[kTile] = {}, s2[kTile] = {};
      for (int64_t r = 0; r < count; r++) {
        const T* x = static_cast<const T*>(rows[r]) + j0;
        for (int64_t j = 0; j < m; j++) centre[j] += x[j];
      }
      const double scale = 1.0 / static_cast<double>(count);
      for (int64_t j = 0; j < m; j++) centre[j] *= scale;
      for (int64_t r = 0; r < count; r++) {
        const T* x = static_cast<const T*>(rows[r]) + j0;
        for (int64_t j = 0; j < m; j++) {
          const double d = x[j] - centre[j];
          s1[j] += d;
          s2[j] += d * d;
        }
      }
      for (int64_t j = 0; j < m; j++)
        moments.add(j0 + j, centre[j] + s1[j] * scale, s2[j] - s1[j] * s1[j] * scale, static_cast<double>(count));
    }
  }

  static void merge(void* acc, const void* other, int64_t n) {
    const Moments a(acc, n), b(const_cast<void*>(other), n);
    for (int64_t j = 0; j < n; j++) a.add(j, b.mean[j], b.m2[j], b.count[j]);
  }

  template <bool Root>
  static void finish(void* const* out, const void* acc, int64_t n, int64_t, const ReduceParams& p) {
    const Moments a(const_cast<void*>(acc), n);
    double* spread = static_cast<double*>(out[0]);
    double* mean = static_cast<double*>(out[1]);
    for (int64_t j = 0; j < n; j++) {
      const double divisor = a.count[j] - p.correction;
      const double variance = a.m2[j] / (divisor > 0 ? divisor : 0.0);
      if (mean != nullptr) mean[j] = a.mean[j];
      spread[j] = Root ? std::sqrt(variance) : variance;
    }
  }
};

}  // namespace

bool find_moments_reducer(ReduceOp op, DType dtype, int outputs, Reducer& r) {
  return dispatch(compute_dtype(dtype), FloatTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using L = MomentLoops<T>;
    r = {dtype_of<T>,
         24,
         false,
         outputs,
         {DType::F64, DType::F64},
         &L::init,
         &L::row,
         &L::columns,
         &L::merge,
         op == ReduceOp::std ? &L::template finish<true> : &L::template finish<false>};
  });
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
