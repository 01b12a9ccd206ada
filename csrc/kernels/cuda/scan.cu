// Scans along one dimension on CUDA. A block goes through a line tile by tile: threads scan the elements they hold,
// warps and the block scan the threads' totals, and the last total is carried to the next tile. Few long lines are cut
// into chunks, a block each: first the chunks' totals are found and scanned, then every chunk starts from what stands
// before it.
#include "kernels/scan.h"

#include <limits>

#include "kernels/cuda/launch.cuh"
#include "kernels/functors/binary.h"

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
  int64_t in_size, out_size;  // bytes of an element
  int64_t chunk, chunks;      // a line is cut into `chunks` of `chunk` elements
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
  a.in_size = static_cast<int64_t>(size_of(in.dtype));
  a.out_size = static_cast<int64_t>(size_of(out.dtype));
  return a;
}

// Inclusive scan of one value a thread over a block; `shared` has room for 33 values. The last gets the total too.
template <class V, class F>
__device__ __forceinline__ V block_scan(V value, V* shared, const V& identity, const F& combine, V& before, V& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  __shared__ V values[kThreads];
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
struct Carried {
  using type = C;
};
template <>
struct Carried<float> {
  using type = double;
};
template <>
struct Carried<Complex<float>> {
  using type = Complex<double>;
};
template <class C>
using carried_t = typename Carried<C>::type;

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
template <class T>
struct LogAddValues<Complex<T>> {
  static __device__ Complex<T> identity() { return {-std::numeric_limits<T>::infinity(), T(0)}; }
  __device__ Complex<T> operator()(Complex<T> a, Complex<T> b) const { return functors::Logaddexp<Complex<T>>{}(a, b); }
};

// A scan says how an element becomes a value, how values are combined, and what is stored of one.
//
// Numbers are loaded and stored as C and combined as Value: single-precision sums and products are carried in double,
// as native has them.
template <class C, class F>
struct Numbers {
  using Value = decltype(F::identity());
  F combine;
  static __device__ Value identity() { return F::identity(); }
  __device__ Value load(const Args& a, const int64_t (&line)[3], int64_t i) const {
    return Value(load_as<C>(a.in + (line[0] + i * a.in_step) * a.in_size, a.in_dtype));
  }
  __device__ void store(const Args& a, const int64_t (&line)[3], int64_t i, Value x) const {
    store_as<C>(a.out + (line[1] + i * a.out_step) * a.out_size, a.out_dtype, static_cast<C>(x));
  }
};

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
struct Extrema {
  using Value = Located<C>;
  Latest<C> combine;
  static __device__ Value identity() { return Latest<C>::identity(); }
  __device__ Value load(const Args& a, const int64_t (&line)[3], int64_t i) const {
    return {load_as<C>(a.in + (line[0] + i * a.in_step) * a.in_size, a.in_dtype), i};
  }
  __device__ void store(const Args& a, const int64_t (&line)[3], int64_t i, Value x) const {
    store_as<C>(a.out + (line[1] + i * a.out_step) * a.out_size, a.out_dtype, x.value);
    a.index[line[2] + i * a.index_step] = x.index;
  }
};

// Calls f(element, its inclusive scan from `start` on) for elements [begin, end), one tile of the block after the
// other, and gives the scan of the last.
template <class S, class Load, class F>
__device__ __forceinline__ typename S::Value scan_range(const S& scan, typename S::Value start, int64_t begin,
                                                        int64_t end, const Load& load, const F& f) {
  using Value = typename S::Value;
  __shared__ Value shared[33];
  Value carry = start;
  for (int64_t base = begin; base < end; base += int64_t{kEach} * blockDim.x) {
    Value mine[kEach];
    const int64_t first = base + int64_t{kEach} * threadIdx.x;
#pragma unroll
    for (int e = 0; e < kEach; e++) {
      mine[e] = first + e < end ? load(first + e) : S::identity();
      if (e > 0) mine[e] = scan.combine(mine[e - 1], mine[e]);
    }
    Value before, total;
    block_scan(mine[kEach - 1], shared, S::identity(), scan.combine, before, total);
    const Value left = scan.combine(carry, before);
#pragma unroll
    for (int e = 0; e < kEach; e++)
      if (first + e < end) f(first + e, scan.combine(left, mine[e]));
    carry = scan.combine(carry, total);
  }
  return carry;
}

// A block a chunk. With `totals` only their scans' last values are found; with `starts` chunks begin from those.
template <class S>
__global__ void __launch_bounds__(kThreads)
    scan_chunks(const __grid_constant__ Args a, S scan, const typename S::Value* starts, typename S::Value* totals) {
  using Value = typename S::Value;
  for (int64_t unit = blockIdx.x; unit < a.lines * a.chunks; unit += gridDim.x) {
    const int64_t number = unit / a.chunks, begin = (unit - number * a.chunks) * a.chunk;
    int64_t line[3] = {};
    a.space.each(number, [&](int d, int64_t at) {
      line[0] += at * a.in_strides[d];
      line[1] += at * a.out_strides[d];
      line[2] += at * a.index_strides[d];
    });
    const Value last = scan_range(
        scan, starts == nullptr ? S::identity() : starts[unit], begin, min(begin + a.chunk, a.length),
        [&](int64_t i) { return scan.load(a, line, i); },
        [&](int64_t i, Value x) {
          if (totals == nullptr) scan.store(a, line, i, x);
        });
    if (totals != nullptr && threadIdx.x == 0) totals[unit] = last;
  }
}

// The totals of a line's chunks become what stands before each. A block a line.
template <class S>
__global__ void __launch_bounds__(kThreads)
    scan_totals(S scan, int64_t chunks, int64_t lines, const typename S::Value* totals, typename S::Value* starts) {
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    if (threadIdx.x == 0) starts[line * chunks] = S::identity();
    scan_range(
        scan, S::identity(), 0, chunks - 1, [&](int64_t i) { return totals[line * chunks + i]; },
        [&](int64_t i, typename S::Value x) { starts[line * chunks + i + 1] = x; });
  }
}

template <class S>
void run(Args a, const S& scan) {
  using Value = typename S::Value;
  constexpr int64_t kTile = int64_t{kThreads} * kEach;
  const cudaStream_t stream = cuda::current_stream();
  const auto blocks = [](int64_t units) { return static_cast<unsigned>(std::min<int64_t>(units, int64_t{1} << 20)); };
  const int64_t wanted = ceil_div(int64_t{cuda::multiprocessors()} * 8, std::max<int64_t>(a.lines, 1));
  const int64_t pieces = std::clamp<int64_t>(std::min(wanted, a.length / (4 * kTile)), 1, 4096);
  a.chunk = pieces > 1 ? ceil_div(ceil_div(a.length, pieces), kTile) * kTile : a.length;
  a.chunks = a.length > 0 ? ceil_div(a.length, a.chunk) : 1;
  const int64_t units = a.lines * a.chunks;
  const auto threads =
      static_cast<unsigned>(std::clamp<int64_t>(ceil_div(a.chunk, int64_t{kEach} * 32) * 32, 32, kThreads));
  if (a.chunks == 1) {
    scan_chunks<S><<<blocks(units), threads, 0, stream>>>(a, scan, nullptr, nullptr);
    return;
  }
  const Scratch memory(2 * units * static_cast<int64_t>(sizeof(Value)));
  Value *const totals = memory.get<Value>(), *const starts = totals + units;
  scan_chunks<S><<<blocks(units), threads, 0, stream>>>(a, scan, nullptr, totals);
  scan_totals<S><<<blocks(a.lines), kThreads, 0, stream>>>(scan, a.chunks, a.lines, totals, starts);
  scan_chunks<S><<<blocks(units), threads, 0, stream>>>(a, scan, starts, nullptr);
}

void scan(ScanOp op, const TensorView& output, const TensorView& input, int dim) {
  const Args a = args_of(output, nullptr, input, dim);
  const DType out = output.dtype;
  const DType compute = is_integral(out) || out == DType::Bool ? DType::I64 : compute_dtype(out);
  const auto start = [&](auto tag, auto combine) {
    run(a, Numbers<typename decltype(tag)::type, decltype(combine)>{combine});
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
      known = dispatch(compute, Types<float, double, Complex<float>, Complex<double>>{},
                       [&](auto tag) { start(tag, LogAddValues<carried_t<typename decltype(tag)::type>>()); });
      break;
  }
  if (!known) missing_kernel("scan", name_of(out));
  cuda::check_launch("launching a scan");
}

void extremum(bool max, const TensorView& values, const TensorView& indices, const TensorView& input, int dim) {
  const Args a = args_of(values, &indices, input, dim);
  const DType in = compute_dtype(input.dtype);
  const bool narrow = in == DType::Bool || (is_integral(in) && in != DType::I64);
  const auto start = [&](auto tag) {
    using C = typename decltype(tag)::type;
    run(a, Extrema<C>{Latest<C>{max}});
  };
  if (!dispatch(narrow ? DType::I64 : in, Types<float, double, int64_t>{}, start))
    missing_kernel("scan_extremum", name_of(input.dtype));
  cuda::check_launch("launching a scan");
}

MT_REGISTER_KERNEL(scan_kernel, &scan);
MT_REGISTER_KERNEL(scan_extremum_kernel, &extremum);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
