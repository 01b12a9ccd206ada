// Layer norm and RMS norm on CUDA. Rows of floats that fit in the registers of a block or a warp are read only once;
// for other rows sums come first, then a pass that applies them.
#include "kernels/norm.h"

#include "kernels/cuda/norm.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// ---- Layer norm ----------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(512) layer_norm_rows(const __grid_constant__ LayerNormArgs a) {
  __shared__ Pair shared[32];
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const int64_t base = r * a.cols;
    const T first = a.centered ? read<T>(a.x, a.dtype, base, T(0)) : T(0);
    const double centre = isfinite(first) ? static_cast<double>(first) : 0.0;
    Pair sums{0, 0};
    for (int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
      const double d = static_cast<double>(read<T>(a.x, a.dtype, base + i, T(0))) - centre;
      sums.a += d;
      sums.b += d * d;
    }
    sums = block_reduce(sums, shared, Pair{0, 0}, AddPairs());
    const double n = static_cast<double>(a.cols), shift = a.centered ? sums.a / n : 0.0;
    double variance = sums.b / n - shift * shift;
    variance = variance < 0 ? 0 : variance;
    const T mean = static_cast<T>(centre + shift), rstd = static_cast<T>(1 / ::sqrt(variance + a.eps));
    if (threadIdx.x == 0) {
      if (a.centered) write<T>(a.mean, a.stat_dtype, r, mean);
      write<T>(a.rstd, a.stat_dtype, r, rstd);
    }
    for (int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
      const T x = read<T>(a.x, a.dtype, base + i, T(0));
      const T w = read<T>(a.weight, a.param_dtype, i, T(1)), b = read<T>(a.bias, a.param_dtype, i, T(0));
      write<T>(a.y, a.dtype, base + i, (x - mean) * rstd * w + b);
    }
  }
}

// Statistics that are stored as the rows are, or as float.
template <class S>
__device__ __forceinline__ float read_plain(const void* p, DType dtype, int64_t i) {
  return dtype == DType::F32 ? static_cast<const float*>(p)[i] : convert<float>(static_cast<const S*>(p)[i]);
}
template <class S>
__device__ __forceinline__ void write_plain(void* p, DType dtype, int64_t i, float value) {
  if (p == nullptr) return;
  if (dtype == DType::F32) {
    static_cast<float*>(p)[i] = value;
  } else {
    static_cast<S*>(p)[i] = convert<S>(value);
  }
}

// The mean of a row and the sum of the squares of what is left, both in two passes over registers: each warp takes its
// own mean, and the warps' results are merged (T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample
// variance", 1983), so that a block waits once. The squares of several warps are added in double, for whose rounding
// every element of the row would pay. `shared` is not the one of the row before.
template <class S, int N>
__device__ __forceinline__ FloatPair row_moments(rows::Row<S, N>& row, int cols, bool centered, FloatPair* shared) {
  constexpr int V = pack_width<S>();
  const int warp = blockDim.y > 1 ? 0 : static_cast<int>(threadIdx.x) / 32;
  const int warps = blockDim.y > 1 ? 1 : static_cast<int>(blockDim.x) / 32;
  const auto count_of = [&](int w) {
    int count = 0;
#pragma unroll
    for (int u = 0; u < N; u++) count += min(max(cols - (w * 32 + u * static_cast<int>(blockDim.x)) * V, 0), 32 * V);
    return static_cast<float>(count);
  };
  float mean = 0, squares[2] = {0, 0};
  if (centered) {
    float sums[2] = {0, 0};
    row.each(cols, [&](float x, int, int v, int) { sums[v % 2] += x; });
    mean = warp_reduce(sums[0] + sums[1], Sum()) / (warps == 1 ? static_cast<float>(cols) : count_of(warp));
  }
  row.each(cols, [&](float x, int, int v, int) { squares[v % 2] += (x - mean) * (x - mean); });
  const FloatPair mine{mean, warp_reduce(squares[0] + squares[1], Sum())};
  if (warps == 1) return mine;
  if (threadIdx.x % 32 == 0) shared[warp] = mine;
  __syncthreads();
  float shift = 0;
  for (int w = 1; w < warps; w++) shift += (shared[w].a - shared[0].a) * count_of(w);
  mean = shared[0].a + shift / static_cast<float>(cols);
  double sum = 0;
  for (int w = 0; w < warps; w++) {
    shift = shared[w].a - mean;
    sum += shared[w].b + shift * shift * count_of(w);
  }
  return {mean, static_cast<float>(sum)};
}

// The same for rows that fit in registers, N packs a thread, in float.
template <class S, int N>
__global__ void __launch_bounds__(1024) layer_norm_registers(const __grid_constant__ LayerNormArgs a) {
  __shared__ FloatPair shared[2][32];
  const int cols = static_cast<int>(a.cols);
  bool odd = false;
  rows::for_each(a.rows, [&](int64_t r) {
    rows::Row<S, N> row;
    row.load(a.x, r * a.cols, cols);
    const FloatPair moments = row_moments(row, cols, a.centered, shared[odd]);
    odd = !odd;
    const float mean = moments.a;
    const float rstd = __frsqrt_rn(moments.b / static_cast<float>(cols) + static_cast<float>(a.eps));
    if (threadIdx.x == 0) {
      if (a.centered) write_plain<S>(a.mean, a.stat_dtype, r, mean);
      write_plain<S>(a.rstd, a.stat_dtype, r, rstd);
    }
    constexpr int V = pack_width<S>();
    row.each_pack(cols, [&](float (&x)[V], int, int at) {
      float weight[V], bias[V];
      rows::parameters<S>(weight, a.weight, a.param_dtype, at, 1.0f);
      rows::parameters<S>(bias, a.bias, a.param_dtype, at, 0.0f);
#pragma unroll
      for (int v = 0; v < V; v++) x[v] = (x[v] - mean) * rstd * weight[v] + bias[v];
    });
    row.store(a.y, r * a.cols, cols);
  });
}

// Whether kernels that compute in float and read packs serve: what accompanies the rows is stored as they are, or as
// float.
template <class A>
bool plain(const A& a, std::initializer_list<const void*> pointers) {
  const auto known = [&](DType dtype) { return dtype == a.dtype || dtype == DType::F32; };
  return a.dtype != DType::F64 && known(a.param_dtype) && known(a.stat_dtype) && rows::aligned(pointers);
}

bool try_layer_norm(const LayerNormArgs& a) {
  const auto size = static_cast<int64_t>(size_of(a.dtype));
  if (!plain(a, {a.x, a.y, a.weight, a.bias}) || !rows::fits(a.cols, size)) return false;
  return dispatch(a.dtype, Types<float, BFloat16, Half>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    constexpr int kFew = 16 / pack_width<S>();  // sixteen elements a thread leave room for many threads
    const bool few = rows::fits(a.cols, size, kFew);
    const rows::Grid grid = rows::grid_for_rows(a.rows, a.cols, size, few ? kFew : rows::kPacks);
    (few ? &layer_norm_registers<S, kFew>
         : &layer_norm_registers<S, rows::kPacks>)<<<grid.blocks, grid.threads, 0, cuda::current_stream()>>>(a);
  });
}

void layer_norm(const LayerNormArgs& a) {
  if (a.rows * a.cols == 0) return;
  if (try_layer_norm(a)) return cuda::check_launch("launching a layer norm");
  by_compute("layer_norm", a.dtype, [&](auto tag) {
    layer_norm_rows<typename decltype(tag)::type>
        <<<blocks_for(a.rows), threads_for(a.cols), 0, cuda::current_stream()>>>(a);
  });
  cuda::check_launch("launching a layer norm");
}

// With g = dy * weight and xhat the normalised row: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)).
template <class T>
__global__ void __launch_bounds__(512) layer_norm_dx(const __grid_constant__ LayerNormBackwardArgs a) {
  __shared__ Pair shared[32];
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const int64_t base = r * a.cols;
    const T mean = a.centered ? read<T>(a.mean, a.stat_dtype, r, T(0)) : T(0);
    const T rstd = read<T>(a.rstd, a.stat_dtype, r, T(1));
    const auto g_at = [&](int64_t i) {
      return read<T>(a.dy, a.dtype, base + i, T(0)) * read<T>(a.weight, a.param_dtype, i, T(1));
    };
    const auto xhat_at = [&](int64_t i) { return (read<T>(a.x, a.dtype, base + i, T(0)) - mean) * rstd; };
    Pair sums{0, 0};
    for (int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
      const T g = g_at(i);
      sums.a += static_cast<double>(g);
      sums.b += static_cast<double>(g * xhat_at(i));
    }
    sums = block_reduce(sums, shared, Pair{0, 0}, AddPairs());
    const double n = static_cast<double>(a.cols);
    const T c0 = a.centered ? static_cast<T>(sums.a / n) : T(0), c1 = static_cast<T>(sums.b / n);
    for (int64_t i = threadIdx.x; i < a.cols; i += blockDim.x)
      write<T>(a.dx, a.dtype, base + i, (g_at(i) - c0 - xhat_at(i) * c1) * rstd);
  }
}

template <class S>
__global__ void __launch_bounds__(1024) layer_norm_dx_registers(const __grid_constant__ LayerNormBackwardArgs a) {
  __shared__ float shared[2][32];
  const float n = static_cast<float>(a.cols);
  rows::for_each(a.rows, [&](int64_t r) {
    const float mean = a.centered ? read_plain<S>(a.mean, a.stat_dtype, r) : 0.0f;
    const float rstd = read_plain<S>(a.rstd, a.stat_dtype, r);
    rows::Packs<S> dy, x;  // as stored: two rows of 16-bit floats as floats would not fit
    dy.load(a.dy, r * a.cols, a.cols);
    x.load(a.x, r * a.cols, a.cols);
    constexpr int V = rows::Packs<S>::V;
    const auto normalised = [&](int u, int v) { return (convert<float>(x.packs[u].value[v]) - mean) * rstd; };
    // f(g, element, pack's number, place in the pack) with g = dy * weight.
    const auto each_weighted = [&](const auto& f) {
      dy.each(a.cols, [&](Pack<S, V>& pack, int u, int at) {
        float weight[V];
        rows::parameters<S>(weight, a.weight, a.param_dtype, at, 1.0f);
#pragma unroll
        for (int v = 0; v < V; v++) f(convert<float>(pack.value[v]) * weight[v], pack.value[v], u, v);
      });
    };
    float sum = 0, product = 0;
    each_weighted([&](float g, S&, int u, int v) {
      sum += g;
      product += g * normalised(u, v);
    });
    const float c0 = a.centered ? rows::reduce(sum, shared[0], 0.0f, Sum()) / n : 0.0f;
    const float c1 = rows::reduce(product, shared[1], 0.0f, Sum()) / n;
    each_weighted(
        [&](float g, S& element, int u, int v) { element = convert<S>((g - c0 - normalised(u, v) * c1) * rstd); });
    dy.store(a.dx, r * a.cols, a.cols);
  });
}

// Everything in one pass, for rows of which a thread has eight elements: a group of threads, a block or a warp, goes
// through rows and adds up the parameters' gradients of the columns it has.
namespace whole {

constexpr int kOwn = 8;           // columns of a thread
constexpr int kResident = 640;    // threads that a multiprocessor has registers for
constexpr int kRows = 2;          // that a group has at a time
constexpr int kRowsAtLeast = 16;  // of a group, so that its partial sums are few beside what it reads

template <class S>
struct Held {  // of one row
  static constexpr int V = pack_width<S>();
  Pack<S, V> dy[kOwn / V], x[kOwn / V];
  float mean, rstd;

  __device__ __forceinline__ void load(const LayerNormBackwardArgs& a, int64_t r) {
#pragma unroll
    for (int u = 0; u < kOwn / V; u++) {
      const auto at = static_cast<int64_t>((threadIdx.x + u * blockDim.x) * V);
      if (at >= a.cols) continue;
      dy[u] = *reinterpret_cast<const Pack<S, V>*>(static_cast<const S*>(a.dy) + r * a.cols + at);
      x[u] = *reinterpret_cast<const Pack<S, V>*>(static_cast<const S*>(a.x) + r * a.cols + at);
    }
    mean = a.centered ? read_plain<S>(a.mean, a.stat_dtype, r) : 0.0f;
    rstd = read_plain<S>(a.rstd, a.stat_dtype, r);
  }
};

// A group has kRows rows at a time.
template <class S>
__global__ void __launch_bounds__(kResident)
    gradient_kernel(const __grid_constant__ LayerNormBackwardArgs a, FloatPair* partial) {
  constexpr int V = pack_width<S>(), P = kOwn / V;
  __shared__ FloatPair shared[2][kResident / 32][kRows];
  const auto groups = int64_t{gridDim.x} * blockDim.y, group = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int warps = blockDim.y > 1 ? 1 : static_cast<int>(blockDim.x) / 32;
  const float scale = 1.0f / static_cast<float>(a.cols);
  int at[P];
  float weight[P][V], dweight[P][V] = {}, dbias[P][V] = {};
#pragma unroll
  for (int u = 0; u < P; u++) {
    at[u] = static_cast<int>(threadIdx.x + u * blockDim.x) * V;
    if (at[u] < a.cols) rows::parameters<S>(weight[u], a.weight, a.param_dtype, at[u], 1.0f);
  }
  Held<S> held[kRows];
  bool odd = false;
  for (int64_t first = group * kRows; first < a.rows; first += groups * kRows, odd = !odd) {
#pragma unroll
    for (int k = 0; k < kRows; k++)
      if (first + k < a.rows) held[k].load(a, first + k);
    FloatPair sums[kRows];
#pragma unroll
    for (int k = 0; k < kRows; k++) {
      sums[k] = {0, 0};
      if (first + k >= a.rows) continue;
#pragma unroll
      for (int u = 0; u < P; u++) {
        if (at[u] >= a.cols) continue;
        float dy[V], x[V];
        unpack(held[k].dy[u], dy);
        unpack(held[k].x[u], x);
#pragma unroll
        for (int v = 0; v < V; v++) {
          const float normalised = (x[v] - held[k].mean) * held[k].rstd;
          dweight[u][v] += dy[v] * normalised;
          dbias[u][v] += dy[v];
          sums[k].a += dy[v] * weight[u][v];
          sums[k].b += dy[v] * weight[u][v] * normalised;
        }
      }
    }
    if (a.dx == nullptr) continue;
#pragma unroll
    for (int k = 0; k < kRows; k++) sums[k] = {warp_reduce(sums[k].a, Sum()), warp_reduce(sums[k].b, Sum())};
    if (warps > 1) {
#pragma unroll
      for (int k = 0; k < kRows; k++) {
        if (threadIdx.x % 32 == 0) shared[odd][threadIdx.x / 32][k] = sums[k];
        sums[k] = {0, 0};
      }
      __syncthreads();
      for (int w = 0; w < warps; w++)
#pragma unroll
        for (int k = 0; k < kRows; k++) sums[k] = {sums[k].a + shared[odd][w][k].a, sums[k].b + shared[odd][w][k].b};
    }
#pragma unroll
    for (int k = 0; k < kRows; k++) {
      if (first + k >= a.rows) continue;
      const float c0 = a.centered ? sums[k].a * scale : 0.0f, c1 = sums[k].b * scale;
#pragma unroll
      for (int u = 0; u < P; u++) {
        if (at[u] >= a.cols) continue;
        float dy[V], x[V];
        unpack(held[k].dy[u], dy);
        unpack(held[k].x[u], x);
#pragma unroll
        for (int v = 0; v < V; v++)
          dy[v] = (dy[v] * weight[u][v] - c0 - (x[v] - held[k].mean) * held[k].rstd * c1) * held[k].rstd;
        *reinterpret_cast<Pack<S, V>*>(static_cast<S*>(a.dx) + (first + k) * a.cols + at[u]) = pack_of<S>(dy);
      }
    }
  }
  if (partial == nullptr) return;
#pragma unroll
  for (int u = 0; u < P; u++) {
    if (at[u] >= a.cols) continue;
#pragma unroll
    for (int v = 0; v < V; v++) partial[group * a.cols + at[u] + v] = {dweight[u][v], dbias[u][v]};
  }
}

bool try_gradient(const LayerNormBackwardArgs& a) {
  if (a.cols % kOwn != 0 || a.cols > kOwn * kResident || !plain(a, {a.dy, a.x, a.dx, a.weight})) return false;
  const int64_t across = ceil_div(a.cols, 32 * kOwn) * 32;
  const dim3 threads(static_cast<unsigned>(across), across == 32 ? 8 : 1);
  const int64_t sm = cuda::multiprocessors(), resident = sm * (kResident / (across * threads.y)) * threads.y;
  const int64_t wanted = std::max(a.rows / kRowsAtLeast, std::min(a.rows, sm));
  const auto blocks = static_cast<unsigned>(ceil_div(std::min(resident, wanted), threads.y));
  const int64_t groups = int64_t{blocks} * threads.y;
  const bool parameters = a.dweight != nullptr || a.dbias != nullptr;
  const Scratch partial(parameters ? groups * a.cols * static_cast<int64_t>(sizeof(FloatPair)) : 0);
  dispatch(a.dtype, Types<float, BFloat16, Half>{}, [&](auto tag) {
    gradient_kernel<typename decltype(tag)::type>
        <<<blocks, threads, 0, cuda::current_stream()>>>(a, partial.get<FloatPair>());
  });
  if (parameters) add_partials<float>(partial.get<FloatPair>(), groups, a.cols, a.dweight, a.dbias, a.param_dtype);
  return true;
}

}  // namespace whole

// dweight and dbias: threads along the columns, lines of threads and blocks along the rows.
template <class T>
__global__ void __launch_bounds__(32 * kLines)
    layer_norm_columns(const __grid_constant__ LayerNormBackwardArgs a, Pair* partial) {
  __shared__ Pair shared[kLines][33];
  const int64_t column = blockIdx.x * int64_t{32} + threadIdx.x;
  const int64_t begin = a.rows * blockIdx.y / gridDim.y, end = a.rows * (blockIdx.y + 1) / gridDim.y;
  Pair sums{0, 0};
  if (column < a.cols) {
    for (int64_t r = begin + threadIdx.y; r < end; r += kLines) {
      const T mean = a.centered ? read<T>(a.mean, a.stat_dtype, r, T(0)) : T(0);
      const T rstd = read<T>(a.rstd, a.stat_dtype, r, T(1));
      const T dy = read<T>(a.dy, a.dtype, r * a.cols + column, T(0));
      const T x = read<T>(a.x, a.dtype, r * a.cols + column, T(0));
      sums.a += static_cast<double>(dy * ((x - mean) * rstd));
      sums.b += static_cast<double>(dy);
    }
  }
  shared[threadIdx.y][threadIdx.x] = sums;
  __syncthreads();
  if (threadIdx.y != 0 || column >= a.cols) return;
  for (int line = 1; line < kLines; line++) sums = AddPairs()(sums, shared[line][threadIdx.x]);
  partial[blockIdx.y * a.cols + column] = sums;
}

// The same for packs of neighbouring columns a thread, in float.
template <class S>
__global__ void __launch_bounds__(32 * kLines)
    layer_norm_column_packs(const __grid_constant__ LayerNormBackwardArgs a, Pair* partial) {
  constexpr int V = pack_width<S>();
  using Line = Pack<S, V>;
  __shared__ float shared[2][kLines][32 * V + 1];
  const int64_t column = (blockIdx.x * int64_t{32} + threadIdx.x) * V;
  const int64_t begin = a.rows * blockIdx.y / gridDim.y, end = a.rows * (blockIdx.y + 1) / gridDim.y;
  float first[V] = {}, second[V] = {};
  if (column < a.cols) {
#pragma unroll 4
    for (int64_t r = begin + threadIdx.y; r < end; r += kLines) {
      const float mean = a.centered ? read_plain<S>(a.mean, a.stat_dtype, r) : 0.0f;
      const float rstd = read_plain<S>(a.rstd, a.stat_dtype, r);
      const Line dy = *reinterpret_cast<const Line*>(static_cast<const S*>(a.dy) + r * a.cols + column);
      const Line x = *reinterpret_cast<const Line*>(static_cast<const S*>(a.x) + r * a.cols + column);
#pragma unroll
      for (int v = 0; v < V; v++) {
        const float g = convert<float>(dy.value[v]);
        first[v] += g * ((convert<float>(x.value[v]) - mean) * rstd);
        second[v] += g;
      }
    }
  }
#pragma unroll
  for (int v = 0; v < V; v++) {
    shared[0][threadIdx.y][threadIdx.x * V + v] = first[v];
    shared[1][threadIdx.y][threadIdx.x * V + v] = second[v];
  }
  __syncthreads();
  const int at = static_cast<int>(threadIdx.y * 32 + threadIdx.x);
  const int64_t mine = blockIdx.x * int64_t{32 * V} + at;
  if (at >= 32 * V || mine >= a.cols) return;
  Pair sums{0, 0};
  for (int line = 0; line < kLines; line++)
    sums = AddPairs()(sums, {static_cast<double>(shared[0][line][at]), static_cast<double>(shared[1][line][at])});
  partial[blockIdx.y * a.cols + mine] = sums;
}

void layer_norm_backward(const LayerNormBackwardArgs& a) {
  const cudaStream_t stream = cuda::current_stream();
  if (a.rows * a.cols > 0 && whole::try_gradient(a)) return cuda::check_launch("launching a layer norm's gradient");
  const auto size = static_cast<int64_t>(size_of(a.dtype));
  const bool packs = plain(a, {a.dy, a.x, a.dx, a.weight}) && a.cols * size % 16 == 0;
  by_compute("layer_norm_backward", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (a.dx != nullptr && a.rows * a.cols > 0) {
      if (packs && rows::fits(a.cols, size)) {
        const rows::Grid grid = rows::grid_for_rows(a.rows, a.cols, size);
        dispatch(a.dtype, Types<float, BFloat16, Half>{}, [&](auto storage) {
          layer_norm_dx_registers<typename decltype(storage)::type><<<grid.blocks, grid.threads, 0, stream>>>(a);
        });
      } else {
        layer_norm_dx<T><<<blocks_for(a.rows), threads_for(a.cols), 0, stream>>>(a);
      }
    }
    if ((a.dweight == nullptr && a.dbias == nullptr) || a.cols == 0) return;
    const int64_t tiles = ceil_div(a.cols, packs ? 32 * 16 / size : 32);
    const int64_t parts = std::clamp<int64_t>(
        std::min(ceil_div(int64_t{cuda::multiprocessors()} * 8, tiles), a.rows / (kLines * 4)), 1, 256);
    const Scratch partial(parts * a.cols * static_cast<int64_t>(sizeof(Pair)));
    const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(parts)), threads(32, kLines);
    if (packs) {
      dispatch(a.dtype, Types<float, BFloat16, Half>{}, [&](auto storage) {
        layer_norm_column_packs<typename decltype(storage)::type><<<grid, threads, 0, stream>>>(a, partial.get<Pair>());
      });
    } else {
      layer_norm_columns<T><<<grid, threads, 0, stream>>>(a, partial.get<Pair>());
    }
    add_partials<T>(partial.get<Pair>(), parts, a.cols, a.dweight, a.dbias, a.param_dtype);
  });
  cuda::check_launch("launching a layer norm's gradient");
}

MT_REGISTER_KERNEL(layer_norm_kernel, &layer_norm);
MT_REGISTER_KERNEL(layer_norm_backward_kernel, &layer_norm_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
