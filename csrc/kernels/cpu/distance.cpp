// Distances on the CPU: each is a reduction over a row, kept in a vector of partial results so that the loop
// vectorises. Gradients go over one row of x1 at a time, which no other thread writes to.
#include <cstring>

#include "kernels/functors/distance.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kLanes = 16;

using namespace distance;

template <class T, class N>
MT_INLINE T row_distance(const N& norm, const T* a, const T* b, int64_t m) {
  T part[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= m; i += kLanes)
    for (int l = 0; l < kLanes; l++) {
      const T d = a[i + l] - b[i + l];
      part[l] = norm.join(part[l], norm.term(d < T(0) ? -d : d));
    }
  for (int l = 0; i < m; i++, l++) {
    const T d = a[i] - b[i];
    part[l] = norm.join(part[l], norm.term(d < T(0) ? -d : d));
  }
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; l++) part[l] = norm.join(part[l], part[l + width]);
  return norm.finish(part[0]);
}

template <class T, class N>
MT_INLINE void add_slopes(const N& norm, const T* a, const T* b, T g, T r, T* dx, int64_t m) {
  const T factor = norm.factor(g, r);
  for (int64_t i = 0; i < m; i++) dx[i] += norm.slope(a[i] - b[i], factor, r);
}

// Short rows: the b side is turned, so that a vector holds the same element of neighbouring rows of b, and the sum over
// the elements needs no combining across lanes.
constexpr int64_t kTurnedWidth = 64;     // rows of b together
constexpr int64_t kTurnedElements = 64;  // row length up to which turning pays

template <class T>
struct TurnedRows {
  alignas(64) T data[kTurnedElements * kTurnedWidth];
  TurnedRows(const T* b, int64_t m, int64_t count) {
    for (int64_t j = 0; j < count; j++)
      for (int64_t i = 0; i < m; i++) data[i * kTurnedWidth + j] = b[j * m + i];
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = count; j < kTurnedWidth; j++) data[i * kTurnedWidth + j] = T(0);
  }
};

// out[j] = the distance of row a from turned row j, first <= j < count.
template <class T, class N>
MT_INLINE void turned_distances(const N& norm, const T* a, const TurnedRows<T>& b, int64_t m, T* out, int64_t first,
                                int64_t count) {
  alignas(64) T sum[kTurnedWidth] = {};
  for (int64_t i = 0; i < m; i++) {
    const T* const row = b.data + i * kTurnedWidth;
    const T x = a[i];
    for (int64_t j = 0; j < kTurnedWidth; j++) {
      const T d = x - row[j];
      sum[j] = norm.join(sum[j], norm.term(d < T(0) ? -d : d));
    }
  }
  for (int64_t j = first; j < count; j++) out[j] = norm.finish(sum[j]);
}
MT_INLINE bool is_turned(int64_t m, int64_t rows) { return m <= kTurnedElements && rows >= 8; }

int64_t grain(int64_t m) { return grain_of(4 * m); }

// Where the pairs that begin with row i start, less i + 1: pair (i, j) is at pair_base + j.
MT_INLINE int64_t pair_base(int64_t i, int64_t n) { return i * (2 * n - i - 1) / 2 - i - 1; }

template <class F>
void for_float(const char* name, const DistanceArgs& a, const F& f) {
  const bool done = dispatch(a.dtype, FloatTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_norm<T>(a.p, [&](auto norm) { f(tag, norm); });
  });
  if (!done) missing_kernel(name, name_of(a.dtype));
}

void cdist(const DistanceArgs& a) {
  for_float("cdist", a, [&](auto tag, auto norm) {
    using T = typename decltype(tag)::type;
    if (is_turned(a.m, a.r1)) {
      const int64_t groups = (a.r2 + kTurnedWidth - 1) / kTurnedWidth;
      parallel_for(a.batch * groups, grain(a.m * kTurnedWidth * a.r1), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; t++) {
          const int64_t batch = t / groups, j = t % groups * kTurnedWidth, count = std::min(kTurnedWidth, a.r2 - j);
          const T* x1 = static_cast<const T*>(a.x1) + batch * a.r1 * a.m;
          const TurnedRows<T> x2(static_cast<const T*>(a.x2) + (batch * a.r2 + j) * a.m, a.m, count);
          T* out = static_cast<T*>(a.distance) + batch * a.r1 * a.r2 + j;
          for (int64_t i = 0; i < a.r1; i++) turned_distances(norm, x1 + i * a.m, x2, a.m, out + i * a.r2, 0, count);
        }
      });
      return;
    }
    parallel_for(a.batch * a.r1, grain(a.m * a.r2), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) {
        const T* x1 = static_cast<const T*>(a.x1) + row * a.m;
        const T* x2 = static_cast<const T*>(a.x2) + row / a.r1 * a.r2 * a.m;
        T* out = static_cast<T*>(a.distance) + row * a.r2;
        for (int64_t j = 0; j < a.r2; j++) out[j] = row_distance(norm, x1, x2 + j * a.m, a.m);
      }
    });
  });
}

void cdist_backward(const DistanceArgs& a) {
  for_float("cdist_backward", a, [&](auto tag, auto norm) {
    using T = typename decltype(tag)::type;
    parallel_for(a.batch * a.r1, grain(a.m * a.r2), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) {
        const T* x1 = static_cast<const T*>(a.x1) + row * a.m;
        const T* x2 = static_cast<const T*>(a.x2) + row / a.r1 * a.r2 * a.m;
        const T *r = static_cast<const T*>(a.distance) + row * a.r2, *g = static_cast<const T*>(a.dy) + row * a.r2;
        T* dx = static_cast<T*>(a.dx1) + row * a.m;
        std::memset(static_cast<void*>(dx), 0, static_cast<size_t>(a.m) * sizeof(T));
        for (int64_t j = 0; j < a.r2; j++) add_slopes(norm, x1, x2 + j * a.m, g[j], r[j], dx, a.m);
      }
    });
  });
}

void pdist(const DistanceArgs& a) {
  for_float("pdist", a, [&](auto tag, auto norm) {
    using T = typename decltype(tag)::type;
    const T* x = static_cast<const T*>(a.x1);
    const int64_t n = a.r1;
    if (is_turned(a.m, n)) {
      // Group g of rows meets all rows before its end; groups g and groups - 1 - g together make equal work.
      const int64_t groups = (n + kTurnedWidth - 1) / kTurnedWidth;
      const auto group = [&](int64_t g) {
        const int64_t j = g * kTurnedWidth, count = std::min(kTurnedWidth, n - j);
        const TurnedRows<T> others(x + j * a.m, a.m, count);
        for (int64_t i = 0; i < j + count - 1; i++)
          turned_distances(norm, x + i * a.m, others, a.m, static_cast<T*>(a.distance) + pair_base(i, n) + j,
                           std::max<int64_t>(i + 1 - j, 0), count);
      };
      parallel_for((groups + 1) / 2, grain(a.m * n * kTurnedWidth), [&](int64_t begin, int64_t end) {
        for (int64_t g = begin; g < end; g++) {
          group(g);
          if (groups - 1 - g != g) group(groups - 1 - g);
        }
      });
      return;
    }
    // Row i pairs with n - 1 - i others; rows i and n - 1 - i together make equal work.
    parallel_for((n + 1) / 2, grain(a.m * n), [&](int64_t begin, int64_t end) {
      const auto row = [&](int64_t i) {
        T* out = static_cast<T*>(a.distance) + pair_base(i, n);
        for (int64_t j = i + 1; j < n; j++) out[j] = row_distance(norm, x + i * a.m, x + j * a.m, a.m);
      };
      for (int64_t i = begin; i < end; i++) {
        row(i);
        if (n - 1 - i != i) row(n - 1 - i);
      }
    });
  });
}

void pdist_backward(const DistanceArgs& a) {
  for_float("pdist_backward", a, [&](auto tag, auto norm) {
    using T = typename decltype(tag)::type;
    const T *x = static_cast<const T*>(a.x1), *r = static_cast<const T*>(a.distance), *g = static_cast<const T*>(a.dy);
    const int64_t n = a.r1, m = a.m;
    parallel_for(n, grain(m * n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        T* dx = static_cast<T*>(a.dx1) + i * m;
        std::memset(static_cast<void*>(dx), 0, static_cast<size_t>(m) * sizeof(T));
        for (int64_t j = 0; j < n; j++) {
          if (j == i) continue;
          const int64_t pair = i < j ? pair_base(i, n) + j : pair_base(j, n) + i;
          add_slopes(norm, x + i * m, x + j * m, g[pair], r[pair], dx, m);
        }
      }
    });
  });
}

MT_REGISTER_KERNEL(cdist_kernel, &cdist);
MT_REGISTER_KERNEL(cdist_backward_kernel, &cdist_backward);
MT_REGISTER_KERNEL(pdist_kernel, &pdist);
MT_REGISTER_KERNEL(pdist_backward_kernel, &pdist_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
