// Group norm on CUDA. The elements of one channel of one sample are a row; sums over rows are merged into those of
// groups, and a second pass over the rows applies them. Where rows of floats are contiguous they are read in packs.
#include "kernels/cuda/norm.cuh"
#include "kernels/norm.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// ---- Rows of floats that are contiguous, in packs ------------------------------------------------------------------

inline bool in_packs(DType dtype, bool channels_last, std::initializer_list<const void*> pointers) {
  return !channels_last && (dtype == DType::F32 || is_half(dtype)) && rows::aligned(pointers);
}
rows::Grid row_grid(int64_t rows, int64_t spatial, DType dtype) {
  rows::Grid grid = rows::grid_for_rows(rows, spatial, static_cast<int64_t>(size_of(dtype)));
  grid.threads.x = std::min(grid.threads.x, 512u);
  return grid;
}

// Element `at` and its neighbours in the same row of another tensor: rows start at the same distance from 16 bytes.
template <class S, int V>
__device__ __forceinline__ Pack<S, V> like(const Pack<S, V>&, const S* row, int count, int64_t at) {
  Pack<S, V> pack;
  if (count == V) {
    pack = *reinterpret_cast<const Pack<S, V>*>(row + at);
  } else {
    pack.value[0] = row[at];
  }
  return pack;
}
template <class S, int V>
__device__ __forceinline__ void put(const Pack<S, V>& pack, S* row, int count, int64_t at) {
  if (count == V) {
    *reinterpret_cast<Pack<S, V>*>(row + at) = pack;
  } else {
    row[at] = pack.value[0];
  }
}

template <class S>
__device__ __forceinline__ float centre_of(const S* group, int64_t count) {
  return middle_of<float>(count, [&](int64_t i) { return convert<float>(group[i]); });
}

// Per row the sums of differences from the group's centre and of their squares.
template <class S>
__global__ void __launch_bounds__(512) row_moments(const __grid_constant__ GroupNormArgs a, int64_t width, Pair* sums) {
  constexpr int V = pack_width<S>();
  __shared__ Pair shared[32];
  const S* const x = static_cast<const S*>(a.x);
  rows::for_each(a.n * a.c, [&](int64_t r) {
    const float centre = centre_of(x + r / width * width * a.spatial, width * a.spatial);
    Pair mine{0, 0};
    rows::stream(x + r * a.spatial, a.spatial, [&](const Pack<S, V>& pack, int count, int64_t) {
      float sum = 0, squares = 0;
#pragma unroll
      for (int v = 0; v < V; v++) {
        const float d = v < count ? convert<float>(pack.value[v]) - centre : 0.0f;
        sum += d;
        squares += d * d;
      }
      mine = AddPairs()(mine, {static_cast<double>(sum), static_cast<double>(squares)});
    });
    mine = rows::reduce(mine, shared, Pair{0, 0}, AddPairs());
    if (threadIdx.x == 0) sums[r] = mine;
  });
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    group_statistics(const __grid_constant__ GroupNormArgs a, int64_t width, const Pair* sums) {
  MT_GRID_LOOP(u, a.n * a.groups) {
    Pair total{0, 0};
    for (int64_t k = 0; k < width; k++) total = AddPairs()(total, sums[u * width + k]);
    const double n = static_cast<double>(width * a.spatial), shift = total.a / n;
    const double variance = total.b / n - shift * shift;
    const double centre = centre_of(static_cast<const S*>(a.x) + u * width * a.spatial, width * a.spatial);
    write<float>(a.mean, a.stat_dtype, u, static_cast<float>(centre + shift));
    write<float>(a.rstd, a.stat_dtype, u, static_cast<float>(1 / ::sqrt((variance < 0 ? 0 : variance) + a.eps)));
  }
}

template <class S>
__global__ void __launch_bounds__(512) normalise_rows(const __grid_constant__ GroupNormArgs a, int64_t width) {
  constexpr int V = pack_width<S>();
  rows::for_each(a.n * a.c, [&](int64_t r) {
    const float mean = read<float>(a.mean, a.stat_dtype, r / width, 0.0f);
    const float rstd = read<float>(a.rstd, a.stat_dtype, r / width, 1.0f);
    const float weight = read<float>(a.weight, a.param_dtype, r % a.c, 1.0f);
    const float bias = read<float>(a.bias, a.param_dtype, r % a.c, 0.0f);
    S* const y = static_cast<S*>(a.y) + r * a.spatial;
    const S* const x = static_cast<const S*>(a.x) + r * a.spatial;
    rows::stream(x, a.spatial, [&](Pack<S, V>& pack, int count, int64_t at) {
#pragma unroll
      for (int v = 0; v < V; v++)
        pack.value[v] = convert<S>((convert<float>(pack.value[v]) - mean) * rstd * weight + bias);
      put(pack, y, count, at);
    });
  });
}

// Per row the sums of dy * x and of dy.
template <class S>
__global__ void __launch_bounds__(512) row_products(const __grid_constant__ GroupNormBackwardArgs a, Pair* sums) {
  constexpr int V = pack_width<S>();
  __shared__ Pair shared[32];
  rows::for_each(a.n * a.c, [&](int64_t r) {
    const S* const x = static_cast<const S*>(a.x) + r * a.spatial;
    Pair mine{0, 0};
    rows::stream(static_cast<const S*>(a.dy) + r * a.spatial, a.spatial,
                 [&](const Pack<S, V>& dy, int count, int64_t at) {
                   const Pack<S, V> other = like(dy, x, count, at);
                   float product = 0, sum = 0;
#pragma unroll
                   for (int v = 0; v < V; v++) {
                     if (v >= count) continue;
                     product += convert<float>(dy.value[v]) * convert<float>(other.value[v]);
                     sum += convert<float>(dy.value[v]);
                   }
                   mine = AddPairs()(mine, {static_cast<double>(product), static_cast<double>(sum)});
                 });
    mine = rows::reduce(mine, shared, Pair{0, 0}, AddPairs());
    if (threadIdx.x == 0) sums[r] = mine;
  });
}

template <class S>
__global__ void __launch_bounds__(512)
    row_dx(const __grid_constant__ GroupNormBackwardArgs a, int64_t width, const Pair* means) {
  constexpr int V = pack_width<S>();
  rows::for_each(a.n * a.c, [&](int64_t r) {
    const int64_t u = r / width;
    const float mean = read<float>(a.mean, a.stat_dtype, u, 0.0f), rstd = read<float>(a.rstd, a.stat_dtype, u, 1.0f);
    const float weight = read<float>(a.weight, a.param_dtype, r % a.c, 1.0f);
    const auto c0 = static_cast<float>(means[u].b), c1 = static_cast<float>(means[u].a);
    const S* const x = static_cast<const S*>(a.x) + r * a.spatial;
    S* const dx = static_cast<S*>(a.dx) + r * a.spatial;
    rows::stream(static_cast<const S*>(a.dy) + r * a.spatial, a.spatial, [&](Pack<S, V>& dy, int count, int64_t at) {
      const Pack<S, V> other = like(dy, x, count, at);
#pragma unroll
      for (int v = 0; v < V; v++) {
        const float xhat = (convert<float>(other.value[v]) - mean) * rstd;
        dy.value[v] = convert<S>((convert<float>(dy.value[v]) * weight - c0 - xhat * c1) * rstd);
      }
      put(dy, dx, count, at);
    });
  });
}

// ---- Any type and layout -------------------------------------------------------------------------------------------

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
  const cudaStream_t stream = cuda::current_stream();
  if (in_packs(a.dtype, a.channels_last, {a.x, a.y})) {
    const Scratch sums(a.n * a.c * static_cast<int64_t>(sizeof(Pair)));
    const rows::Grid grid = row_grid(a.n * a.c, a.spatial, a.dtype);
    dispatch(a.dtype, Types<float, BFloat16, Half>{}, [&](auto tag) {
      using S = typename decltype(tag)::type;
      row_moments<S><<<grid.blocks, grid.threads, 0, stream>>>(a, index.width, sums.get<Pair>());
      group_statistics<S><<<grid_for(a.n * a.groups), kThreads, 0, stream>>>(a, index.width, sums.get<Pair>());
      normalise_rows<S><<<grid.blocks, grid.threads, 0, stream>>>(a, index.width);
    });
    return cuda::check_launch("launching a group norm");
  }
  by_compute("group_norm", a.dtype, [&](auto tag) {
    group_norm_groups<typename decltype(tag)::type>
        <<<blocks_for(a.n * a.groups), threads_for(index.width * a.spatial), 0, stream>>>(a, index);
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
    const bool packs = in_packs(a.dtype, a.channels_last, {a.dy, a.x, a.dx});
    const rows::Grid grid = row_grid(a.n * a.c, a.spatial, a.dtype);
    const auto by_storage = [&](const auto& launch) { dispatch(a.dtype, Types<float, BFloat16, Half>{}, launch); };
    if (packs) {
      by_storage([&](auto storage) {
        row_products<typename decltype(storage)::type><<<grid.blocks, grid.threads, 0, stream>>>(a, sums);
      });
    } else {
      group_channel_sums<T><<<blocks_for(a.n * a.c), threads_for(a.spatial), 0, stream>>>(a, index, sums);
    }
    if (a.dx != nullptr) {
      group_means<T><<<grid_for(a.n * a.groups), kThreads, 0, stream>>>(a, index, sums, means);
      if (packs) {
        by_storage([&](auto storage) {
          row_dx<typename decltype(storage)::type><<<grid.blocks, grid.threads, 0, stream>>>(a, index.width, means);
        });
      } else {
        group_dx<T><<<grid_for(a.n * a.c * a.spatial), kThreads, 0, stream>>>(a, index, means);
      }
    }
    if (a.dweight != nullptr || a.dbias != nullptr)
      group_parameters<T><<<grid_for(a.c), kThreads, 0, stream>>>(a, index, sums);
  });
  cuda::check_launch("launching a group norm's gradient");
}

MT_REGISTER_KERNEL(group_norm_kernel, &group_norm);
MT_REGISTER_KERNEL(group_norm_backward_kernel, &group_norm_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
