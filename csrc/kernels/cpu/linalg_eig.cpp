// Eigenvalues of general matrices, in double precision: reflectors reduce the matrix to Hessenberg form, the shifted QR
// iteration brings that to Schur form, and eigenvectors follow by back substitution. Real matrices take the double
// shift of J. G. F. Francis ("The QR transformation", Comput. J. 1961/62) in the form of EISPACK's hqr2 (G. Peters and
// J. H. Wilkinson, Numer. Math. 16, 1970), so that complex eigenvalues come as exact pairs; complex ones a single
// shift.
#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

using Z = Complex<double>;
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

MT_INLINE double absolute(Z z) { return std::hypot(z.re, z.im); }

// h becomes q^H h q, upper Hessenberg, and q the transformation. Both have adjacent rows.
template <class T>
void reduce(const Mat<T>& h, const Mat<T>& q) {
  const int64_t n = h.rows;
  Scratch<T> tau(n), v(n);
  for (int64_t k = 0; k + 2 < n; k++) {
    const int64_t m = n - k - 1;
    tau[k] = make_reflector(m, h(k + 1, k), &h(k + 2, k));
    if (tau[k] == T(0)) continue;
    v[0] = T(1);
    for (int64_t i = 1; i < m; i++) v[i] = h(k + 1 + i, k);
    const T left = -conj_if(tau[k], true);
    for (int64_t j = k + 1; j < n; j++) {
      T* const col = &h(k + 1, j);
      axpy(m, left * dot(m, v.get(), col), v.get(), col);
    }
    // From the right: columns k + 1 .. n - 1 of all rows, h -= (h v) tau v^H.
    Scratch<T, 2048> product(n);
    product.zero(n);
    for (int64_t j = 0; j < m; j++) axpy(n, v[j], &h(0, k + 1 + j), product.get());
    for (int64_t j = 0; j < m; j++) axpy(n, -(tau[k] * conj_if(v[j], true)), product.get(), &h(0, k + 1 + j));
  }
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++) q(i, j) = T(i == j ? 1 : 0);
  if (n > 2) {
    Scratch<T> copy(n * n);
    const Mat<T> reflectors{copy.get(), n - 1, n - 2, 1, n};
    for (int64_t j = 0; j < n - 2; j++)
      for (int64_t i = j; i < n - 1; i++) reflectors(i, j) = h(i + 1, j);
    form_product(reflectors, Vec<T>{tau.get(), 1}, n - 2, q.block(1, 1, n - 1, n - 1));
  }
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = j + 2; i < n; i++) h(i, j) = T(0);
}

// Complex Hessenberg h to triangular form, q accumulating the transformations.
int64_t iterate(const Mat<Z>& h, const Mat<Z>& q, bool vectors) {
  const int64_t n = h.rows;
  int64_t budget = 60 * n, top = n - 1, stuck = 0;
  Scratch<double, 2048> cosines(n);
  Scratch<Z, 4096> sines(n);
  while (top > 0) {
    int64_t l = top;
    for (; l > 0; l--) {
      double around = size1(h(l, l)) + size1(h(l - 1, l - 1));
      if (around == 0) around = 1;
      if (size1(h(l, l - 1)) <= kEpsilon * around || size1(h(l, l - 1)) < 1e-300) {
        h(l, l - 1) = Z(0);
        break;
      }
    }
    if (l == top) {
      top--, stuck = 0;
      continue;
    }
    if (budget-- == 0) return top + 1;
    stuck++;
    Z shift;
    if (stuck % 10 == 0) {
      shift = h(top, top) + Z(0.75 * std::abs(h(top, top - 1).re) + 0.25 * std::abs(h(top, top - 1).im));
    } else {
      // The eigenvalue of the last block of order two that is nearer to its last entry.
      const Z half = scaled(h(top - 1, top - 1) - h(top, top), 0.5), bc = h(top - 1, top) * h(top, top - 1);
      const Z square = half * half + bc;
      const double size = absolute(square);
      Z root(std::sqrt(std::max(0.0, (size + square.re) / 2)), std::sqrt(std::max(0.0, (size - square.re) / 2)));
      if (square.im < 0) root.im = -root.im;
      if (half.re * root.re + half.im * root.im < 0) root = -root;
      const Z sum = half + root;
      shift = sum == Z(0) ? h(top, top) : h(top, top) - bc / sum;
    }
    const int64_t last = vectors ? n : top + 1, first = vectors ? 0 : l;
    for (int64_t i = l; i <= top; i++) h(i, i) -= shift;
    for (int64_t k = l; k < top; k++) {
      const Z f = h(k, k), g = h(k + 1, k);
      const double size_f = absolute(f), r = std::hypot(size_f, absolute(g));
      double c = 1;
      Z s(0);
      if (size_f == 0) {
        if (r != 0) c = 0, s = scaled(conj(g), 1 / r);
      } else {
        c = size_f / r;
        s = scaled(f, 1 / size_f) * scaled(conj(g), 1 / r);
      }
      cosines[k] = c, sines[k] = s;
      for (int64_t j = k; j < last; j++) {
        const Z x = h(k, j), y = h(k + 1, j);
        h(k, j) = scaled(x, c) + s * y;
        h(k + 1, j) = scaled(y, c) - conj(s) * x;
      }
      h(k + 1, k) = Z(0);
    }
    const auto columns = [](const Mat<Z>& m, int64_t k, int64_t begin, int64_t end, double c, Z s) {
      for (int64_t i = begin; i < end; i++) {
        const Z x = m(i, k), y = m(i, k + 1);
        m(i, k) = scaled(x, c) + conj(s) * y;
        m(i, k + 1) = scaled(y, c) - s * x;
      }
    };
    for (int64_t k = l; k < top; k++) {
      columns(h, k, first, std::min(k + 2, top + 1), cosines[k], sines[k]);
      if (vectors) columns(q, k, 0, n, cosines[k], sines[k]);
    }
    for (int64_t i = l; i <= top; i++) h(i, i) += shift;
  }
  return 0;
}

// The eigenvectors of a triangular matrix, as columns of x.
void back_substitute(const Mat<Z>& t, const Mat<Z>& x) {
  const int64_t n = t.rows;
  double norm = 0;
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i <= j; i++) norm = std::max(norm, size1(t(i, j)));
  const double smallest = std::max(norm * kEpsilon, 1e-290);
  for (int64_t k = 0; k < n; k++) {
    Z* const v = &x(0, k);
    for (int64_t i = 0; i < n; i++) v[i] = i < k ? -t(i, k) : Z(i == k ? 1 : 0);
    for (int64_t i = k - 1; i >= 0; i--) {
      Z d = t(i, i) - t(k, k);
      if (size1(d) < smallest) d = Z(smallest);
      v[i] = v[i] / d;
      axpy(i, -v[i], &t(0, i), v);
      const double size = size1(v[i]);
      if (size > 1e100)
        for (int64_t r = 0; r <= k; r++) v[r] = scaled(v[r], 1 / size);
    }
  }
}

// Norm 1, and the largest component real.
template <class Out>
void store_vector(int64_t n, const Z* v, bool is_real, const Mat<Out>& out, int64_t column) {
  using R = real_t<Out>;
  double norm = norm2(n, v), largest = -1;
  int64_t at = 0;
  for (int64_t i = 0; i < n; i++) {
    const double size = v[i].re * v[i].re + v[i].im * v[i].im;
    if (size > largest) largest = size, at = i;
  }
  Z factor(1 / norm);
  if (!is_real) factor = scaled(conj(v[at]), 1 / (absolute(v[at]) * norm));
  for (int64_t i = 0; i < n; i++) {
    const Z y = v[i] * factor;
    out(i, column) = Out(static_cast<R>(y.re), !is_real && i == at ? R(0) : static_cast<R>(y.im));
  }
}

template <class T>
int64_t decompose(const Mat<T>& a, const Vec<Complex<real_t<T>>>& w, const Mat<Complex<real_t<T>>>& v, bool vectors) {
  using Out = Complex<real_t<T>>;
  using D = std::conditional_t<is_complex_v<T>, Z, double>;
  const int64_t n = a.rows;
  Scratch<D, 8192> memory(3 * n * n);
  Scratch<Z, 4096> values(n), column(n);
  const Mat<D> h{memory.get(), n, n, 1, n}, q{memory.get() + n * n, n, n, 1, n};
  const Mat<D> x{memory.get() + 2 * n * n, n, n, 1, n};
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++) h(i, j) = D(a(i, j));
  reduce(h, q);
  int64_t failed = 0;
  if constexpr (is_complex_v<T>) {
    failed = iterate(h, q, vectors);
    for (int64_t i = 0; i < n; i++) values[i] = h(i, i);
    if (vectors) {
      back_substitute(h, x);
      multiply<D>(1, q, x, 0, h);
      for (int64_t j = 0; j < n; j++) store_vector(n, &h(0, j), false, v, j);
    }
  } else {
    failed = real_schur_vectors(h, q, values.get(), vectors);
    if (vectors) {
      for (int64_t j = 0; j < n; j++) {
        const bool pair = values[j].im != 0 && j + 1 < n;
        for (int64_t i = 0; i < n; i++) column[i] = Z(q(i, j), pair ? q(i, j + 1) : 0.0);
        store_vector(n, column.get(), !pair, v, j);
        if (!pair) continue;
        for (int64_t i = 0; i < n; i++) v(i, j + 1) = conj(v(i, j));
        j++;
      }
    }
  }
  for (int64_t i = 0; i < n; i++) w[i] = Out(values[i]);
  return failed;
}

void eig(const EigArgs& args) {
  dispatch_linalg("eig", args.a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Out = Complex<real_t<T>>;
    const double n = static_cast<double>(args.a.sizes[args.a.ndim - 1]);
    for_each_item(batch_count(args.a, 2), 25 * n * n * n, [&](int64_t i) {
      const Mat<Out> v = args.vectors ? matrix_of<Out>(args.v, i) : Mat<Out>{};
      *batch_item<int32_t>(args.info, i, 0) =
          static_cast<int32_t>(decompose(matrix_of<T>(args.a, i), vector_of<Out>(args.w, i), v, args.vectors));
    });
  });
}
MT_REGISTER_KERNEL(eig_kernel, &eig);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
