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

int64_t grain(int64_t m) { return std::max<int64_t>(1, kGrainSize / 4 / std::max<int64_t>(1, m)); }

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
