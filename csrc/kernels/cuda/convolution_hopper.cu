// Convolutions on Hopper's matrix units, by the kernel of gemm_hopper.cuh. The copy engine finds pixels by itself: from
// a position of the sliding window on it brings one tap of as many positions as a tile has rows, zeros in the padding
// (PTX ISA, "im2col mode"). Tensors are in the order of pixels, channels in steps of 128 bytes.
#include "kernels/cuda/convolution_hopper.h"

#include "kernels/cuda/gemm_hopper.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {

using EncodeWindows = decltype(&cuTensorMapEncodeIm2col);

inline EncodeWindows windows_encoder() {
  static const EncodeWindows found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeIm2col", &function, 12000, cudaEnableDefault, &result) !=
            cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
      cudaGetLastError();
      function = nullptr;
    }
    return reinterpret_cast<EncodeWindows>(function);
  }();
  return found;
}

// Positions of a window over an image, and the map that reads `lines` of them at once.
struct Windows {
  CUtensorMap map;
  Divider width, height;  // of the grid of positions
  int start_y, start_x, step_y, step_x, tap_y, tap_x;

  struct Position {
    int x, y, sample;
  };
  __device__ __forceinline__ Position at(uint32_t i) const {
    const uint32_t row = width.quotient(i), sample = height.quotient(row);
    return {static_cast<int>(i - row * width.divisor) * step_x + start_x,
            static_cast<int>(row - sample * height.divisor) * step_y + start_y, static_cast<int>(sample)};
  }
  __device__ __forceinline__ void copy(uint32_t to, int channel, const Position& p, int ty, int tx,
                                       uint32_t barrier) const {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
        "%5}], [%6], {%7, %8};" ::"r"(to),
        "l"(reinterpret_cast<uint64_t>(&map)), "r"(channel), "r"(p.x), "r"(p.y), "r"(p.sample), "r"(barrier),
        "h"(static_cast<uint16_t>(tx * tap_x)), "h"(static_cast<uint16_t>(ty * tap_y))
        : "memory");
  }

  // False where the copy engine cannot.
  bool make(const HopperConvolution& c, int lines) {
    width = Divider(static_cast<uint32_t>(c.grid[1])), height = Divider(static_cast<uint32_t>(c.grid[0]));
    step_y = c.step[0], step_x = c.step[1], start_y = -c.padding[0], start_x = -c.padding[1];
    tap_y = c.dilation[0], tap_x = c.dilation[1];
    int lower[2], upper[2];  // x first
    for (int d = 0; d < 2; d++) {
      const int reach = (c.kernel[d] - 1) * c.dilation[d];
      lower[1 - d] = -c.padding[d];
      // The far corner is where the last position starts, counted from the last pixel.
      upper[1 - d] = static_cast<int>((c.grid[d] - 1) * c.step[d] + 1 - c.padding[d] - c.source_size[d]);
      if (reach > 255 || c.step[d] > 8 || std::abs(lower[1 - d]) > 127 || std::abs(upper[1 - d]) > 127) return false;
    }
    const cuuint64_t element = size_of(c.dtype), pitch = static_cast<cuuint64_t>(c.pitch) * element;
    const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(c.pitch), static_cast<cuuint64_t>(c.source_size[1]),
                                 static_cast<cuuint64_t>(c.source_size[0]), static_cast<cuuint64_t>(c.samples)};
    const cuuint64_t strides[3] = {pitch, pitch * sizes[1], pitch * sizes[1] * sizes[2]};
    const cuuint32_t steps[4] = {1, static_cast<cuuint32_t>(c.step[1]), static_cast<cuuint32_t>(c.step[0]), 1};
    const CUtensorMapDataType type = c.dtype == DType::BF16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                     : c.dtype == DType::F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                             : CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    return windows_encoder()(&map, type, 4, const_cast<void*>(c.source), sizes, strides, lower, upper,
                             static_cast<cuuint32_t>(products::kLine / element), static_cast<cuuint32_t>(lines), steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
  }
};

}  // namespace conv

namespace {

using namespace products;
using conv::Windows, conv::windows_encoder;

// Rows are positions, k runs over (tap, channel).
template <class S, int Columns>
struct PixelLoader {
  Windows windows;
  CUtensorMap weight;  // [n][k]
  int taps, kernel_width, channel_steps;
  bool reversed;  // the window's first tap meets the weight's last

  struct State {
    Windows::Position position;
    int ty = 0, tx = 0, channel = 0;
  };
  __device__ __forceinline__ State begin(const Unit& u) const { return {windows.at(static_cast<uint32_t>(u.i))}; }
  __device__ __forceinline__ void load(uint32_t a, uint32_t b, const Unit& u, State& s, int, uint32_t barrier) const {
    windows.copy(a, s.channel * kDepth<S>, s.position, s.ty, s.tx, barrier);
    const int tap = s.ty * kernel_width + s.tx, at = reversed ? taps - 1 - tap : tap;
    hopper::copy_box(b, weight, (at * channel_steps + s.channel) * kDepth<S>, static_cast<int>(u.j), 0, barrier);
    if (++s.channel == channel_steps) {
      s.channel = 0;
      if (++s.tx == kernel_width) {
        s.tx = 0;
        s.ty++;
      }
    }
  }
};

// Rows are output channels, columns (tap, input channel), k runs over positions.
template <class S, int Columns>
struct WeightLoader {
  Windows windows;
  CUtensorMap gradient;  // [position][channel]
  int taps, kernel_width, channel_steps;

  struct State {};
  __device__ __forceinline__ State begin(const Unit&) const { return {}; }
  __device__ __forceinline__ void load(uint32_t a, uint32_t b, const Unit& u, State&, int step,
                                       uint32_t barrier) const {
    const int k = static_cast<int>(u.begin) + step * kDepth<S>;
#pragma unroll
    for (int r = 0; r < kRows; r += 64)
      hopper::copy_box(a + r * kLine, gradient, static_cast<int>(u.i) + r, k, 0, barrier);
    const auto position = windows.at(static_cast<uint32_t>(k));
    int block = static_cast<int>(u.j) / 64;
#pragma unroll
    for (int r = 0; r < Columns; r += 64, block++) {
      // Columns past the last are not written: any tap serves.
      const int tap = min(block / channel_steps, taps - 1), ty = tap / kernel_width;
      windows.copy(b + r * kLine, block % channel_steps * 64, position, ty, tap - ty * kernel_width, barrier);
    }
  }
};

template <class S, int Columns>
bool pixels(const HopperConvolution& c, const Strided<S>& p) {
  PixelLoader<S, Columns> loader;
  loader.taps = c.kernel[0] * c.kernel[1], loader.kernel_width = c.kernel[1];
  loader.channel_steps = static_cast<int>(c.depth / kDepth<S>);
  loader.reversed = c.reversed;
  return loader.windows.make(c, kRows) &&
         hopper::make_map<3>(&loader.weight, c.dtype, const_cast<void*>(c.other), {p.k, p.n, 1}, {p.k, p.k * p.n},
                             Columns, true) &&
         launch<Columns, true, true>(p, loader, tile::Split{1, p.k, nullptr});
}

template <class S, int Columns>
bool weights(const HopperConvolution& c, const Strided<S>& p, const tile::Split& split) {
  WeightLoader<S, Columns> loader;
  loader.taps = c.kernel[0] * c.kernel[1], loader.kernel_width = c.kernel[1];
  loader.channel_steps = static_cast<int>(c.depth / 64);
  return loader.windows.make(c, 64) &&
         hopper::make_map<3>(&loader.gradient, c.dtype, const_cast<void*>(c.other), {c.other_pitch, p.k, 1},
                             {c.other_pitch, c.other_pitch * p.k}, 64) &&
         launch<Columns, false, false>(p, loader, split);
}

}  // namespace

bool conv_hopper_usable() { return on_hopper() && windows_encoder() != nullptr; }

bool conv_hopper_pixels(const HopperConvolution& c) {
  bool done = false;
  dispatch(c.dtype, Types<BFloat16, Half, float>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    GemmArgs g;
    g.m = c.samples * c.grid[0] * c.grid[1], g.n = c.channels, g.k = c.depth * c.kernel[0] * c.kernel[1];
    g.c = {c.result, c.channels, 1, 0};
    g.d = {c.bias, 0, c.bias_stride, 0};
    g.alpha = Scalar(1.0), g.beta = Scalar(c.bias == nullptr ? 0.0 : 1.0);
    const Strided<S> p = strided_problem<S>(g);
    const bool wide = p.n > 128 && ceil_div(p.m, kRows) * ceil_div(p.n, 256) * 4 >= cuda::multiprocessors() * 3;
    done = wide ? pixels<S, 256>(c, p) : pixels<S, 128>(c, p);
  });
  return done;
}

bool conv_hopper_weights(const HopperConvolution& c, int64_t parts, int64_t per_part, float* partial) {
  bool done = false;
  dispatch(c.dtype, Types<BFloat16, Half>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    GemmArgs g;
    g.m = c.channels, g.n = c.depth * c.kernel[0] * c.kernel[1], g.k = c.samples * c.grid[0] * c.grid[1];
    done = weights<S, 128>(c, strided_problem<S>(g), tile::Split{parts, per_part, partial});
  });
  return done;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
