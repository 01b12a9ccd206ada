// Launches of the convolutions of convolution_pixels.cuh. Tensors that do not lie pixel by pixel are
// brought into this order first, their channels rounded up to sixteen bytes; so is the weight, always.
#include "kernels/cuda/convolution_pixels.cuh"

#include "kernels/cuda/convolution_hopper.h"
#include "kernels/cuda/convolution_pixels.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace conv;

// Elements are only moved here.
template <class S>
using word_t = std::conditional_t<sizeof(S) == 2, uint16_t, uint32_t>;

// ---- Into the order of pixels --------------------------------------------------------------------------------------

template <class W>
struct StageArgs {
  const W* from;
  W* to;  // [sample][pixel][pitch], zeros from `channels` on
  int64_t samples, pixels, channels, pitch;
  int64_t sample, channel, y, x;  // strides
  Divider width;
};

// Tiles of 32 pixels by 32 channels: pixels are neighbours where they are read, channels where they are written.
template <class W>
__global__ void __launch_bounds__(256) stage_kernel(const __grid_constant__ StageArgs<W> a) {
  __shared__ W tile[32][32 + 4 / sizeof(W)];
  const int64_t p0 = int64_t{blockIdx.x} * 32, c0 = int64_t{blockIdx.y} * 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, line = static_cast<int>(threadIdx.x) / 32;
  for (int64_t s = blockIdx.z; s < a.samples; s += gridDim.z) {
    const int64_t p = p0 + lane;
    const uint32_t row = a.width.quotient(static_cast<uint32_t>(p));
    const int64_t at = s * a.sample + row * a.y + (p - int64_t{row} * a.width.divisor) * a.x;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int64_t c = c0 + line + e * 8;
      tile[line + e * 8][lane] = p < a.pixels && c < a.channels ? a.from[at + c * a.channel] : W{0};
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int64_t to_pixel = p0 + line + e * 8, c = c0 + lane;
      if (to_pixel < a.pixels && c < a.pitch) a.to[(s * a.pixels + to_pixel) * a.pitch + c] = tile[lane][line + e * 8];
    }
    __syncthreads();
  }
}

// The way back.
template <class W>
__global__ void __launch_bounds__(256) unstage_kernel(const __grid_constant__ StageArgs<W> a) {
  __shared__ W tile[32][32 + 4 / sizeof(W)];
  const int64_t p0 = int64_t{blockIdx.x} * 32, c0 = int64_t{blockIdx.y} * 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, line = static_cast<int>(threadIdx.x) / 32;
  for (int64_t s = blockIdx.z; s < a.samples; s += gridDim.z) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int64_t pixel = p0 + line + e * 8, c = c0 + lane;
      if (pixel < a.pixels && c < a.channels) tile[lane][line + e * 8] = a.from[(s * a.pixels + pixel) * a.pitch + c];
    }
    __syncthreads();
    const int64_t p = p0 + lane;
    const uint32_t row = a.width.quotient(static_cast<uint32_t>(p));
    const int64_t at = s * a.sample + row * a.y + (p - int64_t{row} * a.width.divisor) * a.x;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int64_t c = c0 + line + e * 8;
      if (p < a.pixels && c < a.channels) a.to[at + c * a.channel] = tile[line + e * 8][lane];
    }
    __syncthreads();
  }
}

struct WeightArgs {
  int64_t rows, taps, columns, pitch;       // [row][tap][column of `pitch`]
  int64_t row, column, y, x, kernel_width;  // strides of the weight
  __device__ __forceinline__ int64_t offset(int64_t r, int64_t t, int64_t c) const {
    return r * row + c * column + t / kernel_width * y + t % kernel_width * x;
  }
};

template <class W>
__global__ void __launch_bounds__(kThreads) stage_weight(const __grid_constant__ WeightArgs a, const W* weight, W* to) {
  MT_GRID_LOOP(at, a.rows * a.taps * a.pitch) {
    const int64_t c = at % a.pitch, t = at / a.pitch % a.taps, r = at / (a.pitch * a.taps);
    to[at] = c < a.columns ? weight[a.offset(r, t, c)] : W{0};
  }
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    add_parts(const __grid_constant__ WeightArgs a, const float* partial, int64_t parts, S* weight) {
  const int64_t size = a.rows * a.taps * a.pitch;
  MT_GRID_LOOP(at, size) {
    const int64_t c = at % a.pitch, t = at / a.pitch % a.taps, r = at / (a.pitch * a.taps);
    if (c >= a.columns) continue;
    float sum = 0;
    for (int64_t p = 0; p < parts; p++) sum += partial[p * size + at];
    weight[a.offset(r, t, c)] = convert<S>(sum);
  }
}

// ---- Host ----------------------------------------------------------------------------------------------------------

template <class S>
int64_t rounded(int64_t channels) {
  return ceil_div(channels, kChunk<S>) * kChunk<S>;
}

// Whether a tensor lies pixel by pixel, without gaps, in whole chunks.
template <class S>
bool is_staged(const ConvTensor& t, int64_t channels, int64_t height, int64_t width) {
  return channels % kChunk<S> == 0 && t.strides[1] == 1 && t.strides[4] == channels &&
         t.strides[3] == width * channels && t.strides[0] == height * width * channels &&
         reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

// Moves a tensor into the order of pixels, or out of it.
template <class W, class Kernel>
void stage(Kernel kernel, const void* from, void* to, const ConvTensor& t, int64_t samples, int64_t channels,
           int64_t height, int64_t width, int64_t pitch) {
  StageArgs<W> a;
  a.from = static_cast<const W*>(from);
  a.to = static_cast<W*>(to);
  a.samples = samples, a.pixels = height * width, a.channels = channels, a.pitch = pitch;
  a.sample = t.strides[0], a.channel = t.strides[1], a.y = t.strides[3], a.x = t.strides[4];
  a.width = Divider(static_cast<uint32_t>(width));
  const dim3 grid(static_cast<unsigned>(ceil_div(a.pixels, 32)), static_cast<unsigned>(ceil_div(a.pitch, 32)),
                  static_cast<unsigned>(std::min<int64_t>(samples, 65535)));
  kernel<<<grid, 256, 0, cuda::current_stream()>>>(a);
}

// A tensor in the order of pixels: itself, or a copy that lives as long as this.
template <class S>
struct Staged {
  Scratch memory;
  const S* data;

  Staged(const ConvTensor& t, int64_t samples, int64_t channels, int64_t height, int64_t width)
      : memory(is_staged<S>(t, channels, height, width)
                   ? 0
                   : samples * height * width * rounded<S>(channels) * static_cast<int64_t>(sizeof(S))),
        data(reinterpret_cast<const S*>(t.data)) {
    if (is_staged<S>(t, channels, height, width)) return;
    stage<word_t<S>>(&stage_kernel<word_t<S>>, t.data, memory.get(), t, samples, channels, height, width,
                     rounded<S>(channels));
    data = memory.get<S>();
  }
};

bool fits(const ConvArgs& a) {
  const bool flat = a.in_size[0] == 1 && a.out_size[0] == 1 && a.kernel[0] == 1 && a.padding[0] == 0;
  const int64_t inputs = a.in_size[1] * a.in_size[2], outputs = a.out_size[1] * a.out_size[2];
  const int64_t pixels = std::min(inputs, outputs) == 0 ? 0 : a.batch * std::max(inputs, outputs);
  const int64_t taps = a.kernel[1] * a.kernel[2], channels = rounded<BFloat16>(std::max(a.in_channels, a.out_channels));
  // Positions that a gradient divides, and columns of patches, stay below 2^31.
  return (is_half(a.dtype) || a.dtype == DType::F32) && a.groups == 1 && flat && pixels > 0 && taps > 0 &&
         a.in_channels > 0 && a.out_channels > 0 && pixels < (int64_t{1} << 31) - kRows &&
         taps * channels < int64_t{1} << 30;
}

Divider divider(int64_t d) { return Divider(static_cast<uint32_t>(d)); }

// Reads `source` (channels, sizes) at the taps of pixels of `grid`.
template <class S>
Gather<S> gather_of(const ConvArgs& a, const S* source, int64_t channels, const int64_t (&source_size)[3],
                    const int64_t (&grid)[3], bool backward) {
  Gather<S> g;
  g.source = source;
  g.height = divider(grid[1]), g.width = divider(grid[2]);
  g.channels = divider(rounded<S>(channels)), g.kernel_width = divider(a.kernel[2]);
  g.divide_y = divider(a.stride[1]), g.divide_x = divider(a.stride[2]);
  g.divides = backward && (a.stride[1] != 1 || a.stride[2] != 1);
  const auto number = [](int64_t x) { return static_cast<int>(x); };
  g.step_y = backward ? 1 : number(a.stride[1]), g.step_x = backward ? 1 : number(a.stride[2]);
  g.start_y = number(backward ? a.padding[1] : -a.padding[1]);
  g.start_x = number(backward ? a.padding[2] : -a.padding[2]);
  g.tap_y = number(backward ? -a.dilation[1] : a.dilation[1]);
  g.tap_x = number(backward ? -a.dilation[2] : a.dilation[2]);
  g.source_height = number(source_size[1]), g.source_width = number(source_size[2]);
  g.pitch = number(rounded<S>(channels));
  return g;
}

template <class S, class Job>
void start(const Job& job, int64_t parts, bool exact) {
  constexpr int bytes = (Job::PanelA::kBytes + Job::PanelB::kBytes) * kStages;
  auto kernel = &conv_kernel<S, Job, false>;
  if constexpr (std::is_same_v<S, float>) {
    if (exact) kernel = &conv_kernel<S, Job, true>;
  }
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
              "asking for shared memory");
  const dim3 grid(static_cast<unsigned>(ceil_div(job.m, kRows) * ceil_div(job.n, kColumns)),
                  static_cast<unsigned>(parts));
  kernel<<<grid, kThreadCount, bytes, cuda::current_stream()>>>(job);
}

template <class S>
WeightArgs weight_args(const ConvArgs& a, bool by_input) {
  const int64_t rows = by_input ? a.in_channels : a.out_channels, columns = by_input ? a.out_channels : a.in_channels;
  const auto& s = a.weight.strides;
  return {rows,
          a.kernel[1] * a.kernel[2],
          columns,
          rounded<S>(columns),
          s[by_input ? 1 : 0],
          s[by_input ? 0 : 1],
          s[3],
          s[4],
          a.kernel[2]};
}

// Rounds channels to what Hopper's kernels step by.
template <class S>
int64_t hopper_depth(int64_t channels) {
  return ceil_div(channels, kDepth<S>) * kDepth<S>;
}

// Hopper's kernels waste what rounds channels up.
template <class S>
bool for_hopper(const ConvArgs& a, int64_t channels) {
  return (sizeof(S) == 2 || a.tf32) && channels * 2 >= hopper_depth<S>(channels) && conv_hopper_usable();
}

template <class S>
HopperConvolution hopper_convolution(const ConvArgs& a, const S* source, int64_t channels,
                                     const int64_t (&source_size)[3], const int64_t (&grid)[3], bool backward) {
  HopperConvolution c{};
  c.dtype = a.dtype;
  c.source = source;
  c.samples = a.batch;
  c.pitch = rounded<S>(channels);
  c.depth = hopper_depth<S>(channels);
  for (int d = 0; d < 2; d++) {
    c.source_size[d] = source_size[d + 1], c.grid[d] = grid[d + 1];
    c.kernel[d] = static_cast<int>(a.kernel[d + 1]), c.dilation[d] = static_cast<int>(a.dilation[d + 1]);
    const auto padding = static_cast<int>(a.padding[d + 1]);
    c.padding[d] = backward ? (c.kernel[d] - 1) * c.dilation[d] - padding : padding;
    c.step[d] = static_cast<int>(a.stride[d + 1]);
  }
  c.reversed = backward;
  return c;
}

// The gradient of the input of a convolution of stride 1 is a convolution with the weight turned round.
template <class S>
bool pixels_on_hopper(const ConvArgs& a, const S* source, bool backward) {
  const ConvTensor& to = backward ? a.input : a.output;
  const auto &from_size = backward ? a.out_size : a.in_size, &to_size = backward ? a.in_size : a.out_size;
  const int64_t from_channels = backward ? a.out_channels : a.in_channels;
  if (!for_hopper<S>(a, from_channels) || (backward && (a.stride[1] != 1 || a.stride[2] != 1))) return false;
  HopperConvolution c = hopper_convolution(a, source, from_channels, from_size, to_size, backward);
  WeightArgs w = weight_args<S>(a, backward);
  w.pitch = c.depth;
  const Scratch weight(w.rows * w.taps * w.pitch * static_cast<int64_t>(sizeof(S)));
  stage_weight<<<grid_for(w.rows * w.taps * w.pitch), kThreads, 0, cuda::current_stream()>>>(
      w, reinterpret_cast<const word_t<S>*>(a.weight.data), weight.get<word_t<S>>());
  const bool in_place = is_staged<S>(to, w.rows, to_size[1], to_size[2]);
  const Scratch result(in_place ? 0 : a.batch * to_size[1] * to_size[2] * w.rows * static_cast<int64_t>(sizeof(S)));
  c.channels = w.rows;
  c.other = weight.get();
  c.result = in_place ? to.data : result.get();
  c.bias = a.bias;
  c.bias_stride = a.bias_stride;
  if (!conv_hopper_pixels(c)) return false;
  if (!in_place)
    stage<word_t<S>>(&unstage_kernel<word_t<S>>, result.get(), to.data, to, a.batch, w.rows, to_size[1], to_size[2],
                     w.rows);
  return true;
}

// Forward: to = output, from = input. Backward: the other way.
template <class S>
void pixels(const ConvArgs& a, bool backward) {
  const ConvTensor &from = backward ? a.output : a.input, &to = backward ? a.input : a.output;
  const auto &from_size = backward ? a.out_size : a.in_size, &to_size = backward ? a.in_size : a.out_size;
  const int64_t from_channels = backward ? a.out_channels : a.in_channels;
  const Staged<S> source(from, a.batch, from_channels, from_size[1], from_size[2]);
  if (pixels_on_hopper(a, source.data, backward)) return;
  const WeightArgs w = weight_args<S>(a, backward);
  const Scratch weight(w.rows * w.taps * w.pitch * static_cast<int64_t>(sizeof(S)));
  stage_weight<<<grid_for(w.rows * w.taps * w.pitch), kThreads, 0, cuda::current_stream()>>>(
      w, reinterpret_cast<const word_t<S>*>(a.weight.data), weight.get<word_t<S>>());
  PixelJob<S> job;
  job.gather = gather_of(a, source.data, from_channels, from_size, to_size, backward);
  job.weight = weight.get<S>();
  job.m = a.batch * to_size[1] * to_size[2];
  job.n = w.rows;
  job.k = job.per_part = w.taps * w.pitch;
  PixelStore<S>& out = job.output;
  out.data = reinterpret_cast<S*>(to.data);
  out.sample = to.strides[0], out.channel = to.strides[1], out.y = to.strides[3], out.x = to.strides[4];
  out.width = divider(to_size[2]), out.height = divider(to_size[1]);
  out.channels = job.n;
  out.bias = reinterpret_cast<const S*>(a.bias);
  out.bias_stride = a.bias_stride;
  out.planes = out.x == 1 && out.channel != 1;
  out.pairs = out.channel == 1 && (out.sample | out.y | out.x) % 2 == 0 &&
              reinterpret_cast<uintptr_t>(to.data) % (2 * sizeof(S)) == 0;
  start<S>(job, 1, !a.tf32);
}

// How many parts of k, each a multiple of `depth`, keep `wanted` blocks busy.
struct Parts {
  int64_t count, length;
  Parts(int64_t k, int64_t tiles, int64_t wanted, int64_t depth, int64_t least, int64_t most) {
    count = std::clamp<int64_t>(std::min(wanted / tiles, k / least), 1, most);
    length = ceil_div(ceil_div(k, count), depth) * depth;
    count = ceil_div(k, length);
  }
};

template <class S>
void add_weight_parts(const ConvArgs& a, const WeightArgs& w, const float* partial, int64_t parts) {
  add_parts<S><<<grid_for(w.rows * w.taps * w.pitch), kThreads, 0, cuda::current_stream()>>>(
      w, partial, parts, reinterpret_cast<S*>(a.weight.data));
}

template <class S>
bool weights_on_hopper(const ConvArgs& a, const S* input, const S* gradient) {
  if (sizeof(S) != 2 || !for_hopper<S>(a, a.in_channels)) return false;
  HopperConvolution c = hopper_convolution(a, input, a.in_channels, a.in_size, a.out_size, false);
  WeightArgs w = weight_args<S>(a, false);
  w.pitch = c.depth;
  const int64_t size = w.rows * w.taps * w.pitch;
  const int64_t tiles = ceil_div(w.rows, 128) * ceil_div(w.taps * w.pitch, 128);
  const Parts parts(a.batch * a.out_size[1] * a.out_size[2], tiles, cuda::multiprocessors(), 64, 512, 256);
  const Scratch partial(parts.count * size * 4);
  c.channels = w.rows;
  c.other = gradient;
  c.other_pitch = rounded<S>(a.out_channels);
  if (!conv_hopper_weights(c, parts.count, parts.length, partial.get<float>())) return false;
  add_weight_parts<S>(a, w, partial.get<float>(), parts.count);
  return true;
}

template <class S>
void weight_gradient(const ConvArgs& a) {
  const Staged<S> input(a.input, a.batch, a.in_channels, a.in_size[1], a.in_size[2]);
  const Staged<S> gradient(a.output, a.batch, a.out_channels, a.out_size[1], a.out_size[2]);
  if (weights_on_hopper(a, input.data, gradient.data)) return;
  const WeightArgs w = weight_args<S>(a, false);
  WeightJob<S> job;
  job.gather = gather_of(a, input.data, a.in_channels, a.in_size, a.out_size, false);
  job.gradient = gradient.data;
  job.gradient_pitch = rounded<S>(a.out_channels);
  job.m = a.out_channels;
  job.n = w.taps * w.pitch;
  job.k = a.batch * a.out_size[1] * a.out_size[2];
  const int64_t tiles = ceil_div(job.m, kRows) * ceil_div(job.n, kColumns);
  const Parts parts(job.k, tiles, int64_t{cuda::multiprocessors()} * 4, kDepth<S>, kDepth<S> * 4, 256);
  job.per_part = parts.length;
  const Scratch partial(parts.count * job.m * job.n * 4);
  job.partial = partial.get<float>();
  start<S>(job, parts.count, !a.tf32);
  add_weight_parts<S>(a, w, job.partial, parts.count);
}

}  // namespace

bool conv_pixels(ConvPass pass, const ConvArgs& a) {
  if (!fits(a)) return false;
  dispatch(a.dtype, Types<BFloat16, Half, float>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    pass == ConvPass::backward_weight ? weight_gradient<S>(a) : pixels<S>(a, pass == ConvPass::backward_input);
  });
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
