// Layer norm, RMS norm and group norm on CUDA. All of it comes from two pieces: sums over a group of elements (a block
// or a warp a group, or several blocks and a merge where groups are few), and a pass that applies per-group and
// per-channel numbers. Rows of floats that fit in registers are read only once.
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
    rows::Row<S> g, xhat;
    g.load(a.dy, r * a.cols, a.cols);
    xhat.load(a.x, r * a.cols, a.cols);
    float sum = 0, product = 0;
    constexpr int V = rows::Row<S>::V;
    g.each_pack(a.cols, [&](float (&dy)[V], int u, int at) {
      float weight[V];
      rows::parameters<S>(weight, a.weight, a.param_dtype, at, 1.0f);
#pragma unroll
      for (int v = 0; v < V; v++) {
        dy[v] *= weight[v];
        xhat.x[u][v] = (xhat.x[u][v] - mean) * rstd;
        sum += dy[v];
        product += dy[v] * xhat.x[u][v];
      }
    });
    const float c0 = a.centered ? rows::reduce(sum, shared[0], 0.0f, Sum()) / n : 0.0f;
    const float c1 = rows::reduce(product, shared[1], 0.0f, Sum()) / n;
    g.each(a.cols, [&](float& dy, int u, int v, int) { dy = (dy - c0 - xhat.x[u][v] * c1) * rstd; });
    g.store(a.dx, r * a.cols, a.cols);
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

// The same for packs of four columns a thread, in float.
template <class S>
__global__ void __launch_bounds__(32 * kLines)
    layer_norm_column_packs(const __grid_constant__ LayerNormBackwardArgs a, Pair* partial) {
  constexpr int V = 4;
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
    const int64_t tiles = ceil_div(a.cols, packs ? 128 : 32);
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

// ---- Group norm ----------------------------------------------------------------------------------------------------

// Element i of group g of sample n; its channel within the group is i / spatial.
struct GroupIndex {
  int64_t c, spatial, groups, width;  // width: channels of a group
  bool channels_last;
  __device__ __forceinline__ int64_t operator()(int64_t sample, int64_t group, int64_t channel, int64_t s) const {
    const int64_t at = group * width + channel;
    return channels_last ? (sample * spatial + s) * c + at : (sample * c + at) * spatial + s;
  }
};

template <class T>
__global__ void __launch_bounds__(512) group_norm_groups(const __grid_constant__ GroupNormArgs a, GroupIndex index) {
  __shared__ Pair shared[32];
  const int64_t extent = index.width * a.spatial;
  for (int64_t u = blockIdx.x; u < a.n * a.groups; u += gridDim.x) {
    const int64_t sample = u / a.groups, group = u % a.groups;
    const auto at = [&](int64_t i) {
      return index.channels_last ? index(sample, group, i % index.width, i / index.width)
                                 : index(sample, group, i / a.spatial, i % a.spatial);
    };
    const auto channel = [&](int64_t i) {
      return group * index.width + (index.channels_last ? i % index.width : i / a.spatial);
    };
    const T first = read<T>(a.x, a.dtype, at(0), T(0));
    const double centre = isfinite(first) ? static_cast<double>(first) : 0.0;
    Pair sums{0, 0};
    for (int64_t i = threadIdx.x; i < extent; i += blockDim.x) {
      const double d = static_cast<double>(read<T>(a.x, a.dtype, at(i), T(0))) - centre;
      sums.a += d;
      sums.b += d * d;
    }
    sums = block_reduce(sums, shared, Pair{0, 0}, AddPairs());
    const double n = static_cast<double>(extent), shift = sums.a / n;
    double variance = sums.b / n - shift * shift;
    variance = variance < 0 ? 0 : variance;
    const T mean = static_cast<T>(centre + shift), rstd = static_cast<T>(1 / ::sqrt(variance + a.eps));
    if (threadIdx.x == 0) {
      write<T>(a.mean, a.stat_dtype, u, mean);
      write<T>(a.rstd, a.stat_dtype, u, rstd);
    }
    for (int64_t i = threadIdx.x; i < extent; i += blockDim.x) {
      const int64_t c = channel(i);
      const T x = read<T>(a.x, a.dtype, at(i), T(0));
      write<T>(a.y, a.dtype, at(i),
               (x - mean) * rstd * read<T>(a.weight, a.param_dtype, c, T(1)) + read<T>(a.bias, a.param_dtype, c, T(0)));
    }
  }
}

GroupIndex group_index(int64_t c, int64_t spatial, int64_t groups, bool channels_last) {
  return {c, spatial, groups, c / groups, channels_last};
}

void group_norm(const GroupNormArgs& a) {
  if (a.n * a.c * a.spatial == 0) return;
  const GroupIndex index = group_index(a.c, a.spatial, a.groups, a.channels_last);
  by_compute("group_norm", a.dtype, [&](auto tag) {
    group_norm_groups<typename decltype(tag)::type>
        <<<blocks_for(a.n * a.groups), threads_for(index.width * a.spatial), 0, cuda::current_stream()>>>(a, index);
  });
  cuda::check_launch("launching a group norm");
}

// Per sample and channel: sum over space of dy * x and of dy.
template <class T>
__global__ void __launch_bounds__(512)
    group_channel_sums(const __grid_constant__ GroupNormBackwardArgs a, GroupIndex index, Pair* sums) {
  __shared__ Pair shared[32];
  for (int64_t u = blockIdx.x; u < a.n * a.c; u += gridDim.x) {
    const int64_t sample = u / a.c, channel = u % a.c;
    Pair mine{0, 0};
    for (int64_t s = threadIdx.x; s < a.spatial; s += blockDim.x) {
      const int64_t at = index(sample, channel / index.width, channel % index.width, s);
      const double dy = read<T>(a.dy, a.dtype, at, T(0));
      mine.a += dy * static_cast<double>(read<T>(a.x, a.dtype, at, T(0)));
      mine.b += dy;
    }
    mine = block_reduce(mine, shared, Pair{0, 0}, AddPairs());
    if (threadIdx.x == 0) sums[u] = mine;
  }
}

// Per group: mean(g xhat) and mean(g) from the sums of its channels.
template <class T>
__global__ void __launch_bounds__(kThreads)
    group_means(const __grid_constant__ GroupNormBackwardArgs a, GroupIndex index, const Pair* sums, Pair* means) {
  MT_GRID_LOOP(u, a.n * a.groups) {
    const double mean = read<T>(a.mean, a.stat_dtype, u, T(0)), rstd = read<T>(a.rstd, a.stat_dtype, u, T(1));
    Pair total{0, 0};
    for (int64_t k = 0; k < index.width; k++) {
      const Pair s = sums[u * index.width + k];
      const double w = read<T>(a.weight, a.param_dtype, u % a.groups * index.width + k, T(1));
      total.a += w * (s.a - mean * s.b) * rstd;
      total.b += w * s.b;
    }
    const double n = static_cast<double>(index.width * a.spatial);
    means[u] = {total.a / n, total.b / n};
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    group_dx(const __grid_constant__ GroupNormBackwardArgs a, GroupIndex index, const Pair* means) {
  MT_GRID_LOOP(i, a.n * a.c * a.spatial) {
    const int64_t sample = i / (a.c * a.spatial);
    const int64_t c = a.channels_last ? i % a.c : i / a.spatial % a.c;
    const int64_t u = sample * a.groups + c / index.width;
    const T mean = read<T>(a.mean, a.stat_dtype, u, T(0)), rstd = read<T>(a.rstd, a.stat_dtype, u, T(1));
    const T g = read<T>(a.dy, a.dtype, i, T(0)) * read<T>(a.weight, a.param_dtype, c, T(1));
    const T xhat = (read<T>(a.x, a.dtype, i, T(0)) - mean) * rstd;
    write<T>(a.dx, a.dtype, i, (g - static_cast<T>(means[u].b) - xhat * static_cast<T>(means[u].a)) * rstd);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    group_parameters(const __grid_constant__ GroupNormBackwardArgs a, GroupIndex index, const Pair* sums) {
  MT_GRID_LOOP(c, a.c) {
    Pair total{0, 0};
    for (int64_t n = 0; n < a.n; n++) {
      const Pair s = sums[n * a.c + c];
      const int64_t u = n * a.groups + c / index.width;
      const double mean = read<T>(a.mean, a.stat_dtype, u, T(0)), rstd = read<T>(a.rstd, a.stat_dtype, u, T(1));
      total.a += (s.a - mean * s.b) * rstd;
      total.b += s.b;
    }
    write<T>(a.dweight, a.param_dtype, c, static_cast<T>(total.a));
    write<T>(a.dbias, a.param_dtype, c, static_cast<T>(total.b));
  }
}

void group_norm_backward(const GroupNormBackwardArgs& a) {
  if (a.n * a.c * a.spatial == 0) return;
  const GroupIndex index = group_index(a.c, a.spatial, a.groups, a.channels_last);
  const cudaStream_t stream = cuda::current_stream();
  by_compute("group_norm_backward", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Scratch memory((a.n * a.c + a.n * a.groups) * static_cast<int64_t>(sizeof(Pair)));
    Pair *const sums = memory.get<Pair>(), *const means = sums + a.n * a.c;
    group_channel_sums<T><<<blocks_for(a.n * a.c), threads_for(a.spatial), 0, stream>>>(a, index, sums);
    if (a.dx != nullptr) {
      group_means<T><<<grid_for(a.n * a.groups), kThreads, 0, stream>>>(a, index, sums, means);
      group_dx<T><<<grid_for(a.n * a.c * a.spatial), kThreads, 0, stream>>>(a, index, means);
    }
    if (a.dweight != nullptr || a.dbias != nullptr)
      group_parameters<T><<<grid_for(a.c), kThreads, 0, stream>>>(a, index, sums);
  });
  cuda::check_launch("launching a group norm's gradient");
}

MT_REGISTER_KERNEL(layer_norm_kernel, &layer_norm);
MT_REGISTER_KERNEL(layer_norm_backward_kernel, &layer_norm_backward);
MT_REGISTER_KERNEL(group_norm_kernel, &group_norm);
MT_REGISTER_KERNEL(group_norm_backward_kernel, &group_norm_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
