// Eigenvalues of Hermitian matrices: Householder reflectors reduce the matrix to a real tridiagonal one, and the QL
// iteration with implicit shifts diagonalises that (J. H. Wilkinson and C. Reinsch, "Handbook for Automatic
// Computation II: Linear Algebra", 1971; the iteration is that of A. Dubrulle, Numer. Math. 15, 1970). The reduction
// passes once over the matrix for each column: the update by one reflector and the product with the next are one loop.
// The tridiagonal matrix is kept in double precision.
#include "kernels/cpu/linalg_rotations.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

constexpr int64_t kParallelElements = 1 << 15;  // trailing matrices of fewer elements stay on one thread

// Column a -= x * f + y * g, then conj(a) . v
template <class T>
MT_INLINE T update_and_dot(int64_t n, T* a, const T* x, T f, const T* y, T g, const T* v) {
  if constexpr (is_complex_v<T>) {
    axpy(n, -f, x, a);
    axpy(n, -g, y, a);
    return dot(n, a, v);
  } else {
    using V = gemm::Vector<T>;
    constexpr int64_t L = gemm::kLanes<T>;
    V sum0{}, sum1{};
    int64_t i = 0;
    const auto step = [&](int64_t at, V& sum) {
      const V z = gemm::load_vector(a + at) - (gemm::load_vector(x + at) * f + gemm::load_vector(y + at) * g);
      gemm::store_vector(a + at, z);
      sum += z * gemm::load_vector(v + at);
    };
    for (; i + 2 * L <= n; i += 2 * L) step(i, sum0), step(i + L, sum1);
    for (; i + L <= n; i += L) step(i, sum0);
    sum0 += sum1;
    T sum = 0;
    for (int l = 0; l < L; l++) sum += sum0[l];
    for (; i < n; i++) {
      a[i] -= x[i] * f + y[i] * g;
      sum += a[i] * v[i];
    }
    return sum;
  }
}

// The full Hermitian matrix a becomes tridiagonal: d, e. The reflectors stay in its columns, from row j + 1 on.
template <class T>
void tridiagonalise(const Mat<T>& a, double* d, double* e, T* tau) {
  using R = real_t<T>;
  const int64_t n = a.rows;
  Scratch<T, 4096> memory(4 * n);
  T *v = memory.get(), *p = v + n, *old_v = p + n, *old_w = old_v + n;
  bool pending = false;  // a -= old_v old_w^H + old_w old_v^H is still to be done
  for (int64_t j = 0; j < n; j++) {
    T* const col = &a(0, j);
    if (pending) {
      axpy(n - j, -conj_if(old_w[j], true), old_v + j, col + j);
      axpy(n - j, -conj_if(old_v[j], true), old_w + j, col + j);
    }
    d[j] = static_cast<double>(real_part(col[j]));
    if (j + 1 == n) break;
    const int64_t m = n - j - 1;
    tau[j] = make_reflector(m, col[j + 1], col + j + 2);
    e[j] = static_cast<double>(real_part(col[j + 1]));
    v[j + 1] = T(1);
    for (int64_t i = j + 2; i < n; i++) v[i] = col[i];
    const int64_t grain = m * m < kParallelElements ? m : 16;
    parallel_for(m, grain, [&](int64_t begin, int64_t end) {
      for (int64_t k = j + 1 + begin; k < j + 1 + end; k++) {
        T* const other = &a(j + 1, k);
        p[k] = pending ? update_and_dot(m, other, old_v + j + 1, conj_if(old_w[k], true), old_w + j + 1,
                                        conj_if(old_v[k], true), v + j + 1)
                       : dot(m, other, v + j + 1);
      }
    });
    pending = !(tau[j] == T(0));
    if (!pending) continue;
    for (int64_t i = j + 1; i < n; i++) p[i] = tau[j] * p[i];
    const T alpha = scaled(tau[j] * dot(m, p + j + 1, v + j + 1), R(-0.5));
    axpy(m, alpha, v + j + 1, p + j + 1);
    std::swap(v, old_v), std::swap(p, old_w);
  }
}

// Diagonalises (d, e), of order n and norm about 1; rotations go to z. Returns how many eigenvalues did not converge.
template <class T>
int64_t iterate(int64_t n, double* d, double* e, double tolerance, double floor, Rotations<T>& z) {
  int64_t budget = 60 * n;
  e[n - 1] = 0;
  for (int64_t l = 0; l < n; l++) {
    for (;;) {
      int64_t m = l;
      for (; m < n - 1; m++)
        if (std::abs(e[m]) <= tolerance * (std::abs(d[m]) + std::abs(d[m + 1])) + floor) break;
      if (m == l) break;
      if (budget-- == 0) return n - l;
      double g = (d[l + 1] - d[l]) / (2 * e[l]), r = std::sqrt(g * g + 1);
      g = d[m] - d[l] + e[l] / (g + (g >= 0 ? r : -r));
      double s = 1, c = 1, p = 0;
      z.begin(m - 1, false, m - l);
      int64_t i = m - 1;
      for (; i >= l; i--) {
        const double f = s * e[i], b = c * e[i];
        r = std::sqrt(f * f + g * g);
        e[i + 1] = r;
        if (r == 0) {
          d[i + 1] -= p;
          e[m] = 0;
          break;
        }
        s = f / r, c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        z.add(c, -s);
      }
      if (r == 0 && i >= l) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0;
    }
  }
  return 0;
}

template <class T>
int64_t diagonalise(const Vec<real_t<T>>& w, const Mat<T>& v, bool upper, bool vectors) {
  using R = real_t<T>;
  const int64_t n = v.rows;
  if (n == 1) {
    w[0] = real_part(v(0, 0));
    if (vectors) v(0, 0) = T(1);
    return 0;
  }
  Scratch<T, 8192> memory((vectors ? 2 : 1) * n * n + n);
  const Mat<T> a{memory.get(), n, n, 1, n}, z{vectors ? memory.get() + n * n + n : nullptr, n, n, 1, n};
  T* const tau = memory.get() + n * n;
  for (int64_t j = 0; j < n; j++) {
    a(j, j) = T(real_part(v(j, j)));
    for (int64_t i = j + 1; i < n; i++) {
      a(i, j) = upper ? conj_if(v(j, i), true) : v(i, j);
      a(j, i) = conj_if(a(i, j), true);
    }
  }
  const double factor = scale_for(a);
  if (!(factor > 0)) {
    for (int64_t i = 0; i < n; i++) w[i] = std::numeric_limits<R>::quiet_NaN();
    if (vectors)
      for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) v(i, j) = T(std::numeric_limits<R>::quiet_NaN());
    return eigh_info_of_nan(n, vectors);
  }
  for (int64_t i = 0; i < n * n; i++) a.p[i] = T(scaled(a.p[i], static_cast<R>(factor)));
  Scratch<double, 2048> tridiagonal(2 * n + 1);
  double *const d = tridiagonal.get(), *const e = d + n;
  tridiagonalise(a, d, e, tau);
  if (vectors) {
    for (int64_t i = 0; i < n; i++) z(i, 0) = z(0, i) = T(i == 0 ? 1 : 0);
    form_product(a.block(1, 0, n - 1, n - 1), Vec<T>{tau, 1}, n - 1, z.block(1, 1, n - 1, n - 1));
  }
  Rotations<T> rotations(z);
  // What lies below the floor, with the norm near 1, is far below the rounding errors of the reduction.
  const double tolerance = std::is_same_v<R, float> ? 1e-10 : 1.2e-16, floor = tolerance * 1e-4;
  const int64_t failed = iterate(n, d, e, tolerance, floor, rotations);
  rotations.flush();
  // Ascending order by insertion of positions.
  Scratch<int64_t, 1024> order(n);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = i;
    for (; at > 0 && d[order[at - 1]] > d[i]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
  for (int64_t j = 0; j < n; j++) {
    w[j] = static_cast<R>(d[order[j]] / factor);
    if (vectors)
      for (int64_t i = 0; i < n; i++) v(i, j) = z(i, order[j]);
  }
  return failed;
}

void eigh(const TensorView& w, const TensorView& v, const TensorView& info, bool upper, bool vectors) {
  dispatch_linalg("eigh", v.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double n = static_cast<double>(v.sizes[v.ndim - 1]);
    for_each_item(batch_count(v, 2), 10 * n * n * n, [&](int64_t i) {
      const Mat<T> matrix = matrix_of<T>(v, i);
      *batch_item<int32_t>(info, i, 0) =
          matrix.rows == 0 ? 0 : static_cast<int32_t>(diagonalise(vector_of<real_t<T>>(w, i), matrix, upper, vectors));
    });
  });
}
MT_REGISTER_KERNEL(eigh_kernel, &eigh);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
