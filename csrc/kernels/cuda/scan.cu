// Scans along one dimension on CUDA. A block goes through a line tile by tile: threads scan the elements they hold,
// warps and the block scan the threads' totals, and the last total is carried to the next tile.
#include "kernels/scan.h"

#include <limits>

#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kEach = 4;  // elements of a thread

struct Args {
  int64_t lines, length;
  Space space;                                                                      // of the lines
  int64_t in_strides[kCudaDims], out_strides[kCudaDims], index_strides[kCudaDims];  // elements
  int64_t in_step, out_step, index_step;
  const char* in;
  char* out;
  int64_t* index;
  DType in_dtype, out_dtype;
};

// The dimensions of `v` but for `dim`, innermost first.
Args args_of(const TensorView& out, const TensorView* index, const TensorView& in, int dim) {
  Args a{};
  int64_t sizes[kMaxDims];
  int kept = 0;
  a.lines = 1;
  for (int d = in.ndim - 1; d >= 0; d--) {
    if (d == dim || in.sizes[d] == 1) continue;
    if (kept == kCudaDims) throw std::runtime_error("minitorch: scan of more than 16 dimensions");
    sizes[kept] = in.sizes[d];
    a.in_strides[kept] = in.strides[d];
    a.out_strides[kept] = out.strides[d];
    a.index_strides[kept] = index != nullptr ? index->strides[d] : 0;
    a.lines *= in.sizes[d];
    kept++;
  }
  a.space = Space(kept, sizes, a.lines);
  a.length = in.ndim > 0 ? in.sizes[dim] : 1;
  a.in_step = in.ndim > 0 ? in.strides[dim] : 0;
  a.out_step = in.ndim > 0 ? out.strides[dim] : 0;
  a.index_step = in.ndim > 0 && index != nullptr ? index->strides[dim] : 0;
  a.in = in.data;
  a.out = out.data;
  a.index = index != nullptr ? index->ptr<int64_t>() : nullptr;
  a.in_dtype = in.dtype;
  a.out_dtype = out.dtype;
  return a;
}

// Inclusive scan of one value a thread over a block; `shared` has room for 33 values. The last gets the total too.
template <class V, class F>
__device__ __forceinline__ V block_scan(V value, V* shared, const V& identity, const F& combine, V& before, V& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  __shared__ V values[1024];
  values[threadIdx.x] = value;
  __syncwarp();
  for (int step = 1; step < 32; step *= 2) {
    const V left = lane >= step ? values[threadIdx.x - step] : identity;
    __syncwarp();
    if (lane >= step) value = combine(left, value);
    values[threadIdx.x] = value;
    __syncwarp();
  }
  if (lane == 31) shared[warp] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    V sum = identity;
    for (int w = 0; w < warps; w++) {
      const V mine = shared[w];
      shared[w] = sum;
      sum = combine(sum, mine);
    }
    shared[warps] = sum;
  }
  __syncthreads();
  total = shared[warps];
  before = lane > 0 ? combine(shared[warp], values[threadIdx.x - 1]) : shared[warp];
  const V result = combine(shared[warp], value);
  __syncthreads();
  return result;
}

template <class C>
using carried_t = std::conditional_t<std::is_same_v<C, float>, double, C>;

template <class V>
struct AddValues {
  static __device__ V identity() { return V(0); }
  __device__ V operator()(V a, V b) const { return a + b; }
};
template <class V>
struct MultiplyValues {
  static __device__ V identity() { return V(1); }
  __device__ V operator()(V a, V b) const { return a * b; }
};
template <class V>
struct LogAddValues {
  static __device__ V identity() { return -std::numeric_limits<V>::infinity(); }
  __device__ V operator()(V a, V b) const {
    const V low = b != b || b < a ? b : a, high = b != b || b > a ? b : a;
    if (low == high && isinf(low)) return low;
    if (a != a) return a;
    return high + ::log1p(::exp(low - high));
  }
};

// Elements are loaded and stored as C and combined as A: single-precision sums and products are carried in double, as
// native has them.
template <class C, class A, class F>
__global__ void __launch_bounds__(kThreads) scan_lines(const __grid_constant__ Args a, F combine) {
  __shared__ A shared[33];
  const int64_t in_size = static_cast<int64_t>(size_of(a.in_dtype)),
                out_size = static_cast<int64_t>(size_of(a.out_dtype));
  for (int64_t line = blockIdx.x; line < a.lines; line += gridDim.x) {
    int64_t from = 0, to = 0;
    a.space.each(line, [&](int d, int64_t at) {
      from += at * a.in_strides[d];
      to += at * a.out_strides[d];
    });
    A carry = F::identity();
    for (int64_t base = 0; base < a.length; base += int64_t{kEach} * blockDim.x) {
      A mine[kEach];
      const int64_t first = base + int64_t{kEach} * threadIdx.x;
#pragma unroll
      for (int e = 0; e < kEach; e++) {
        mine[e] = first + e < a.length ? A(load_as<C>(a.in + (from + (first + e) * a.in_step) * in_size, a.in_dtype))
                                       : F::identity();
        if (e > 0) mine[e] = combine(mine[e - 1], mine[e]);
      }
      A before, total;
      block_scan(mine[kEach - 1], shared, F::identity(), combine, before, total);
      const A start = combine(carry, before);
#pragma unroll
      for (int e = 0; e < kEach; e++)
        if (first + e < a.length)
          store_as<C>(a.out + (to + (first + e) * a.out_step) * out_size, a.out_dtype,
                      static_cast<C>(combine(start, mine[e])));
      carry = combine(carry, total);
    }
  }
}

template <class T>
struct Located {
  T value;
  int64_t index;  // -1: nothing yet
};
// Where the extremum was last reached; NaN, once met, stays, and moves to the latest NaN.
template <class T>
struct Latest {
  bool max;
  static __device__ Located<T> identity() { return {T(0), -1}; }
  __device__ Located<T> operator()(Located<T> a, Located<T> b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    if (b.value != b.value) return b;
    if (a.value != a.value) return a;
    return (max ? b.value >= a.value : b.value <= a.value) ? b : a;
  }
};

template <class C>
__global__ void __launch_bounds__(kThreads) extremum_lines(const __grid_constant__ Args a, Latest<C> combine) {
  __shared__ Located<C> shared[33];
  const int64_t size = static_cast<int64_t>(size_of(a.in_dtype));
  for (int64_t line = blockIdx.x; line < a.lines; line += gridDim.x) {
    int64_t from = 0, to = 0, index = 0;
    a.space.each(line, [&](int d, int64_t at) {
      from += at * a.in_strides[d];
      to += at * a.out_strides[d];
      index += at * a.index_strides[d];
    });
    Located<C> carry = Latest<C>::identity();
    for (int64_t base = 0; base < a.length; base += blockDim.x) {
      const int64_t i = base + threadIdx.x;
      Located<C> mine = Latest<C>::identity();
      if (i < a.length) mine = {load_as<C>(a.in + (from + i * a.in_step) * size, a.in_dtype), i};
      Located<C> before, total;
      mine = combine(carry, block_scan(mine, shared, Latest<C>::identity(), combine, before, total));
      if (i < a.length) {
        store_as<C>(a.out + (to + i * a.out_step) * size, a.out_dtype, mine.value);
        a.index[index + i * a.index_step] = mine.index;
      }
      carry = combine(carry, total);
    }
  }
}

unsigned threads_for(int64_t length, int each) {
  return static_cast<unsigned>(std::clamp<int64_t>(ceil_div(length, int64_t{each} * 32) * 32, 32, kThreads));
}
unsigned blocks_for(int64_t lines) { return static_cast<unsigned>(std::min<int64_t>(lines, int64_t{1} << 20)); }

void scan(ScanOp op, const TensorView& output, const TensorView& input, int dim) {
  const Args a = args_of(output, nullptr, input, dim);
  const DType out = output.dtype;
  const DType compute = is_integral(out) || out == DType::Bool ? DType::I64 : compute_dtype(out);
  const auto start = [&](auto tag, auto combine) {
    scan_lines<typename decltype(tag)::type, decltype(combine.identity())>
        <<<blocks_for(a.lines), threads_for(a.length, kEach), 0, cuda::current_stream()>>>(a, combine);
  };
  using All = Types<float, double, int64_t, Complex<float>, Complex<double>>;
  bool known = false;
  switch (op) {
    case ScanOp::sum:
      known =
          dispatch(compute, All{}, [&](auto tag) { start(tag, AddValues<carried_t<typename decltype(tag)::type>>()); });
      break;
    case ScanOp::prod:
      known = dispatch(compute, All{},
                       [&](auto tag) { start(tag, MultiplyValues<carried_t<typename decltype(tag)::type>>()); });
      break;
    case ScanOp::logsumexp:
      known =
          dispatch(compute, FloatTypes{}, [&](auto tag) { start(tag, LogAddValues<typename decltype(tag)::type>()); });
      break;
  }
  if (!known) missing_kernel("scan", name_of(out));
  cuda::check_launch("launching a scan");
}

void extremum(bool max, const TensorView& values, const TensorView& indices, const TensorView& input, int dim) {
  const Args a = args_of(values, &indices, input, dim);
  const DType in = compute_dtype(input.dtype);
  const bool narrow = in == DType::Bool || (is_integral(in) && in != DType::I64);
  const auto run = [&](auto tag) {
    using C = typename decltype(tag)::type;
    extremum_lines<C><<<blocks_for(a.lines), threads_for(a.length, 1), 0, cuda::current_stream()>>>(a, Latest<C>{max});
  };
  if (!dispatch(narrow ? DType::I64 : in, Types<float, double, int64_t>{}, run))
    missing_kernel("scan_extremum", name_of(input.dtype));
  cuda::check_launch("launching a scan");
}

MT_REGISTER_KERNEL(scan_kernel, &scan);
MT_REGISTER_KERNEL(scan_extremum_kernel, &extremum);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
