// Convolutions as implicit matrix products (S. Chetlur et al., "cuDNN", 2014) whose operands lie pixel by pixel,
// channels together. Sixteen bytes of channels of a pixel are one asynchronous copy; pixels in the padding are copies
// of nothing, which write zeros. Tensor cores multiply 16-bit floats, and floats that may be rounded to tf32; other
// floats take the same way through plain arithmetic.
#pragma once
#include "kernels/cuda/mma.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {

constexpr int kRows = 128, kColumns = 64, kStages = 3, kThreadCount = 256;
template <class S>
constexpr int kDepth = 128 / static_cast<int>(sizeof(S));  // of a panel
template <class S>
constexpr int kChunk = 16 / static_cast<int>(sizeof(S));  // elements of an asynchronous copy
template <class S>
constexpr int kUnits = static_cast<int>(sizeof(S)) / 2;  // 16-bit units of an element, in which panels count

// Tap t of pixel i = (sample, y, x) of one tensor is a pixel of the other: coordinate * step + start + t * tap, divided
// by `divider` where it is divisible.
template <class S>
struct Gather {
  const S* source;        // [sample][height * width][channels]
  Divider width, height;  // of the grid of i
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
  bool pairs;   // channels 2 c and 2 c + 1 are one aligned access
  bool planes;  // neighbouring pixels are neighbours in memory

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
      if constexpr (sizeof(S) == 2) {
        *reinterpret_cast<uint32_t*>(to) = mma::pack_pair<S>(first, second);
      } else {
        *reinterpret_cast<float2*>(to) = {first, second};
      }
    } else {
      to[0] = convert<S>(first);
      if (both) to[channel] = convert<S>(second);
    }
  }
};

// A tile of sums in shared memory, channels first: lanes that write a fragment, or read pixels, meet different banks.
constexpr int kPlanePitch = kRows + 4;

// Sums of a thread: rows x * 16 + half * 8 + lane / 4 and columns y * 8 + lane % 4 * 2 + e of its warp's 32 x 32, as
// [x][y][half * 2 + e]. Exact products of K of k: `a` are the four rows, `b` pairs of columns.
template <int K>
__device__ __forceinline__ void multiply_exact(float (&sums)[2][4][4], const float (&a)[4][K],
                                               const float (&b)[4][2][K]) {
#pragma unroll
  for (int k = 0; k < K; k++)
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
      for (int y = 0; y < 4; y++)
#pragma unroll
        for (int e = 0; e < 2; e++) sums[r / 2][y][r % 2 * 2 + e] += a[r][k] * b[y][e][k];
}

// A Job says how panels are filled and what becomes of sums; the products between are the same.
//
// Rows are pixels, k runs over (tap, channel): forward, and the gradient of the input.
template <class S>
struct PixelJob {
  using PanelA = mma::Panel<kRows, 64>;
  using PanelB = mma::Panel<kColumns, 64>;
  Gather<S> gather;
  const S* weight;  // [n][k]
  PixelStore<S> output;
  int64_t m, n, k, per_part;

  struct State {
    typename Gather<S>::Pixel pixels[4];
  };
  __device__ __forceinline__ void prepare(State& s, int64_t i0, int64_t) const {
#pragma unroll
    for (int e = 0; e < 4; e++)
      s.pixels[e] = gather.pixel(static_cast<uint32_t>(min(i0 + threadIdx.x / 8 + e * 32, m - 1)));
  }
  __device__ __forceinline__ void fill(uint32_t a, uint32_t b, const State& s, int64_t i0, int64_t j0, int64_t k0,
                                       int64_t end) const {
    const int chunk = static_cast<int>(threadIdx.x) % 8, line = static_cast<int>(threadIdx.x) / 8;
    const int64_t column = k0 + chunk * kChunk<S>;
    const auto tap = gather.tap(static_cast<uint32_t>(column));
#pragma unroll
    for (int e = 0; e < 4; e++)
      gather.copy(a + PanelA::at(line + e * 32, chunk), s.pixels[e], tap, column < end && i0 + line + e * 32 < m);
    PanelB::template fill<kThreadCount>(b, reinterpret_cast<const uint16_t*>(weight + j0 * k + k0), k * kUnits<S>,
                                        n - j0, (end - k0) * kUnits<S>, true);
  }
  // Part `step` of four along k.
  static __device__ __forceinline__ void load_a(uint32_t (&to)[4], uint32_t panel, int row, int step) {
    mma::load_a<PanelA, true>(to, panel, row, step * 16);
  }
  static __device__ __forceinline__ void load_b(uint32_t (&to)[4], uint32_t panel, int column, int step) {
    mma::load_b<PanelB, true>(to, panel, column, step * 16);
  }
  static __device__ __forceinline__ void multiply_exact(float (&sums)[2][4][4], uint32_t a, uint32_t b, int row,
                                                        int column) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int k = 0; k < kDepth<S>; k += 4) {
      float fa[4][4], fb[4][2][4];
#pragma unroll
      for (int r = 0; r < 4; r++) PanelA::floats(fa[r], a, row + r * 8 + lane / 4, k);
#pragma unroll
      for (int y = 0; y < 4; y++)
#pragma unroll
        for (int e = 0; e < 2; e++) PanelB::floats(fb[y][e], b, column + y * 8 + lane % 4 * 2 + e, k);
      conv::multiply_exact(sums, fa, fb);
    }
  }
  __device__ __forceinline__ void emit(int64_t, int64_t i, int64_t j, const float (&sums)[4][2]) const {
    const int64_t at = output.row(static_cast<uint32_t>(i));
#pragma unroll
    for (int y = 0; y < 4; y++) output.store(at, j + y * 8, sums[y][0], sums[y][1]);
  }
  __device__ __forceinline__ bool planes() const { return output.planes; }
  __device__ __forceinline__ void emit_planes(const float* tile, int64_t i0, int64_t j0) const {
    const int pixel = static_cast<int>(threadIdx.x) % kRows;
    if (i0 + pixel >= m) return;
    const int64_t at = output.row(static_cast<uint32_t>(i0 + pixel));
#pragma unroll 4
    for (int c = static_cast<int>(threadIdx.x) / kRows; c < kColumns; c += kThreadCount / kRows) {
      const int64_t channel = j0 + c;
      if (channel >= output.channels) return;
      float sum = tile[c * kPlanePitch + pixel];
      if (output.bias != nullptr) sum += convert<float>(output.bias[channel * output.bias_stride]);
      output.data[at + channel * output.channel] = convert<S>(sum);
    }
  }
};

// Rows are output channels, columns (tap, input channel), k runs over pixels: the gradient of the weight, as partial
// sums [part][m][n].
template <class S>
struct WeightJob {
  static constexpr bool kWords = sizeof(S) == 4;
  using PanelA = mma::Panel<kDepth<S>, kRows * kUnits<S>, kWords>;
  using PanelB = mma::Panel<kDepth<S>, kColumns * kUnits<S>, kWords>;
  Gather<S> gather;
  const S* gradient;  // [pixel][m rounded]
  int64_t gradient_pitch;
  float* partial;
  int64_t m, n, k, per_part;

  struct State {
    typename Gather<S>::Tap tap;
    bool live;
  };
  static __device__ __forceinline__ int chunk() { return static_cast<int>(threadIdx.x) % PanelB::kChunks; }
  __device__ __forceinline__ void prepare(State& s, int64_t, int64_t j0) const {
    const int64_t column = j0 + chunk() * kChunk<S>;
    s.live = column < n;
    s.tap = gather.tap(static_cast<uint32_t>(s.live ? column : 0));
  }
  __device__ __forceinline__ void fill(uint32_t a, uint32_t b, const State& s, int64_t i0, int64_t, int64_t k0,
                                       int64_t end) const {
    PanelA::template fill<kThreadCount>(a, reinterpret_cast<const uint16_t*>(gradient + k0 * gradient_pitch + i0),
                                        gradient_pitch * kUnits<S>, end - k0, (gradient_pitch - i0) * kUnits<S>, true);
    constexpr int kPass = kThreadCount / PanelB::kChunks;  // lines that the block fills at once
    const int line = static_cast<int>(threadIdx.x) / PanelB::kChunks;
#pragma unroll
    for (int e = 0; e < kDepth<S> / kPass; e++) {
      const int64_t i = k0 + line + e * kPass;
      gather.copy(b + PanelB::at(line + e * kPass, chunk()), gather.pixel(static_cast<uint32_t>(min(i, k - 1))), s.tap,
                  s.live && i < end);
    }
  }
  static __device__ __forceinline__ void load_a(uint32_t (&to)[4], uint32_t panel, int row, int step) {
    if constexpr (kWords) {
      mma::load_a_words<PanelA>(to, panel, row, step * 8);
    } else {
      mma::load_a<PanelA, false>(to, panel, row, step * 16);
    }
  }
  static __device__ __forceinline__ void load_b(uint32_t (&to)[4], uint32_t panel, int column, int step) {
    if constexpr (kWords) {
      mma::load_b_words<PanelB>(to, panel, column, step * 8);
    } else {
      mma::load_b<PanelB, false>(to, panel, column, step * 16);
    }
  }
  static __device__ __forceinline__ void multiply_exact(float (&sums)[2][4][4], uint32_t a, uint32_t b, int row,
                                                        int column) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int k = 0; k < kDepth<S>; k++) {
      float fa[4][1], fb[4][2][1];
#pragma unroll
      for (int r = 0; r < 4; r++) PanelA::floats(fa[r], a, k, row + r * 8 + lane / 4);
#pragma unroll
      for (int y = 0; y < 4; y++) {
        float pair[2];
        PanelB::floats(pair, b, k, column + y * 8 + lane % 4 * 2);
        fb[y][0][0] = pair[0];
        fb[y][1][0] = pair[1];
      }
      conv::multiply_exact(sums, fa, fb);
    }
  }
  __device__ __forceinline__ void emit(int64_t part, int64_t i, int64_t j, const float (&sums)[4][2]) const {
    float* const to = partial + (part * m + i) * n + j;
#pragma unroll
    for (int y = 0; y < 4; y++)
      if (j + y * 8 < n) *reinterpret_cast<float2*>(to + y * 8) = {sums[y][0], sums[y][1]};
  }
  __device__ __forceinline__ bool planes() const { return false; }
  __device__ __forceinline__ void emit_planes(const float*, int64_t, int64_t) const {}
};

// 128 x 64 results a block, 32 x 32 a warp.
template <class S, class Job, bool Exact>
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
  const int steps = static_cast<int>((end - begin + kDepth<S> - 1) / kDepth<S>);
  typename Job::State state;
  job.prepare(state, i0, j0);
  const auto fill = [&](int step, int stage) {
    const uint32_t to = base + stage * kStageBytes;
    job.fill(to, to + PanelA::kBytes, state, i0, j0, begin + int64_t{step} * kDepth<S>, end);
  };
  float sums[2][4][4];
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < 4; y++)
#pragma unroll
      for (int e = 0; e < 4; e++) sums[x][y][e] = 0;
  mma::pipeline<kStages>(steps, fill, [&](int stage) {
    const uint32_t panel_a = base + stage * kStageBytes, panel_b = panel_a + PanelA::kBytes;
    if constexpr (Exact) {
      Job::multiply_exact(sums, panel_a, panel_b, wi, wj);
    } else {
#pragma unroll
      for (int k = 0; k < 4; k++) {
        uint32_t fa[2][4], fb[2][4];
#pragma unroll
        for (int x = 0; x < 2; x++) Job::load_a(fa[x], panel_a, wi + x * 16, k);
#pragma unroll
        for (int y = 0; y < 2; y++) Job::load_b(fb[y], panel_b, wj + y * 16, k);
        if constexpr (std::is_same_v<S, float>) {
#pragma unroll
          for (int e = 0; e < 8; e++) {
            mma::round_to_tf32(fa[e / 4][e % 4]);
            mma::round_to_tf32(fb[e / 4][e % 4]);
          }
        }
#pragma unroll
        for (int x = 0; x < 2; x++)
#pragma unroll
          for (int y = 0; y < 4; y++)
            mma::multiply<S>(sums[x][y], fa[x], fb[y / 2][y % 2 * 2], fb[y / 2][y % 2 * 2 + 1]);
      }
    }
  });
  if (job.planes()) {
    // Lanes of a fragment have few pixels of many channels each: through shared memory, a warp has many of one.
    static_assert(kColumns * kPlanePitch * 4 <= kStageBytes * kStages);
    float* const tile = reinterpret_cast<float*>(memory);
    __syncthreads();
#pragma unroll
    for (int x = 0; x < 2; x++)
#pragma unroll
      for (int y = 0; y < 4; y++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          tile[(wj + y * 8 + lane % 4 * 2 + e % 2) * kPlanePitch + wi + x * 16 + e / 2 * 8 + lane / 4] = sums[x][y][e];
    __syncthreads();
    job.emit_planes(tile, i0, j0);
    return;
  }
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

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
