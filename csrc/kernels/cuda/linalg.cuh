// What the dense factorisations on CUDA share. A batch of matrices whose items lie one stride apart is worked on as a
// whole: blocks of kBlock rows by kernels with a thread block for each item, everything between them by batched matrix
// products. Other batches are walked on the host, group by group.
#pragma once
#include "kernels/cuda/launch.cuh"
#include "kernels/functors/linalg.h"
#include "kernels/gemm.h"
#include "kernels/linalg.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {

// Order of the diagonal blocks that are factored or solved without further splitting.
constexpr int kBlock = 32;
// Items that are worked on at once: a launch has a block for each, and memory for all of them is taken.
constexpr int64_t kMostItems = int64_t{1} << 24;

template <class T>
__device__ __forceinline__ double square(T x) {
  const double re = real_part(x), im = imag_part(x);
  return re * re + im * im;
}

// A pivot to be: its size and where it is. Of equal ones the first is taken, and NaN is never the larger.
template <class R>
struct Candidate {
  R size;
  int64_t at;
};
struct Larger {
  template <class C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return b.size > a.size || (b.size == a.size && b.at < a.at) ? b : a;
  }
};

// By components: nvcc 13 at -O3 exchanges whole complex numbers in global memory wrongly, and stores one of them twice.
template <class T>
__device__ __forceinline__ void exchange(T& a, T& b) {
  if constexpr (is_complex_v<T>) {
    exchange(a.re, b.re);
    exchange(a.im, b.im);
  } else {
    const T x = a;
    a = b, b = x;
  }
}

// A batch of matrices in memory, read as their complex conjugates if `conj`.
template <class T>
struct Mat {
  T* p = nullptr;
  int64_t rows = 0, cols = 0, rs = 1, cs = 0, bs = 0, count = 1;
  bool conj = false;

  MT_HD T& at(int64_t item, int64_t i, int64_t j) const { return p[item * bs + i * rs + j * cs]; }
  MT_HD T get(int64_t item, int64_t i, int64_t j) const { return conj_if(at(item, i, j), conj); }
  Mat block(int64_t i, int64_t j, int64_t m, int64_t n) const {
    Mat r = *this;
    r.p += i * rs + j * cs, r.rows = m, r.cols = n;
    return r;
  }
  Mat t() const {
    Mat r = *this;
    r.rows = cols, r.cols = rows, r.rs = cs, r.cs = rs;
    return r;
  }
  Mat h() const {
    Mat r = t();
    r.conj = is_complex_v<T> && !conj;
    return r;
  }
  Mat conjugated() const { return t().h(); }
  Mat rows_reversed() const {
    Mat r = *this;
    r.p += (rows - 1) * rs, r.rs = -rs;
    return r;
  }
  Mat reversed() const {
    Mat r = rows_reversed();
    r.p += (cols - 1) * cs, r.cs = -cs;
    return r;
  }
};

// A batch of vectors, or with stride 0 of numbers.
template <class T>
struct Vec {
  T* p = nullptr;
  int64_t stride = 1, bs = 0;
  MT_HD T& at(int64_t item, int64_t i) const { return p[item * bs + i * stride]; }
  Vec from(int64_t i) const { return {p + i * stride, stride, bs}; }
};

// Temporary matrices with adjacent rows.
template <class T>
class Matrices : public Scratch {
 public:
  Matrices(int64_t rows, int64_t cols, int64_t count)
      : Scratch(rows * cols * count * static_cast<int64_t>(sizeof(T))), rows_(rows), cols_(cols), count_(count) {}
  Mat<T> mat() const { return {get<T>(), rows_, cols_, 1, rows_, rows_ * cols_, count_}; }
  Vec<T> vec() const { return {get<T>(), 1, rows_ * cols_}; }

 private:
  int64_t rows_, cols_, count_;
};

// c = alpha * a b + beta * c, for alpha and beta of -1, 0, 1.
template <class T>
void multiply(int64_t alpha, const Mat<T>& a, const Mat<T>& b, int64_t beta, const Mat<T>& c) {
  if (c.rows == 0 || c.cols == 0 || c.count == 0) return;
  const auto view = [](const Mat<T>& m) {
    return MatrixView{reinterpret_cast<char*>(m.p), m.rs, m.cs, m.bs, is_complex_v<T> && m.conj};
  };
  GemmArgs args;
  args.dtype = dtype_of<T>;
  args.batch = c.count, args.m = c.rows, args.n = c.cols, args.k = a.cols;
  args.a = view(a), args.b = view(b), args.c = view(c), args.d = view(c);
  args.alpha = Scalar(alpha), args.beta = Scalar(beta);
  gemm_kernel(args);
}

// ---- Batches ----

// f(items, offsets): for groups of items that lie one stride apart in every view, at most kMostItems, with the offset
// of the group's first item and that stride in each view. The last `trailing[k]` dimensions of view k are the item.
struct Group {
  int64_t count, offset[6], stride[6];
};
template <class F>
void for_each_group(std::initializer_list<const TensorView*> views, std::initializer_list<int> trailing, const F& f) {
  const TensorView* v[6];
  std::copy(views.begin(), views.end(), v);
  const int n = static_cast<int>(views.size()), batch = v[0]->ndim - *trailing.begin();
  int64_t sizes[kMaxDims], strides[6][kMaxDims];
  int kept = 0;
  for (int d = batch - 1; d >= 0; d--) {
    const int64_t size = v[0]->sizes[d];
    if (size == 0) return;
    if (size == 1) continue;
    bool merges = kept > 0;
    for (int k = 0; merges && k < n; k++) merges = v[k]->strides[d] == strides[k][kept - 1] * sizes[kept - 1];
    if (merges) {
      sizes[kept - 1] *= size;
      continue;
    }
    sizes[kept] = size;
    for (int k = 0; k < n; k++) strides[k][kept] = v[k]->strides[d];
    kept++;
  }
  int64_t groups = 1;
  for (int d = 1; d < kept; d++) groups *= sizes[d];
  for (int64_t g = 0; g < groups; g++) {
    Group group{kept > 0 ? sizes[0] : 1, {}, {}};
    for (int k = 0; k < n; k++) group.stride[k] = kept > 0 ? strides[k][0] : 0;
    int64_t rest = g;
    for (int d = 1; d < kept; d++) {
      for (int k = 0; k < n; k++) group.offset[k] += rest % sizes[d] * strides[k][d];
      rest /= sizes[d];
    }
    for (int64_t left = group.count; left > 0; left -= group.count) {
      group.count = std::min(left, kMostItems);
      f(group);
      for (int k = 0; k < n; k++) group.offset[k] += group.count * group.stride[k];
    }
  }
}
template <class T>
Mat<T> matrix_of(const TensorView& v, const Group& g, int k) {
  const int d = v.ndim;
  return {v.ptr<T>() + g.offset[k], v.sizes[d - 2], v.sizes[d - 1], v.strides[d - 2],
          v.strides[d - 1],         g.stride[k],    g.count};
}
template <class T>
Vec<T> vector_of(const TensorView& v, const Group& g, int k) {
  return {v.ptr<T>() + g.offset[k], v.strides[v.ndim - 1], g.stride[k]};
}
template <class T>
Vec<T> number_of(const TensorView& v, const Group& g, int k) {
  return {v.ptr<T>() + g.offset[k], 0, g.stride[k]};
}

template <class F>
void dispatch_linalg(const char* name, DType dtype, F&& f) {
  if (!dispatch(dtype, LinalgTypes{}, f)) missing_kernel(name, name_of(dtype));
  cuda::check_launch(name);
}

// f(item, i, j) for every element of rows x cols x count; consecutive threads along rows.
template <class F>
__global__ void __launch_bounds__(kThreads) each_element(int64_t rows, int64_t cols, int64_t count, const F f) {
  MT_GRID_LOOP(at, rows * cols * count) {
    const int64_t i = at % rows, rest = at / rows;
    f(rest / cols, i, rest % cols);
  }
}
template <class F>
void for_each_element(int64_t rows, int64_t cols, int64_t count, const F& f) {
  if (rows * cols * count == 0) return;
  each_element<<<grid_for(rows * cols * count), kThreads, 0, cuda::current_stream()>>>(rows, cols, count, f);
}
inline void clear_info(const Vec<int32_t>& info, int64_t count) {
  for_each_element(count, 1, 1, [=] __device__(int64_t, int64_t item, int64_t) { info.at(item, 0) = 0; });
}

// ---- Work in double precision ----

template <class T>
using Wide = std::conditional_t<is_complex_v<T>, Complex<double>, double>;
template <class Out, class In>
__device__ __forceinline__ Out cast(In x) {
  if constexpr (is_complex_v<Out>) {
    return Out(static_cast<real_t<Out>>(real_part(x)), static_cast<real_t<Out>>(imag_part(x)));
  } else {
    return static_cast<Out>(real_part(x));
  }
}

// A power of two that brings an item's largest number near 1; NaN if there is a NaN, 0 if one is infinite.
template <class T>
__global__ void __launch_bounds__(kThreads) find_scales(const Mat<T> a, double* scales) {
  __shared__ double shared[32];
  const int64_t item = blockIdx.x;
  double largest = 0;
  for (int64_t at = threadIdx.x; at < a.rows * a.cols; at += kThreads)
    largest = Max()(largest, double{size1(a.at(item, at % a.rows, at / a.rows))});
  largest = block_reduce(largest, shared, 0.0, Max());
  if (threadIdx.x != 0) return;
  int exponent = 0;
  if (largest > 0 && largest <= 1.7e308) ::frexp(largest, &exponent);
  exponent = exponent < -1000 ? -1000 : exponent;
  scales[item] = largest != largest ? largest : largest <= 1.7e308 ? ::ldexp(1.0, -exponent) : 0.0;
}

// ---- Building blocks that several sources use; each is defined in the source named ----

// linalg_solve.cu: t x = b in place.
template <class T>
void solve_triangular(const Mat<T>& t, bool upper, bool unit, const Mat<T>& b);
// linalg_lu.cu: both factors in place of a, whose rows are adjacent. Pivots and info as lu_factor_kernel's; info may be
// absent.
template <class T>
void factor_lu(const Mat<T>& a, const Vec<int32_t>& pivots, const Vec<int32_t>& info);
template <class T>
void solve_lu(const Mat<T>& f, const Vec<int32_t>& pivots, const Mat<T>& x, MatrixOp op);
// linalg_qr.cu: as on the CPU.
template <class T>
void factor_qr(const Mat<T>& a, const Vec<T>& tau);
template <class T>
void apply_reflectors(const Mat<T>& v, const Vec<T>& tau, int64_t k, bool adjoint, bool conjugate, const Mat<T>& c);
template <class T>
void form_product(const Mat<T>& v, const Vec<T>& tau, int64_t k, const Mat<T>& q);

}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
