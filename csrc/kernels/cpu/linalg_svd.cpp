// Singular values: reflectors from both sides reduce the matrix to a real bidiagonal one, which the implicit QR
// iteration diagonalises (G. H. Golub and C. Reinsch, "Singular value decomposition and least squares solutions",
// Numer. Math. 14, 1970; deflation as in LINPACK's dsvdc). Tall matrices are reduced to their triangular factor first
// (T. F. Chan, ACM TOMS 1982). The bidiagonal matrix is kept in double precision.
#include "kernels/cpu/linalg_rotations.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

constexpr int64_t kParallelElements = 1 << 15;

// a, rows >= cols, becomes upper bidiagonal: d, e. Left reflectors stay in the columns of a, right ones go to the
// columns of `right`, column j from row j + 1 on.
template <class T>
void bidiagonalise(const Mat<T>& a, double* d, double* e, T* left_tau, T* right_tau, const Mat<T>& right) {
  const int64_t m = a.rows, n = a.cols;
  Scratch<T, 4096> memory(m + n);
  T *const y = memory.get(), *const u = y + m;
  bool pending = false;  // a -= y u^H is still to be done
  for (int64_t i = 0; i < n; i++) {
    T* const col = &a(0, i);
    if (pending) axpy(m - i, -conj_if(u[i], true), y + i, col + i);
    left_tau[i] = make_reflector(m - i, col[i], col + i + 1);
    d[i] = static_cast<double>(real_part(col[i]));
    if (i + 1 == n) break;
    const int64_t rest = n - i - 1, tall = m - i - 1;
    const T f = -conj_if(left_tau[i], true);
    const int64_t grain = rest * tall < kParallelElements ? rest : 16;
    parallel_for(rest, grain, [&](int64_t begin, int64_t end) {
      for (int64_t k = i + 1 + begin; k < i + 1 + end; k++) {
        T* const other = &a(i, k);
        if (pending) axpy(m - i, -conj_if(u[k], true), y + i, other);
        if (f == T(0)) continue;
        const T w = f * (other[0] + dot(tall, col + i + 1, other + 1));
        other[0] += w;
        axpy(tall, w, col + i + 1, other + 1);
      }
    });
    // The row, conjugated, gives the right reflector.
    for (int64_t k = i + 1; k < n; k++) u[k] = conj_if(a(i, k), true);
    right_tau[i] = make_reflector(rest, u[i + 1], u + i + 2);
    e[i] = static_cast<double>(real_part(u[i + 1]));
    u[i + 1] = T(1);
    for (int64_t k = i + 1; k < n; k++) right(k, i) = u[k];
    pending = !(right_tau[i] == T(0));
    if (!pending) continue;
    multiply<T>(1, a.block(i + 1, i + 1, tall, rest), Mat<T>{u + i + 1, rest, 1, 1, rest}, 0,
                Mat<T>{y + i + 1, tall, 1, 1, m});
    for (int64_t r = i + 1; r < m; r++) y[r] = right_tau[i] * y[r];
  }
}

struct Plane {
  double c, s, r;
  Plane(double f, double g) : c(1), s(0), r(std::sqrt(f * f + g * g)) {
    if (r != 0) c = f / r, s = g / r;
  }
};

// Diagonalises (s, e), of order n and norm about 1. Returns how many values did not converge. Signs are not settled.
template <class T>
int64_t iterate(int64_t n, double* s, double* e, double tolerance, double tiny, Rotations<T>& left,
                Rotations<T>& right) {
  int64_t budget = 60 * n, p = n;
  while (p > 1) {
    int64_t k = p - 2;
    for (; k >= 0; k--)
      if (std::abs(e[k]) <= tiny + tolerance * (std::abs(s[k]) + std::abs(s[k + 1]))) {
        e[k] = 0;
        break;
      }
    if (k == p - 2) {
      p--;
      continue;
    }
    if (budget-- == 0) return p;
    int64_t zero = p - 1;
    for (; zero > k; zero--) {
      const double t = (zero != p - 1 ? std::abs(e[zero]) : 0) + (zero != k + 1 ? std::abs(e[zero - 1]) : 0);
      if (std::abs(s[zero]) <= tiny + tolerance * t) {
        s[zero] = 0;
        break;
      }
    }
    k++;
    if (zero == p - 1) {
      // The last value is zero: rotations from the right make the last column vanish.
      double f = e[p - 2];
      e[p - 2] = 0;
      for (int64_t j = p - 2; j >= k; j--) {
        const Plane q(s[j], f);
        s[j] = q.r;
        if (j != k) f = -q.s * e[j - 1], e[j - 1] *= q.c;
        right.rotate(j, p - 1, q.c, q.s);
      }
      continue;
    }
    if (zero >= k) {
      // An inner value is zero: rotations from the left make its row vanish, and the matrix splits there.
      double f = e[zero];
      e[zero] = 0;
      for (int64_t j = zero + 1; j < p; j++) {
        const Plane q(s[j], f);
        s[j] = q.r;
        if (j + 1 < p) f = -q.s * e[j], e[j] *= q.c;
        left.rotate(j, zero, q.c, q.s);
      }
      continue;
    }
    const double b = ((s[p - 2] + s[p - 1]) * (s[p - 2] - s[p - 1]) + e[p - 2] * e[p - 2]) / 2;
    const double product = s[p - 1] * e[p - 2], c = product * product;
    double shift = 0;
    if (b != 0 || c != 0) {
      shift = std::sqrt(b * b + c);
      shift = c / (b + (b < 0 ? -shift : shift));
    }
    double f = (s[k] + s[p - 1]) * (s[k] - s[p - 1]) + shift, g = s[k] * e[k];
    left.begin(k, true, p - 1 - k);
    right.begin(k, true, p - 1 - k);
    for (int64_t j = k; j < p - 1; j++) {
      const Plane v(f, g);
      if (j != k) e[j - 1] = v.r;
      f = v.c * s[j] + v.s * e[j];
      e[j] = v.c * e[j] - v.s * s[j];
      g = v.s * s[j + 1];
      s[j + 1] *= v.c;
      right.add(v.c, v.s);
      const Plane u(f, g);
      s[j] = u.r;
      f = u.c * e[j] + u.s * s[j + 1];
      s[j + 1] = u.c * s[j + 1] - u.s * e[j];
      if (j + 2 < p) g = u.s * e[j + 1], e[j + 1] *= u.c;
      left.add(u.c, u.s);
    }
    e[p - 2] = f;
  }
  return 0;
}

// rows >= cols. u: rows x (cols or rows), vh: cols x cols.
template <class T>
int64_t decompose(const Mat<T>& given, const Mat<T>& u, const Vec<real_t<T>>& values, const Mat<T>& vh, bool vectors) {
  using R = real_t<T>;
  const int64_t m = given.rows, n = given.cols;
  const double factor = scale_for(given);
  if (!(factor > 0)) {
    for (int64_t i = 0; i < n; i++) values[i] = nan_of<R>();
    if (factor != factor) return -4;  // LAPACK's gesdd takes a NaN for an illegal argument
    return vectors ? svd_nonfinite(given, u, values, vh) : 0;
  }
  Scratch<T, 8192> memory(m * n + 3 * n);
  Mat<T> a{memory.get(), m, n, 1, m};
  T *const qr_tau = memory.get() + m * n, *const left_tau = qr_tau + n, *const right_tau = left_tau + n;
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < m; i++) a(i, j) = T(scaled(given(i, j), static_cast<R>(factor)));

  const Mat<T> whole = a;
  const bool tall = 2 * m > 3 * n && (!vectors || u.cols == n) && n > 1;
  Scratch<T, 8192> triangle(tall ? n * n : 0), right_memory(n * n);
  if (tall) {
    factor_qr(a, Vec<T>{qr_tau, 1});
    const Mat<T> r{triangle.get(), n, n, 1, n};
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < n; i++) r(i, j) = i <= j ? a(i, j) : T(0);
    a = r;
  }
  const Mat<T> right{right_memory.get(), n, n, 1, n};
  Scratch<double, 2048> bidiagonal(2 * n);
  double *const d = bidiagonal.get(), *const e = d + n;
  bidiagonalise(a, d, e, left_tau, right_tau, right);

  const int64_t columns = !vectors ? 0 : tall ? n : u.cols;
  Scratch<T, 8192> left_vectors(a.rows * columns), right_vectors(vectors ? n * n : 0);
  const Mat<T> x{vectors ? left_vectors.get() : nullptr, a.rows, columns, 1, a.rows};
  const Mat<T> y{vectors ? right_vectors.get() : nullptr, n, n, 1, n};
  if (vectors) {
    form_product(a, Vec<T>{left_tau, 1}, n, x);
    for (int64_t i = 0; i < n; i++) y(i, 0) = y(0, i) = T(i == 0 ? 1 : 0);
    if (n > 1) form_product(right.block(1, 0, n - 1, n - 1), Vec<T>{right_tau, 1}, n - 1, y.block(1, 1, n - 1, n - 1));
  }
  Rotations<T> left_rotations(x), right_rotations(y);
  // What lies below the floor, with the norm near 1, is far below the rounding errors of the reduction.
  const double tolerance = std::is_same_v<R, float> ? 1e-10 : 1.2e-16, floor = tolerance * 1e-4;
  const int64_t failed = iterate(n, d, e, tolerance, floor, left_rotations, right_rotations);
  left_rotations.flush(), right_rotations.flush();

  Scratch<int64_t, 1024> order(n);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = i;
    for (; at > 0 && std::abs(d[order[at - 1]]) < std::abs(d[i]); at--) order[at] = order[at - 1];
    order[at] = i;
  }
  for (int64_t j = 0; j < n; j++) values[j] = static_cast<R>(std::abs(d[order[j]]) / factor);
  if (!vectors) return failed;
  for (int64_t j = 0; j < n; j++) {
    const int64_t from = order[j];
    const R sign = d[from] < 0 ? R(-1) : R(1);
    for (int64_t i = 0; i < n; i++) vh(j, i) = conj_if(scaled(y(i, from), sign), true);
  }
  for (int64_t j = 0; j < u.cols; j++) {
    const int64_t from = j < n ? order[j] : j;
    for (int64_t i = 0; i < m; i++) u(i, j) = i < x.rows ? x(i, from) : T(0);
  }
  if (tall) apply_reflectors(whole, Vec<T>{qr_tau, 1}, n, false, false, u);
  return failed;
}

void svd(const SvdArgs& args) {
  dispatch_linalg("svd", args.a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double m = static_cast<double>(args.a.sizes[args.a.ndim - 2]);
    const double n = static_cast<double>(args.a.sizes[args.a.ndim - 1]);
    for_each_item(batch_count(args.a, 2), 20 * m * n * std::min(m, n), [&](int64_t i) {
      const Mat<T> a = matrix_of<T>(args.a, i);
      const Mat<T> u = args.vectors ? matrix_of<T>(args.u, i) : Mat<T>{};
      const Mat<T> vh = args.vectors ? matrix_of<T>(args.vh, i) : Mat<T>{};
      const Vec<real_t<T>> s = vector_of<real_t<T>>(args.s, i);
      int64_t info = 0;
      if (a.rows > 0 && a.cols > 0)
        info =
            a.rows >= a.cols ? decompose(a, u, s, vh, args.vectors) : decompose(a.t(), vh.t(), s, u.t(), args.vectors);
      *batch_item<int32_t>(args.info, i, 0) = static_cast<int32_t>(info);
    });
  });
}
MT_REGISTER_KERNEL(svd_kernel, &svd);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
