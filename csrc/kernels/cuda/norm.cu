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

// The same for rows that fit in registers, in float: the mean first, then the squares of what is left.
template <class S>
__global__ void __launch_bounds__(1024) layer_norm_registers(const __grid_constant__ LayerNormArgs a) {
  __shared__ float shared[2][32];
  const float n = static_cast<float>(a.cols);
  rows::for_each(a.rows, [&](int64_t r) {
    rows::Row<S> row;
    row.load(a.x, r * a.cols, a.cols);
    float mean = 0, squares = 0;
    if (a.centered) {
      row.each(a.cols, [&](float x, int, int, int) { mean += x; });
      mean = rows::reduce(mean, shared[0], 0.0f, Sum()) / n;
    }
    row.each(a.cols, [&](float x, int, int, int) { squares += (x - mean) * (x - mean); });
    const float variance = rows::reduce(squares, shared[1], 0.0f, Sum()) / n;
    const float rstd = 1.0f / ::sqrtf(variance + static_cast<float>(a.eps));
    if (threadIdx.x == 0) {
      if (a.centered) write<float>(a.mean, a.stat_dtype, r, mean);
      write<float>(a.rstd, a.stat_dtype, r, rstd);
    }
    constexpr int V = rows::Row<S>::V;
    row.each_pack(a.cols, [&](float (&x)[V], int, int at) {
      float weight[V], bias[V];
      rows::parameters<S>(weight, a.weight, a.param_dtype, at, 1.0f);
      rows::parameters<S>(bias, a.bias, a.param_dtype, at, 0.0f);
#pragma unroll
      for (int v = 0; v < V; v++) x[v] = (x[v] - mean) * rstd * weight[v] + bias[v];
    });
    row.store(a.y, r * a.cols, a.cols);
  });
}

template <class Launch>
bool try_registers(DType dtype, int64_t rows, int64_t cols, std::initializer_list<const void*> pointers,
                   const Launch& launch) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  if (!rows::fits(cols, size) || !rows::aligned(pointers)) return false;
  const rows::Grid grid = rows::grid_for_rows(rows, cols, size);
  return dispatch(dtype, Types<float, BFloat16, Half>{}, [&](auto tag) { launch(tag, grid); });
}

void layer_norm(const LayerNormArgs& a) {
  if (a.rows * a.cols == 0) return;
  if (try_registers(a.dtype, a.rows, a.cols, {a.x, a.y}, [&](auto tag, const rows::Grid& grid) {
        layer_norm_registers<typename decltype(tag)::type><<<grid.blocks, grid.threads, 0, cuda::current_stream()>>>(a);
      }))
    return cuda::check_launch("launching a layer norm");
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
    const float mean = a.centered ? read<float>(a.mean, a.stat_dtype, r, 0.0f) : 0.0f;
    const float rstd = read<float>(a.rstd, a.stat_dtype, r, 1.0f);
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
      const float mean = a.centered ? read<float>(a.mean, a.stat_dtype, r, 0.0f) : 0.0f;
      const float rstd = read<float>(a.rstd, a.stat_dtype, r, 1.0f);
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
  by_compute("layer_norm_backward", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto in_registers = [&](auto storage, const rows::Grid& grid) {
      layer_norm_dx_registers<typename decltype(storage)::type><<<grid.blocks, grid.threads, 0, stream>>>(a);
    };
    if (a.dx != nullptr && a.rows * a.cols > 0 &&
        !try_registers(a.dtype, a.rows, a.cols, {a.dy, a.x, a.dx}, in_registers))
      layer_norm_dx<T><<<blocks_for(a.rows), threads_for(a.cols), 0, stream>>>(a);
    if ((a.dweight == nullptr && a.dbias == nullptr) || a.cols == 0) return;
    const bool packs = a.cols % 8 == 0 && rows::aligned({a.dy, a.x}) && !std::is_same_v<T, double>;
    const int64_t tiles = ceil_div(a.cols, packs ? 32 * 16 / static_cast<int64_t>(size_of(a.dtype)) : 32);
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
    add_partials<T><<<grid_for(a.cols), kThreads, 0, stream>>>(partial.get<Pair>(), parts, a.cols, a.dweight, a.dbias,
                                                               a.param_dtype);
  });
  cuda::check_launch("launching a layer norm's gradient");
}

MT_REGISTER_KERNEL(layer_norm_kernel, &layer_norm);
MT_REGISTER_KERNEL(layer_norm_backward_kernel, &layer_norm_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
