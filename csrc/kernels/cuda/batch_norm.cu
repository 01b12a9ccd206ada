// Batch norm on CUDA: sums over each channel, statistics from them, and a pass that applies four numbers a channel. The
// passes of batch_norm.cuh take floats in whole packs, those here everything else.
#include "kernels/norm.h"

#include "kernels/cuda/batch_norm.cuh"
#include "kernels/cuda/norm.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// Element i of channel c, i in [0, n * spatial).
struct ChannelIndex {
  int64_t c, spatial;
  bool channels_last;
  __device__ __forceinline__ int64_t operator()(int64_t channel, int64_t i) const {
    if (channels_last) return i * c + channel;
    const int64_t sample = i / spatial;
    return (sample * c + channel) * spatial + (i - sample * spatial);
  }
  __device__ __forceinline__ int64_t channel_of(int64_t at) const { return channels_last ? at % c : at / spatial % c; }
};

// Partial sums of f(channel)(position) for each channel: partial[part * c + channel].
template <class F>
__global__ void __launch_bounds__(512) channel_sums(ChannelIndex index, int64_t extent, Pair* partial, F f) {
  __shared__ Pair shared[32];
  const int64_t begin = extent * blockIdx.y / gridDim.y, end = extent * (blockIdx.y + 1) / gridDim.y;
  for (int64_t channel = blockIdx.x; channel < index.c; channel += gridDim.x) {
    const auto terms = f(channel);
    Pair sums{0, 0};
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) sums = AddPairs()(sums, terms(index(channel, i)));
    sums = block_reduce(sums, shared, Pair{0, 0}, AddPairs());
    if (threadIdx.x == 0) partial[blockIdx.y * index.c + channel] = sums;
  }
}
template <class F>
__global__ void __launch_bounds__(32 * kLines)
    channel_sums_last(ChannelIndex index, int64_t extent, Pair* partial, F f) {
  __shared__ Pair shared[kLines][33];
  const int64_t channel = blockIdx.x * int64_t{32} + threadIdx.x;
  const int64_t begin = extent * blockIdx.y / gridDim.y, end = extent * (blockIdx.y + 1) / gridDim.y;
  Pair sums{0, 0};
  if (channel < index.c) {
    const auto terms = f(channel);
    for (int64_t i = begin + threadIdx.y; i < end; i += kLines) sums = AddPairs()(sums, terms(i * index.c + channel));
  }
  shared[threadIdx.y][threadIdx.x] = sums;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= index.c) return;
  for (int line = 1; line < kLines; line++) sums = AddPairs()(sums, shared[line][threadIdx.x]);
  partial[blockIdx.y * index.c + channel] = sums;
}

int64_t channel_parts(const ChannelIndex& index, int64_t extent) {
  const int64_t units = index.channels_last ? ceil_div(index.c, 32) : index.c;
  return std::clamp<int64_t>(std::min(ceil_div(int64_t{cuda::multiprocessors()} * 4, units), extent / 1024), 1, 256);
}

template <class F>
void launch_channel_sums(const ChannelIndex& index, int64_t extent, int64_t parts, Pair* partial, const F& f) {
  const auto y = static_cast<unsigned>(parts);
  if (index.channels_last) {
    channel_sums_last<<<dim3(static_cast<unsigned>(ceil_div(index.c, 32)), y), dim3(32, kLines), 0,
                        cuda::current_stream()>>>(index, extent, partial, f);
  } else {
    channel_sums<<<dim3(blocks_for(index.c), y), threads_for(extent / parts), 0, cuda::current_stream()>>>(
        index, extent, partial, f);
  }
}

template <class T>
struct BatchMoments {  // deviations from an element of the channel
  BatchNormArgs a;
  __device__ double centre(int64_t channel) const {
    const ChannelIndex index{a.c, a.spatial, a.channels_last};
    return middle_of<T>(a.n * a.spatial, [&](int64_t i) { return read<T>(a.x, a.dtype, index(channel, i), T(0)); });
  }
  __device__ auto operator()(int64_t channel) const {
    return [this, from = centre(channel)](int64_t at) -> Pair {
      const double d = static_cast<double>(read<T>(a.x, a.dtype, at, T(0))) - from;
      return {d, d * d};
    };
  }
};

// The mean and 1 / sqrt(variance + eps) that channel c is normalised with. What a training batch saves may be its
// variance.
template <class T>
__device__ __forceinline__ T batch_mean(const BatchNormArgs& a, int64_t c) {
  return read<T>(a.training ? a.save_mean : a.running_mean, a.param_dtype, c, T(0));
}
template <class T>
__device__ __forceinline__ T batch_scale(const BatchNormArgs& a, int64_t c) {
  const T stat = read<T>(a.training ? a.save_invstd : a.running_var, a.param_dtype, c, T(1));
  return a.training && !a.save_variance ? stat : T(1) / ::sqrt(stat + static_cast<T>(a.eps));
}
__device__ __forceinline__ float4 batch_factors(const BatchNormArgs& a, int64_t c) {
  return {batch_mean<float>(a, c), batch_scale<float>(a, c) * read<float>(a.weight, a.param_dtype, c, 1.0f),
          read<float>(a.bias, a.param_dtype, c, 0.0f), 0.0f};
}

// From the sums of a training batch to what is saved, the running statistics, and, unless null, the factors that apply
// them.
template <class T>
__global__ void __launch_bounds__(1024)
    batch_statistics(const __grid_constant__ BatchNormArgs a, const Pair* partial, int64_t parts, float4* factors) {
  const int64_t c = blockIdx.x * int64_t{32} + threadIdx.x;
  const Pair sums = column_sums(partial, parts, a.c);
  if (threadIdx.y != 0 || c >= a.c) return;
  const double n = static_cast<double>(a.n * a.spatial), shift = sums.a / n;
  const double mean = BatchMoments<T>{a}.centre(c) + shift;
  double variance = sums.b / n - shift * shift;
  variance = variance < 0 ? 0 : variance;
  write<T>(a.save_mean, a.param_dtype, c, static_cast<T>(mean));
  write<T>(a.save_invstd, a.param_dtype, c, static_cast<T>(a.save_variance ? variance : 1 / ::sqrt(variance + a.eps)));
  if (a.running_mean != nullptr) {
    const double old = read<T>(a.running_mean, a.param_dtype, c, T(0));
    write<T>(a.running_mean, a.param_dtype, c, static_cast<T>(a.momentum * mean + (1 - a.momentum) * old));
  }
  if (a.running_var != nullptr) {
    const double old = read<T>(a.running_var, a.param_dtype, c, T(0));
    const double unbiased = variance * n / (n - 1);
    write<T>(a.running_var, a.param_dtype, c, static_cast<T>(a.momentum * unbiased + (1 - a.momentum) * old));
  }
  if (factors != nullptr) factors[c] = batch_factors(a, c);
}

template <class T>
__global__ void __launch_bounds__(kThreads) batch_apply(const __grid_constant__ BatchNormArgs a, ChannelIndex index) {
  MT_GRID_LOOP(i, a.n * a.c * a.spatial) {
    const int64_t c = index.channel_of(i);
    const T centred = read<T>(a.x, a.dtype, i, T(0)) - batch_mean<T>(a, c);
    const T scaled = centred * batch_scale<T>(a, c) * read<T>(a.weight, a.param_dtype, c, T(1));
    write<T>(a.y, a.dtype, i, scaled + read<T>(a.bias, a.param_dtype, c, T(0)));
  }
}

struct CentreOfChannel {
  BatchNormArgs a;
  __device__ float operator()(int64_t channel) const {
    return static_cast<float>(BatchMoments<float>{a}.centre(channel));
  }
};

__global__ void __launch_bounds__(kThreads)
    batch_running_factors(const __grid_constant__ BatchNormArgs a, float4* factors) {
  MT_GRID_LOOP(c, a.c) factors[c] = batch_factors(a, c);
}

// The passes of batch_norm.cuh; false: the layout is not for them.
bool try_batch_norm(const BatchNormArgs& a) {
  batch::Tensors t{a.x, nullptr, a.y, a.n, a.c, a.spatial, a.channels_last};
  if (!batch::prepare(t, a.dtype)) return false;
  const cudaStream_t stream = cuda::current_stream();
  const Scratch factors(a.c * static_cast<int64_t>(sizeof(float4)));
  dispatch(a.dtype, Types<float, BFloat16, Half>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    if (a.training) {
      const int64_t parts = batch::parts_for<false>(t, a.dtype);
      const Scratch partial(parts * a.c * static_cast<int64_t>(sizeof(Pair)));
      batch::sums<S, false>(t, parts, CentreOfChannel{a}, partial.get<Pair>());
      batch_statistics<float><<<column_blocks(a.c), column_threads(parts), 0, stream>>>(
          a, partial.get<Pair>(), parts, a.y == nullptr ? nullptr : factors.get<float4>());
    } else {
      batch_running_factors<<<grid_for(a.c), kThreads, 0, stream>>>(a, factors.get<float4>());
    }
    if (a.y != nullptr) batch::apply<S, false>(t, factors.get<float4>());
  });
  return true;
}

void batch_norm(const BatchNormArgs& a) {
  const int64_t extent = a.n * a.spatial;
  if (extent * a.c == 0) return;
  if (try_batch_norm(a)) return cuda::check_launch("launching a batch norm");
  const ChannelIndex index{a.c, a.spatial, a.channels_last};
  const cudaStream_t stream = cuda::current_stream();
  by_compute("batch_norm", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (a.training) {
      const int64_t parts = channel_parts(index, extent);
      const Scratch partial(parts * a.c * static_cast<int64_t>(sizeof(Pair)));
      launch_channel_sums(index, extent, parts, partial.get<Pair>(), BatchMoments<T>{a});
      batch_statistics<T><<<column_blocks(a.c), column_threads(parts), 0, stream>>>(a, partial.get<Pair>(), parts,
                                                                                    static_cast<float4*>(nullptr));
    }
    if (a.y != nullptr) batch_apply<T><<<grid_for(extent * a.c), kThreads, 0, stream>>>(a, index);
  });
  cuda::check_launch("launching a batch norm");
}

template <class T>
__device__ __forceinline__ T batch_invstd(const BatchNormBackwardArgs& a, int64_t c) {
  const T stat = read<T>(a.stat, a.param_dtype, c, T(1));
  return a.training ? stat : T(1) / ::sqrt(stat + static_cast<T>(a.eps));
}

template <class T>
struct BatchGradientSums {  // sum dy (x - mean), sum dy
  BatchNormBackwardArgs a;
  __device__ auto operator()(int64_t channel) const {
    return [this, mean = read<T>(a.mean, a.param_dtype, channel, T(0))](int64_t at) -> Pair {
      const T dy = read<T>(a.dy, a.dtype, at, T(0)), x = read<T>(a.x, a.dtype, at, T(0));
      return {static_cast<double>(dy * (x - mean)), static_cast<double>(dy)};
    };
  }
};

// From these sums, if there are any, to the parameters' gradients, and what the input's gradient takes of a channel:
// the sums with normalised x, or the factors of batch_norm.cuh. What is null is left out.
template <class T>
__global__ void __launch_bounds__(1024)
    batch_gradients(const __grid_constant__ BatchNormBackwardArgs a, const Pair* partial, int64_t parts, Pair* totals,
                    float4* factors) {
  const int64_t c = blockIdx.x * int64_t{32} + threadIdx.x;
  Pair sums = column_sums(partial, parts, a.c);
  if (threadIdx.y != 0 || c >= a.c) return;
  const T invstd = batch_invstd<T>(a, c);
  sums.a *= static_cast<double>(invstd);
  write<T>(a.dweight, a.param_dtype, c, static_cast<T>(sums.a));
  write<T>(a.dbias, a.param_dtype, c, static_cast<T>(sums.b));
  if (totals != nullptr) totals[c] = sums;
  if (factors == nullptr) return;
  const auto scale = static_cast<float>(invstd * read<T>(a.weight, a.param_dtype, c, T(1)));
  float4 f{read<float>(a.mean, a.param_dtype, c, 0.0f), scale, 0.0f, 0.0f};
  if (a.training) {
    const double inverse = 1.0 / static_cast<double>(a.n * a.spatial);
    f.z = -scale * static_cast<float>(invstd) * static_cast<float>(sums.a * inverse);
    f.w = -scale * static_cast<float>(sums.b * inverse);
  }
  factors[c] = f;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    batch_dx(const __grid_constant__ BatchNormBackwardArgs a, ChannelIndex index, const Pair* totals) {
  const T inverse = static_cast<T>(1.0 / static_cast<double>(a.n * a.spatial));
  MT_GRID_LOOP(i, a.n * a.c * a.spatial) {
    const int64_t c = index.channel_of(i);
    const T invstd = batch_invstd<T>(a, c), w = read<T>(a.weight, a.param_dtype, c, T(1));
    T g = read<T>(a.dy, a.dtype, i, T(0));
    if (a.training) {
      const T xhat = (read<T>(a.x, a.dtype, i, T(0)) - read<T>(a.mean, a.param_dtype, c, T(0))) * invstd;
      g = g - static_cast<T>(totals[c].b) * inverse - xhat * (static_cast<T>(totals[c].a) * inverse);
    }
    write<T>(a.dx, a.dtype, i, g * invstd * w);
  }
}

struct BatchMean {
  const void* mean;
  DType dtype;
  __device__ float operator()(int64_t channel) const { return read<float>(mean, dtype, channel, 0.0f); }
};

bool needs_sums(const BatchNormBackwardArgs& a) {
  return a.dweight != nullptr || a.dbias != nullptr || (a.dx != nullptr && a.training);
}

// The passes of batch_norm.cuh; false: the layout is not for them.
bool try_batch_backward(const BatchNormBackwardArgs& a) {
  batch::Tensors t{a.x, a.dy, a.dx, a.n, a.c, a.spatial, a.channels_last};
  if (!batch::prepare(t, a.dtype)) return false;
  const int64_t parts = needs_sums(a) ? batch::parts_for<true>(t, a.dtype) : 0;
  const Scratch partial(parts * a.c * static_cast<int64_t>(sizeof(Pair)));
  const Scratch factors(a.c * static_cast<int64_t>(sizeof(float4)));
  dispatch(a.dtype, Types<float, BFloat16, Half>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    if (parts > 0) batch::sums<S, true>(t, parts, BatchMean{a.mean, a.param_dtype}, partial.get<Pair>());
    batch_gradients<float><<<column_blocks(a.c), column_threads(parts), 0, cuda::current_stream()>>>(
        a, partial.get<Pair>(), parts, static_cast<Pair*>(nullptr), factors.get<float4>());
    if (a.dx != nullptr) batch::apply<S, true>(t, factors.get<float4>());
  });
  return true;
}

void batch_norm_backward(const BatchNormBackwardArgs& a) {
  const int64_t extent = a.n * a.spatial;
  if (extent * a.c == 0) return;
  if (try_batch_backward(a)) return cuda::check_launch("launching a batch norm's gradient");
  const ChannelIndex index{a.c, a.spatial, a.channels_last};
  const cudaStream_t stream = cuda::current_stream();
  by_compute("batch_norm_backward", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t parts = needs_sums(a) ? channel_parts(index, extent) : 0;
    const Scratch partial((parts + 1) * a.c * static_cast<int64_t>(sizeof(Pair)));
    Pair* const totals = partial.get<Pair>() + parts * a.c;
    if (parts > 0) {
      launch_channel_sums(index, extent, parts, partial.get<Pair>(), BatchGradientSums<T>{a});
      batch_gradients<T><<<column_blocks(a.c), column_threads(parts), 0, stream>>>(
          a, partial.get<Pair>(), parts, totals, static_cast<float4*>(nullptr));
    }
    if (a.dx != nullptr) batch_dx<T><<<grid_for(extent * a.c), kThreads, 0, stream>>>(a, index, totals);
  });
  cuda::check_launch("launching a batch norm's gradient");
}

MT_REGISTER_KERNEL(batch_norm_kernel, &batch_norm);
MT_REGISTER_KERNEL(batch_norm_backward_kernel, &batch_norm_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
