// LU factorisation with partial pivoting on CUDA, recursive in the columns: S. Toledo, "Locality of reference in LU
// decomposition with partial pivoting" (SIAM J. Matrix Anal. Appl. 1997). A thread block eliminates a panel of kBlock
// columns of one matrix.
#include "kernels/cuda/linalg.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

// Rows of a are rows `first` on of the whole matrix, in which pivots count.
template <class T>
__global__ void __launch_bounds__(kThreads)
    factor_panel(const Mat<T> a, const Vec<int32_t> pivots, const Vec<int32_t> info, int64_t first) {
  using R = real_t<T>;
  __shared__ Candidate<R> shared[32];
  __shared__ T pivot_row[kBlock];
  const int64_t item = blockIdx.x, m = a.rows, steps = min(a.rows, a.cols);
  const int n = static_cast<int>(a.cols);
  for (int64_t j = 0; j < steps; j++) {
    // NaN is never the larger; a column of them keeps its own row.
    Candidate<R> best{R(-1), j};
    for (int64_t i = j + threadIdx.x; i < m; i += kThreads)
      best = Larger()(best, Candidate<R>{size1(a.at(item, i, j)), i});
    best = block_reduce(best, shared, Candidate<R>{R(-1), j}, Larger());
    const int64_t p = best.at;
    const T pivot = a.at(item, p, j);
    __syncthreads();
    if (threadIdx.x == 0) {
      pivots.at(item, j) = static_cast<int32_t>(first + p + 1);
      if (pivot == T(0) && info.p != nullptr && info.at(item, 0) == 0)
        info.at(item, 0) = static_cast<int32_t>(first + j + 1);
    }
    if (static_cast<int>(threadIdx.x) < n) {
      if (p != j) exchange(a.at(item, p, threadIdx.x), a.at(item, j, threadIdx.x));
      pivot_row[threadIdx.x] = a.at(item, j, threadIdx.x);
    }
    __syncthreads();
    const bool zero = pivot == T(0),
               invert = size1(pivot) >= R(std::is_same_v<R, double> ? 2.2250738585072014e-308 : 1.17549435e-38);
    const T inverse = T(1) / pivot;
    for (int64_t i = j + 1 + threadIdx.x; i < m; i += kThreads) {
      T x = a.at(item, i, j);
      if (!zero) {
        x = invert ? x * inverse : x / pivot;
        a.at(item, i, j) = x;
      }
      for (int k = static_cast<int>(j) + 1; k < n; k++) a.at(item, i, k) -= x * pivot_row[k];
    }
    __syncthreads();
  }
}

// Exchanges rows of c as pivots [begin, end) say, in that order or backwards; a thread a column. Row 0 of c is row
// `first` of the whole matrix. A pivot outside the matrix exchanges nothing.
template <class T>
__global__ void __launch_bounds__(kThreads) exchange_rows(const Mat<T> c, const Vec<int32_t> pivots, int64_t begin,
                                                          int64_t end, int64_t first, bool backwards) {
  MT_GRID_LOOP(at, c.count * c.cols) {
    const int64_t item = at / c.cols, j = at - item * c.cols;
    for (int64_t step = begin; step < end; step++) {
      const int64_t i = backwards ? begin + end - 1 - step : step, other = pivots.at(item, i) - 1 - first;
      if (other == i || other < 0 || other >= c.rows) continue;
      exchange(c.at(item, i, j), c.at(item, other, j));
    }
  }
}
template <class T>
void exchange_all(const Mat<T>& c, const Vec<int32_t>& pivots, int64_t begin, int64_t end, int64_t first,
                  bool backwards) {
  if (c.cols * c.count == 0 || begin == end) return;
  exchange_rows<T>
      <<<grid_for(c.count * c.cols), kThreads, 0, cuda::current_stream()>>>(c, pivots, begin, end, first, backwards);
}

template <class T>
void factor(const Mat<T>& a, const Vec<int32_t>& pivots, const Vec<int32_t>& info, int64_t first) {
  const int64_t m = a.rows, n = a.cols, steps = std::min(m, n);
  if (n <= kBlock) {
    factor_panel<T><<<static_cast<unsigned>(a.count), kThreads, 0, cuda::current_stream()>>>(a, pivots, info, first);
    return;
  }
  const int64_t left = steps <= kBlock ? steps : (steps / 2 + kBlock - 1) / kBlock * kBlock, right = n - left;
  factor(a.block(0, 0, m, left), pivots, info, first);
  if (right == 0) return;
  const Mat<T> beside = a.block(0, left, m, right), corner = a.block(left, left, m - left, right);
  exchange_all(beside, pivots, 0, left, first, false);
  solve_triangular(a.block(0, 0, left, left), false, true, beside.block(0, 0, left, right));
  if (m == left) return;
  multiply(-1, a.block(left, 0, m - left, left), beside.block(0, 0, left, right), 1, corner);
  factor(corner, pivots.from(left), info, first + left);
  exchange_all(a.block(0, 0, m, left), pivots, left, steps, first, false);
}

}  // namespace

template <class T>
void factor_lu(const Mat<T>& a, const Vec<int32_t>& pivots, const Vec<int32_t>& info) {
  if (info.p != nullptr) clear_info(info, a.count);
  if (a.rows > 0 && a.cols > 0) factor(a, pivots, info, 0);
}

template <class T>
void solve_lu(const Mat<T>& f, const Vec<int32_t>& pivots, const Mat<T>& x, MatrixOp op) {
  if (op == MatrixOp::none) {
    exchange_all(x, pivots, 0, f.rows, 0, false);
    solve_triangular(f, false, true, x);
    solve_triangular(f, true, false, x);
  } else {
    const Mat<T> t = op == MatrixOp::adjoint ? f.h() : f.t();
    solve_triangular(t, false, false, x);
    solve_triangular(t, true, true, x);
    exchange_all(x, pivots, 0, f.rows, 0, true);
  }
}

#define MT_LU_TEMPLATES(T)                                                          \
  template void factor_lu(const Mat<T>&, const Vec<int32_t>&, const Vec<int32_t>&); \
  template void solve_lu(const Mat<T>&, const Vec<int32_t>&, const Mat<T>&, MatrixOp);
MT_LU_TEMPLATES(float)
MT_LU_TEMPLATES(double)
MT_LU_TEMPLATES(Complex<float>)
MT_LU_TEMPLATES(Complex<double>)

namespace {

void lu_factor(const TensorView& a, const TensorView& pivots, const TensorView& info) {
  dispatch_linalg("lu_factor", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&a, &pivots, &info}, {2, 1, 0}, [&](const Group& g) {
      factor_lu(matrix_of<T>(a, g, 0), vector_of<int32_t>(pivots, g, 1), number_of<int32_t>(info, g, 2));
    });
  });
}

void lu_solve(const TensorView& lu, const TensorView& pivots, const TensorView& b, MatrixOp op) {
  if (b.numel == 0) return;
  dispatch_linalg("lu_solve", lu.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&b, &lu, &pivots}, {2, 2, 1}, [&](const Group& g) {
      solve_lu(matrix_of<T>(lu, g, 1), vector_of<int32_t>(pivots, g, 2), matrix_of<T>(b, g, 0), op);
    });
  });
}

struct PivotArgs {
  Space space;
  int64_t numel, strides[2][kCudaDims];
  char* data[2];
};
__global__ void __launch_bounds__(kThreads)
    follow_pivots(const __grid_constant__ PivotArgs a, int64_t n, int64_t largest, int* invalid) {
  MT_GRID_LOOP(item, a.numel) {
    char *p = a.data[0], *q = a.data[1];
    a.space.each(item, [&](int d, int64_t i) { p += i * a.strides[0][d], q += i * a.strides[1][d]; });
    auto* const permutation = reinterpret_cast<int64_t*>(p);
    const auto* const pivots = reinterpret_cast<const int32_t*>(q);
    for (int64_t i = 0; i < n; i++) {
      const int64_t other = pivots[i] - 1;
      if (other < 0 || other >= largest) {
        *invalid = 1;
        continue;
      }
      const int64_t x = permutation[i];
      permutation[i] = permutation[other], permutation[other] = x;
    }
  }
}

void unpack_pivots(const PointwiseView& v, int64_t n, int64_t largest, bool* valid) {
  *valid = true;
  if (v.numel == 0 || n == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  PivotArgs a{};
  a.numel = v.numel;
  a.space = Space(v.ndim, v.sizes, v.numel);
  for (int k = 0; k < 2; k++) {
    a.data[k] = v.data[k];
    for (int d = 0; d < v.ndim; d++) a.strides[k][d] = v.strides[k][d];
  }
  const Scratch flag(sizeof(int));
  int invalid = 0;
  cuda::check(cudaMemsetAsync(flag.get(), 0, sizeof(int), stream), "clearing a flag");
  follow_pivots<<<grid_for(v.numel), kThreads, 0, stream>>>(a, n, largest, flag.get<int>());
  cuda::check_launch("launching unpack_pivots");
  cuda::read_back(&invalid, flag.get(), sizeof(int), "reading a flag");
  *valid = invalid == 0;
}

MT_REGISTER_KERNEL(lu_factor_kernel, &lu_factor);
MT_REGISTER_KERNEL(lu_solve_kernel, &lu_solve);
MT_REGISTER_KERNEL(unpack_pivots_kernel, &unpack_pivots);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
