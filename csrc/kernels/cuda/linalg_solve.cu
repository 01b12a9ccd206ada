// Triangular systems and the Cholesky factorisation on CUDA, recursive as on the CPU: F. G. Gustavson, "Recursion leads
// to automatic variable blocking for dense linear algebra algorithms" (IBM J. Res. Dev. 1997).
#include "kernels/cuda/linalg.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

constexpr int kSolveThreads = 64;  // right-hand sides of a block, a thread each

// l x = b for l lower triangular of at most kBlock rows. A block has an item and kSolveThreads columns of b.
template <class T>
__global__ void __launch_bounds__(kSolveThreads) solve_block(const Mat<T> l, bool unit, const Mat<T> b, int64_t tiles) {
  __shared__ T tri[kBlock * kBlock], x[kBlock * kSolveThreads];
  const int64_t item = blockIdx.x / tiles, column = (blockIdx.x - item * tiles) * kSolveThreads;
  const int n = static_cast<int>(l.rows), width = static_cast<int>(min(int64_t{kSolveThreads}, b.cols - column));
  for (int at = threadIdx.x; at < n * n; at += kSolveThreads) {
    const int i = at % n, j = at / n;
    if (i > j || (i == j && !unit)) tri[j * kBlock + i] = l.get(item, i, j);
  }
  const bool by_rows = b.rs == 1 || b.rs == -1;  // which way b is adjacent in memory
  for (int at = threadIdx.x; at < n * width; at += kSolveThreads) {
    const int i = by_rows ? at % n : at / width, j = by_rows ? at / n : at % width;
    x[i * kSolveThreads + j] = b.get(item, i, column + j);
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < width) {
    for (int i = 0; i < n; i++) {
      T sum = x[i * kSolveThreads + threadIdx.x];
      for (int k = 0; k < i; k++) sum -= tri[k * kBlock + i] * x[k * kSolveThreads + threadIdx.x];
      x[i * kSolveThreads + threadIdx.x] = unit ? sum : sum / tri[i * kBlock + i];
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < n * width; at += kSolveThreads) {
    const int i = by_rows ? at % n : at / width, j = by_rows ? at / n : at % width;
    b.at(item, i, column + j) = conj_if(x[i * kSolveThreads + j], b.conj);
  }
}

template <class T>
void solve_lower(const Mat<T>& l, bool unit, const Mat<T>& b) {
  const int64_t n = l.rows;
  if (n <= kBlock) {
    const int64_t tiles = ceil_div(b.cols, kSolveThreads);
    solve_block<T>
        <<<static_cast<unsigned>(b.count * tiles), kSolveThreads, 0, cuda::current_stream()>>>(l, unit, b, tiles);
    return;
  }
  const int64_t half = (n / 2 + kBlock - 1) / kBlock * kBlock, rest = n - half, k = b.cols;
  solve_lower(l.block(0, 0, half, half), unit, b.block(0, 0, half, k));
  multiply(-1, l.block(half, 0, rest, half), b.block(0, 0, half, k), 1, b.block(half, 0, rest, k));
  solve_lower(l.block(half, half, rest, rest), unit, b.block(half, 0, rest, k));
}

}  // namespace

template <class T>
void solve_triangular(const Mat<T>& t, bool upper, bool unit, const Mat<T>& b) {
  if (b.rows == 0 || b.cols == 0 || b.count == 0) return;
  if (b.conj) {  // conj(t) x' = the numbers in memory
    Mat<T> plain = b;
    plain.conj = false;
    return solve_triangular(t.conjugated(), upper, unit, plain);
  }
  upper ? solve_lower(t.reversed(), unit, b.rows_reversed()) : solve_lower(t, unit, b);
}

#define MT_SOLVE_TEMPLATE(T) template void solve_triangular(const Mat<T>&, bool, bool, const Mat<T>&);
MT_SOLVE_TEMPLATE(float)
MT_SOLVE_TEMPLATE(double)
MT_SOLVE_TEMPLATE(Complex<float>)
MT_SOLVE_TEMPLATE(Complex<double>)

namespace {

void triangular(const TriangularArgs& args) {
  dispatch_linalg("triangular_solve", args.b.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&args.b, &args.t}, {2, 2}, [&](const Group& g) {
      const Mat<T> t = matrix_of<T>(args.t, g, 1), b = matrix_of<T>(args.b, g, 0);
      const Mat<T> turned = args.op == MatrixOp::none ? t : args.op == MatrixOp::transpose ? t.t() : t.h();
      const bool upper = args.upper != (args.op != MatrixOp::none);
      if (args.left) {
        solve_triangular(turned, upper, args.unit, b);
      } else {
        solve_triangular(turned.t(), !upper, args.unit, b.t());
      }
    });
  });
}

// ---- Cholesky ----

// The lower triangle of at most kBlock rows, from row `first` of the whole matrix on. An item that failed before is
// left alone.
template <class T>
__global__ void __launch_bounds__(kThreads) cholesky_block(const Mat<T> a, const Vec<int32_t> info, int64_t first) {
  using R = real_t<T>;
  __shared__ T l[kBlock * kBlock];
  __shared__ int failed;
  const int64_t item = blockIdx.x;
  const int n = static_cast<int>(a.rows);
  if (threadIdx.x == 0) failed = info.at(item, 0);
  for (int at = threadIdx.x; at < n * n; at += kThreads) {
    const int i = at % n, j = at / n;
    if (i >= j) l[j * kBlock + i] = a.get(item, i, j);
  }
  __syncthreads();
  if (failed != 0) return;
  for (int j = 0; j < n; j++) {
    const R d = real_part(l[j * kBlock + j]);
    if (!(d > R(0))) {
      if (threadIdx.x == 0) info.at(item, 0) = static_cast<int32_t>(first + j + 1);
      break;
    }
    const R root = ::sqrt(d);
    __syncthreads();
    for (int i = j + threadIdx.x; i < n; i += kThreads)
      l[j * kBlock + i] = i == j ? T(root) : scaled(l[j * kBlock + i], R(1) / root);
    __syncthreads();
    const int rest = n - j - 1;
    for (int at = threadIdx.x; at < rest * rest; at += kThreads) {
      const int i = j + 1 + at % rest, k = j + 1 + at / rest;
      if (i >= k) l[k * kBlock + i] -= l[j * kBlock + i] * conj_if(l[j * kBlock + k], true);
    }
    __syncthreads();
  }
  __syncthreads();
  for (int at = threadIdx.x; at < n * n; at += kThreads) {
    const int i = at % n, j = at / n;
    if (i >= j) a.at(item, i, j) = conj_if(l[j * kBlock + i], a.conj);
  }
}

// Writes to the upper triangle too.
template <class T>
void factor_cholesky(const Mat<T>& a, const Vec<int32_t>& info, int64_t first) {
  const int64_t n = a.rows;
  if (n <= kBlock) {
    cholesky_block<T><<<static_cast<unsigned>(a.count), kThreads, 0, cuda::current_stream()>>>(a, info, first);
    return;
  }
  const int64_t half = (n / 2 + kBlock - 1) / kBlock * kBlock, rest = n - half;
  const Mat<T> top = a.block(0, 0, half, half), below = a.block(half, 0, rest, half),
               corner = a.block(half, half, rest, rest);
  factor_cholesky(top, info, first);
  solve_triangular(top.conjugated(), false, false, below.t());
  multiply(-1, below, below.h(), 1, corner);
  factor_cholesky(corner, info, first + half);
}

template <class T>
void cholesky_items(const Mat<T>& lower, const Vec<int32_t>& info) {
  const int64_t n = lower.rows, count = lower.count;
  clear_info(info, count);
  if (n == 0) return;
  if (n <= kBlock) return factor_cholesky(lower, info, 0);
  const Matrices<T> memory(n, n, count);
  const Mat<T> work = memory.mat();
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    work.at(item, i, j) = i >= j ? lower.get(item, i, j) : T(0);
  });
  factor_cholesky(work, info, 0);
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    if (i >= j) lower.at(item, i, j) = conj_if(work.at(item, i, j), lower.conj);
  });
}

void cholesky(const TensorView& a, const TensorView& info, bool upper) {
  dispatch_linalg("cholesky", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&a, &info}, {2, 0}, [&](const Group& g) {
      const Mat<T> whole = matrix_of<T>(a, g, 0);
      cholesky_items(upper ? whole.h() : whole, number_of<int32_t>(info, g, 1));
    });
  });
}

// (l l^H)^-1 = l^-H l^-1: two triangular solves from the identity, the second one made Hermitian from its lower half.
template <class T>
void invert_items(const Mat<T>& a, const Vec<int32_t>& info, bool upper) {
  const int64_t n = a.rows, count = a.count;
  const Mat<T> l = upper ? a.h() : a;
  for_each_element(count, 1, 1, [=] __device__(int64_t, int64_t item, int64_t) {
    int64_t i = 0;
    while (i < n && a.at(item, i, i) != T(0)) i++;
    info.at(item, 0) = i < n ? static_cast<int32_t>(i + 1) : 0;
  });
  if (n == 0) return;
  const Matrices<T> memory(n, n, count);
  const Mat<T> x = memory.mat();
  for_each_element(n, n, count,
                   [=] __device__(int64_t item, int64_t i, int64_t j) { x.at(item, i, j) = T(i == j ? 1 : 0); });
  solve_triangular(l, false, false, x);
  solve_triangular(l.h(), true, false, x);
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    if (info.at(item, 0) != 0) return;
    a.at(item, i, j) = i > j   ? x.at(item, i, j)
                       : i < j ? conj_if(x.at(item, j, i), true)
                               : T(real_part(x.at(item, i, i)));
  });
}

void cholesky_inverse(const TensorView& a, const TensorView& info, bool upper) {
  dispatch_linalg("cholesky_inverse", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&a, &info}, {2, 0},
                   [&](const Group& g) { invert_items(matrix_of<T>(a, g, 0), number_of<int32_t>(info, g, 1), upper); });
  });
}

// ---- Cross products ----

using CrossTypes =
    Types<float, double, Half, BFloat16, Complex<float>, Complex<double>, uint8_t, int8_t, int16_t, int32_t, int64_t>;

template <class T>
__global__ void __launch_bounds__(kThreads) cross_vectors(const __grid_constant__ Joint<3> batch, T* out, const T* a,
                                                          const T* b, int64_t so, int64_t sa, int64_t sb) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, batch.numel) {
    int64_t offset[3];
    batch.offsets(i, offset);
    T* const o = out + offset[0];
    const T *const x = a + offset[1], *const y = b + offset[2];
    const C x0 = convert<C>(x[0]), x1 = convert<C>(x[sa]), x2 = convert<C>(x[2 * sa]);
    const C y0 = convert<C>(y[0]), y1 = convert<C>(y[sb]), y2 = convert<C>(y[2 * sb]);
    o[0] = convert<T>(static_cast<C>(x1 * y2 - x2 * y1));
    o[so] = convert<T>(static_cast<C>(x2 * y0 - x0 * y2));
    o[2 * so] = convert<T>(static_cast<C>(x0 * y1 - x1 * y0));
  }
}

void cross(const TensorView& out, const TensorView& a, const TensorView& b) {
  if (out.numel == 0) return;
  const int last = out.ndim - 1;
  const Joint<3> batch(last, out.sizes, {out.strides, a.strides, b.strides});
  if (!dispatch(out.dtype, CrossTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        cross_vectors<T><<<grid_for(batch.numel), kThreads, 0, cuda::current_stream()>>>(
            batch, out.ptr<T>(), a.ptr<T>(), b.ptr<T>(), out.strides[last], a.strides[last], b.strides[last]);
      }))
    missing_kernel("cross", name_of(out.dtype));
  cuda::check_launch("launching cross");
}

MT_REGISTER_KERNEL(triangular_solve_kernel, &triangular);
MT_REGISTER_KERNEL(cholesky_kernel, &cholesky);
MT_REGISTER_KERNEL(cholesky_inverse_kernel, &cholesky_inverse);
MT_REGISTER_KERNEL(cross_kernel, &cross);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
