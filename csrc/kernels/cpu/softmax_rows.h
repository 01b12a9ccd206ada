// Softmax of one contiguous row, on GCC vectors of 64 bytes. A row that is not a whole number of vectors ends in one
// that overlaps its predecessor: its values are computed from the same inputs, read before anything is written, and
// only its new lanes count in sums.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/half.h"
#include "core/macros.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // 64-byte vectors never cross a call: what takes them is inlined

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class T>
struct Lane;
template <>
struct Lane<float> {
  static constexpr int64_t count = 16;
  using Int = int32_t;
  typedef float V __attribute__((vector_size(64), aligned(4), may_alias));
  typedef int32_t I __attribute__((vector_size(64)));
  static constexpr I index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
};
template <>
struct Lane<double> {
  static constexpr int64_t count = 8;
  using Int = int64_t;
  typedef double V __attribute__((vector_size(64), aligned(8), may_alias));
  typedef int64_t I __attribute__((vector_size(64)));
  static constexpr I index = {0, 1, 2, 3, 4, 5, 6, 7};
};

// exp(x) for x <= 0 in x's own precision: Cody-Waite reduction x = n ln2 + r, a polynomial in r, and 2^n in two factors
// so that subnormal results are right. The functors' exp covers all x and computes float in double, half as many at a
// time. Relative error below 1.2e-7 (float; the polynomial is a minimax fit) and 3e-16 (double; Taylor's). V and I are
// the value and its integers: a vector of either, or a scalar.
template <class V, class I>
MT_INLINE V exp_nonpositive_float(V x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the rounded integer in the low mantissa bits
  x = x < -104.0f ? V{} - 104.0f : x;
  const V t = x * 1.44269504088896341f + kRound;
  const V n = t - kRound;
  const V r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  V p = V{} + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const I i = detail::bit_cast<I>(t) - 0x4b400000, half = i >> 1;
  return p * detail::bit_cast<V>((half + 127) << 23) * detail::bit_cast<V>((i - half + 127) << 23);
}

template <class V, class I>
MT_INLINE V exp_nonpositive_double(V x) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  constexpr double c[] = {
      1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
      1.0 / 120,       1.0 / 24,       1.0 / 6,       1.0 / 2,      1.0,         1.0};
  x = x < -746.0 ? V{} - 746.0 : x;
  const V t = x * 1.44269504088896340736 + kRound;
  const V n = t - kRound;
  const V r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  V p = V{} + c[0];
#pragma GCC unroll 12
  for (int k = 1; k < 13; k++) p = p * r + c[k];
  const I i = detail::bit_cast<I>(t) - 0x4338000000000000, half = i >> 1;
  return p * detail::bit_cast<V>((half + 1023) << 52) * detail::bit_cast<V>((i - half + 1023) << 52);
}

template <class T, class V = T, class I = typename Lane<T>::Int>
MT_INLINE V exp_nonpositive(V x) {
  if constexpr (std::is_same_v<T, float>)
    return exp_nonpositive_float<V, I>(x);
  else
    return exp_nonpositive_double<V, I>(x);
}

// Combines the lanes of v by `op` in a tree.
template <class T, class Op>
MT_INLINE T across(typename Lane<T>::V v, const Op& op) {
  using L = Lane<T>;
  for (int64_t w = L::count / 2; w > 0; w /= 2) {
    const typename L::I other = L::index ^ static_cast<typename L::Int>(w);
    v = op(v, __builtin_shuffle(v, other));
  }
  return v[0];
}

template <class T>
struct Row {
  using L = Lane<T>;
  using V = typename L::V;
  using I = typename L::I;
  static constexpr int64_t kBlock = 4096;  // elements summed in T before the total moves on in double

  static MT_INLINE V at(const T* x, int64_t i) { return *reinterpret_cast<const V*>(x + i); }
  static MT_INLINE void put(T* y, int64_t i, V v) { *reinterpret_cast<V*>(y + i) = v; }
  static MT_INLINE V exp(V x) { return exp_nonpositive<T, V, I>(x); }

  // v in the lanes that the last vector adds to the `full` elements before it, 0 elsewhere.
  static MT_INLINE V fresh(V v, int64_t n, int64_t full) {
    const I old = L::index < static_cast<typename L::Int>(L::count - (n - full));
    return old ? V{} : v;
  }

  // Sum of the lanes of `first` and of term(i) over the whole vectors; term(i) is a vector and may store.
  template <class F>
  static MT_INLINE double sum(V first, int64_t full, const F& term) {
    double total = 0;
    for (int64_t b = 0; b < full; b += kBlock) {
      const int64_t end = std::min(full, b + kBlock);
      V s0 = b == 0 ? first : V{}, s1{};
      int64_t i = b;
      for (; i + 2 * L::count <= end; i += 2 * L::count) {
        s0 += term(i);
        s1 += term(i + L::count);
      }
      if (i < end) s0 += term(i);
      total += across<T>(s0 + s1, [](V a, V c) { return a + c; });
    }
    return total;
  }

  static MT_INLINE T max(const T* x, int64_t n, int64_t full) {
    V m0 = at(x, n - L::count), m1 = m0;
    int64_t i = 0;
    for (; i + 2 * L::count <= full; i += 2 * L::count) {
      const V a = at(x, i), c = at(x, i + L::count);
      m0 = a > m0 ? a : m0;
      m1 = c > m1 ? c : m1;
    }
    if (i < full) {
      const V a = at(x, i);
      m0 = a > m0 ? a : m0;
    }
    // A NaN that sat in the first vector would hide its lane's numbers; the exponentials then are NaN anyway.
    return across<T>(m1 > m0 ? m1 : m0, [](V a, V c) { return c > a ? c : a; });
  }

  // Rows of whole vectors do without the overlapping one, which costs a row of two vectors a third of its time.
  static void softmax(T* y, const T* x, int64_t n) {
    const int64_t full = n / L::count * L::count;
    const bool rest = n > full;
    const T m = max(x, n, full);
    const V last = rest ? exp(at(x, n - L::count) - m) : V{};
    const double total = sum(rest ? fresh(last, n, full) : V{}, full, [&](int64_t i) __attribute__((always_inline)) {
      const V e = exp(at(x, i) - m);
      put(y, i, e);
      return e;
    });
    const T scale = static_cast<T>(1 / total);
    for (int64_t i = 0; i < full; i += L::count) put(y, i, at(y, i) * scale);
    if (rest) put(y, n - L::count, last * scale);
  }

  static void log_softmax(T* y, const T* x, int64_t n) {
    const int64_t full = n / L::count * L::count;
    const bool rest = n > full;
    const V last_x = at(x, n - L::count);
    const T m = max(x, n, full);
    const double total = sum(rest ? fresh(exp(last_x - m), n, full) : V{}, full,
                             [&](int64_t i) __attribute__((always_inline)) { return exp(at(x, i) - m); });
    const T log_sum = std::log(static_cast<T>(total));
    for (int64_t i = 0; i < full; i += L::count) put(y, i, at(x, i) - m - log_sum);
    if (rest) put(y, n - L::count, last_x - m - log_sum);
  }

  static void softmax_backward(T* dx, const T* dy, const T* y, int64_t n) {
    const int64_t full = n / L::count * L::count;
    const bool rest = n > full;
    const V last_dy = at(dy, n - L::count), last_y = at(y, n - L::count);
    const double total = sum(rest ? fresh(last_dy * last_y, n, full) : V{}, full,
                             [&](int64_t i) __attribute__((always_inline)) { return at(dy, i) * at(y, i); });
    const T dot = static_cast<T>(total);
    for (int64_t i = 0; i < full; i += L::count) put(dx, i, (at(dy, i) - dot) * at(y, i));
    if (rest) put(dx, n - L::count, (last_dy - dot) * last_y);
  }

  static void log_softmax_backward(T* dx, const T* dy, const T* y, int64_t n) {
    const int64_t full = n / L::count * L::count;
    const bool rest = n > full;
    const V last_dy = at(dy, n - L::count), last_y = at(y, n - L::count);
    const double total = sum(rest ? fresh(last_dy, n, full) : V{}, full,
                             [&](int64_t i) __attribute__((always_inline)) { return at(dy, i); });
    const T sum_dy = static_cast<T>(total);
    for (int64_t i = 0; i < full; i += L::count) put(dx, i, at(dy, i) - exp(at(y, i)) * sum_dy);
    if (rest) put(dx, n - L::count, last_dy - exp(last_y) * sum_dy);
  }
};

// Rows shorter than a vector are padded into one: -inf adds nothing to a softmax, and zeros nothing to the sums.
template <class T, class F>
MT_INLINE void padded(T* out, const T* a, const T* b, int64_t n, T fill, const F& f) {
  constexpr int64_t L = Lane<T>::count;
  alignas(64) T pa[L], pb[L], po[L];
  for (int64_t i = 0; i < L; i++) pa[i] = fill, pb[i] = T(0);
  for (int64_t i = 0; i < n; i++) pa[i] = a[i];
  if (b != nullptr)
    for (int64_t i = 0; i < n; i++) pb[i] = b[i];
  f(po, pa, pb);
  for (int64_t i = 0; i < n; i++) out[i] = po[i];
}

template <class T>
void softmax_row(T* y, const T* x, int64_t n) {
  if (n >= Lane<T>::count) return Row<T>::softmax(y, x, n);
  padded(y, x, static_cast<const T*>(nullptr), n, -std::numeric_limits<T>::infinity(),
         [](T* o, const T* a, const T*) { Row<T>::softmax(o, a, Lane<T>::count); });
}
template <class T>
void log_softmax_row(T* y, const T* x, int64_t n) {
  if (n >= Lane<T>::count) return Row<T>::log_softmax(y, x, n);
  padded(y, x, static_cast<const T*>(nullptr), n, -std::numeric_limits<T>::infinity(),
         [](T* o, const T* a, const T*) { Row<T>::log_softmax(o, a, Lane<T>::count); });
}
template <class T>
void softmax_backward_row(T* dx, const T* dy, const T* y, int64_t n) {
  if (n >= Lane<T>::count) return Row<T>::softmax_backward(dx, dy, y, n);
  padded(dx, dy, y, n, T(0), [](T* o, const T* a, const T* b) { Row<T>::softmax_backward(o, a, b, Lane<T>::count); });
}
template <class T>
void log_softmax_backward_row(T* dx, const T* dy, const T* y, int64_t n) {
  if (n >= Lane<T>::count) return Row<T>::log_softmax_backward(dx, dy, y, n);
  padded(dx, dy, y, n, T(0),
         [](T* o, const T* a, const T* b) { Row<T>::log_softmax_backward(o, a, b, Lane<T>::count); });
}

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
