// Triangular systems. All sixteen forms become one, l x = b with l lower triangular, by transposing or reversing views.
// That one is split in halves until blocks of kBlock remain; what lies between the blocks is a matrix product.
#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

constexpr int64_t kNarrow = 4;   // fewer right-hand sides than this are solved one by one,
constexpr int64_t kSmall = 128;  // and so are those of fewer numbers than this

// Few right-hand sides: the columns of l, one after the other.
template <class T>
void solve_narrow(const Mat<T>& l, bool unit, const Mat<T>& b) {
  const int64_t n = l.rows;
  alignas(64) T tri[kBlock * kBlock], x[kBlock];
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = j; i < n; i++) tri[j * kBlock + i] = conj_if(l(i, j), l.conj);
  for (int64_t c = 0; c < b.cols; c++) {
    for (int64_t i = 0; i < n; i++) x[i] = b(i, c);
    for (int64_t k = 0; k < n; k++) {
      if (!unit) x[k] = x[k] / tri[k * kBlock + k];
      const T xk = -x[k];
      for (int64_t i = k + 1; i < n; i++) x[i] += tri[k * kBlock + i] * xk;
    }
    for (int64_t i = 0; i < n; i++) b(i, c) = x[i];
  }
}

// A diagonal block as separate real and imaginary parts, by rows. `inverse` holds the reciprocals of the diagonal.
template <class T>
struct Block {
  using R = real_t<T>;
  int64_t n;
  bool unit, divide;  // divide: some reciprocal is not a normal number
  alignas(64) R re[kBlock * kBlock];
  R im[is_complex_v<T> ? kBlock * kBlock : 1];
  T diagonal[kBlock], inverse[kBlock];

  Block(const Mat<T>& l, bool is_unit) : n(l.rows), unit(is_unit), divide(false) {
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = unit ? j + 1 : j; i < n; i++) {
        const T x = conj_if(l(i, j), l.conj);
        re[i * kBlock + j] = real_part(x);
        if constexpr (is_complex_v<T>) im[i * kBlock + j] = x.im;
        if (i != j) continue;
        diagonal[i] = x, inverse[i] = T(1) / x;
        divide |=
            !(size1(x) > R(1e3) * std::numeric_limits<R>::min() && size1(x) < std::numeric_limits<R>::max() / R(1e3));
      }
  }
};

// V vectors of right-hand sides at once, with the unknowns as rows.
template <class T, int V>
void solve_columns(const Block<T>& l, const Mat<T>& b, int64_t first, int64_t width) {
  using R = real_t<T>;
  using Vector = gemm::Vector<R>;
  constexpr int64_t L = gemm::kLanes<R>, W = V * L;
  alignas(64) R xr[kBlock * W];
  alignas(64) R xi[is_complex_v<T> ? kBlock * W : 1];
  for (int64_t i = 0; i < l.n; i++) {
    for (int64_t w = 0; w < width; w++) {
      const T x = b(i, first + w);
      xr[i * W + w] = real_part(x);
      if constexpr (is_complex_v<T>) xi[i * W + w] = x.im;
    }
    for (int64_t w = width; w < W; w++) {
      xr[i * W + w] = 0;
      if constexpr (is_complex_v<T>) xi[i * W + w] = 0;
    }
  }
  for (int64_t i = 0; i < l.n; i++) {
    Vector re[V], im[V];
    for (int v = 0; v < V; v++) {
      re[v] = gemm::load_vector(xr + i * W + v * L);
      if constexpr (is_complex_v<T>) im[v] = gemm::load_vector(xi + i * W + v * L);
    }
    for (int64_t k = 0; k < i; k++) {
      const R lr = l.re[i * kBlock + k];
      for (int v = 0; v < V; v++) {
        const Vector x = gemm::load_vector(xr + k * W + v * L);
        re[v] -= lr * x;
        if constexpr (is_complex_v<T>) {
          const R li = l.im[i * kBlock + k];
          const Vector y = gemm::load_vector(xi + k * W + v * L);
          re[v] += li * y;
          im[v] -= lr * y + li * x;
        }
      }
    }
    for (int v = 0; v < V; v++) {
      if constexpr (is_complex_v<T>) {
        if (!l.unit) {
          const T d = l.inverse[i];
          const Vector r = re[v] * d.re - im[v] * d.im;
          im[v] = re[v] * d.im + im[v] * d.re, re[v] = r;
        }
        gemm::store_vector(xi + i * W + v * L, im[v]);
      } else if (!l.unit) {
        re[v] = l.divide ? re[v] / l.diagonal[i] : re[v] * l.inverse[i];
      }
      gemm::store_vector(xr + i * W + v * L, re[v]);
    }
  }
  for (int64_t i = 0; i < l.n; i++)
    for (int64_t w = 0; w < width; w++) {
      if constexpr (is_complex_v<T>) {
        b(i, first + w) = T(xr[i * W + w], xi[i * W + w]);
      } else {
        b(i, first + w) = xr[i * W + w];
      }
    }
}

template <class T>
void solve_block(const Mat<T>& l, bool unit, const Mat<T>& b) {
  constexpr int64_t L = gemm::kLanes<real_t<T>>;
  constexpr int most = is_complex_v<T> ? 2 : 4;
  if (b.cols < kNarrow || l.rows * b.cols < kSmall) return solve_narrow(l, unit, b);
  const Block<T> block(l, unit);
  if (is_complex_v<T> && block.divide) return solve_narrow(l, unit, b);
  for (int64_t j = 0; j < b.cols; j += most * L) {
    const int64_t width = std::min(b.cols - j, most * L);
    if (width <= L) {
      solve_columns<T, 1>(block, b, j, width);
    } else {
      solve_columns<T, most>(block, b, j, width);
    }
  }
}

template <class T>
void solve_lower(const Mat<T>& l, bool unit, const Mat<T>& b) {
  const int64_t n = l.rows;
  if (n <= kBlock) return solve_block(l, unit, b);
  const int64_t half = (n / 2 + kBlock - 1) / kBlock * kBlock;
  solve_lower(l.block(0, 0, half, half), unit, b.block(0, 0, half, b.cols));
  multiply(-1, l.block(half, 0, n - half, half), b.block(0, 0, half, b.cols), 1, b.block(half, 0, n - half, b.cols));
  solve_lower(l.block(half, half, n - half, n - half), unit, b.block(half, 0, n - half, b.cols));
}

}  // namespace

template <class T>
void solve_triangular(const Mat<T>& t, bool upper, bool unit, const Mat<T>& b) {
  if (t.rows == 0 || b.cols == 0) return;
  const Mat<T> l = upper ? t.reversed() : t, x = upper ? b.rows_reversed() : b;
  const int64_t grain = std::max<int64_t>(64, (1 << 18) / (t.rows * t.rows + 1));
  parallel_for(b.cols, grain,
               [&](int64_t begin, int64_t end) { solve_lower(l, unit, x.block(0, begin, x.rows, end - begin)); });
}
template void solve_triangular(const Mat<float>&, bool, bool, const Mat<float>&);
template void solve_triangular(const Mat<double>&, bool, bool, const Mat<double>&);
template void solve_triangular(const Mat<Complex<float>>&, bool, bool, const Mat<Complex<float>>&);
template void solve_triangular(const Mat<Complex<double>>&, bool, bool, const Mat<Complex<double>>&);

namespace {

void triangular_solve(const TriangularArgs& args) {
  const int64_t count = batch_count(args.b, 2);
  dispatch_linalg("triangular_solve", args.b.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double n = static_cast<double>(args.t.sizes[args.t.ndim - 1]);
    const double flops = count > 0 ? n * static_cast<double>(args.b.numel) / static_cast<double>(count) : 0;
    for_each_item(count, flops, [&](int64_t i) {
      Mat<T> t = matrix_of<T>(args.t, i), b = matrix_of<T>(args.b, i);
      bool upper = args.upper;
      const auto transpose = [&](bool conjugate) { t = conjugate ? t.h() : t.t(), upper = !upper; };
      if (args.op != MatrixOp::none) transpose(args.op == MatrixOp::adjoint);
      if (!args.left) transpose(false), b = b.t();
      solve_triangular(t, upper, args.unit, b);
    });
  });
}
MT_REGISTER_KERNEL(triangular_solve_kernel, &triangular_solve);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
