// Convolutions of 16-bit floats on tensor cores: implicit matrix products (S. Chetlur et al., "cuDNN", 2014) whose
// operands lie pixel by pixel, channels together. Eight channels of a pixel are one asynchronous copy; pixels in the
// padding are copies of nothing, which write zeros. Tensors that lie otherwise are brought into this order first, their
// channels rounded up to eight; so is the weight, always.
#include "kernels/cuda/convolution_half.h"

#include "kernels/cuda/mma.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kRows = 128, kColumns = 64, kDepth = 64, kStages = 3, kThreadCount = 256;

// Tap t of pixel i = (sample, y, x) of one tensor is a pixel of the other: coordinate * step + start + t * tap, divided
// by `divider` where it is divisible.
struct Gather {
  const uint16_t* source;  // [sample][height * width][channels]
  Divider width, height;   // of the grid of i
  Divider channels, kernel_width;
  Divider divide_y, divide_x;
  bool divides;
  int step_y, step_x, start_y, start_x, tap_y, tap_x;
  int source_height, source_width, pitch;  // pitch: rounded channels

  struct Pixel {
    int64_t sample;  // its offset
    int y, x;
  };
  __device__ __forceinline__ Pixel pixel(uint32_t i) const {
    const uint32_t row = width.quotient(i), sample = height.quotient(row);
    const int x = static_cast<int>(i - row * width.divisor), y = static_cast<int>(row - sample * height.divisor);
    return {int64_t{sample} * source_height * source_width, y * step_y + start_y, x * step_x + start_x};
  }
  struct Tap {
    int y, x, channel;
  };
  // Column k of the patch matrix.
  __device__ __forceinline__ Tap tap(uint32_t k) const {
    const uint32_t t = channels.quotient(k), ty = kernel_width.quotient(t);
    return {static_cast<int>(ty) * tap_y, static_cast<int>(t - ty * kernel_width.divisor) * tap_x,
            static_cast<int>(k - t * channels.divisor)};
  }
  __device__ __forceinline__ void copy(uint32_t to, const Pixel& p, const Tap& t, bool live) const {
    int y = p.y + t.y, x = p.x + t.x;
    live = live && y >= 0 && x >= 0;
    if (divides && live) {
      const int qy = static_cast<int>(divide_y.quotient(static_cast<uint32_t>(y)));
      const int qx = static_cast<int>(divide_x.quotient(static_cast<uint32_t>(x)));
      live = qy * static_cast<int>(divide_y.divisor) == y && qx * static_cast<int>(divide_x.divisor) == x;
      y = qy;
      x = qx;
    }
    live = live && y < source_height && x < source_width;
    mma::copy_async(to, live ? source + (p.sample + y * source_width + x) * pitch + t.channel : source, live ? 16 : 0);
  }
};

// The result: pixel by pixel, any strides.
template <class S>
struct PixelStore {
  S* data;
  int64_t sample, channel, y, x;  // strides
  Divider width, height;
  int64_t channels;
  const S* bias;  // or null
  int64_t bias_stride;
  bool pairs;  // channels 2 c and 2 c + 1 are one aligned access

  __device__ __forceinline__ int64_t row(uint32_t i) const {
    const uint32_t r = width.quotient(i), s = height.quotient(r);
    return s * sample + (r - s * height.divisor) * y + (i - r * width.divisor) * x;
  }
  __device__ __forceinline__ void store(int64_t at, int64_t c, float first, float second) const {
    if (c >= channels) return;
    const bool both = c + 1 < channels;
    if (bias != nullptr) {
      first += convert<float>(bias[c * bias_stride]);
      if (both) second += convert<float>(bias[(c + 1) * bias_stride]);
    }
    S* const to = data + at + c * channel;
    if (pairs && both) {
      *reinterpret_cast<uint32_t*>(to) = mma::pack_pair<S>(first, second);
    } else {
      to[0] = convert<S>(first);
      if (both) to[channel] = convert<S>(second);
    }
  }
};

// A Job says how panels are filled and what becomes of sums; the products between are the same.
//
// Rows are pixels, k runs over (tap, channel): forward, and the gradient of the input.
template <class S>
struct PixelJob {
  static constexpr bool kAlongK = true;
  using PanelA = mma::Panel<kRows, kDepth>;
  using PanelB = mma::Panel<kColumns, kDepth>;
  Gather gather;
  const uint16_t* weight;  // [n][k]
  PixelStore<S> output;
  int64_t m, n, k, per_part;

  struct State {
    Gather::Pixel pixels[4];
  };
  __device__ __forceinline__ void prepare(State& s, int64_t i0, int64_t) const {
#pragma unroll
    for (int e = 0; e < 4; e++)
      s.pixels[e] = gather.pixel(static_cast<uint32_t>(min(i0 + threadIdx.x / 8 + e * 32, m - 1)));
  }
  __device__ __forceinline__ void fill(uint32_t a, uint32_t b, const State& s, int64_t i0, int64_t j0, int64_t k0,
                                       int64_t end) const {
    const int chunk = static_cast<int>(threadIdx.x) % 8, line = static_cast<int>(threadIdx.x) / 8;
    const int64_t column = k0 + chunk * 8;
    const Gather::Tap tap = gather.tap(static_cast<uint32_t>(column));
#pragma unroll
    for (int e = 0; e < 4; e++)
      gather.copy(a + PanelA::at(line + e * 32, chunk), s.pixels[e], tap, column < end && i0 + line + e * 32 < m);
    PanelB::template fill<kThreadCount>(b, weight + j0 * k + k0, k, n - j0, end - k0, true);
  }
  __device__ __forceinline__ void emit(int64_t, int64_t i, int64_t j, const float (&sums)[4][2]) const {
    const int64_t at = output.row(static_cast<uint32_t>(i));
#pragma unroll
    for (int y = 0; y < 4; y++) output.store(at, j + y * 8, sums[y][0], sums[y][1]);
  }
};

// Rows are output channels, columns (tap, input channel), k runs over pixels: the gradient of the weight, as partial
// sums [part][m][n].
template <class S>
struct WeightJob {
  static constexpr bool kAlongK = false;
  using PanelA = mma::Panel<kDepth, kRows>;
  using PanelB = mma::Panel<kDepth, kColumns>;
  Gather gather;
  const uint16_t* gradient;  // [pixel][m rounded]
  int64_t gradient_pitch;
  float* partial;
  int64_t m, n, k, per_part;

  struct State {
    Gather::Tap tap;
    bool live;
  };
  __device__ __forceinline__ void prepare(State& s, int64_t, int64_t j0) const {
    const int64_t column = j0 + threadIdx.x % 8 * 8;
    s.live = column < n;
    s.tap = gather.tap(static_cast<uint32_t>(s.live ? column : 0));
  }
  __device__ __forceinline__ void fill(uint32_t a, uint32_t b, const State& s, int64_t i0, int64_t, int64_t k0,
                                       int64_t end) const {
    PanelA::template fill<kThreadCount>(a, gradient + k0 * gradient_pitch + i0, gradient_pitch, end - k0,
                                        gradient_pitch - i0, true);
    const int chunk = static_cast<int>(threadIdx.x) % 8, line = static_cast<int>(threadIdx.x) / 8;
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int64_t i = k0 + line + e * 32;
      gather.copy(b + PanelB::at(line + e * 32, chunk), gather.pixel(static_cast<uint32_t>(min(i, k - 1))), s.tap,
                  s.live && i < end);
    }
  }
  __device__ __forceinline__ void emit(int64_t part, int64_t i, int64_t j, const float (&sums)[4][2]) const {
    float* const to = partial + (part * m + i) * n + j;
#pragma unroll
    for (int y = 0; y < 4; y++)
      if (j + y * 8 < n) *reinterpret_cast<float2*>(to + y * 8) = {sums[y][0], sums[y][1]};
  }
};

// 128 x 64 results a block, 32 x 32 a warp.
template <class S, class Job>
__global__ void __launch_bounds__(kThreadCount, 2) conv_kernel(const __grid_constant__ Job job) {
  using PanelA = typename Job::PanelA;
  using PanelB = typename Job::PanelB;
  constexpr int kStageBytes = PanelA::kBytes + PanelB::kBytes;
  extern __shared__ __align__(128) char memory[];
  const uint32_t base = mma::shared_address(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int wi = warp / 2 * 32, wj = warp % 2 * 32;
  // Blocks that run together share rows: they read the same pixels.
  const int64_t across = (job.n + kColumns - 1) / kColumns, tile_i = blockIdx.x / across;
  const int64_t i0 = tile_i * kRows, j0 = (blockIdx.x - tile_i * across) * kColumns;
  const int64_t part = blockIdx.y, begin = part * job.per_part, end = min(begin + job.per_part, job.k);
  const int steps = static_cast<int>((end - begin + kDepth - 1) / kDepth);
  typename Job::State state;
  job.prepare(state, i0, j0);
  const auto fill = [&](int step) {
    if (step < steps) {
      const uint32_t stage = base + step % kStages * kStageBytes;
      job.fill(stage, stage + PanelA::kBytes, state, i0, j0, begin + int64_t{step} * kDepth, end);
    }
    mma::commit_copies();
  };
  float sums[2][4][4];
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < 4; y++)
#pragma unroll
      for (int e = 0; e < 4; e++) sums[x][y][e] = 0;
#pragma unroll 1
  for (int s = 0; s < kStages - 1; s++) fill(s);
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    mma::wait_copies<kStages - 2>();
    __syncthreads();
    fill(step + kStages - 1);
    const uint32_t panel_a = base + step % kStages * kStageBytes, panel_b = panel_a + PanelA::kBytes;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t fa[2][4], fb[2][4];
#pragma unroll
      for (int x = 0; x < 2; x++) mma::load_a<PanelA, Job::kAlongK>(fa[x], panel_a, wi + x * 16, k);
#pragma unroll
      for (int y = 0; y < 2; y++) mma::load_b<PanelB, Job::kAlongK>(fb[y], panel_b, wj + y * 16, k);
#pragma unroll
      for (int x = 0; x < 2; x++)
#pragma unroll
        for (int y = 0; y < 4; y++) mma::multiply<S>(sums[x][y], fa[x], fb[y / 2][y % 2 * 2], fb[y / 2][y % 2 * 2 + 1]);
    }
  }
  mma::wait_copies<0>();
#pragma unroll
  for (int x = 0; x < 2; x++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int64_t i = i0 + wi + x * 16 + half * 8 + lane / 4;
      if (i >= job.m) continue;
      float row[4][2];
#pragma unroll
      for (int y = 0; y < 4; y++) {
        row[y][0] = sums[x][y][half * 2];
        row[y][1] = sums[x][y][half * 2 + 1];
      }
      job.emit(part, i, j0 + wj + lane % 4 * 2, row);
    }
  }
}

// ---- Into the order of pixels --------------------------------------------------------------------------------------

struct StageArgs {
  const uint16_t* from;
  uint16_t* to;  // [sample][pixel][pitch], zeros from `channels` on
  int64_t samples, pixels, channels, pitch;
  int64_t sample, channel, y, x;  // strides
  Divider width;
};

// Tiles of 32 pixels by 32 channels: pixels are neighbours where they are read, channels where they are written.
__global__ void __launch_bounds__(256) stage_kernel(const __grid_constant__ StageArgs a) {
  __shared__ uint16_t tile[32][34];
  const int64_t p0 = int64_t{blockIdx.x} * 32, c0 = int64_t{blockIdx.y} * 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, line = static_cast<int>(threadIdx.x) / 32;
  for (int64_t s = blockIdx.z; s < a.samples; s += gridDim.z) {
    const int64_t p = p0 + lane;
    const uint32_t row = a.width.quotient(static_cast<uint32_t>(p));
    const int64_t at = s * a.sample + row * a.y + (p - int64_t{row} * a.width.divisor) * a.x;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int64_t c = c0 + line + e * 8;
      tile[line + e * 8][lane] = p < a.pixels && c < a.channels ? a.from[at + c * a.channel] : uint16_t{0};
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

struct WeightArgs {
  int64_t rows, taps, columns, pitch;       // [row][tap][column of `pitch`]
  int64_t row, column, y, x, kernel_width;  // strides of the weight
  __device__ __forceinline__ int64_t offset(int64_t r, int64_t t, int64_t c) const {
    return r * row + c * column + t / kernel_width * y + t % kernel_width * x;
  }
};

__global__ void __launch_bounds__(kThreads)
    stage_weight(const __grid_constant__ WeightArgs a, const uint16_t* weight, uint16_t* to) {
  MT_GRID_LOOP(at, a.rows * a.taps * a.pitch) {
    const int64_t c = at % a.pitch, t = at / a.pitch % a.taps, r = at / (a.pitch * a.taps);
    to[at] = c < a.columns ? weight[a.offset(r, t, c)] : uint16_t{0};
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

int64_t rounded(int64_t channels) { return ceil_div(channels, 8) * 8; }

// A tensor in the order of pixels: itself, or a copy that lives as long as this.
struct Staged {
  Scratch memory;
  const uint16_t* data;

  static bool is_staged(const ConvTensor& t, int64_t channels, int64_t height, int64_t width) {
    return channels % 8 == 0 && t.strides[1] == 1 && t.strides[4] == channels && t.strides[3] == width * channels &&
           t.strides[0] == height * width * channels && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
  }
  Staged(const ConvTensor& t, int64_t samples, int64_t channels, int64_t height, int64_t width)
      : memory(is_staged(t, channels, height, width) ? 0 : samples * height * width * rounded(channels) * 2) {
    data = reinterpret_cast<const uint16_t*>(t.data);
    if (is_staged(t, channels, height, width)) return;
    StageArgs a;
    a.from = data;
    a.to = memory.get<uint16_t>();
    a.samples = samples, a.pixels = height * width, a.channels = channels, a.pitch = rounded(channels);
    a.sample = t.strides[0], a.channel = t.strides[1], a.y = t.strides[3], a.x = t.strides[4];
    a.width = Divider(static_cast<uint32_t>(width));
    const dim3 grid(static_cast<unsigned>(ceil_div(a.pixels, 32)), static_cast<unsigned>(ceil_div(a.pitch, 32)),
                    static_cast<unsigned>(std::min<int64_t>(samples, 65535)));
    stage_kernel<<<grid, 256, 0, cuda::current_stream()>>>(a);
    data = a.to;
  }
};

bool fits(const ConvArgs& a) {
  const bool flat = a.in_size[0] == 1 && a.out_size[0] == 1 && a.kernel[0] == 1 && a.padding[0] == 0;
  const int64_t inputs = a.in_size[1] * a.in_size[2], outputs = a.out_size[1] * a.out_size[2];
  const int64_t pixels = std::min(inputs, outputs) == 0 ? 0 : a.batch * std::max(inputs, outputs);
  const int64_t taps = a.kernel[1] * a.kernel[2], channels = std::max(rounded(a.in_channels), rounded(a.out_channels));
  // Positions that a gradient divides, and columns of patches, stay below 2^31.
  return is_half(a.dtype) && a.groups == 1 && flat && pixels > 0 && taps > 0 && a.in_channels > 0 &&
         a.out_channels > 0 && pixels < (int64_t{1} << 31) - kRows && taps * channels < int64_t{1} << 30;
}

Divider divider(int64_t d) { return Divider(static_cast<uint32_t>(d)); }

// Reads `source` (channels, sizes) at the taps of pixels of `grid`.
Gather gather_of(const ConvArgs& a, const uint16_t* source, int64_t channels, const int64_t (&source_size)[3],
                 const int64_t (&grid)[3], bool backward) {
  Gather g;
  g.source = source;
  g.height = divider(grid[1]), g.width = divider(grid[2]);
  g.channels = divider(rounded(channels)), g.kernel_width = divider(a.kernel[2]);
  g.divide_y = divider(a.stride[1]), g.divide_x = divider(a.stride[2]);
  g.divides = backward && (a.stride[1] != 1 || a.stride[2] != 1);
  const auto number = [](int64_t x) { return static_cast<int>(x); };
  g.step_y = backward ? 1 : number(a.stride[1]), g.step_x = backward ? 1 : number(a.stride[2]);
  g.start_y = number(backward ? a.padding[1] : -a.padding[1]);
  g.start_x = number(backward ? a.padding[2] : -a.padding[2]);
  g.tap_y = number(backward ? -a.dilation[1] : a.dilation[1]);
  g.tap_x = number(backward ? -a.dilation[2] : a.dilation[2]);
  g.source_height = number(source_size[1]), g.source_width = number(source_size[2]);
  g.pitch = number(rounded(channels));
  return g;
}

template <class S, class Job>
void start(const Job& job, int64_t parts) {
  constexpr int bytes = (Job::PanelA::kBytes + Job::PanelB::kBytes) * kStages;
  const auto kernel = &conv_kernel<S, Job>;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
              "asking for shared memory");
  const dim3 grid(static_cast<unsigned>(ceil_div(job.m, kRows) * ceil_div(job.n, kColumns)),
                  static_cast<unsigned>(parts));
  kernel<<<grid, kThreadCount, bytes, cuda::current_stream()>>>(job);
}

WeightArgs weight_args(const ConvArgs& a, bool by_input) {
  const int64_t rows = by_input ? a.in_channels : a.out_channels, columns = by_input ? a.out_channels : a.in_channels;
  const auto& s = a.weight.strides;
  return {rows,
          a.kernel[1] * a.kernel[2],
          columns,
          rounded(columns),
          s[by_input ? 1 : 0],
          s[by_input ? 0 : 1],
          s[3],
          s[4],
          a.kernel[2]};
}

// Forward: to = output, from = input. Backward: the other way.
template <class S>
void pixels(const ConvArgs& a, bool backward) {
  const ConvTensor &from = backward ? a.output : a.input, &to = backward ? a.input : a.output;
  const auto &from_size = backward ? a.out_size : a.in_size, &to_size = backward ? a.in_size : a.out_size;
  const int64_t from_channels = backward ? a.out_channels : a.in_channels;
  const Staged source(from, a.batch, from_channels, from_size[1], from_size[2]);
  const WeightArgs w = weight_args(a, backward);
  const Scratch weight(w.rows * w.taps * w.pitch * 2);
  stage_weight<<<grid_for(w.rows * w.taps * w.pitch), kThreads, 0, cuda::current_stream()>>>(
      w, reinterpret_cast<const uint16_t*>(a.weight.data), weight.get<uint16_t>());
  PixelJob<S> job;
  job.gather = gather_of(a, source.data, from_channels, from_size, to_size, backward);
  job.weight = weight.get<uint16_t>();
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
  out.pairs =
      out.channel == 1 && (out.sample | out.y | out.x) % 2 == 0 && reinterpret_cast<uintptr_t>(to.data) % 4 == 0;
  start<S>(job, 1);
}

template <class S>
void weight_gradient(const ConvArgs& a) {
  const Staged input(a.input, a.batch, a.in_channels, a.in_size[1], a.in_size[2]);
  const Staged gradient(a.output, a.batch, a.out_channels, a.out_size[1], a.out_size[2]);
  const WeightArgs w = weight_args(a, false);
  WeightJob<S> job;
  job.gather = gather_of(a, input.data, a.in_channels, a.in_size, a.out_size, false);
  job.gradient = gradient.data;
  job.gradient_pitch = rounded(a.out_channels);
  job.m = a.out_channels;
  job.n = w.taps * w.pitch;
  job.k = a.batch * a.out_size[1] * a.out_size[2];
  const int64_t tiles = ceil_div(job.m, kRows) * ceil_div(job.n, kColumns);
  const int64_t wanted = int64_t{cuda::multiprocessors()} * 4;
  int64_t parts = std::clamp<int64_t>(std::min(wanted / tiles, job.k / (kDepth * 4)), 1, 256);
  job.per_part = ceil_div(ceil_div(job.k, parts), kDepth) * kDepth;
  parts = ceil_div(job.k, job.per_part);
  const Scratch partial(parts * job.m * job.n * 4);
  job.partial = partial.get<float>();
  start<S>(job, parts);
  add_parts<S><<<grid_for(job.m * job.n), kThreads, 0, cuda::current_stream()>>>(w, job.partial, parts,
                                                                                 reinterpret_cast<S*>(a.weight.data));
}

}  // namespace

bool conv_half(ConvPass pass, const ConvArgs& a) {
  if (!fits(a)) return false;
  dispatch(a.dtype, Types<BFloat16, Half>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    pass == ConvPass::backward_weight ? weight_gradient<S>(a) : pixels<S>(a, pass == ConvPass::backward_input);
  });
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
