// Copies, casts and fills of any layout on CUDA.
#include "kernels/cuda/launch.cuh"
#include "kernels/pointwise.h"
#include "kernels/shape.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct CopyArgs {
  int64_t numel;
  Space space;
  int64_t to_strides[kCudaDims], from_strides[kCudaDims];
  char* to;
  const char* from;  // null: the value is in host_value
  DType dtype;       // of `from`
  alignas(16) char host_value[16];
};

__device__ __forceinline__ void addresses(const CopyArgs& a, int64_t i, char*& to, const char*& from) {
  to = a.to;
  from = a.from == nullptr ? a.host_value : a.from;
  a.space.each(i, [&](int d, int64_t index) {
    to += index * a.to_strides[d];
    from += index * a.from_strides[d];
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) move_kernel(const __grid_constant__ CopyArgs a) {
  MT_GRID_LOOP(i, a.numel) {
    char* to;
    const char* from;
    addresses(a, i, to, from);
    *reinterpret_cast<T*>(to) = *reinterpret_cast<const T*>(from);
  }
}

template <class To>
__global__ void __launch_bounds__(kThreads) cast_kernel(const __grid_constant__ CopyArgs a) {
  MT_GRID_LOOP(i, a.numel) {
    char* to;
    const char* from;
    addresses(a, i, to, from);
    *reinterpret_cast<To*>(to) = load_any<To>(from, a.dtype);
  }
}

// Between dense, aligned operands of floating types: 16 bytes a load or a store, whichever is wider.
template <class To, class From>
__global__ void __launch_bounds__(kThreads) cast_kernel_dense(To* to, const From* from, int64_t n) {
  constexpr int V = std::min(pack_width<To>(), pack_width<From>()), kUnroll = 4;
  const int64_t base = (blockIdx.x * int64_t{kThreads} * kUnroll + threadIdx.x) * V;
  Pack<From, V> packs[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; u++) {
    const int64_t i = base + u * int64_t{kThreads} * V;
    if (i + V <= n) packs[u] = *reinterpret_cast<const Pack<From, V>*>(from + i);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; u++) {
    const int64_t i = base + u * int64_t{kThreads} * V;
    if (i + V <= n) {
      Pack<To, V> out;
#pragma unroll
      for (int v = 0; v < V; v++) out.value[v] = convert<To>(packs[u].value[v]);
      *reinterpret_cast<Pack<To, V>*>(to + i) = out;
    } else {
      for (int64_t j = i; j < n; j++) to[j] = convert<To>(from[j]);
    }
  }
}

bool try_cast_dense(const PointwiseView& v) {
  const bool flat = v.ndim == 1 && v.strides[0][0] == static_cast<int64_t>(size_of(v.dtype[0])) &&
                    v.strides[1][0] == static_cast<int64_t>(size_of(v.dtype[1]));
  if (!flat || v.host_operands != 0 ||
      (reinterpret_cast<uintptr_t>(v.data[0]) | reinterpret_cast<uintptr_t>(v.data[1])) % 16)
    return false;
  using Casts = Types<float, Half, BFloat16>;
  return dispatch(v.dtype[0], Casts{}, [&](auto to) { (void)to; }) && dispatch(v.dtype[1], Casts{}, [&](auto from) {
           dispatch(v.dtype[0], Casts{}, [&](auto to) {
             using To = typename decltype(to)::type;
             using From = typename decltype(from)::type;
             if constexpr (!std::is_same_v<To, From>) {
               constexpr int64_t elements = std::min(pack_width<To>(), pack_width<From>()) * 4 * kThreads;
               cast_kernel_dense<To, From>
                   <<<static_cast<unsigned>(ceil_div(v.numel, elements)), kThreads, 0, cuda::current_stream()>>>(
                       reinterpret_cast<To*>(v.data[0]), reinterpret_cast<const From*>(v.data[1]), v.numel);
             }
           });
         });
}

// Where elements follow each other along dimension 0 of the result and along another one of the source, tiles are read
// along the one and written along the other. The other dimensions are walked tile by tile.
constexpr int kTileSide = 32, kTileLines = 8;

struct TransposeArgs {
  int64_t width, height, to_pitch, from_pitch;  // result: (height, width) rows; source: columns. Pitches in bytes
  int64_t tiles_across, tiles_down, tiles;
  Space outer;
  int64_t to_strides[kCudaDims], from_strides[kCudaDims];
  char* to;
  const char* from;
};

template <class T>
__global__ void __launch_bounds__(kTileSide* kTileLines) transpose_kernel(const __grid_constant__ TransposeArgs a) {
  __shared__ T tile[kTileSide][kTileSide + 1];
  for (int64_t t = blockIdx.x; t < a.tiles; t += gridDim.x) {
    const int64_t row = t / a.tiles_across, x0 = (t - row * a.tiles_across) * kTileSide;
    const int64_t slice = row / a.tiles_down, y0 = (row - slice * a.tiles_down) * kTileSide;
    char* to = a.to;
    const char* from = a.from;
    a.outer.each(slice, [&](int d, int64_t index) {
      to += index * a.to_strides[d];
      from += index * a.from_strides[d];
    });
    T held[kTileSide / kTileLines];
#pragma unroll
    for (int e = 0; e < kTileSide / kTileLines; e++) {
      const int64_t x = x0 + threadIdx.y + e * kTileLines, y = y0 + threadIdx.x;
      if (x < a.width && y < a.height)
        held[e] = *reinterpret_cast<const T*>(from + x * a.from_pitch + y * int64_t{sizeof(T)});
    }
#pragma unroll
    for (int e = 0; e < kTileSide / kTileLines; e++) tile[threadIdx.y + e * kTileLines][threadIdx.x] = held[e];
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kTileSide / kTileLines; e++) {
      const int64_t x = x0 + threadIdx.x, y = y0 + threadIdx.y + e * kTileLines;
      if (x < a.width && y < a.height)
        *reinterpret_cast<T*>(to + y * a.to_pitch + x * int64_t{sizeof(T)}) =
            tile[threadIdx.x][threadIdx.y + e * kTileLines];
    }
    __syncthreads();
  }
}

bool try_transpose(const PointwiseView& v) {
  const auto size = static_cast<int64_t>(size_of(v.dtype[0]));
  if (v.ndim < 2 || v.host_operands != 0 || v.strides[0][0] != size || v.sizes[0] < 16) return false;
  int across = 1;
  while (across < v.ndim && (v.strides[1][across] != size || v.sizes[across] < 16)) across++;
  if (across == v.ndim) return false;
  TransposeArgs a;
  a.width = v.sizes[0], a.height = v.sizes[across];
  a.to_pitch = v.strides[0][across], a.from_pitch = v.strides[1][0];
  a.to = v.data[0], a.from = v.data[1];
  int64_t sizes[kMaxDims], slices = 1;
  int outer = 0;
  for (int d = 1; d < v.ndim; d++) {
    if (d == across) continue;
    if (outer == kCudaDims) return false;
    sizes[outer] = v.sizes[d];
    a.to_strides[outer] = v.strides[0][d];
    a.from_strides[outer] = v.strides[1][d];
    slices *= v.sizes[d];
    outer++;
  }
  a.outer = Space(outer, sizes, slices);
  a.tiles_across = ceil_div(a.width, kTileSide);
  a.tiles_down = ceil_div(a.height, kTileSide);
  a.tiles = a.tiles_across * a.tiles_down * slices;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(a.tiles, int64_t{1} << 20));
  by_size(static_cast<size_t>(size), [&](auto tag) {
    transpose_kernel<typename decltype(tag)::type>
        <<<blocks, dim3(kTileSide, kTileLines), 0, cuda::current_stream()>>>(a);
  });
  return true;
}

// One value everywhere in dense memory, 16 bytes a store.
__global__ void __launch_bounds__(kThreads) fill_kernel_dense(char* to, int64_t bytes, Bytes16 pattern) {
  MT_GRID_LOOP(i, bytes / 16) reinterpret_cast<Bytes16*>(to)[i] = pattern;
  if (blockIdx.x == 0 && threadIdx.x < bytes % 16) {
    const int64_t at = bytes / 16 * 16 + threadIdx.x;
    const uint64_t half = threadIdx.x < 8 ? pattern.low : pattern.high;
    to[at] = static_cast<char>(half >> (threadIdx.x % 8 * 8));
  }
}

CopyArgs copy_args(const PointwiseView& v) {
  CopyArgs a;
  a.numel = v.numel;
  a.space = Space(v.ndim, v.sizes, v.numel);
  for (int d = 0; d < v.ndim; d++) {
    a.to_strides[d] = v.strides[0][d];
    a.from_strides[d] = v.strides[1][d];
  }
  a.to = v.data[0];
  a.from = v.data[1];
  a.dtype = v.dtype[1];
  if (v.host_operands >> 1 & 1) {
    memcpy(a.host_value, v.data[1], size_of(v.dtype[1]));
    a.from = nullptr;
  }
  return a;
}

void move(const PointwiseView& v) {
  const CopyArgs a = copy_args(v);
  by_size(size_of(v.dtype[0]), [&](auto tag) {
    move_kernel<typename decltype(tag)::type><<<grid_for(v.numel), kThreads, 0, cuda::current_stream()>>>(a);
  });
}

void copy(const PointwiseView& v) {
  if (v.numel == 0) return;
  const auto size = static_cast<int64_t>(size_of(v.dtype[0]));
  const bool same = v.dtype[0] == v.dtype[1];
  const bool flat = v.ndim == 0 || (v.ndim == 1 && v.strides[0][0] == size && v.strides[1][0] == size);
  if (same && flat && v.host_operands == 0) {
    cuda::check(cudaMemcpyAsync(v.data[0], v.data[1], v.numel * size, cudaMemcpyDeviceToDevice, cuda::current_stream()),
                "copying memory");
    return;
  }
  if (same) {
    if (!try_transpose(v)) move(v);
  } else if (!try_cast_dense(v)) {
    const CopyArgs a = copy_args(v);
    switch (v.dtype[0]) {
#define MT_CASE(D, T) \
  case DType::D: cast_kernel<T><<<grid_for(v.numel), kThreads, 0, cuda::current_stream()>>>(a); break;
      MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
    }
  }
  cuda::check_launch("launching a copy");
}

void flip(const PointwiseView& v) {
  if (v.numel == 0) return;
  move(v);
  cuda::check_launch("launching a flip");
}

// A float beyond the range of int32, or NaN, fills it with the smallest number, as on the CPU. Left to the host's
// compiler, it is the low half of the conversion to 64 bits.
Scalar within_int32(const Scalar& value) {
  constexpr double kEnd = 2147483648.0;
  const bool fits = value.kind == Scalar::Kind::Int || (value.d > -kEnd - 1 && value.d < kEnd);
  return fits ? value : Scalar(int64_t{std::numeric_limits<int32_t>::min()});
}

void fill(const PointwiseView& v, const Scalar& given) {
  if (v.numel == 0) return;
  const Scalar value = v.dtype[0] == DType::I32 ? within_int32(given) : given;
  alignas(16) char element[16] = {};
  switch (v.dtype[0]) {
#define MT_CASE(D, T)                                       \
  case DType::D: {                                          \
    const compute_t<T> computed = value.to<compute_t<T>>(); \
    const T x = convert<T>(computed);                       \
    memcpy(element, &x, sizeof(x));                         \
    break;                                                  \
  }
    MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
  }
  const auto size = static_cast<int64_t>(size_of(v.dtype[0]));
  const bool flat = v.ndim == 0 || (v.ndim == 1 && (v.strides[0][0] == size || v.sizes[0] == 1));
  if (flat && reinterpret_cast<uintptr_t>(v.data[0]) % 16 == 0) {
    Bytes16 pattern;
    for (size_t at = 0; at < 16; at += size) memcpy(reinterpret_cast<char*>(&pattern) + at, element, size);
    const int64_t bytes = v.numel * size;
    fill_kernel_dense<<<grid_for(bytes / 16), kThreads, 0, cuda::current_stream()>>>(v.data[0], bytes, pattern);
  } else {
    PointwiseView both = v;
    both.num_operands = 2;
    both.data[1] = element;
    both.dtype[1] = v.dtype[0];
    both.host_operands = 2;
    for (int d = 0; d < v.ndim; d++) both.strides[1][d] = 0;
    move(both);
  }
  cuda::check_launch("launching a fill");
}

MT_REGISTER_KERNEL(copy_kernel, &copy);
MT_REGISTER_KERNEL(fill_kernel, &fill);
MT_REGISTER_KERNEL(flip_kernel, &flip);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
