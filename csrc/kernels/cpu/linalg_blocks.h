// What the dense factorisations share: views of matrices, walks over batches, products by the matrix product kernel,
// and loops over adjacent elements. Factorisations are recursive or blocked, so that nearly all of their work is
// matrix products.
#pragma once
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "kernels/cpu/gemm_core.h"
#include "kernels/cpu/scratch.h"
#include "kernels/functors/linalg.h"
#include "kernels/gemm.h"
#include "kernels/linalg.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {

// Order of the diagonal blocks that are factored or solved without further splitting.
inline constexpr int64_t kBlock = 32;

// A matrix in memory, read as its complex conjugate if `conj`.
template <class T>
struct Mat {
  T* p = nullptr;
  int64_t rows = 0, cols = 0, rs = 1, cs = 0;
  bool conj = false;

  MT_INLINE T& operator()(int64_t i, int64_t j) const { return p[i * rs + j * cs]; }
  MT_INLINE Mat block(int64_t i, int64_t j, int64_t m, int64_t n) const {
    return {p + i * rs + j * cs, m, n, rs, cs, conj};
  }
  MT_INLINE Mat t() const { return {p, cols, rows, cs, rs, conj}; }
  MT_INLINE Mat h() const { return {p, cols, rows, cs, rs, is_complex_v<T> && !conj}; }
  MT_INLINE Mat rows_reversed() const { return {p + (rows - 1) * rs, rows, cols, -rs, cs, conj}; }
  MT_INLINE Mat reversed() const { return {p + (rows - 1) * rs + (cols - 1) * cs, rows, cols, -rs, -cs, conj}; }
};

// c = alpha * a b + beta * c, for alpha and beta of -1, 0, 1.
template <class T>
MT_INLINE void multiply(int64_t alpha, const Mat<T>& a, const Mat<T>& b, int64_t beta, const Mat<T>& c) {
  if (c.rows == 0 || c.cols == 0) return;
  const auto view = [](const Mat<T>& m) {
    return MatrixView{reinterpret_cast<char*>(m.p), m.rs, m.cs, 0, is_complex_v<T> && m.conj};
  };
  GemmArgs args;
  args.dtype = dtype_of<T>;
  args.m = c.rows, args.n = c.cols, args.k = a.cols;
  args.a = view(a), args.b = view(b), args.c = view(c), args.d = view(c);
  args.alpha = Scalar(alpha), args.beta = Scalar(beta);
  gemm_kernel(args);
}

// ---- Batches ----

MT_INLINE int64_t batch_count(const TensorView& v, int trailing) {
  int64_t n = 1;
  for (int d = 0; d < v.ndim - trailing; d++) n *= v.sizes[d];
  return n;
}
// The first element of item `index`, an item being the last `trailing` dimensions.
template <class T>
MT_INLINE T* batch_item(const TensorView& v, int64_t index, int trailing) {
  int64_t offset = 0;
  for (int d = v.ndim - trailing - 1; d >= 0; d--) {
    offset += index % v.sizes[d] * v.strides[d];
    index /= v.sizes[d];
  }
  return v.ptr<T>() + offset;
}
template <class T>
MT_INLINE Mat<T> matrix_of(const TensorView& v, int64_t index) {
  const int d = v.ndim;
  return {batch_item<T>(v, index, 2), v.sizes[d - 2], v.sizes[d - 1], v.strides[d - 2], v.strides[d - 1]};
}
template <class T>
MT_INLINE T nan_of() {
  constexpr auto nan = std::numeric_limits<real_t<T>>::quiet_NaN();
  if constexpr (is_complex_v<T>) {
    return {nan, nan};
  } else {
    return nan;
  }
}
// Element i of vector `index` is vector[i * stride].
template <class T>
struct Vec {
  T* p;
  int64_t stride;
  MT_INLINE T& operator[](int64_t i) const { return p[i * stride]; }
};
template <class T>
MT_INLINE Vec<T> vector_of(const TensorView& v, int64_t index) {
  return {batch_item<T>(v, index, 1), v.strides[v.ndim - 1]};
}

// f(i) for every item: items in parallel when there are enough, else one after the other with threads inside.
template <class F>
MT_INLINE void for_each_item(int64_t count, double flops, const F& f) {
  if (count < num_threads()) {
    for (int64_t i = 0; i < count; i++) f(i);
    return;
  }
  const int64_t grain = flops > 5e4 ? 1 : static_cast<int64_t>(5e4 / (flops + 1)) + 1;
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) f(i);
  });
}
template <class F>
MT_INLINE void dispatch_linalg(const char* name, DType dtype, F&& f) {
  if (!dispatch(dtype, LinalgTypes{}, f)) missing_kernel(name, name_of(dtype));
}

// ---- Adjacent elements ----

template <class R>
struct IndexOf {
  using type = int32_t;
};
template <>
struct IndexOf<double> {
  using type = int64_t;
};
// Exchanges the real and imaginary parts in a vector of complex numbers.
template <class R>
MT_INLINE gemm::Vector<R> swap_pairs(gemm::Vector<R> v) {
  using I = typename IndexOf<R>::type;
  typedef I Mask __attribute__((vector_size(gemm::kVectorBytes)));
  Mask mask{};
  for (int i = 0; i < gemm::kLanes<R>; i++) mask[i] = i ^ 1;
  return __builtin_shuffle(v, mask);
}

// sum of conj(x[i]) * y[i]
template <class T>
MT_INLINE T dot(int64_t n, const T* x, const T* y) {
  using R = real_t<T>;
  using V = gemm::Vector<R>;
  constexpr int64_t L = gemm::kLanes<R>;
  const R *xr = reinterpret_cast<const R*>(x), *yr = reinterpret_cast<const R*>(y);
  const int64_t m = is_complex_v<T> ? 2 * n : n;
  int64_t i = 0;
  if constexpr (is_complex_v<T>) {
    V re0{}, im0{}, re1{}, im1{};
    for (; i + 2 * L <= m; i += 2 * L) {
      const V x0 = gemm::load_vector(xr + i), y0 = gemm::load_vector(yr + i);
      const V x1 = gemm::load_vector(xr + i + L), y1 = gemm::load_vector(yr + i + L);
      re0 += x0 * y0, im0 += x0 * swap_pairs<R>(y0);
      re1 += x1 * y1, im1 += x1 * swap_pairs<R>(y1);
    }
    re0 += re1, im0 += im1;
    R re = 0, im = 0;
    for (int l = 0; l < L; l += 2) re += re0[l] + re0[l + 1], im += im0[l] - im0[l + 1];
    for (; i < m; i += 2) {
      re += xr[i] * yr[i] + xr[i + 1] * yr[i + 1];
      im += xr[i] * yr[i + 1] - xr[i + 1] * yr[i];
    }
    return {re, im};
  } else {
    V a0{}, a1{}, a2{}, a3{};
    for (; i + 4 * L <= m; i += 4 * L) {
      a0 += gemm::load_vector(xr + i) * gemm::load_vector(yr + i);
      a1 += gemm::load_vector(xr + i + L) * gemm::load_vector(yr + i + L);
      a2 += gemm::load_vector(xr + i + 2 * L) * gemm::load_vector(yr + i + 2 * L);
      a3 += gemm::load_vector(xr + i + 3 * L) * gemm::load_vector(yr + i + 3 * L);
    }
    for (; i + L <= m; i += L) a0 += gemm::load_vector(xr + i) * gemm::load_vector(yr + i);
    a0 = (a0 + a1) + (a2 + a3);
    R sum = 0;
    for (int l = 0; l < L; l++) sum += a0[l];
    for (; i < m; i++) sum += xr[i] * yr[i];
    return sum;
  }
}

// y += a * x
template <class T>
MT_INLINE void axpy(int64_t n, T a, const T* x, T* y) {
  using R = real_t<T>;
  using V = gemm::Vector<R>;
  constexpr int64_t L = gemm::kLanes<R>;
  if constexpr (is_complex_v<T>) {
    const R* xr = reinterpret_cast<const R*>(x);
    R* yr = reinterpret_cast<R*>(y);
    V re, im;
    for (int l = 0; l < L; l++) re[l] = a.re, im[l] = l % 2 ? a.im : -a.im;
    int64_t i = 0;
    for (; i + L <= 2 * n; i += L) {
      const V v = gemm::load_vector(xr + i);
      gemm::store_vector(yr + i, gemm::load_vector(yr + i) + (re * v + im * swap_pairs<R>(v)));
    }
    for (i /= 2; i < n; i++) y[i] += a * x[i];
  } else {
    for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
  }
}
template <class T>
MT_INLINE void scale(int64_t n, T a, T* x) {
  for (int64_t i = 0; i < n; i++) x[i] = a * x[i];
}

// The Euclidean norm, without overflow or underflow of the squares.
template <class T>
MT_INLINE double norm2(int64_t n, const T* x) {
  using R = real_t<T>;
  const R* r = reinterpret_cast<const R*>(x);
  const int64_t m = is_complex_v<T> ? 2 * n : n;
  constexpr int64_t L = 16;
  double sums[L] = {};
  int64_t i = 0;
  for (; i + L <= m; i += L)
    for (int64_t l = 0; l < L; l++) sums[l] += static_cast<double>(r[i + l]) * static_cast<double>(r[i + l]);
  double sum = 0;
  for (int64_t l = 0; l < L; l++) sum += sums[l];
  for (; i < m; i++) sum += static_cast<double>(r[i]) * static_cast<double>(r[i]);
  if (sum > 1e-270 && sum < 1e300) return std::sqrt(sum);
  if (sum != sum) return sum;
  double largest = 0;
  for (i = 0; i < m; i++) largest = std::max(largest, std::abs(static_cast<double>(r[i])));
  if (largest == 0 || !(largest <= std::numeric_limits<double>::max())) return largest;
  sum = 0;
  for (i = 0; i < m; i++) sum += (r[i] / largest) * (r[i] / largest);
  return largest * std::sqrt(sum);
}

// ---- Building blocks that several sources use; each is defined in the source named ----

// linalg_triangular.cpp: t x = b in place.
template <class T>
void solve_triangular(const Mat<T>& t, bool upper, bool unit, const Mat<T>& b);

// linalg_lu.cpp: both factors in place of a; returns the first zero pivot, from 1. Rows of a are adjacent.
template <class T>
int64_t factor_lu(const Mat<T>& a, const Vec<int32_t>& pivots);
// op(p l u) x = b in place.
template <class T>
void solve_lu(const Mat<T>& f, const Vec<int32_t>& pivots, const Mat<T>& x, MatrixOp op);

// linalg_svd_nonfinite.cpp: of a matrix with infinities and no NaN, rows >= cols, whose singular values and vectors are
// asked for. Returns LAPACK's information.
template <class T>
int64_t svd_nonfinite(const Mat<T>& given, const Mat<T>& u, const Vec<real_t<T>>& values, const Mat<T>& vh);

// linalg_qr.cpp. A reflector is h = 1 - tau v v^H with v[0] = 1. make_reflector turns (alpha, x[0..n-2]) into beta and
// v: h^H (alpha, x) = (beta, 0) with beta real, as LAPACK's larfg. Rows of `a` must be adjacent.
template <class T>
T make_reflector(int64_t n, T& alpha, T* x);
// c = q c or q^H c, where q is the product of the k reflectors in the columns of v below its diagonal; of the
// conjugated reflectors if `conjugate`. Column j of v starts at row j.
template <class T>
void apply_reflectors(const Mat<T>& v, const Vec<T>& tau, int64_t k, bool adjoint, bool conjugate, const Mat<T>& c);
// q = the product of the reflectors in v, its first q.cols columns. q and v are apart.
template <class T>
void form_product(const Mat<T>& v, const Vec<T>& tau, int64_t k, const Mat<T>& q);
template <class T>
void factor_qr(const Mat<T>& a, const Vec<T>& tau);

// linalg_eig_real.cpp: eigenvalues w of an upper Hessenberg matrix h = q^T a q, and the eigenvectors of a in place of
// q, packed as LAPACK packs them: a pair of complex ones as its real and imaginary part. Returns how many did not
// converge.
int64_t real_schur_vectors(const Mat<double>& h, const Mat<double>& q, Complex<double>* w, bool vectors);

}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
