// Eigenvalues of general matrices on CUDA, a thread block for each matrix: reflectors reduce it to Hessenberg form, the
// QR iteration with single shifts brings that to Schur form, and eigenvectors follow by back substitution (J. G. F.
// Francis, "The QR transformation", Comput. J. 1961/62). Everything is computed with complex numbers in double
// precision, real matrices too, so that one code serves all; their eigenvalues are then made exact pairs.
#include "kernels/cuda/linalg.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

using Z = Complex<double>;
constexpr double kEpsilon = 2.220446049250313e-16;

__device__ __forceinline__ double absolute(Z z) { return ::hypot(z.re, z.im); }

// h becomes q^H h q, upper Hessenberg; q, the identity at first, the transformation. `v` has room for a column.
__device__ void reduce(const Mat<Z>& h, const Mat<Z>& q, int64_t item, Z* v, double* shared) {
  const int64_t n = h.rows;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int64_t k = 0; k + 2 < n; k++) {
    const int64_t m = n - k - 1;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < m; i += kThreads) {
      v[i] = h.at(item, k + 1 + i, k);
      if (i > 0) sum += square(v[i]);
    }
    sum = block_reduce(sum, shared, 0.0, Sum());
    __syncthreads();
    if (sum == 0) continue;
    // The reflector 1 - 2 v v^H / v^H v takes the column to -+norm e1.
    const Z first = v[0];
    const double size = absolute(first), norm = ::sqrt(sum + size * size), factor = 1 / (norm * (norm + size));
    const Z phase = size == 0 ? Z(1.0) : scaled(first, 1 / size);
    __syncthreads();
    if (threadIdx.x == 0) v[0] = first + scaled(phase, norm);
    __syncthreads();
    for (int64_t j = k + warp; j < n; j += kThreads / 32) {
      Z dot(0.0);
      for (int64_t i = lane; i < m; i += 32) dot += conj(v[i]) * h.at(item, k + 1 + i, j);
      dot = scaled(warp_reduce(dot, Sum()), factor);
      for (int64_t i = lane; i < m; i += 32) h.at(item, k + 1 + i, j) -= v[i] * dot;
    }
    __syncthreads();
    const auto from_right = [&](const Mat<Z>& a) {
      for (int64_t i = threadIdx.x; i < n; i += kThreads) {
        Z dot(0.0);
        for (int64_t j = 0; j < m; j++) dot += a.at(item, i, k + 1 + j) * v[j];
        dot = scaled(dot, factor);
        for (int64_t j = 0; j < m; j++) a.at(item, i, k + 1 + j) -= dot * conj(v[j]);
      }
    };
    from_right(h);
    from_right(q);
    __syncthreads();
  }
  for (int64_t at = threadIdx.x; at < n * n; at += kThreads)
    if (at % n >= at / n + 2) h.at(item, at % n, at / n) = Z(0.0);
  __syncthreads();
}

// The eigenvalue of the last block of order two that is nearer to its last entry.
__device__ Z nearer_eigenvalue(Z a, Z b, Z c, Z d) {
  const Z half = scaled(a - d, 0.5), bc = b * c, square = half * half + bc;
  const double size = absolute(square);
  Z root(::sqrt(::fmax(0.0, (size + square.re) / 2)), ::sqrt(::fmax(0.0, (size - square.re) / 2)));
  if (square.im < 0) root.im = -root.im;
  if (half.re * root.re + half.im * root.im < 0) root = -root;
  const Z sum = half + root;
  return sum == Z(0.0) ? d : d - bc / sum;
}

// Hessenberg h to triangular form, q accumulating the transformations. `cosines` and `sines` have room for n each.
// Returns how many eigenvalues did not converge.
__device__ int64_t iterate(const Mat<Z>& h, const Mat<Z>& q, int64_t item, bool vectors, double* cosines, Z* sines) {
  __shared__ int64_t start;
  __shared__ Z shift;
  const int64_t n = h.rows;
  const auto at = [&](int64_t i, int64_t j) -> Z& { return h.at(item, i, j); };
  int64_t budget = 60 * n, top = n - 1, stuck = 0;
  while (top > 0) {
    if (threadIdx.x == 0) {
      int64_t l = top;
      for (; l > 0; l--) {
        double around = size1(at(l, l)) + size1(at(l - 1, l - 1));
        if (around == 0) around = 1;
        if (size1(at(l, l - 1)) <= kEpsilon * around || size1(at(l, l - 1)) < 1e-300) {
          at(l, l - 1) = Z(0.0);
          break;
        }
      }
      start = l;
      if (l < top)
        shift = (stuck + 1) % 10 == 0
                    ? at(top, top) + Z(0.75 * ::fabs(at(top, top - 1).re) + 0.25 * ::fabs(at(top, top - 1).im))
                    : nearer_eigenvalue(at(top - 1, top - 1), at(top - 1, top), at(top, top - 1), at(top, top));
    }
    __syncthreads();
    const int64_t l = start;
    const Z by = shift;
    __syncthreads();
    if (l == top) {
      top--, stuck = 0;
      continue;
    }
    if (budget-- == 0) return top + 1;
    stuck++;
    const int64_t last = vectors ? n : top + 1, first = vectors ? 0 : l;
    for (int64_t i = l + threadIdx.x; i <= top; i += kThreads) at(i, i) -= by;
    __syncthreads();
    for (int64_t k = l; k < top; k++) {
      const Z f = at(k, k), g = at(k + 1, k);
      const double size_f = absolute(f), r = ::hypot(size_f, absolute(g));
      double c = 1;
      Z s(0.0);
      if (size_f == 0) {
        if (r != 0) c = 0, s = scaled(conj(g), 1 / r);
      } else {
        c = size_f / r;
        s = scaled(f, 1 / size_f) * scaled(conj(g), 1 / r);
      }
      __syncthreads();
      if (threadIdx.x == 0) cosines[k] = c, sines[k] = s;
      for (int64_t j = k + threadIdx.x; j < last; j += kThreads) {
        const Z x = at(k, j), y = at(k + 1, j);
        at(k, j) = scaled(x, c) + s * y;
        at(k + 1, j) = j == k ? Z(0.0) : scaled(y, c) - conj(s) * x;
      }
      __syncthreads();
    }
    // The columns: each thread has rows of its own, and takes all rotations through them.
    for (int64_t k = l; k < top; k++) {
      const double c = cosines[k];
      const Z s = sines[k];
      const auto rotate = [&](const Mat<Z>& a, int64_t begin, int64_t end) {
        for (int64_t i = threadIdx.x; i < end; i += kThreads) {
          if (i < begin) continue;
          const Z x = a.at(item, i, k), y = a.at(item, i, k + 1);
          a.at(item, i, k) = scaled(x, c) + conj(s) * y;
          a.at(item, i, k + 1) = scaled(y, c) - s * x;
        }
      };
      rotate(h, first, min(k + 2, top + 1));
      if (vectors) rotate(q, 0, n);
    }
    __syncthreads();
    for (int64_t i = l + threadIdx.x; i <= top; i += kThreads) at(i, i) += by;
    __syncthreads();
  }
  return 0;
}

// The eigenvectors of a triangular matrix, as columns of x, a warp each.
__device__ void back_substitute(const Mat<Z>& t, const Mat<Z>& x, int64_t item, double* shared) {
  const int64_t n = t.rows;
  const int lane = threadIdx.x % 32;
  double norm = 0;
  for (int64_t e = threadIdx.x; e < n * n; e += kThreads)
    if (e % n <= e / n) norm = ::fmax(norm, size1(t.at(item, e % n, e / n)));
  norm = block_reduce(norm, shared, 0.0, Max());
  const double smallest = ::fmax(norm * kEpsilon, 1e-290);
  for (int64_t k = threadIdx.x / 32; k < n; k += kThreads / 32) {
    const auto v = [&](int64_t i) -> Z& { return x.at(item, i, k); };
    for (int64_t i = lane; i < n; i += 32) v(i) = i < k ? -t.at(item, i, k) : Z(i == k ? 1.0 : 0.0);
    __syncwarp();
    for (int64_t i = k - 1; i >= 0; i--) {
      Z d = t.at(item, i, i) - t.at(item, k, k);
      if (size1(d) < smallest) d = Z(smallest);
      const Z value = v(i) / d;
      __syncwarp();
      if (lane == 0) v(i) = value;
      for (int64_t r = lane; r < i; r += 32) v(r) -= value * t.at(item, r, i);
      __syncwarp();
      const double size = size1(value);
      if (size > 1e100) {
        for (int64_t r = lane; r <= k; r += 32) v(r) = scaled(v(r), 1 / size);
        __syncwarp();
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    eig_items(const Mat<Z> h, const Mat<Z> q, const Mat<Z> x, char* work, int* failed, bool vectors) {
  __shared__ double shared[32];
  const int64_t item = blockIdx.x, n = h.rows;
  Z *const column = reinterpret_cast<Z*>(work) + item * 3 * n, *const sines = column + n;
  double* const cosines = reinterpret_cast<double*>(sines + n);
  reduce(h, q, item, column, shared);
  const int64_t left = iterate(h, q, item, vectors, cosines, sines);
  if (threadIdx.x == 0) failed[item] = static_cast<int>(left);
  if (vectors) back_substitute(h, x, item, shared);
}

// Norm 1, and the largest component real; a warp a vector.
template <class Out>
__global__ void __launch_bounds__(kThreads) store_vectors(const Mat<Z> v, const Mat<Out> out) {
  const int64_t warp = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32, n = v.rows;
  if (warp >= v.cols * v.count) return;
  const int64_t item = warp / v.cols, j = warp % v.cols;
  const int lane = threadIdx.x % 32;
  double largest = 0;
  for (int64_t i = lane; i < n; i += 32) largest = Max()(largest, size1(v.at(item, i, j)));
  largest = warp_reduce(largest, Max());
  struct Place {
    double size;
    int64_t row;
  } best{-1, 0};
  double sum = 0;
  const auto larger = [](Place a, Place b) { return b.size > a.size || (b.size == a.size && b.row < a.row) ? b : a; };
  for (int64_t i = lane; i < n; i += 32) {
    const double size = square(scaled(v.at(item, i, j), 1 / largest));
    sum += size;
    best = larger(best, Place{size, i});
  }
  sum = warp_reduce(sum, Sum()), best = warp_reduce(best, larger);
  const double norm = largest * ::sqrt(sum);
  const Z top = v.at(item, best.row, j), factor = scaled(conj(top), 1 / absolute(top));
  for (int64_t i = lane; i < n; i += 32) {
    Z z = scaled(v.at(item, i, j), 1 / norm) * factor;
    if (i == best.row) z.im = 0;
    out.at(item, i, j) = cast<Out>(z);
  }
}

// The eigenvalues of a real matrix are real or in conjugate pairs, which rounding has disturbed: one with im > 0 takes
// the nearest conjugate among those with im < 0 for its partner, where that is nearer than the real axis's mirror image
// of itself, and the others are real. partner[j]: j itself for a real one, -1 - i for one that is the conjugate of i,
// and otherwise the partner. A thread an item.
__global__ void __launch_bounds__(kThreads) pair_up(const Mat<Z> t, int64_t* partners) {
  const int64_t n = t.rows;
  MT_GRID_LOOP(item, t.count) {
    int64_t* const partner = partners + item * n;
    for (int64_t j = 0; j < n; j++) partner[j] = j;
    for (int64_t j = 0; j < n; j++) {
      const Z z = t.at(item, j, j);
      if (!(z.im > 0)) continue;
      int64_t best = -1;
      double nearest = 2 * z.im;
      for (int64_t i = 0; i < n; i++) {
        const Z other = t.at(item, i, i);
        if (partner[i] != i || !(other.im < 0)) continue;
        const double distance = absolute(z - conj(other));
        if (distance < nearest) nearest = distance, best = i;
      }
      if (best >= 0) partner[j] = best, partner[best] = -1 - j;
    }
    for (int64_t j = 0; j < n; j++) {
      Z& z = t.at(item, j, j);
      if (partner[j] == j) z.im = 0;
      if (partner[j] < 0) z = conj(t.at(item, -1 - partner[j], -1 - partner[j]));
    }
  }
}

template <class T>
void eig_group(const Mat<T>& a, const Vec<Complex<real_t<T>>>& w, const Mat<Complex<real_t<T>>>& v,
               const Vec<int32_t>& info, bool vectors) {
  using Out = Complex<real_t<T>>;
  const int64_t n = a.rows, count = a.count;
  if (n == 0) return clear_info(info, count);
  const cudaStream_t stream = cuda::current_stream();
  const auto blocks = static_cast<unsigned>(count);
  const Matrices<Z> memory_h(n, n, count), memory_q(n, n, count), memory_x(n, n, count), work(3, n, count);
  const Scratch numbers(count * 12), memory_partners(is_complex_v<T> ? 0 : count * n * 8);
  int64_t* const partners = memory_partners.get<int64_t>();
  double* const scales = numbers.get<double>();
  int* const failed = reinterpret_cast<int*>(scales + count);
  const Mat<Z> h = memory_h.mat(), q = memory_q.mat(), x = memory_x.mat();
  find_scales<T><<<blocks, kThreads, 0, stream>>>(a, scales);
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    const T z = a.at(item, i, j);
    h.at(item, i, j) = scales[item] > 0 ? scaled(Z(real_part(z), imag_part(z)), scales[item]) : Z(0.0);
    q.at(item, i, j) = Z(i == j ? 1.0 : 0.0);
  });
  eig_items<<<blocks, kThreads, 0, stream>>>(h, q, x, work.template get<char>(), failed, vectors);
  if constexpr (!is_complex_v<T>) pair_up<<<grid_for(count), kThreads, 0, stream>>>(h, partners);
  for_each_element(n, count, 1, [=] __device__(int64_t, int64_t j, int64_t item) {
    const double nothing = ::nan("");
    w.at(item, j) = cast<Out>(scales[item] > 0 ? scaled(h.at(item, j, j), 1 / scales[item]) : Z(nothing, nothing));
    if (j == 0) info.at(item, 0) = scales[item] > 0 ? failed[item] : 1;
  });
  if (!vectors) return;
  multiply<Z>(1, q, x, 0, h);
  if constexpr (!is_complex_v<T>) {
    for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
      const int64_t partner = partners[item * n + j];
      if (partner < 0) h.at(item, i, j) = conj(h.at(item, i, -1 - partner));
    });
  }
  store_vectors<Out><<<static_cast<unsigned>(ceil_div(n * count, kThreads / 32)), kThreads, 0, stream>>>(h, v);
}

void eig(const EigArgs& args) {
  dispatch_linalg("eig", args.a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Out = Complex<real_t<T>>;
    const TensorView& v = args.vectors ? args.v : args.a;
    for_each_group({&args.a, &args.w, &v, &args.info}, {2, 1, 2, 0}, [&](const Group& g) {
      eig_group(matrix_of<T>(args.a, g, 0), vector_of<Out>(args.w, g, 1),
                args.vectors ? matrix_of<Out>(v, g, 2) : Mat<Out>{}, number_of<int32_t>(args.info, g, 3), args.vectors);
    });
  });
}
MT_REGISTER_KERNEL(eig_kernel, &eig);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
