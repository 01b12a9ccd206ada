// How reductions go through memory. A reducer (reducers.cuh) says how elements are folded into an accumulator; which
// kernel folds depends on how memory runs:
//
//  rows     along the reduced dimensions: a block, or some lanes of a warp for short slices, folds a slice;
//  lines    along the kept ones: a thread folds neighbouring slices, as many as 16 bytes hold;
//  columns  the same for any type and alignment, one slice a thread.
//
// Threads keep several 16-byte loads in flight, and fold into several accumulators. With few slices several blocks
// share each, in a number that the shape alone decides: they take batches in turn, so that what is read at a time lies
// together. A second launch merges their partial results in order, so that results are the same from run to run.
#pragma once
#include "kernels/cuda/reducers.cuh"
#include "kernels/reduce_dims.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace reduction {

constexpr int kBlock = 256;
constexpr int kBlocksEach = 4;  // of a multiprocessor that share slices: as many as run at a time

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

// 16 bytes that nobody reads again soon.
template <class P>
__device__ __forceinline__ P read_once(const void* p) {
  uint32_t words[4];
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
      : "l"(p));
  P pack;
  static_assert(sizeof(pack) == sizeof(words));
  memcpy(&pack, words, sizeof(words));
  return pack;
}

// 16-byte loads that a thread keeps in flight; more where few elements come with each.
template <class S>
inline constexpr int kLoads = pack_width<S>() <= 2 ? 8 : 4;

// Calls fold(accumulators) for a few elements of storage type S: those of the thread, or a chain that is joined to
// them.
template <class R, class S, int N, class F>
__device__ __forceinline__ void fold_few(typename R::Acc (&acc)[N], const F& fold, const Params& p) {
  using C = Chain<R, S>;
  if constexpr (std::is_same_v<C, typename R::Acc>) {
    fold(acc);
  } else {
    C chain[N];
#pragma unroll
    for (int k = 0; k < N; k++) chain[k] = static_cast<C>(R::init(p));
    fold(chain);
#pragma unroll
    for (int k = 0; k < N; k++) acc[k] = R::merge(acc[k], chain[k], p);
  }
}

template <class R>
__device__ __forceinline__ typename R::Element first_of(const Args& a, const char* slice) {
  using T = typename R::Element;
  if constexpr (R::kCentred)
    if (a.extent > 0) return load_as<T>(slice, a.in_dtype);
  return T();
}

template <class R>
__device__ void finish_output(const Args& a, int64_t output, typename R::Acc acc, const Params& p) {
  char* out[2] = {a.out[0], a.out[1]};
  a.kept.each(output, [&](int d, int64_t index) {
    out[0] += index * a.kept_out[0][d];
    if (out[1] != nullptr) out[1] += index * a.kept_out[1][d];
  });
  R::finish(acc, first_of<R>(a, a.in + kept_offset(a, output)), a, out, p);
}

template <class R>
__device__ void put(const Args& a, int64_t output, int64_t segment, typename R::Acc acc, const Params& p) {
  if (a.segments == 1) {
    finish_output<R>(a, output, acc, p);
  } else {
    reinterpret_cast<typename R::Acc*>(a.partial)[output * a.segments + segment] = acc;
  }
}

// ---- Rows ----------------------------------------------------------------------------------------------------------

// `lanes` threads fold a segment of a slice of storage type S.
template <class R, class S>
__device__ typename R::Acc fold_packs(const Args& a, const char* slice, int64_t segment, int lane, int lanes,
                                      typename R::Element first, const Params& p) {
  using T = typename R::Element;
  constexpr int V = pack_width<S>(), kAccs = V < 4 ? V : 4, L = kLoads<S>;
  using Packed = Pack<S, V>;
  // A single run begins anywhere; of others all packs are aligned.
  const auto misplaced = static_cast<int>(reinterpret_cast<uintptr_t>(slice) % 16 / sizeof(S));
  const int64_t head = a.steps.single ? min(int64_t{(V - misplaced) % V}, a.extent) : 0, packs = (a.extent - head) / V;
  const S* const data = reinterpret_cast<const S*>(slice);
  typename R::Acc acc[kAccs];
#pragma unroll
  for (int k = 0; k < kAccs; k++) acc[k] = R::init(p);
  const auto load = [&](int64_t at) {
    return read_once<Packed>(reinterpret_cast<const char*>(data + head) + a.steps.offset(at));
  };
  const auto fold_pack = [&](auto& into, const Packed& pack, int64_t at) {
    const int64_t index = head + at * V;
#pragma unroll
    for (int v = 0; v < V; v++) R::fold(into[v % kAccs], convert<T>(pack.value[v]), index + v, first, p);
  };
  int64_t at = segment * L * lanes + lane;
#pragma unroll 1
  for (; at + (L - 1) * lanes < packs; at += a.segments * L * lanes) {
    Packed loaded[L];
#pragma unroll
    for (int u = 0; u < L; u++) loaded[u] = load(at + u * lanes);
    const auto fold = [&](auto& into) {
#pragma unroll
      for (int u = 0; u < L; u++) fold_pack(into, loaded[u], at + u * lanes);
    };
    fold_few<R, S>(acc, fold, p);
  }
#pragma unroll 1
  for (; at < packs; at += lanes) {
    const Packed pack = load(at);
    fold_few<R, S>(acc, [&](auto& into) { fold_pack(into, pack, at); }, p);
  }
#pragma unroll
  for (int width = kAccs / 2; width > 0; width /= 2)
#pragma unroll
    for (int k = 0; k < width; k++) acc[k] = R::merge(acc[k], acc[k + width], p);
  if (segment > 0) return acc[0];
  // What lies before and after the packs.
  typename R::Acc ends = R::init(p);
#pragma unroll 1
  for (int64_t i = lane; i < a.extent - packs * V; i += lanes) {
    const int64_t place = i < head ? i : i + packs * V;
    R::fold(ends, convert<T>(data[place]), place, first, p);
  }
  return R::merge(acc[0], ends, p);
}

// Types that are read in packs: what is folded is stored so, or as 16-bit floats.
template <class T>
inline constexpr bool kPacks = std::is_arithmetic_v<T>;

// Calls f(Tag<storage type>) for an input of one of them.
template <class T, class F>
__device__ __forceinline__ void by_storage(DType dtype, const F& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::BF16) return f(Tag<BFloat16>{});
    if (dtype == DType::F16) return f(Tag<Half>{});
  }
  f(Tag<T>{});
}

template <class R>
__device__ typename R::Acc fold_slice(const Args& a, int64_t output, int64_t segment, int lane, int lanes,
                                      const Params& p) {
  using T = typename R::Element;
  const char* const slice = a.in + kept_offset(a, output);
  const T first = first_of<R>(a, slice);
  typename R::Acc acc = R::init(p);
  if constexpr (R::kPacked && kPacks<T>)
    if (a.packed) {
      by_storage<T>(a.in_dtype, [&](auto tag) {
        acc = fold_packs<R, typename decltype(tag)::type>(a, slice, segment, lane, lanes, first, p);
      });
      return acc;
    }
  for (int64_t i = segment * lanes + lane; i < a.extent; i += a.segments * lanes)
    R::fold(acc, load_as<T>(slice + reduced_offset(a, i), a.in_dtype), i, first, p);
  return acc;
}

// Over a power of two of neighbouring lanes, 32 at most.
template <class R>
__device__ typename R::Acc merge_lanes(typename R::Acc acc, int lanes, const Params& p) {
#pragma unroll 1
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    const typename R::Acc other = shuffle_xor(acc, mask);
    const bool upper = (threadIdx.x & mask) != 0;
    acc = R::merge(upper ? other : acc, upper ? acc : other, p);
  }
  return acc;
}

// Over threadIdx.x: lanes of a warp in blocks of several lines, the whole block in others.
template <class R>
__device__ typename R::Acc merge_threads(typename R::Acc acc, const Params& p) {
  __shared__ typename R::Acc shared[kBlock / 32];
  const int warps = static_cast<int>(blockDim.x) / 32;
  acc = merge_lanes<R>(acc, min(static_cast<int>(blockDim.x), 32), p);
  if (blockDim.y > 1 || warps == 1) return acc;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = acc;
  __syncthreads();
  return merge_lanes<R>(shared[threadIdx.x % warps], warps, p);
}

// Blocks of (lanes, slices), or of one slice and whole warps.
template <class R>
__global__ void __launch_bounds__(kBlock)
    rows_kernel(const __grid_constant__ Args a, const __grid_constant__ Params p) {
  using Acc = typename R::Acc;
  const int64_t units = a.outputs * a.segments;
  for (int64_t base = blockIdx.x * int64_t{blockDim.y}; base < units; base += int64_t{gridDim.x} * blockDim.y) {
    const int64_t unit = base + threadIdx.y, output = unit / a.segments, segment = unit - output * a.segments;
    Acc acc = unit < units ? fold_slice<R>(a, output, segment, threadIdx.x, blockDim.x, p) : R::init(p);
    acc = merge_threads<R>(acc, p);
    if (threadIdx.x == 0 && unit < units) put<R>(a, output, segment, acc, p);
  }
}

// ---- Columns -------------------------------------------------------------------------------------------------------

constexpr int kColumnLines = kBlock / 32;  // threads that share a column

template <class R>
__global__ void __launch_bounds__(kBlock)
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
      const T first = first_of<R>(a, slice);
#pragma unroll 2
      for (int64_t i = segment * kColumnLines + threadIdx.y; i < a.extent; i += a.segments * kColumnLines)
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

constexpr int kHalf = kBlock / 2;

// A thread folds the V slices of a pack; the lines of a block (threadIdx.y) share them. That of pack x's slice v is
// left in shared[v * kHalf + x].
template <class R, class S>
__device__ void fold_lines(const Args& a, int64_t output, int64_t segment, typename R::Acc* shared, const Params& p) {
  using T = typename R::Element;
  using Acc = typename R::Acc;
  constexpr int V = pack_width<S>(), L = kLoads<S>;
  using Line = Pack<S, V>;
  Acc acc[V];
#pragma unroll
  for (int v = 0; v < V; v++) acc[v] = R::init(p);
  const bool inside = output < a.outputs;
  const int lines = static_cast<int>(blockDim.y);
  if (inside) {
    const char* const slice = a.in + kept_offset(a, output);
    Line first = {};
    if constexpr (R::kCentred) first = *reinterpret_cast<const Line*>(slice);
    const auto fold_line = [&](auto& into, const Line& line, int64_t i) {
#pragma unroll
      for (int v = 0; v < V; v++) R::fold(into[v], convert<T>(line.value[v]), i, convert<T>(first.value[v]), p);
    };
    const auto load = [&](int64_t i) { return read_once<Line>(slice + a.steps.offset(i)); };
    int64_t i = segment * L * lines + threadIdx.y;
#pragma unroll 1
    for (; i + (L - 1) * lines < a.extent; i += a.segments * L * lines) {
      Line loaded[L];
#pragma unroll
      for (int u = 0; u < L; u++) loaded[u] = load(i + u * lines);
      const auto fold = [&](auto& into) {
#pragma unroll
        for (int u = 0; u < L; u++) fold_line(into, loaded[u], i + u * lines);
      };
      fold_few<R, S>(acc, fold, p);
    }
#pragma unroll 1
    for (; i < a.extent; i += lines) {
      const Line line = load(i);
      fold_few<R, S>(acc, [&](auto& into) { fold_line(into, line, i); }, p);
    }
  }
  const auto line = static_cast<int>(threadIdx.y);
  for (int half = lines / 2; half > 0; half /= 2) {
    Acc* const place = shared + (line % half) * blockDim.x + threadIdx.x;
    __syncthreads();
    if (line >= half && line < 2 * half) {
#pragma unroll
      for (int v = 0; v < V; v++) place[v * kHalf] = acc[v];
    }
    __syncthreads();
    if (line < half) {
#pragma unroll
      for (int v = 0; v < V; v++) acc[v] = R::merge(acc[v], place[v * kHalf], p);
    }
  }
  __syncthreads();
  if (line == 0) {
#pragma unroll
    for (int v = 0; v < V; v++) shared[v * kHalf + threadIdx.x] = acc[v];
  }
}

// Blocks of (packs, lines); packs of `width` slices.
template <class R>
__global__ void __launch_bounds__(kBlock)
    lines_kernel(const __grid_constant__ Args a, const __grid_constant__ Params p, int width) {
  using T = typename R::Element;
  constexpr int kMost = pack_width<T>() * (std::is_same_v<T, float> ? 2 : 1);
  __shared__ typename R::Acc shared[kMost * kHalf];
  const int across = static_cast<int>(blockDim.x) * width, thread = threadIdx.y * blockDim.x + threadIdx.x;
  const int64_t tiles = (a.outputs + across - 1) / across;
  for (int64_t unit = blockIdx.x; unit < tiles * a.segments; unit += gridDim.x) {
    const int64_t segment = unit / tiles, begin = (unit - segment * tiles) * across;
    __syncthreads();
    by_storage<T>(a.in_dtype, [&](auto tag) {
      fold_lines<R, typename decltype(tag)::type>(a, begin + threadIdx.x * width, segment, shared, p);
    });
    __syncthreads();
    for (int i = thread; i < across && begin + i < a.outputs; i += kBlock)
      put<R>(a, begin + i, segment, shared[i % width * kHalf + i / width], p);
  }
}

// ---- Segments ------------------------------------------------------------------------------------------------------

// Blocks of a warp for each output, or of one output.
template <class R>
__global__ void __launch_bounds__(kBlock)
    merge_kernel(const __grid_constant__ Args a, const __grid_constant__ Params p) {
  using Acc = typename R::Acc;
  for (int64_t base = blockIdx.x * int64_t{blockDim.y}; base < a.outputs; base += int64_t{gridDim.x} * blockDim.y) {
    const int64_t output = base + threadIdx.y;
    const Acc* const partial = reinterpret_cast<const Acc*>(a.partial) + output * a.segments;
    Acc acc = R::init(p);
    if (output < a.outputs) {
#pragma unroll 4
      for (int64_t s = threadIdx.x; s < a.segments; s += blockDim.x) acc = R::merge(acc, partial[s], p);
    }
    acc = merge_threads<R>(acc, p);
    if (threadIdx.x == 0 && output < a.outputs) finish_output<R>(a, output, acc, p);
  }
}

// ---- Host ----------------------------------------------------------------------------------------------------------

inline unsigned power_of_two_from(int64_t n, unsigned most) {
  unsigned result = 1;
  while (result < n && result < most) result *= 2;
  return result;
}

inline bool all_multiples(const Dims& dims, int from, int64_t of) {
  for (int d = from; d < dims.ndim; d++)
    if (dims.in[d] % of != 0) return false;
  return true;
}

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
  const auto size = static_cast<int64_t>(size_of(a.in_dtype)), pack = 16 / size;
  const bool known =
      R::kPacked && kPacks<T> && (a.in_dtype == dtype_of<T> || (std::is_same_v<T, float> && is_half(a.in_dtype)));
  const bool aligned = reinterpret_cast<uintptr_t>(a.in) % 16 == 0;
  const bool columns = kept.ndim > 0 && (reduced.ndim == 0 || Dims::key(kept.in[0]) < Dims::key(reduced.in[0]));
  const bool two_fit = reduced.ndim < 2 || a.reduced.small;  // in the indices of Steps
  const bool lines = columns && known && aligned && reduced.ndim <= 2 && kept.in[0] == size &&
                     kept.size[0] % pack == 0 && all_multiples(kept, 1, 16) && all_multiples(reduced, 0, 16) && two_fit;
  const bool by_columns = columns && !lines && a.outputs >= 32;
  a.packed = known && reduced.ndim > 0 && reduced.ndim <= 2 && reduced.in[0] == size;
  if (a.packed && reduced.ndim == 2)  // runs of whole packs
    a.packed = aligned && reduced.size[0] % pack == 0 && all_multiples(reduced, 1, 16) && all_multiples(kept, 0, 16) &&
               two_fit;
  a.steps.single = reduced.ndim < 2;
  a.steps.inner = a.packed ? 16 : reduced.ndim > 0 ? reduced.in[0] : 0;
  if (reduced.ndim == 2 && two_fit) {
    a.steps.inner_size = Divider(static_cast<uint32_t>(a.packed ? reduced.size[0] / pack : reduced.size[0]));
    a.steps.outer = reduced.in[1];
  }

  // The shape of a block, how many slices it folds, and how many elements of one at a time.
  const int64_t sm = cuda::multiprocessors(), width = a.packed ? pack : 1;
  dim3 threads(kBlock);
  const int64_t loads = pack <= 2 ? 8 : 4;
  int64_t units = a.outputs, step = kBlock * loads * width;
  bool whole = false;  // slices are not cut
  if (lines || by_columns) {
    threads.x = lines ? power_of_two_from(a.outputs / pack, 32) : 32;
    threads.y = kBlock / threads.x;
    units = ceil_div(a.outputs, lines ? threads.x * pack : 32);
    step = int64_t{threads.y} * loads * (lines ? 1 : 8);
  } else if ((a.extent <= 1024 && a.outputs >= 32) || (a.extent <= 16384 && a.outputs >= sm * 32)) {
    // Lanes of a warp need no barrier: they take rows that are short, or so many that they fill the device.
    threads.x = std::max(power_of_two_from(ceil_div(a.extent, width), 32), 4u);
    threads.y = kBlock / threads.x;
    units = ceil_div(a.outputs, threads.y);
    whole = true;
  }
  a.segments = whole ? 1 : std::clamp<int64_t>(sm * kBlocksEach / units, 1, ceil_div(a.extent, step));
  const Scratch partial(a.segments > 1 ? a.outputs * a.segments * static_cast<int64_t>(sizeof(typename R::Acc)) : 0);
  a.partial = partial.get();
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(units * a.segments, int64_t{1} << 20));
  const cudaStream_t stream = cuda::current_stream();
  if (lines) {
    if constexpr (R::kPacked && kPacks<T>)
      lines_kernel<R><<<blocks, threads, 0, stream>>>(a, p, static_cast<int>(pack));
  } else if (by_columns) {
    columns_kernel<R><<<blocks, threads, 0, stream>>>(a, p);
  } else {
    rows_kernel<R><<<blocks, threads, 0, stream>>>(a, p);
  }
  if (a.segments > 1) {
    const bool by_warp = a.segments <= 256 && a.outputs > 1;
    const int64_t groups = by_warp ? ceil_div(a.outputs, kBlock / 32) : a.outputs;
    merge_kernel<R><<<static_cast<unsigned>(std::min<int64_t>(groups, int64_t{1} << 20)),
                      by_warp ? dim3(32, kBlock / 32) : dim3(kBlock), 0, stream>>>(a, p);
  }
  cuda::check_launch("launching the reduction", name_of(p.op));
}

}  // namespace reduction
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
