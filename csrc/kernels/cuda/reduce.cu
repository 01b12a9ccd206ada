// Reductions on CUDA. A reducer says how elements are folded into an accumulator; two kernels walk the data:
//
//  rows     memory runs along the reduced dimensions: a block, or a warp for short slices, folds a slice;
//  columns  memory runs along the kept ones: neighbouring threads fold neighbouring slices.
//
// With few slices the reduced extent is cut into segments by shape alone; the partial results are merged in order by a
// second launch. So results are the same from run to run.
#include "kernels/cuda/reducers.cuh"
#include "kernels/reduce_dims.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace reduction;

constexpr int kWarpRows = 8;      // rows of a block when a warp folds each
constexpr int kRowThreads = 512;  // threads of a block that folds one row
constexpr int kColumnLines = 8;   // threads that share a column

__device__ __forceinline__ int64_t kept_offset(const Args& a, int64_t output) {
  int64_t offset = 0;
  a.kept.each(output, [&](int d, int64_t index) { offset += index * a.kept_in[d]; });
  return offset;
}
__device__ __forceinline__ int64_t reduced_offset(const Args& a, int64_t i) {
  int64_t offset = 0;
  a.reduced.each(i, [&](int d, int64_t index) { offset += index * a.reduced_in[d]; });
  return offset;
}

template <class R>
__device__ void finish_output(const Args& a, int64_t output, typename R::Acc acc, const Params& p) {
  char* out[2] = {a.out[0], a.out[1]};
  a.kept.each(output, [&](int d, int64_t index) {
    out[0] += index * a.kept_out[0][d];
    if (out[1] != nullptr) out[1] += index * a.kept_out[1][d];
  });
  using T = typename R::Element;
  R::finish(acc, a.extent > 0 ? load_as<T>(a.in + kept_offset(a, output), a.in_dtype) : T(), a, out, p);
}

template <class R>
__device__ void put(const Args& a, int64_t output, int64_t segment, typename R::Acc acc, const Params& p) {
  if (a.segments == 1) {
    finish_output<R>(a, output, acc, p);
  } else {
    reinterpret_cast<typename R::Acc*>(a.partial)[output * a.segments + segment] = acc;
  }
}

// Segments end at multiples of 64 elements, which keeps 16-byte accesses aligned.
__device__ __forceinline__ int64_t segment_begin(const Args& a, int64_t segment) {
  if (segment == a.segments) return a.extent;
  return a.extent * segment / a.segments / 64 * 64;
}

template <class T>
inline constexpr bool kPacks = std::is_same_v<T, float> || std::is_same_v<T, bool> || std::is_same_v<T, int64_t>;

template <class R, class S>
__device__ __forceinline__ void fold_packs(typename R::Acc& acc, const char* slice, int64_t begin, int64_t end,
                                           int lane, int lanes, typename R::Element first, const Params& p) {
  using T = typename R::Element;
  constexpr int V = pack_width<S>(), kLoads = V > 4 ? 2 : 4;
  const S* data = reinterpret_cast<const S*>(slice);
  const int64_t packs = (end - begin) / V, step = int64_t{lanes} * kLoads;
  for (int64_t base = 0; base < packs; base += step) {
    Pack<S, V> loaded[kLoads];
#pragma unroll
    for (int u = 0; u < kLoads; u++) {
      const int64_t at = base + lane + u * lanes;
      if (at < packs) loaded[u] = *reinterpret_cast<const Pack<S, V>*>(data + begin + at * V);
    }
#pragma unroll
    for (int u = 0; u < kLoads; u++) {
      const int64_t at = base + lane + u * lanes;
      if (at < packs) {
#pragma unroll
        for (int v = 0; v < V; v++) R::fold(acc, convert<T>(loaded[u].value[v]), begin + at * V + v, first, p);
      }
    }
  }
  for (int64_t i = begin + packs * V + lane; i < end; i += lanes) R::fold(acc, convert<T>(data[i]), i, first, p);
}

template <class R>
__device__ typename R::Acc fold_slice(const Args& a, int64_t output, int64_t segment, int lane, int lanes,
                                      const Params& p) {
  using T = typename R::Element;
  const char* slice = a.in + kept_offset(a, output);
  const T first = a.extent > 0 ? load_as<T>(slice, a.in_dtype) : T();
  const int64_t begin = segment_begin(a, segment), end = segment_begin(a, segment + 1);
  typename R::Acc acc = R::init(p);
  if constexpr (kPacks<T>)
    if (a.packed) {
      if (a.in_dtype == dtype_of<T>) {
        fold_packs<R, T>(acc, slice, begin, end, lane, lanes, first, p);
        return acc;
      }
      if constexpr (std::is_same_v<T, float>) {
        if (a.in_dtype == DType::BF16) {
          fold_packs<R, BFloat16>(acc, slice, begin, end, lane, lanes, first, p);
        } else {
          fold_packs<R, Half>(acc, slice, begin, end, lane, lanes, first, p);
        }
        return acc;
      }
    }
  for (int64_t i = begin + lane; i < end; i += lanes)
    R::fold(acc, load_as<T>(slice + reduced_offset(a, i), a.in_dtype), i, first, p);
  return acc;
}

template <class R>
__global__ void __launch_bounds__(kRowThreads)
    rows_kernel(const __grid_constant__ Args a, const __grid_constant__ Params p) {
  using Acc = typename R::Acc;
  __shared__ Acc shared[32];
  const auto merge = [&](const Acc& x, const Acc& y) { return R::merge(x, y, p); };
  const int64_t units = a.outputs * a.segments;
  for (int64_t unit = blockIdx.x * int64_t{blockDim.y} + threadIdx.y; unit < units;
       unit += int64_t{gridDim.x} * blockDim.y) {
    const int64_t output = unit / a.segments, segment = unit % a.segments;
    const Acc mine = fold_slice<R>(a, output, segment, threadIdx.x, blockDim.x, p);
    const Acc acc = blockDim.y > 1 ? warp_reduce(mine, merge) : block_reduce(mine, shared, R::init(p), merge);
    if (threadIdx.x == 0) put<R>(a, output, segment, acc, p);
  }
}

template <class R>
__global__ void __launch_bounds__(32 * kColumnLines)
    columns_kernel(const __grid_constant__ Args a, const __grid_constant__ Params p) {
  using T = typename R::Element;
  using Acc = typename R::Acc;
  __shared__ Acc shared[kColumnLines][33];
  const int64_t tiles = (a.outputs + 31) / 32;
  for (int64_t unit = blockIdx.x; unit < tiles * a.segments; unit += gridDim.x) {
    const int64_t output = unit % tiles * 32 + threadIdx.x, segment = unit / tiles;
    Acc acc = R::init(p);
    if (output < a.outputs) {
      const char* slice = a.in + kept_offset(a, output);
      const T first = a.extent > 0 ? load_as<T>(slice, a.in_dtype) : T();
      const int64_t end = segment_begin(a, segment + 1);
#pragma unroll 2
      for (int64_t i = segment_begin(a, segment) + threadIdx.y; i < end; i += kColumnLines)
        R::fold(acc, load_as<T>(slice + reduced_offset(a, i), a.in_dtype), i, first, p);
    }
    __syncthreads();
    shared[threadIdx.y][threadIdx.x] = acc;
    __syncthreads();
    if (threadIdx.y == 0 && output < a.outputs) {
      for (int line = 1; line < kColumnLines; line++) acc = R::merge(acc, shared[line][threadIdx.x], p);
      put<R>(a, output, segment, acc, p);
    }
  }
}

// The same where both the kept and the reduced elements follow each other with one stride: a thread takes kAcross
// neighbouring slices, and four of their elements at a time.
constexpr int kAcross = 4;

template <class R, class S>
__device__ __forceinline__ void fold_lines(typename R::Acc (&acc)[kAcross], const Args& a, int64_t output,
                                           int64_t begin, int64_t end, const Params& p) {
  using T = typename R::Element;
  using Line = Pack<S, kAcross>;
  constexpr int kLoads = 4;
  const char* slice = a.in + output * static_cast<int64_t>(sizeof(S));
  const int64_t pitch = a.reduced_in[0];
  const Line first = *reinterpret_cast<const Line*>(slice);
  for (int64_t i = begin + threadIdx.y; i < end; i += kColumnLines * kLoads) {
    Line loaded[kLoads];
#pragma unroll
    for (int u = 0; u < kLoads; u++)
      if (i + u * kColumnLines < end)
        loaded[u] = *reinterpret_cast<const Line*>(slice + (i + u * kColumnLines) * pitch);
#pragma unroll
    for (int u = 0; u < kLoads; u++)
      if (i + u * kColumnLines < end) {
#pragma unroll
        for (int v = 0; v < kAcross; v++)
          R::fold(acc[v], convert<T>(loaded[u].value[v]), i + u * kColumnLines, convert<T>(first.value[v]), p);
      }
  }
}

template <class R>
__global__ void __launch_bounds__(32 * kColumnLines)
    lines_kernel(const __grid_constant__ Args a, const __grid_constant__ Params p) {
  using T = typename R::Element;
  using Acc = typename R::Acc;
  __shared__ Acc shared[kColumnLines][32 * kAcross];
  const int64_t tiles = (a.outputs + 32 * kAcross - 1) / (32 * kAcross);
  for (int64_t unit = blockIdx.x; unit < tiles * a.segments; unit += gridDim.x) {
    const int64_t segment = unit / tiles, tile = unit - segment * tiles;
    const int64_t output = (tile * 32 + threadIdx.x) * kAcross;
    Acc acc[kAcross];
#pragma unroll
    for (int v = 0; v < kAcross; v++) acc[v] = R::init(p);
    if (output < a.outputs) {
      const int64_t begin = segment_begin(a, segment), end = segment_begin(a, segment + 1);
      if (a.in_dtype == dtype_of<T>) {
        fold_lines<R, T>(acc, a, output, begin, end, p);
      } else if constexpr (std::is_same_v<T, float>) {
        if (a.in_dtype == DType::BF16) {
          fold_lines<R, BFloat16>(acc, a, output, begin, end, p);
        } else {
          fold_lines<R, Half>(acc, a, output, begin, end, p);
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < kAcross; v++) shared[threadIdx.y][threadIdx.x * kAcross + v] = acc[v];
    __syncthreads();
    const int column = static_cast<int>(threadIdx.y * 32 + threadIdx.x);
    if (column < 32 * kAcross && tile * 32 * kAcross + column < a.outputs) {
      Acc sum = shared[0][column];
      for (int line = 1; line < kColumnLines; line++) sum = R::merge(sum, shared[line][column], p);
      put<R>(a, tile * 32 * kAcross + column, segment, sum, p);
    }
  }
}

template <class R>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(const __grid_constant__ Args a, const __grid_constant__ Params p) {
  using Acc = typename R::Acc;
  const Acc* partial = reinterpret_cast<const Acc*>(a.partial);
  const auto merge = [&](const Acc& x, const Acc& y) { return R::merge(x, y, p); };
  const int64_t warps = int64_t{gridDim.x} * (kThreads / 32);
  for (int64_t output = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32; output < a.outputs; output += warps) {
    Acc acc = R::init(p);
    for (int64_t s = threadIdx.x % 32; s < a.segments; s += 32)
      acc = R::merge(acc, partial[output * a.segments + s], p);
    acc = warp_reduce(acc, merge);
    if (threadIdx.x % 32 == 0) finish_output<R>(a, output, acc, p);
  }
}

// ---- Host ----------------------------------------------------------------------------------------------------------

template <class R>
void run(const PointwiseView& v, const Params& p) {
  using T = typename R::Element;
  const int input = v.num_operands - 1;
  Dims kept{}, reduced{};
  for (int d = 0; d < v.ndim; d++) {
    if (v.sizes[d] == 1) continue;
    Dims& dims = v.strides[0][d] == 0 ? reduced : kept;
    dims.add(v, d);
  }
  Args a{};
  a.outputs = kept.numel;
  a.extent = reduced.numel;
  a.kept = Space(kept.ndim, kept.size, kept.numel);
  a.reduced = Space(reduced.ndim, reduced.size, reduced.numel);
  for (int d = 0; d < kept.ndim; d++) {
    a.kept_in[d] = kept.in[d];
    a.kept_out[0][d] = kept.out[0][d];
    a.kept_out[1][d] = kept.out[1][d];
  }
  for (int d = 0; d < reduced.ndim; d++) a.reduced_in[d] = reduced.in[d];
  a.in = v.data[input];
  a.in_dtype = v.dtype[input];
  for (int k = 0; k < v.num_outputs; k++) {
    a.out[k] = v.data[k];
    a.out_dtype[k] = v.dtype[k];
  }
  const auto size = static_cast<int64_t>(size_of(a.in_dtype));
  const bool known = a.in_dtype == dtype_of<T> || (std::is_same_v<T, float> && is_half(a.in_dtype));
  a.packed = known && reduced.ndim == 1 && reduced.in[0] == size && reinterpret_cast<uintptr_t>(a.in) % 16 == 0;
  for (int d = 0; d < kept.ndim; d++) a.packed = a.packed && kept.in[d] % 16 == 0;

  const bool columns =
      kept.ndim > 0 && a.outputs >= 32 && (reduced.ndim == 0 || Dims::key(kept.in[0]) < Dims::key(reduced.in[0]));
  const int64_t sm = cuda::multiprocessors();
  // Warps need no barrier: they take the rows that are short, and rows so many that they fill the device.
  const bool by_warp =
      !columns && ((a.extent <= 1024 && a.outputs >= 32) || (a.extent <= 16384 && a.outputs >= sm * 32));
  const bool lines = columns && kPacks<T> && known && a.extent > 0 && kept.ndim == 1 && reduced.ndim == 1 &&
                     kept.in[0] == size && a.outputs % kAcross == 0 && reduced.in[0] % (size * kAcross) == 0 &&
                     reinterpret_cast<uintptr_t>(a.in) % (static_cast<uintptr_t>(size) * kAcross) == 0;
  const int64_t units = lines     ? ceil_div(a.outputs, 32 * kAcross)
                        : columns ? ceil_div(a.outputs, 32)
                        : by_warp ? ceil_div(a.outputs, kWarpRows)
                                  : a.outputs;
  const int64_t least = columns ? 256 : 4 * kRowThreads * 4;  // elements that make a segment worth its merge
  a.segments = 1;
  if (!by_warp && units < sm * 4)
    a.segments = std::clamp<int64_t>(std::min(ceil_div(sm * 8, units), a.extent / least), 1, 1024);
  const Scratch partial(a.segments > 1 ? a.outputs * a.segments * static_cast<int64_t>(sizeof(typename R::Acc)) : 0);
  a.partial = partial.get();
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(units * a.segments, int64_t{1} << 20));
  const cudaStream_t stream = cuda::current_stream();
  if (lines) {
    if constexpr (kPacks<T>) lines_kernel<R><<<blocks, dim3(32, kColumnLines), 0, stream>>>(a, p);
  } else if (columns) {
    columns_kernel<R><<<blocks, dim3(32, kColumnLines), 0, stream>>>(a, p);
  } else if (by_warp) {
    rows_kernel<R><<<blocks, dim3(32, kWarpRows), 0, stream>>>(a, p);
  } else {
    const int64_t threads = std::clamp<int64_t>(ceil_div(a.extent, 4 * 32) * 32, 32, kRowThreads);
    rows_kernel<R><<<blocks, static_cast<unsigned>(threads), 0, stream>>>(a, p);
  }
  if (a.segments > 1) merge_kernel<R><<<grid_for(a.outputs * 32), kThreads, 0, stream>>>(a, p);
  cuda::check_launch("launching a reduction");
}

template <template <class> class R, class... T>
bool run_for(DType compute, Types<T...> types, const PointwiseView& v, const Params& p) {
  return dispatch(compute, types, [&](auto tag) { run<R<typename decltype(tag)::type>>(v, p); });
}

bool dispatch_op(ReduceOp op, const PointwiseView& v, const Params& p) {
  const DType out = v.dtype[0], in = compute_dtype(v.compute);
  const DType sum = is_integral(out) || out == DType::Bool ? DType::I64 : compute_dtype(out);
  using All = Types<float, double, int64_t, Complex<float>, Complex<double>>;
  switch (op) {
    case ReduceOp::sum: return run_for<SumReducer>(sum, All{}, v, p);
    case ReduceOp::mean: return !is_integral(sum) && run_for<SumReducer>(sum, All{}, v, p);
    case ReduceOp::nansum: return (sum == DType::F32 || sum == DType::F64) && run_for<SumReducer>(sum, All{}, v, p);
    case ReduceOp::prod: return run_for<ProdReducer>(sum, All{}, v, p);
    case ReduceOp::count_nonzero:
    case ReduceOp::any:
    case ReduceOp::all: run<CountReducer>(v, p); return true;
    case ReduceOp::norm:
    case ReduceOp::power_sum:
      return run_for<NormReducer>(in, Types<float, double, Complex<float>, Complex<double>>{}, v, p);
    case ReduceOp::var:
    case ReduceOp::std: return run_for<MomentReducer>(in, FloatTypes{}, v, p);
    default: break;
  }
  const bool narrow = in == DType::Bool || in == DType::U8 || in == DType::I8 || in == DType::I16;
  const DType ordered = narrow ? DType::I32 : in;
  using Ordered = Types<float, double, int32_t, int64_t>;
  if (op == ReduceOp::aminmax) return run_for<AminmaxReducer>(ordered, Ordered{}, v, p);
  return run_for<ExtremumReducer>(ordered, Ordered{}, v, p);
}

void reduce(ReduceOp op, const PointwiseView& v, const ReduceParams& params) {
  const Params p{op, params.p, params.correction};
  if (!dispatch_op(op, v, p)) missing_kernel(reduce_kernel.name(), name_of(v.dtype[v.num_operands - 1]));
}

MT_REGISTER_KERNEL(reduce_kernel, &reduce);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
