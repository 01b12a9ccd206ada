// QR by Householder reflectors. Panels of kBlock columns are reduced column by column; the rest of the matrix is then
// updated with the whole panel at once, in the compact form 1 - v t v^H of R. Schreiber and C. Van Loan, "A
// storage-efficient WY representation for products of Householder transformations" (SIAM J. Sci. Stat. Comput. 1989).
#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {

template <class T>
T make_reflector(int64_t n, T& alpha, T* x) {
  using R = real_t<T>;
  if (n <= 0) return T(0);
  double norm = norm2(n - 1, x);
  const double re = real_part(alpha), im = imag_part(alpha);
  if (norm == 0 && im == 0) return T(0);
  const double size = std::hypot(std::hypot(re, im), norm), beta = re >= 0 ? -size : size;
  if (std::is_same_v<R, double> && size < 1e-250) {
    // Near the end of double's range numbers have few bits left: exact scaling restores the vector's precision.
    alpha = scaled(alpha, static_cast<R>(0x1p500));
    for (int64_t i = 0; i < n - 1; i++) x[i] = scaled(x[i], static_cast<R>(0x1p500));
    const T tau = make_reflector(n, alpha, x);
    alpha = scaled(alpha, static_cast<R>(0x1p-500));
    return tau;
  }
  const bool divide = 1 / size > std::numeric_limits<R>::max() / 4;  // the reciprocal is too large for R
  if constexpr (is_complex_v<T>) {
    const Complex<double> shifted(re - beta, im);
    if (divide) {
      for (int64_t i = 0; i < n - 1; i++) x[i] = T(Complex<double>(x[i]) / shifted);
    } else {
      scale(n - 1, T(Complex<double>(1) / shifted), x);
    }
    alpha = T(static_cast<R>(beta));
    return T(static_cast<R>((beta - re) / beta), static_cast<R>(-im / beta));
  } else {
    const double inverse = 1 / (re - beta);
    for (int64_t i = 0; i < n - 1; i++)
      x[i] = divide ? static_cast<T>(x[i] / (re - beta)) : static_cast<T>(x[i] * static_cast<T>(inverse));
    alpha = static_cast<T>(beta);
    return static_cast<T>((beta - re) / beta);
  }
}

namespace {

// Reduces the columns of a panel one by one; rows are adjacent.
template <class T>
void factor_panel(const Mat<T>& a, const Vec<T>& tau) {
  const int64_t m = a.rows, steps = std::min(a.rows, a.cols);
  for (int64_t j = 0; j < steps; j++) {
    T* const col = &a(j, j);
    tau[j] = make_reflector(m - j, col[0], col + 1);
    if (tau[j] == T(0)) continue;
    const T f = -conj_if(tau[j], true);
    for (int64_t k = j + 1; k < a.cols; k++) {
      T* const other = &a(j, k);
      const T w = f * (other[0] + dot(m - j - 1, col + 1, other + 1));
      other[0] += w;
      axpy(m - j - 1, w, col + 1, other + 1);
    }
  }
}

// The reflectors of one panel as a matrix with explicit ones and zeros, and their triangular factor.
template <class T>
struct CompactPanel {
  int64_t rows, k;
  Mat<T> v;
  T factor[kBlock * kBlock];

  CompactPanel(const Mat<T>& a, const Vec<T>& tau, bool conjugate, T* memory)
      : rows(a.rows), k(a.cols), v{memory, a.rows, a.cols, 1, a.rows} {
    for (int64_t j = 0; j < k; j++) {
      for (int64_t i = 0; i < j && i < rows; i++) v(i, j) = T(0);
      if (j < rows) v(j, j) = T(1);
      for (int64_t i = j + 1; i < rows; i++) v(i, j) = conj_if(a(i, j), conjugate);
    }
    T inner[kBlock * kBlock];
    multiply<T>(1, v.h(), v, 0, Mat<T>{inner, k, k, 1, kBlock});
    for (int64_t j = 0; j < k; j++) {
      const T t = conj_if(tau[j], conjugate);
      for (int64_t i = 0; i < k; i++) factor[j * kBlock + i] = T(0);
      factor[j * kBlock + j] = t;
      for (int64_t i = 0; i < j; i++) {
        T sum(0);
        for (int64_t l = i; l < j; l++) sum += factor[l * kBlock + i] * inner[j * kBlock + l];
        factor[j * kBlock + i] = -(t * sum);
      }
    }
  }

  // c -= v op(t) v^H c. `memory` has room for 2 * k * c.cols numbers.
  void apply(bool adjoint, const Mat<T>& c, T* memory) {
    if (c.cols == 0) return;
    const Mat<T> inner{memory, k, c.cols, 1, k}, weighted{memory + k * c.cols, k, c.cols, 1, k};
    const Mat<T> t{factor, k, k, 1, kBlock};
    multiply(1, v.h(), c, 0, inner);
    multiply(1, adjoint ? t.h() : t, inner, 0, weighted);
    multiply(-1, v, weighted, 1, c);
  }
};

// What one rounding each after sums in double costs nothing for: matrices that stay in L1 take their reflectors one at
// a time, which also spares the roundings of a panel's triangular factor.
constexpr int64_t kSmall = 1024;  // elements of all reflectors

// c -= f v v^H c, where v has a one on top of the elements below a(j, j).
template <class T>
void reflect(const Mat<T>& a, int64_t j, T factor, bool conjugate, const Mat<T>& c) {
  using Wide = std::conditional_t<is_complex_v<T>, Complex<double>, double>;
  if (factor == T(0)) return;
  for (int64_t col = 0; col < c.cols; col++) {
    Wide sum(c(0, col));
    for (int64_t i = 1; i < c.rows; i++) sum += Wide(conj_if(a(j + i, j), !conjugate)) * Wide(c(i, col));
    sum *= Wide(factor);
    c(0, col) = T(Wide(c(0, col)) - sum);
    for (int64_t i = 1; i < c.rows; i++) c(i, col) = T(Wide(c(i, col)) - sum * Wide(conj_if(a(j + i, j), conjugate)));
  }
}

}  // namespace

template <class T>
void factor_qr(const Mat<T>& a, const Vec<T>& tau) {
  const int64_t m = a.rows, n = a.cols, steps = std::min(m, n);
  if (n <= kBlock) return factor_panel(a, tau);
  Scratch<T> reflectors(m * kBlock), work(2 * kBlock * n);
  for (int64_t j = 0; j < steps; j += kBlock) {
    const int64_t k = std::min(kBlock, steps - j);
    const Mat<T> panel = a.block(j, j, m - j, k);
    const Vec<T> factors{&tau[j], tau.stride};
    factor_panel(panel, factors);
    if (j + k < n)
      CompactPanel<T>(panel, factors, false, reflectors.get())
          .apply(true, a.block(j, j + k, m - j, n - j - k), work.get());
  }
}

template <class T>
void apply_reflectors(const Mat<T>& v, const Vec<T>& tau, int64_t k, bool adjoint, bool conjugate, const Mat<T>& c) {
  if (k == 0 || c.cols == 0) return;
  if (v.rows * k <= kSmall) {
    for (int64_t step = 0; step < k; step++) {
      const int64_t j = adjoint ? step : k - 1 - step;
      reflect(v, j, conj_if(tau[j], conjugate != adjoint), conjugate, c.block(j, 0, c.rows - j, c.cols));
    }
    return;
  }
  Scratch<T> reflectors(v.rows * kBlock), work(2 * kBlock * c.cols);
  const int64_t blocks = (k + kBlock - 1) / kBlock;
  for (int64_t step = 0; step < blocks; step++) {
    const int64_t j = (adjoint ? step : blocks - 1 - step) * kBlock, width = std::min(kBlock, k - j);
    CompactPanel<T> panel(v.block(j, j, v.rows - j, width), Vec<T>{&tau[j], tau.stride}, conjugate, reflectors.get());
    panel.apply(adjoint, c.block(j, 0, c.rows - j, c.cols), work.get());
  }
}

template <class T>
void form_product(const Mat<T>& v, const Vec<T>& tau, int64_t k, const Mat<T>& q) {
  for (int64_t j = 0; j < q.cols; j++)
    for (int64_t i = 0; i < q.rows; i++) q(i, j) = T(i == j ? 1 : 0);
  if (v.rows * k <= kSmall) {
    for (int64_t j = k - 1; j >= 0; j--) reflect(v, j, tau[j], false, q.block(j, j, q.rows - j, q.cols - j));
    return;
  }
  Scratch<T> reflectors(v.rows * kBlock), work(2 * kBlock * q.cols);
  for (int64_t j = (k - 1) / kBlock * kBlock; j >= 0; j -= kBlock) {
    const int64_t width = std::min(kBlock, k - j);
    CompactPanel<T> panel(v.block(j, j, v.rows - j, width), Vec<T>{&tau[j], tau.stride}, false, reflectors.get());
    // Columns before j are still those of the identity, which these reflectors leave alone.
    panel.apply(false, q.block(j, j, q.rows - j, q.cols - j), work.get());
  }
}

#define MT_QR_TEMPLATES(T)                                                                          \
  template T make_reflector(int64_t, T&, T*);                                                       \
  template void factor_qr(const Mat<T>&, const Vec<T>&);                                            \
  template void apply_reflectors(const Mat<T>&, const Vec<T>&, int64_t, bool, bool, const Mat<T>&); \
  template void form_product(const Mat<T>&, const Vec<T>&, int64_t, const Mat<T>&);
MT_QR_TEMPLATES(float)
MT_QR_TEMPLATES(double)
MT_QR_TEMPLATES(Complex<float>)
MT_QR_TEMPLATES(Complex<double>)

namespace {

double flops_of(const TensorView& a) {
  const double m = static_cast<double>(a.sizes[a.ndim - 2]), n = static_cast<double>(a.sizes[a.ndim - 1]);
  return 2 * m * n * std::min(m, n);
}

void qr_factor(const TensorView& a, const TensorView& tau) {
  dispatch_linalg("geqrf", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_item(batch_count(a, 2), flops_of(a),
                  [&](int64_t i) { factor_qr(matrix_of<T>(a, i), vector_of<T>(tau, i)); });
  });
}

void qr_product(const TensorView& a, const TensorView& tau) {
  const int64_t k = tau.sizes[tau.ndim - 1];
  dispatch_linalg("orgqr", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_item(batch_count(a, 2), 2 * flops_of(a), [&](int64_t i) {
      const Mat<T> q = matrix_of<T>(a, i);
      Scratch<T, 4096> memory(q.rows * k);
      const Mat<T> v{memory.get(), q.rows, k, 1, q.rows};
      for (int64_t j = 0; j < k; j++)
        for (int64_t r = j; r < q.rows; r++) v(r, j) = q(r, j);
      form_product(v, vector_of<T>(tau, i), k, q);
    });
  });
}

// c q = (q^T c^T)^T, and q^T is the adjoint of the product of the conjugated reflectors.
void qr_multiply(const TensorView& a, const TensorView& tau, const TensorView& c, bool left, bool adjoint) {
  const int64_t k = tau.sizes[tau.ndim - 1];
  dispatch_linalg("ormqr", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_item(batch_count(c, 2), flops_of(c), [&](int64_t i) {
      const Mat<T> v = matrix_of<T>(a, i), x = matrix_of<T>(c, i);
      apply_reflectors(v, vector_of<T>(tau, i), k, left == adjoint, !left, left ? x : x.t());
    });
  });
}

MT_REGISTER_KERNEL(qr_factor_kernel, &qr_factor);
MT_REGISTER_KERNEL(qr_product_kernel, &qr_product);
MT_REGISTER_KERNEL(qr_multiply_kernel, &qr_multiply);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
