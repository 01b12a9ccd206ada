// Real Hessenberg matrices to real Schur form by QR steps with two shifts at a time, and their eigenvectors: the method
// of EISPACK's hqr2 (see linalg_eig.cpp). A pair of conjugate eigenvalues stays a diagonal block of order two.
#include <utility>

#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

using Z = Complex<double>;
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

struct Schur {
  const Mat<double>& h;
  const Mat<double>& q;
  Z* w;
  bool vectors;
  int64_t n = h.rows;
  double norm = 0, shifted = 0;

  // Rows and columns i, i + 1 by the plane rotation (c, s).
  void rotate(int64_t i, double c, double s) const {
    for (int64_t j = i; j < n; j++) {
      const double x = h(i, j), y = h(i + 1, j);
      h(i, j) = c * x + s * y, h(i + 1, j) = c * y - s * x;
    }
    const auto columns = [&](const Mat<double>& m, int64_t rows) {
      for (int64_t r = 0; r < rows; r++) {
        const double x = m(r, i), y = m(r, i + 1);
        m(r, i) = c * x + s * y, m(r, i + 1) = c * y - s * x;
      }
    };
    columns(h, i + 2);
    if (vectors) columns(q, n);
  }

  // The block of order two at (i, i): real eigenvalues are separated, complex ones stay.
  void split(int64_t i) {
    const double product = h(i + 1, i) * h(i, i + 1), p = (h(i, i) - h(i + 1, i + 1)) / 2, d = p * p + product;
    h(i, i) += shifted, h(i + 1, i + 1) += shifted;
    double z = std::sqrt(std::abs(d));
    if (d < 0) {
      const double re = h(i + 1, i + 1) + p;
      w[i] = Z(re, z), w[i + 1] = Z(re, -z);
      return;
    }
    z = p >= 0 ? p + z : p - z;
    const double x = h(i + 1, i + 1);
    const double first = x + z, second = z != 0 ? x - product / z : first;
    w[i] = Z(first), w[i + 1] = Z(second);
    const double sub = h(i + 1, i), size = std::hypot(sub, z);
    if (size != 0) rotate(i, z / size, sub / size);
    h(i + 1, i) = 0;
  }

  // One double step on rows l .. top, with the shifts of (x, y, product).
  void step(int64_t l, int64_t top, double x, double y, double product) {
    double p = 0, q0 = 0, r = 0;
    int64_t m = top - 2;
    for (; m >= l; m--) {
      const double z = h(m, m), a = x - z, b = y - z;
      p = (a * b - product) / h(m + 1, m) + h(m, m + 1);
      q0 = h(m + 1, m + 1) - z - a - b;
      r = h(m + 2, m + 1);
      const double s = std::abs(p) + std::abs(q0) + std::abs(r);
      p /= s, q0 /= s, r /= s;
      if (m == l) break;
      if (std::abs(h(m, m - 1)) * (std::abs(q0) + std::abs(r)) <
          kEpsilon * std::abs(p) * (std::abs(h(m - 1, m - 1)) + std::abs(z) + std::abs(h(m + 1, m + 1))))
        break;
    }
    for (int64_t i = m + 2; i <= top; i++) {
      h(i, i - 2) = 0;
      if (i > m + 2) h(i, i - 3) = 0;
    }
    for (int64_t k = m; k < top; k++) {
      const bool last = k == top - 1;
      double size = 0;
      if (k != m) {
        p = h(k, k - 1), q0 = h(k + 1, k - 1), r = last ? 0.0 : h(k + 2, k - 1);
        size = std::abs(p) + std::abs(q0) + std::abs(r);
        if (size == 0) continue;
        p /= size, q0 /= size, r /= size;
      }
      double s = std::sqrt(p * p + q0 * q0 + r * r);
      if (p < 0) s = -s;
      if (s == 0) continue;
      if (k != m) {
        h(k, k - 1) = -s * size;
      } else if (l != m) {
        h(k, k - 1) = -h(k, k - 1);
      }
      p += s;
      const double fx = p / s, fy = q0 / s, fz = r / s;
      q0 /= p, r /= p;
      const int64_t right = vectors ? n : top + 1, first = vectors ? 0 : l, rows = std::min(top, k + 3) + 1;
      for (int64_t j = k; j < right; j++) {
        double* const col = &h(k, j);
        const double t = col[0] + q0 * col[1] + (last ? 0.0 : r * col[2]);
        if (!last) col[2] -= t * fz;
        col[1] -= t * fy, col[0] -= t * fx;
      }
      const auto columns = [&](const Mat<double>& a, int64_t begin, int64_t end) {
        double *const c0 = &a(0, k), *const c1 = &a(0, k + 1), *const c2 = last ? c1 : &a(0, k + 2);
        for (int64_t i = begin; i < end; i++) {
          const double t = fx * c0[i] + fy * c1[i] + (last ? 0.0 : fz * c2[i]);
          if (!last) c2[i] -= t * r;
          c1[i] -= t * q0, c0[i] -= t;
        }
      };
      columns(h, first, rows);
      if (vectors) columns(q, 0, n);
    }
  }

  int64_t iterate() {
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < std::min(n, j + 2); i++) norm += std::abs(h(i, j));
    int64_t top = n - 1, stuck = 0, budget = 60 * n;
    while (top >= 0) {
      int64_t l = top;
      for (; l > 0; l--) {
        double s = std::abs(h(l - 1, l - 1)) + std::abs(h(l, l));
        if (s == 0) s = norm;
        if (std::abs(h(l, l - 1)) <= kEpsilon * s) break;
      }
      if (l == top) {
        h(top, top) += shifted;
        w[top] = Z(h(top, top));
        if (top > 0) h(top, top - 1) = 0;
        top--, stuck = 0;
        continue;
      }
      if (l == top - 1) {
        if (l > 0) h(l, l - 1) = 0;
        split(l);
        top -= 2, stuck = 0;
        continue;
      }
      if (budget-- == 0) return top + 1;
      double x = h(top, top), y = h(top - 1, top - 1), product = h(top, top - 1) * h(top - 1, top);
      if (stuck == 10 || stuck == 20) {  // exceptional shifts
        shifted += x;
        for (int64_t i = 0; i <= top; i++) h(i, i) -= x;
        const double s = std::abs(h(top, top - 1)) + std::abs(h(top - 1, top - 2));
        x = y = 0.75 * s;
        product = -0.4375 * s * s;
      }
      stuck++;
      if (l > 0) h(l, l - 1) = 0;
      step(l, top, x, y, product);
    }
    return 0;
  }

  // Eigenvectors of h, in its own columns, then those of the whole matrix in q.
  void back_substitute() const {
    if (norm == 0) return;
    const double smallest = kEpsilon * norm;
    for (int64_t k = n - 1; k >= 0; k--) {
      const double p = w[k].re, imag = w[k].im;
      if (imag == 0) {
        real_vector(k, p, smallest);
      } else if (imag < 0) {
        complex_vector(k, p, imag, smallest);
      }
    }
    Scratch<double> memory(n * n);
    const Mat<double> x{memory.get(), n, n, 1, n};
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < n; i++) x(i, j) = i <= j + (w[j].im > 0 ? 1 : 0) ? h(i, j) : 0.0;
    Scratch<double> result(n * n);
    const Mat<double> y{result.get(), n, n, 1, n};
    multiply<double>(1, q, x, 0, y);
    for (int64_t i = 0; i < n * n; i++) q.p[i] = y.p[i];
  }

 private:
  static Z quotient(double a, double b, double c, double d) { return Z(a, b) / Z(c, d); }

  void real_vector(int64_t k, double p, double smallest) const {
    int64_t l = k;
    h(k, k) = 1;
    double z = 0, s = 0;
    for (int64_t i = k - 1; i >= 0; i--) {
      const double d = h(i, i) - p;
      double r = 0;
      for (int64_t j = l; j <= k; j++) r += h(i, j) * h(j, k);
      if (w[i].im < 0) {
        z = d, s = r;
        continue;
      }
      l = i;
      if (w[i].im == 0) {
        h(i, k) = -r / (d != 0 ? d : smallest);
      } else {
        const double x = h(i, i + 1), y = h(i + 1, i);
        const double det = (w[i].re - p) * (w[i].re - p) + w[i].im * w[i].im, t = (x * s - z * r) / det;
        h(i, k) = t;
        h(i + 1, k) = std::abs(x) > std::abs(z) ? (-r - d * t) / x : (-s - y * t) / z;
      }
      const double t = std::abs(h(i, k));
      if (kEpsilon * t * t > 1)
        for (int64_t j = i; j <= k; j++) h(j, k) /= t;
    }
  }

  // The vector of the eigenvalue with negative imaginary part, columns k - 1 (real parts) and k.
  void complex_vector(int64_t k, double p, double imag, double smallest) const {
    int64_t l = k - 1;
    if (std::abs(h(k, k - 1)) > std::abs(h(k - 1, k))) {
      h(k - 1, k - 1) = imag / h(k, k - 1);
      h(k - 1, k) = -(h(k, k) - p) / h(k, k - 1);
    } else {
      const Z c = quotient(0, -h(k - 1, k), h(k - 1, k - 1) - p, imag);
      h(k - 1, k - 1) = c.re, h(k - 1, k) = c.im;
    }
    h(k, k - 1) = 0, h(k, k) = 1;
    double z = 0, r = 0, s = 0;
    for (int64_t i = k - 2; i >= 0; i--) {
      double ra = 0, sa = 0;
      for (int64_t j = l; j <= k; j++) ra += h(i, j) * h(j, k - 1), sa += h(i, j) * h(j, k);
      const double d = h(i, i) - p;
      if (w[i].im < 0) {
        z = d, r = ra, s = sa;
        continue;
      }
      l = i;
      if (w[i].im == 0) {
        const Z c = quotient(-ra, -sa, d, imag);
        h(i, k - 1) = c.re, h(i, k) = c.im;
      } else {
        const double x = h(i, i + 1), y = h(i + 1, i);
        double vr = (w[i].re - p) * (w[i].re - p) + w[i].im * w[i].im - imag * imag;
        const double vi = (w[i].re - p) * 2 * imag;
        if (vr == 0 && vi == 0)
          vr = smallest * (std::abs(d) + std::abs(imag) + std::abs(x) + std::abs(y) + std::abs(z));
        const Z c = quotient(x * r - z * ra + imag * sa, x * s - z * sa - imag * ra, vr, vi);
        h(i, k - 1) = c.re, h(i, k) = c.im;
        if (std::abs(x) > std::abs(z) + std::abs(imag)) {
          h(i + 1, k - 1) = (-ra - d * h(i, k - 1) + imag * h(i, k)) / x;
          h(i + 1, k) = (-sa - d * h(i, k) - imag * h(i, k - 1)) / x;
        } else {
          const Z e = quotient(-r - y * h(i, k - 1), -s - y * h(i, k), z, imag);
          h(i + 1, k - 1) = e.re, h(i + 1, k) = e.im;
        }
      }
      const double t = std::max(std::abs(h(i, k - 1)), std::abs(h(i, k)));
      if (kEpsilon * t * t > 1)
        for (int64_t j = i; j <= k; j++) h(j, k - 1) /= t, h(j, k) /= t;
    }
  }
};

}  // namespace

// Pairs of conjugate eigenvalues come with the positive imaginary part first; their columns of q become the real and
// the imaginary part of the first one's eigenvector.
int64_t real_schur_vectors(const Mat<double>& h, const Mat<double>& q, Z* w, bool vectors) {
  Schur schur{h, q, w, vectors};
  const int64_t failed = schur.iterate();
  if (failed != 0 || !vectors) return failed;
  schur.back_substitute();
  return 0;
}

}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
