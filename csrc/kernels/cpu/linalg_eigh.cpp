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

// ---- Matrices with a NaN or an infinity ----

// LAPACK's syevd and heevd give NaN for some results of them and numbers for others, or refuse: it depends on which of
// their comparisons a NaN falsifies. The same comparisons are made here, on a tridiagonal matrix with NaN.

template <class T>
void reverse(T* x, int64_t n) {
  for (int64_t i = 0; i < n / 2; i++) std::swap(x[i], x[n - 1 - i]);
}

enum class Iteration { values, vectors, divided };  // sterf, steqr, stedc

// Vectors of matrices of more rows are found by division into blocks.
constexpr int64_t kUndivided = 25;

// Rows i and i + 1 are not taken apart.
template <class R>
bool coupled(Iteration method, double d, double e, double next) {
  const double negligible = std::sqrt(std::abs(d)) * std::sqrt(std::abs(next)) * std::numeric_limits<R>::epsilon() / 2;
  if (method == Iteration::divided) return std::abs(e) > negligible;
  return !(std::abs(e) <= negligible) && !(method == Iteration::vectors && e == 0);
}

// Eigenvalues replace d, vectors of the tridiagonal matrix the identity in z. Returns LAPACK's information: how many
// elements beside the diagonal are left when the budget is spent.
template <class T>
int64_t iterate_nonfinite(Iteration method, int64_t n, double* d, double* e, const Mat<T>& z) {
  for (int64_t first = 0, end; first < n; first = end) {
    for (end = first + 1; end < n && coupled<real_t<T>>(method, d[end - 1], e[end - 1], d[end]);) end++;
    const int64_t rows = end - first;
    double largest = 0, sum = 0;
    for (int64_t i = first; i < end; i++) {
      const double beside = i + 1 < end ? e[i] : 0;
      largest = std::max(largest, std::max(std::abs(d[i]), std::abs(beside))), sum += d[i] + beside;
    }
    const Mat<T> own = z.p == nullptr ? Mat<T>{} : z.block(0, first, n, rows);
    if (rows == 1) continue;
    if (std::isfinite(sum)) {
      int exponent = 0;
      std::frexp(largest, &exponent);
      for (int64_t i = first; i < end; i++) d[i] = std::ldexp(d[i], -exponent), e[i] = std::ldexp(e[i], -exponent);
      Rotations<T> rotations(own);
      if (const int64_t failed = iterate(rows, d + first, e + first, 1.2e-16, 1.2e-20, rotations)) return failed;
      rotations.flush();
      for (int64_t i = first; i < end; i++) d[i] = std::ldexp(d[i], exponent);
    } else if (rows == 2) {
      // The formulas for two rows (laev2) go by the sign of the trace, which a NaN does not have.
      const bool lost = std::isnan(d[first] + d[first + 1]);
      d[first] = lost ? std::abs(e[first]) * std::sqrt(2.0) : std::numeric_limits<double>::quiet_NaN();
      d[first + 1] = -d[first];
      for (int64_t j = 0; j < own.cols; j++)
        for (int64_t i = 0; i < n; i++) own(i, j) = nan_of<T>();
    } else {
      int64_t left = rows - (method == Iteration::values ? 2 : 1);
      for (int64_t i = end; i + 1 < n; i++) left += e[i] != 0;
      return left;
    }
  }
  return 0;
}

// a is the full matrix, tau and z are scratch; z and v are not used for eigenvalues alone.
template <class T>
int64_t diagonalise_nonfinite(const Vec<real_t<T>>& w, const Mat<T>& v, const Mat<T>& a, T* tau, const Mat<T>& z,
                              bool upper) {
  using R = real_t<T>;
  const int64_t n = a.rows, reals = n * n * (is_complex_v<T> ? 2 : 1);
  bool has_nan = false;
  for (int64_t i = 0; i < n * n; i++) has_nan |= std::isnan(real_part(a.p[i])) || std::isnan(imag_part(a.p[i]));
  for (int64_t i = 0; has_nan && i < n * n; i++)
    if (std::isnan(real_part(a.p[i])) || std::isnan(imag_part(a.p[i]))) a.p[i] = nan_of<T>();
  // An infinity and no NaN: the factor that makes the norm moderate is zero, and the one that goes back infinite.
  if (!has_nan)
    for (int64_t i = 0; i < reals; i++) reinterpret_cast<R*>(a.p)[i] *= R(0);
  Scratch<double, 2048> tridiagonal(2 * n);
  double *const d = tridiagonal.get(), *const e = d + n;
  // From the upper triangle LAPACK works from the last row up, as from the lower triangle of the reversed matrix.
  if (upper) reverse(a.p, n * n);
  tridiagonalise(a, d, e, tau);
  if (upper) reverse(d, n), reverse(e, n - 1);
  const bool vectors = z.p != nullptr;
  const auto turn_rows = [&] {
    for (int64_t c = 0; vectors && upper && c < n; c++) reverse(&z(0, c), n);
  };
  for (int64_t i = 0; vectors && i < n * n; i++) z.p[i] = T(i % (n + 1) == 0 ? 1 : 0);
  const Iteration method = !vectors ? Iteration::values : n <= kUndivided ? Iteration::vectors : Iteration::divided;
  if (const int64_t info = iterate_nonfinite(method, n, d, e, z)) return info;
  turn_rows();
  for (int64_t j = n - 2; vectors && j >= 0; j--) {
    if (tau[j] == T(0)) continue;
    a(j + 1, j) = T(1);
    for (int64_t c = 0; c < n; c++) {
      const T w = dot(n - j - 1, &a(j + 1, j), &z(j + 1, c));
      if (!(w == T(0))) axpy(n - j - 1, -tau[j] * w, &a(j + 1, j), &z(j + 1, c));
    }
  }
  turn_rows();
  Scratch<int64_t, 1024> order(n);
  for (int64_t i = 0; i < n; i++) order[i] = i;
  for (int64_t i = 0; i < n; i++) {  // selection, which is what decides where a NaN ends
    int64_t least = i;
    for (int64_t j = i + 1; j < n; j++)
      if (d[order[j]] < d[order[least]]) least = j;
    std::swap(order[i], order[least]);
    w[i] = has_nan ? static_cast<R>(d[order[i]]) : nan_of<R>();
    for (int64_t k = 0; vectors && k < n; k++) v(k, i) = z(k, order[i]);
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
  if (!(factor > 0)) return diagonalise_nonfinite(w, v, a, tau, z, upper);
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
