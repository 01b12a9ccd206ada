// Convolutions on Hopper's matrix units, by the kernel of gemm_hopper.cuh. A tile's rows are positions of the sliding
// window in small blocks of width x height x samples: one tap of such a block is a box of the image, which the copy
// engine brings at once, with zeros in the padding, and its results leave as a box. Strides: every second pixel is an
// image of its own, and so is every second pixel of a gradient, with taps of its own.
#include "kernels/cuda/convolution_hopper.h"

#include "kernels/cuda/gemm_hopper_plan.cuh"
#include "kernels/cuda/lines.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace products;

constexpr int kBlock = 64;     // rows of a tile that a box brings
constexpr int kMostTaps = 64;  // of a convolution
constexpr int kImages = 4;     // into which strides cut one

// Blocks of positions, numbered along x first.
struct Blocks {
  Divider across, down;
  int width, height, samples;
  int64_t count;

  struct Place {
    int x, y, sample;
  };
  [[maybe_unused]] __device__ __forceinline__ Place at(int64_t block) const {
    const auto i = static_cast<uint32_t>(block);
    const uint32_t row = across.quotient(i), slab = down.quotient(row);
    return {static_cast<int>(i - row * across.divisor) * width, static_cast<int>(row - slab * down.divisor) * height,
            static_cast<int>(slab) * samples};
  }

  // At most `most` positions a block, as few blocks as possible. Exact: blocks of `most` that cut nothing but samples.
  Blocks(const int64_t (&grid)[2], int64_t sample_count, int most, bool exact) {
    const auto grid_width = static_cast<uint32_t>(grid[1]), grid_height = static_cast<uint32_t>(grid[0]),
               all = static_cast<uint32_t>(sample_count);
    const auto parts = [](uint32_t n, int of) {
      return (n + static_cast<uint32_t>(of) - 1) / static_cast<uint32_t>(of);
    };
    const auto worth = [&](uint32_t size, int part) {
      const bool whole = size % static_cast<uint32_t>(part) == 0, power = (part & (part - 1)) == 0;
      return exact ? whole && power : whole || power;
    };
    count = 0;
    for (int w = 1; w <= most && static_cast<uint32_t>(w) <= grid_width; w++) {
      if (!worth(grid_width, w)) continue;
      for (int h = 1; w * h <= most && static_cast<uint32_t>(h) <= grid_height; h++) {
        if (!worth(grid_height, h)) continue;
        const int n = exact ? most / (w * h) : std::min(most / (w * h), static_cast<int>(all));
        const int64_t blocks = int64_t{parts(grid_width, w)} * parts(grid_height, h) * parts(all, n);
        if (count != 0 && blocks > count) continue;
        count = blocks, width = w, height = h, samples = n;
      }
    }
    across = Divider(parts(grid_width, width));
    down = Divider(parts(grid_height, height));
  }
  bool map(CUtensorMap* to, DType dtype, const HopperImage& image, int64_t sample_count, bool rounds) const {
    return hopper::make_map<4>(to, dtype, image.data, {image.channels, image.size[1], image.size[0], sample_count},
                               {image.pixel, image.row, image.sample}, {width, height, samples}, rounds);
  }
};

// Pixels first, first + stride, ... of an image.
HopperImage every(const HopperImage& image, DType dtype, const int64_t (&first)[2], const int64_t (&stride)[2]) {
  HopperImage part = image;
  part.data = static_cast<const char*>(image.data) +
              (first[0] * image.row + first[1] * image.pixel) * static_cast<int64_t>(size_of(dtype));
  for (int d = 0; d < 2; d++) part.size[d] = ceil_div(image.size[d] - first[d], stride[d]);
  part.row *= stride[0], part.pixel *= stride[1];
  return part;
}

// What a tap of a position is: pixel (y, x) further of an image, and tap `at` of the weight.
struct Tap {
  int16_t y, x;
  uint8_t image, at;
};

struct Taps {
  Tap taps[kMostTaps + 1];      // the last one is outside of everything: zeros
  int first[kImages + 1] = {};  // of the results of each image

  // Adds what positions at `residue` of an image of results meet; false if it cannot be told.
  bool add(const HopperConvolution& c, bool backward, const int64_t (&residue)[2], int image) {
    int count = first[image];
    const int64_t all = c.kernel[0] * c.kernel[1];
    for (int64_t t = 0; t < all; t++) {
      const int64_t tap[2] = {t / c.kernel[1], t % c.kernel[1]};
      int64_t offset[2], from[2];
      bool meets = true;
      for (int d = 0; d < 2; d++) {
        const int64_t reach = tap[d] * c.dilation[d] - c.padding[d], s = c.stride[d];
        const int64_t at = backward ? residue[d] - reach : reach;
        from[d] = (at % s + s) % s;
        offset[d] = (at - from[d]) / s;
        meets = meets && (!backward || from[d] == 0) && std::abs(offset[d]) < 30000;
        if (std::abs(offset[d]) >= 30000) return false;
      }
      if (!meets) continue;
      taps[count++] = {static_cast<int16_t>(offset[0]), static_cast<int16_t>(offset[1]),
                       static_cast<uint8_t>(backward ? 0 : from[0] * c.stride[1] + from[1]), static_cast<uint8_t>(t)};
    }
    taps[kMostTaps] = {-32768, -32768, 0, static_cast<uint8_t>(all)};
    first[image + 1] = count;
    return true;
  }
};

// Rows are positions, k runs over (tap, channel). The batch: images of results. AlongK: the weight is [n][k]; else
// [channel][tap][n].
template <class S, int Columns, bool AlongK>
struct PixelLoader : LoaderBase {
  static constexpr bool kPlaces = true;
  CUtensorMap source[kImages], result[kImages], weight;
  Blocks blocks;
  Taps taps;
  int channel_steps;

  struct State {
    Blocks::Place place[2];
    int tap, channel;
  };
  __device__ __forceinline__ void adapt(Unit& u) const {
    u.steps = max((taps.first[u.batch + 1] - taps.first[u.batch]) * channel_steps, 1);
  }
  __device__ __forceinline__ State begin(const Unit& u) const {
    const int first = taps.first[u.batch], tap = first < taps.first[u.batch + 1] ? first : kMostTaps;
    return {{blocks.at(u.i / kBlock), blocks.at(u.i / kBlock + 1)}, tap, 0};
  }
  __device__ __forceinline__ void load(uint32_t a, uint32_t b, const Unit& u, State& s, int, uint32_t barrier) const {
    const Tap tap = taps.taps[s.tap];
#pragma unroll
    for (int r = 0; r < 2; r++)
      hopper::copy_box(a + r * kBlock * kLine, source[tap.image], s.channel * kDepth<S>, s.place[r].x + tap.x,
                       s.place[r].y + tap.y, s.place[r].sample, barrier);
    if constexpr (AlongK) {
      hopper::copy_box(b, weight, (tap.at * channel_steps + s.channel) * kDepth<S>, static_cast<int>(u.j), 0, barrier);
    } else {
#pragma unroll
      for (int r = 0; r < Columns; r += 64)
        hopper::copy_box(b + r * kLine, weight, static_cast<int>(u.j) + r, s.channel * kDepth<S>, tap.at, barrier);
    }
    if (++s.channel == channel_steps) {
      s.channel = 0;
      s.tap++;
    }
  }
  // A box of results: `column` and on, of the block at `row`.
  __device__ __forceinline__ void place(int64_t column, int64_t row, int64_t image, uint32_t box) const {
    const auto to = blocks.at(row / kBlock);
    hopper::store_box(result[image], static_cast<int>(column), to.x, to.y, to.sample, box);
  }
  template <int>
  int loaded_bytes() const {
    return (2 * blocks.width * blocks.height * blocks.samples + Columns) * kLine;
  }
};

// Rows are (tap, channel), columns output channels, k runs over positions. Of floats the matrix units want both
// operands along k: the image goes through registers, the gradient has been brought into lines along k, by blocks
// (BlockLines).
template <class S, int Columns>
struct WeightLoader : LoaderBase {
  static constexpr bool kLeft = std::is_same_v<S, float>;
  static constexpr int kWidth = kDepth<S>;  // channels of a box, and positions of a block
  CUtensorMap source[kImages], gradient;
  Blocks blocks;
  Taps taps;
  int channel_blocks;

  struct State {};
  __device__ __forceinline__ State begin(const Unit&) const { return {}; }
  __device__ __forceinline__ void load(uint32_t a, uint32_t b, const Unit& u, State&, int step,
                                       uint32_t barrier) const {
    const int k = static_cast<int>(u.begin) + step * kWidth;
    const auto place = blocks.at(k / kWidth);
#pragma unroll
    for (int r = 0; r < kRows; r += kWidth) {
      // Rows past the last are not written: any tap serves.
      const int block = (static_cast<int>(u.i) + r) / kWidth, at = min(block / channel_blocks, taps.first[1] - 1);
      const Tap tap = taps.taps[at];
      hopper::copy_box(a + r * kLine, source[tap.image], block % channel_blocks * kWidth, place.x + tap.x,
                       place.y + tap.y, place.sample, barrier);
    }
    if constexpr (kLeft) {
      hopper::copy_box(b, gradient, k, static_cast<int>(u.j), 0, barrier);
    } else {
#pragma unroll
      for (int r = 0; r < Columns; r += 64)
        hopper::copy_box(b + r * kLine, gradient, static_cast<int>(u.j) + r, place.x, place.y, place.sample, barrier);
    }
  }
};

// The gradient of floats along k, by blocks.
struct BlockLines {
  const float* data;
  HopperImage image;
  Blocks blocks;
  int64_t samples;
  int64_t rows, depth, row;  // rows: channels
  __device__ __forceinline__ int64_t start(int64_t, int64_t k) const {
    constexpr int kPositions = kDepth<float>;
    const auto place = blocks.at(k / kPositions);
    const int position = static_cast<int>(place_of_k(k % kPositions)), line = position / blocks.width;
    const int64_t sample = place.sample + line / blocks.height;
    if (sample >= samples) return -1;
    return sample * image.sample + (place.y + line % blocks.height) * image.row +
           (place.x + position % blocks.width) * image.pixel;
  }
};

// The images that the stride cuts one into: what map(which, part) makes of each.
template <class F>
bool each_part(const HopperConvolution& c, const HopperImage& image, const F& map) {
  for (int64_t y = 0; y < c.stride[0]; y++)
    for (int64_t x = 0; x < c.stride[1]; x++) {
      const int64_t first[2] = {y, x};
      const HopperImage part = every(image, c.dtype, first, c.stride);
      if (part.size[0] > 0 && part.size[1] > 0 && !map(static_cast<int>(y * c.stride[1] + x), part, first))
        return false;
    }
  return true;
}

bool usable(const HopperConvolution& c) {
  return c.stride[0] * c.stride[1] <= kImages && c.kernel[0] * c.kernel[1] <= kMostTaps &&
         c.input.size[0] >= c.stride[0] && c.input.size[1] >= c.stride[1];
}

// A window of one pixel slides along all pixels as along one line.
HopperConvolution flattened(HopperConvolution c) {
  const auto dense = [](const HopperImage& i) { return i.row == i.size[1] * i.pixel && i.sample == i.size[0] * i.row; };
  bool flat = dense(c.input) && dense(c.output);
  for (int d = 0; d < 2; d++)
    flat = flat && c.kernel[d] == 1 && c.stride[d] == 1 && c.padding[d] == 0 && c.input.size[d] == c.output.size[d];
  if (!flat) return c;
  for (HopperImage* i : {&c.input, &c.output}) {
    i->size[1] *= i->size[0] * c.samples, i->size[0] = 1;
    i->row = i->sample = i->size[1] * i->pixel;
  }
  c.samples = 1;
  return c;
}

template <class S, int Columns, bool AlongK>
bool pixels(const HopperConvolution& c, bool backward, const Blocks& blocks, const void* weight, const Strided<S>& p) {
  PixelLoader<S, Columns, AlongK> loader{.blocks = blocks};
  const HopperImage &from = backward ? c.output : c.input, &to = backward ? c.input : c.output;
  const int64_t all_taps = c.kernel[0] * c.kernel[1], depth = p.k / all_taps;
  loader.channel_steps = static_cast<int>(depth / kDepth<S>);
  const auto source = [&](int which, const HopperImage& part, const int64_t (&)[2]) {
    return blocks.map(&loader.source[which], c.dtype, part, c.samples, true);
  };
  const auto result = [&](int which, const HopperImage& part, const int64_t (&first)[2]) {
    return blocks.map(&loader.result[which], c.dtype, part, c.samples, false) &&
           loader.taps.add(c, backward, first, which);
  };
  const bool made = backward ? source(0, from, {0, 0}) && each_part(c, to, result)
                             : each_part(c, from, source) && result(0, to, {0, 0});
  const bool mapped =
      AlongK ? hopper::make_map<3>(&loader.weight, c.dtype, weight, {p.k, p.n, 1}, {p.k, p.k * p.n}, Columns, true)
             : hopper::make_map<3>(&loader.weight, c.dtype, weight, {p.n, from.channels, all_taps},
                                   {p.n * all_taps, p.n}, kDepth<S>);
  return made && mapped &&
         launch<Columns, true, AlongK>(p, loader, {ceil_div(p.m, kRows) * ceil_div(p.n, Columns) * p.batch, 1, p.k});
}

template <class S, int Columns>
bool pixels(const HopperConvolution& c, bool backward, const Blocks& blocks, const void* weight, bool turned,
            const Strided<S>& p) {
  if constexpr (sizeof(S) == 2) {
    if (turned) return pixels<S, Columns, false>(c, backward, blocks, weight, p);
  }
  return !turned && pixels<S, Columns, true>(c, backward, blocks, weight, p);
}

template <class S>
Blocks weight_blocks(const HopperConvolution& c) {
  return Blocks(c.output.size, c.samples, kDepth<S>, true);
}

template <class S, int Columns>
bool weights(const HopperConvolution& c, const Strided<S>& p, const Shares& shares) {
  WeightLoader<S, Columns> loader{.blocks = weight_blocks<S>(c)};
  const Blocks& blocks = loader.blocks;
  loader.channel_blocks = static_cast<int>(p.m / (c.kernel[0] * c.kernel[1]) / loader.kWidth);
  const auto source = [&](int which, const HopperImage& part, const int64_t (&)[2]) {
    return blocks.map(&loader.source[which], c.dtype, part, c.samples, true);
  };
  if (!each_part(c, c.input, source) || !loader.taps.add(c, false, {0, 0}, 0)) return false;
  if constexpr (std::is_same_v<S, float>) {
    const Scratch memory(c.output.channels * p.k * 4);
    const BlockLines from{static_cast<const float*>(c.output.data),
                          c.output,
                          blocks,
                          c.samples,
                          c.output.channels,
                          p.k,
                          c.output.channel};
    lines::copy(from, memory.get<float>(), p.k, 0, p.k, 1, c.output.channel == 1);
    return hopper::make_map<3>(&loader.gradient, c.dtype, memory.get(), {p.k, c.output.channels, 1},
                               {p.k, p.k * c.output.channels}, Columns, true) &&
           launch<Columns, false, true>(p, loader, shares);
  } else {
    return blocks.map(&loader.gradient, c.dtype, c.output, c.samples, false) &&
           launch<Columns, false, false>(p, loader, shares);
  }
}

}  // namespace

bool conv_hopper_usable() { return on_hopper(); }

bool conv_hopper_pixels(const HopperConvolution& given, bool backward, const void* weight, bool turned, int64_t depth,
                        char* bias, int64_t bias_stride) {
  if (!usable(given)) return false;
  const HopperConvolution c = flattened(given);
  const HopperImage& to = backward ? c.input : c.output;
  const int64_t images = backward ? c.stride[0] * c.stride[1] : 1;
  const int64_t grid[2] = {backward ? ceil_div(to.size[0], c.stride[0]) : to.size[0],
                           backward ? ceil_div(to.size[1], c.stride[1]) : to.size[1]};
  const Blocks blocks(grid, c.samples, kBlock, false);
  bool done = false;
  dispatch(c.dtype, Types<BFloat16, Half, float>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    GemmArgs g;
    g.batch = images, g.m = blocks.count * kBlock, g.n = to.channels, g.k = depth * c.kernel[0] * c.kernel[1];
    g.d = {bias, 0, bias_stride, 0};
    g.alpha = Scalar(1.0), g.beta = Scalar(bias == nullptr ? 0.0 : 1.0);
    const Strided<S> p = strided_problem<S>(g);
    switch (plan_tiles(kWindowWidths, p.m, p.n, images, p.k / images / kDepth<S>, 1, false).columns) {
      case 64: return void(done = pixels<S, 64>(c, backward, blocks, weight, turned, p));
      case 128: return void(done = pixels<S, 128>(c, backward, blocks, weight, turned, p));
      default: return void(done = pixels<S, 256>(c, backward, blocks, weight, turned, p));
    }
  });
  return done;
}

HopperWeightPlan conv_hopper_weight_plan(const HopperConvolution& given, int64_t depth) {
  if (!usable(given)) return {};
  const HopperConvolution c = flattened(given);
  const bool single = c.dtype == DType::F32;
  const int64_t block = single ? kDepth<float> : kDepth<Half>, positions = c.output.size[0] * c.output.size[1];
  const int64_t steps = (single ? weight_blocks<float>(c) : weight_blocks<Half>(c)).count;
  // Blocks of few samples are mostly empty.
  if (steps * block > positions * c.samples * 3 / 2 + 256) return {};
  const int64_t channels = ceil_div(c.output.channels, 8) * 8;
  const Plan plan = plan_tiles(kWindowWidths, depth * c.kernel[0] * c.kernel[1], channels, 1, steps, 256, true);
  const int64_t per_part = ceil_div(steps, plan.parts);
  return {plan.columns, ceil_div(steps, per_part), per_part * block, channels};
}

bool conv_hopper_weights(const HopperConvolution& given, int64_t depth, const HopperWeightPlan& plan, float* partial) {
  const HopperConvolution c = flattened(given);
  const Shares shares{0, plan.parts, plan.per_part, partial, false};
  bool done = false;
  dispatch(c.dtype, Types<BFloat16, Half, float>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    GemmArgs g;
    g.m = depth * c.kernel[0] * c.kernel[1], g.n = plan.channels;
    g.k = weight_blocks<S>(c).count * kDepth<S>;
    const Strided<S> p = strided_problem<S>(g);
    switch (plan.columns) {
      case 64: return void(done = weights<S, 64>(c, p, shares));
      case 128: return void(done = weights<S, 128>(c, p, shares));
      default: return void(done = weights<S, 256>(c, p, shares));
    }
  });
  return done;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
