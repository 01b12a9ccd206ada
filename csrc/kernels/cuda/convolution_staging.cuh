// How operands of convolutions come into the order of pixels that convolution_pixels.cuh and convolution_hopper.cu work
// on, channels rounded up to sixteen bytes, and results out of it.
#pragma once
#include "kernels/cuda/convolution_pixels.cuh"
#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/convolution.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {

// Elements are only moved here.
template <class S>
using word_t = std::conditional_t<sizeof(S) == 2, uint16_t, uint32_t>;

template <class W>
struct StageArgs {
  W* outside;
  W* pixels;  // [sample][pixel][pitch], zeros from `channels` on
  int64_t samples, count, channels, pitch;
  int64_t sample, channel, y, x;  // strides outside
  Divider width;
  bool words;  // neighbouring pixels outside are one aligned word
};

// Moves tiles of as many pixels as channels, 32 words: neighbours are pixels outside, and channels inside.
template <class W, bool Into>
__global__ void __launch_bounds__(256) stage_kernel(const __grid_constant__ StageArgs<W> a) {
  constexpr int kWord = 4 / static_cast<int>(sizeof(W)), kSide = 32 * kWord;
  using Word = Pack<W, kWord>;
  __shared__ __align__(4) W tile[kSide][kSide + kWord];  // [channel][pixel]
  const int64_t p0 = int64_t{blockIdx.x} * kSide, c0 = int64_t{blockIdx.y} * kSide;
  const int lane = static_cast<int>(threadIdx.x) % 32 * kWord, line = static_cast<int>(threadIdx.x) / 32;
  for (int64_t s = blockIdx.z; s < a.samples; s += gridDim.z) {
    const auto outside = [&] {
      int64_t at[kWord];
#pragma unroll
      for (int w = 0; w < kWord; w++) {
        const auto p = static_cast<uint32_t>(p0 + lane + w), row = a.width.quotient(p);
        at[w] = s * a.sample + row * a.y + int64_t{p - row * a.width.divisor} * a.x;
      }
#pragma unroll
      for (int e = 0; e < kSide; e += 8) {
        const int64_t c = c0 + line + e;
        W* const in_tile = &tile[line + e][lane];
        if (a.words && c < a.channels && p0 + lane < a.count) {
          Word* const word = reinterpret_cast<Word*>(a.outside + at[0] + c * a.channel);
          Into ? void(*reinterpret_cast<Word*>(in_tile) = *word) : void(*word = *reinterpret_cast<Word*>(in_tile));
          continue;
        }
#pragma unroll
        for (int w = 0; w < kWord; w++) {
          const bool live = c < a.channels && p0 + lane + w < a.count;
          W* const element = a.outside + at[w] + c * a.channel;
          if constexpr (Into) in_tile[w] = live ? *element : W{0};
          if constexpr (!Into)
            if (live) *element = in_tile[w];
        }
      }
    };
    const auto inside = [&] {
#pragma unroll
      for (int e = 0; e < kSide; e += 8) {
        const int64_t pixel = p0 + line + e, c = c0 + lane;
        if (pixel >= a.count || c >= a.pitch) continue;
        Word* const word = reinterpret_cast<Word*>(a.pixels + (s * a.count + pixel) * a.pitch + c);
        Word held;
        if constexpr (!Into) held = *word;
#pragma unroll
        for (int w = 0; w < kWord; w++) {
          W& element = tile[lane + w][line + e];
          Into ? void(held.value[w] = element) : void(element = held.value[w]);
        }
        if constexpr (Into) *word = held;
      }
    };
    Into ? outside() : inside();
    __syncthreads();
    Into ? inside() : outside();
    __syncthreads();
  }
}

// An image of few channels under a window that moves by two pixels: four channels, those of two rows together, so that
// a position's next eight pixels of two rows are 64 elements in a line.
constexpr int kPairWidth = 8, kPairChannels = 4, kPairPixel = 2 * kPairChannels;

template <class W>
struct PairArgs {
  const W* image;
  W* to;  // [sample][pair of rows][pixel][row][channel]
  int64_t samples, pairs;
  int width, left;  // pixels of a row, of which `left` are in front of the image
  int image_height, image_width, channels;
  int64_t sample, channel, y, x;  // strides of the image
};

template <class W>
__global__ void __launch_bounds__(kThreads) pair_rows_kernel(const __grid_constant__ PairArgs<W> a) {
  MT_GRID_LOOP(at, a.samples * a.pairs * a.width) {
    const int64_t line = at / a.width, sample = line / a.pairs;
    const int x = static_cast<int>(at - line * a.width) - a.left, y = static_cast<int>(line - sample * a.pairs) * 2;
    Pack<W, kPairPixel> pixel;
#pragma unroll
    for (int e = 0; e < kPairPixel; e++) {
      const int row = y + e / kPairChannels, channel = e % kPairChannels;
      const bool live = x >= 0 && x < a.image_width && row < a.image_height && channel < a.channels;
      pixel.value[e] = live ? a.image[sample * a.sample + channel * a.channel + row * a.y + x * a.x] : W{0};
    }
    *reinterpret_cast<Pack<W, kPairPixel>*>(a.to + at * kPairPixel) = pixel;
  }
}

// Where a weight's elements lie: of rows, taps and columns (which reaches from 0 to pitch in memory of ours).
struct WeightArgs {
  int64_t rows, taps, columns, pitch;
  int64_t row, column, y, x;  // strides
  int kernel_height, kernel_width;
  bool pairs;  // taps are pairs of rows, columns as pair_rows_kernel lays them out
  int lead;    // rows in front of the first tap's

  // Of a row's; negative: there is none.
  __device__ __forceinline__ int64_t offset(int64_t t, int64_t c) const {
    const int tap = static_cast<int>(t);
    if (pairs) {
      const int k = static_cast<int>(c), channel = k % kPairChannels, ty = tap * 2 + k / kPairChannels % 2 - lead,
                tx = k / kPairPixel;
      const bool live = channel < columns && tx < kernel_width && ty >= 0 && ty < kernel_height;
      return live ? channel * column + ty * y + tx * x : -1;
    }
    return c < columns ? c * column + tap / kernel_width * y + tap % kernel_width * x : -1;
  }
};

// As a batch of matrices for lines.cuh, one a tap.
template <class W>
struct WeightLines {
  const W* data;
  WeightArgs a;
  int64_t rows, depth, row;
  __device__ __forceinline__ int64_t start(int64_t t, int64_t c) const { return a.offset(t, c); }
};

// Parts of a weight's gradient, [part][row][(tap, column)] or, if `across`, [part][(tap, column)][row], lines of
// `line` elements.
struct PartArgs {
  float* partial;
  int64_t parts, size, line;
  bool across;
};

template <class S>
__global__ void __launch_bounds__(256)
    write_weight(const __grid_constant__ WeightArgs a, const __grid_constant__ PartArgs p, S* weight) {
  constexpr int kSide = lines::kTile;
  __shared__ float tile[kSide][kSide + 1];  // [row][(tap, column)]
  const int lane = static_cast<int>(threadIdx.x) % kSide, line = static_cast<int>(threadIdx.x) / kSide;
  const int64_t k0 = int64_t{blockIdx.x} * kSide, r0 = int64_t{blockIdx.y} * kSide, depth = a.taps * a.pitch;
#pragma unroll
  for (int e = 0; e < kSide; e += 8) {
    const int r = p.across ? lane : line + e, k = p.across ? line + e : lane;
    float sum = 0;
    if (r0 + r < a.rows && k0 + k < depth) {
      const float* from = p.partial + (p.across ? (k0 + k) * p.line + r0 + r : (r0 + r) * p.line + k0 + k);
#pragma unroll 4
      for (int64_t part = 0; part < p.parts; part++, from += p.size) sum += *from;
    }
    tile[r][k] = sum;
  }
  __syncthreads();
  const uint32_t at = static_cast<uint32_t>(k0 + lane), tap = at / static_cast<uint32_t>(a.pitch);
  if (at >= depth) return;
  const int64_t offset = a.offset(tap, at - tap * static_cast<uint32_t>(a.pitch));
  if (offset < 0) return;
#pragma unroll
  for (int e = 0; e < kSide; e += 8)
    if (r0 + line + e < a.rows) weight[(r0 + line + e) * a.row + offset] = convert<S>(tile[line + e][lane]);
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
template <class W, bool Into>
void stage(char* outside, void* pixels, const ConvTensor& t, int64_t samples, int64_t channels, int64_t height,
           int64_t width, int64_t pitch) {
  constexpr int64_t kWord = 4 / sizeof(W), kSide = 32 * kWord;
  StageArgs<W> a;
  a.outside = reinterpret_cast<W*>(outside);
  a.pixels = static_cast<W*>(pixels);
  a.samples = samples, a.count = height * width, a.channels = channels, a.pitch = pitch;
  a.sample = t.strides[0], a.channel = t.strides[1], a.y = t.strides[3], a.x = t.strides[4];
  a.width = Divider(static_cast<uint32_t>(width));
  a.words = a.x == 1 && (a.y == width || height == 1) && (a.count | a.channel | a.sample) % kWord == 0 &&
            reinterpret_cast<uintptr_t>(outside) % 4 == 0;
  const dim3 grid(static_cast<unsigned>(ceil_div(a.count, kSide)), static_cast<unsigned>(ceil_div(a.pitch, kSide)),
                  static_cast<unsigned>(std::min<int64_t>(samples, 65535)));
  stage_kernel<W, Into><<<grid, 256, 0, cuda::current_stream()>>>(a);
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
    stage<word_t<S>, true>(t.data, memory.get(), t, samples, channels, height, width, rounded<S>(channels));
    data = memory.get<S>();
  }
};

template <class S>
WeightArgs weight_args(const ConvArgs& a, bool by_input) {
  const auto& s = a.weight.strides;
  WeightArgs w{};
  w.rows = by_input ? a.in_channels : a.out_channels;
  w.taps = a.kernel[1] * a.kernel[2];
  w.columns = by_input ? a.out_channels : a.in_channels;
  w.pitch = rounded<S>(w.columns);
  w.row = s[by_input ? 1 : 0], w.column = s[by_input ? 0 : 1], w.y = s[3], w.x = s[4];
  w.kernel_height = static_cast<int>(a.kernel[1]), w.kernel_width = static_cast<int>(a.kernel[2]);
  return w;
}

// A weight as [row][tap][column], with zeros between: itself, or a copy that lives as long as this.
template <class S>
struct StagedWeight {
  Scratch memory;
  const S* data;

  // Whether the weight is [outer][tap][inner] in memory, in whole chunks.
  static bool lies(const ConvArgs& a, const WeightArgs& w, int64_t outer, int64_t inner, int64_t inner_size) {
    return !w.pairs && inner_size % kChunk<S> == 0 && inner == 1 && (w.kernel_width == 1 || w.x == inner_size) &&
           (w.kernel_height == 1 || w.y == w.kernel_width * inner_size) && outer == w.taps * inner_size &&
           reinterpret_cast<uintptr_t>(a.weight.data) % 16 == 0;
  }
  static bool ready(const ConvArgs& a, const WeightArgs& w) {
    return w.columns == w.pitch && lies(a, w, w.row, w.column, w.columns);
  }
  // [column][tap][row].
  static bool turned(const ConvArgs& a, const WeightArgs& w) {
    return sizeof(S) == 2 && w.columns % kChunk<S> == 0 && lies(a, w, w.column, w.row, w.rows);
  }
  StagedWeight(const ConvArgs& a, const WeightArgs& w, bool as_it_is = false)
      : memory(as_it_is || ready(a, w) ? 0 : w.rows * w.taps * w.pitch * static_cast<int64_t>(sizeof(S))),
        data(reinterpret_cast<const S*>(a.weight.data)) {
    if (as_it_is || ready(a, w)) return;
    const WeightLines<word_t<S>> from{reinterpret_cast<const word_t<S>*>(a.weight.data), w, w.rows, w.pitch, w.row};
    lines::copy(from, memory.get<word_t<S>>(), w.taps * w.pitch, w.pitch, w.pitch, w.taps,
                std::abs(w.row) < std::abs(w.column));
    data = memory.get<S>();
  }
};

template <class S>
void add_parts(const ConvArgs& a, const WeightArgs& w, PartArgs p) {
  p.parts = parts::add_many(p.partial, p.parts, p.size);
  const dim3 grid(static_cast<unsigned>(ceil_div(w.taps * w.pitch, lines::kTile)),
                  static_cast<unsigned>(ceil_div(w.rows, lines::kTile)));
  write_weight<<<grid, 256, 0, cuda::current_stream()>>>(w, p, reinterpret_cast<S*>(a.weight.data));
}

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
