// The exponential of matrices on CUDA by scaling, a diagonal Padé approximant of degree 13, and squaring: N. J. Higham,
// "The scaling and squaring method for the matrix exponential revisited" (SIAM J. Matrix Anal. Appl. 2005). Each matrix
// of a batch is scaled by its own 1-norm. Everything is computed in double precision: the squarings magnify errors.
#include <vector>

#include "kernels/cuda/linalg.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

constexpr double kLimit = 5.371920351148152;  // the largest norm for which degree 13 gives double precision

// The numerator's coefficients, from the constant; those of the denominator alternate in sign.
constexpr double kCoefficients[] = {64764752532480000,
                                    32382376266240000,
                                    7771770303897600,
                                    1187353796428800,
                                    129060195264000,
                                    10559470521600,
                                    670442572800,
                                    33522128640,
                                    1323241920,
                                    40840800,
                                    960960,
                                    16380,
                                    182,
                                    1};

// How often each matrix is halved; -1 for one with numbers that are not finite.
template <class T>
__global__ void __launch_bounds__(kThreads) count_halvings(const Mat<T> a, int* halvings) {
  __shared__ double shared[32];
  const int64_t item = blockIdx.x;
  double norm = 0;
  for (int64_t j = threadIdx.x; j < a.cols; j += kThreads) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; i++)
      sum += ::hypot(double{real_part(a.at(item, i, j))}, double{imag_part(a.at(item, i, j))});
    norm = Max()(norm, sum);
  }
  norm = block_reduce(norm, shared, 0.0, Max());
  if (threadIdx.x != 0) return;
  int count = 0;
  const bool finite = norm <= 1.7e308;
  for (; finite && norm > kLimit; norm /= 2) count++;
  halvings[item] = finite ? count : -1;
}

template <class T>
void exponential(const Mat<T>& a) {
  using D = std::conditional_t<is_complex_v<T>, Complex<double>, double>;
  const int64_t n = a.rows, count = a.count;
  if (n == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  const Scratch counters(count * 4);
  int* const halvings = counters.get<int>();
  count_halvings<T><<<static_cast<unsigned>(count), kThreads, 0, stream>>>(a, halvings);
  cuda::check_launch("launching matrix_exp");
  std::vector<int> known(static_cast<size_t>(count));
  cuda::read_back(known.data(), halvings, count * int64_t{sizeof(int)}, "reading norms");
  const int most = *std::max_element(known.begin(), known.end());

  const Matrices<D> memory_x(n, n, count), memory_2(n, n, count), memory_4(n, n, count), memory_6(n, n, count),
      memory_odd(n, n, count), memory_even(n, n, count), memory_work(n, n, count);
  const Matrices<int32_t> pivots(n, 1, count);
  const Mat<D> x = memory_x.mat(), x2 = memory_2.mat(), x4 = memory_4.mat(), x6 = memory_6.mat(),
               odd = memory_odd.mat(), even = memory_even.mat(), work = memory_work.mat();
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    x.at(item, i, j) = halvings[item] < 0 ? D(0.0) : scaled(D(a.at(item, i, j)), ::ldexp(1.0, -halvings[item]));
  });
  multiply<D>(1, x, x, 0, x2);
  multiply<D>(1, x2, x2, 0, x4);
  multiply<D>(1, x4, x2, 0, x6);
  // out = x^6 (c[first + 8] x^2 + ...) + c[first] + c[first + 2] x^2 + ...
  const auto series = [&](int first, const Mat<D>& out) {
    const double *const c = kCoefficients + first, c0 = c[0], c2 = c[2], c4 = c[4], c6 = c[6], c8 = c[8], c10 = c[10],
                        c12 = c[12];
    for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
      work.at(item, i, j) =
          scaled(x2.at(item, i, j), c8) + scaled(x4.at(item, i, j), c10) + scaled(x6.at(item, i, j), c12);
    });
    multiply<D>(1, x6, work, 0, out);
    for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
      out.at(item, i, j) = out.at(item, i, j) + scaled(x2.at(item, i, j), c2) + scaled(x4.at(item, i, j), c4) +
                           scaled(x6.at(item, i, j), c6) + D(i == j ? c0 : 0.0);
    });
  };
  series(1, even);
  multiply<D>(1, x, even, 0, odd);
  series(0, even);
  // (even - odd) r = even + odd
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    work.at(item, i, j) = even.at(item, i, j) - odd.at(item, i, j);
    x.at(item, i, j) = even.at(item, i, j) + odd.at(item, i, j);
  });
  factor_lu(work, pivots.vec(), Vec<int32_t>{});
  solve_lu(work, pivots.vec(), x, MatrixOp::none);
  for (int step = 0; step < most; step++) {
    multiply<D>(1, x, x, 0, x2);
    for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
      if (step < halvings[item]) x.at(item, i, j) = x2.at(item, i, j);
    });
  }
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    a.at(item, i, j) = halvings[item] < 0 ? T(static_cast<real_t<T>>(::nan(""))) : T(x.at(item, i, j));
  });
}

void matrix_exp(const TensorView& a) {
  dispatch_linalg("matrix_exp", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&a}, {2}, [&](const Group& g) { exponential(matrix_of<T>(a, g, 0)); });
  });
}
MT_REGISTER_KERNEL(matrix_exp_kernel, &matrix_exp);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
