// Convolution with output channels in the lanes of vectors: every staged element is broadcast and multiplied by whole
// vectors of weights, so patches are read where they lie and nothing of them is packed.
//
// The tile of accumulators, a run of positions by one or two vectors of channels, is that of E. Georganas et al.,
// "Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures" (SC 2018), and of oneDNN's direct
// convolutions. Unlike theirs the source is not blocked by channels: broadcasts do not ask for it.
#include <utility>

#include "core/parallel.h"
#include "kernels/cpu/conv_core.h"
#include "kernels/cpu/gemm_convert.h"
#include "kernels/cpu/gemm_transpose.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {
namespace {

using gemm::kColumns;
using gemm::kVectors;
using gemm::load_vector;
using gemm::scratch;
using gemm::Scratch;
using gemm::store_vector;
using gemm::Vector;

constexpr int kMost = gemm::kMaxRows;  // positions of a tile of two vectors
constexpr int64_t kChunk = 128;        // positions whose sums wait in L1 between passes

// sum += x * w, or for each lane the products of two pairs of bfloat16.
template <class E, bool kPairs>
MT_INLINE void multiply_add(Vector<E>& sum, Vector<E> x, Vector<E> w) {
#if defined(__AVX512BW__)
  // The instruction is newer than AVX-512 itself: an intrinsic would ask for functions that are compiled for it alone.
  if constexpr (kPairs) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return;
  }
#endif
  sum += x * w;
}

// sums[position][kVectors * lanes] = (or += if `add`) sum over k of source[position + offset[k]] * weight[k][lanes].
// Positions are kRows runs of kWidth, `apart` elements from one to the next in the source, `sums_apart` in sums.
template <class E, bool kPairs, int kRows, int kWidth, int kTileVectors>
void multiply_tile(int64_t k, const E* source, int64_t apart, const int64_t* offset, const E* weight, E* sums,
                   int64_t sums_apart, bool add) {
  constexpr int kStep = kLanes<E>;
  Vector<E> acc[kRows][kWidth][kTileVectors] = {};
  for (; k > 0; k--) {
    Vector<E> w[kTileVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; v++) w[v] = load_vector(weight + v * kStep);
    const E* from = source + *offset;
#pragma GCC unroll 2
    for (int r = 0; r < kRows; r++, from += apart)
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; i++) {
        const Vector<E> x = from[i] - Vector<E>{};
#pragma GCC unroll 2
        for (int v = 0; v < kTileVectors; v++) multiply_add<E, kPairs>(acc[r][i][v], x, w[v]);
      }
    weight += kTileVectors * kStep;
    offset++;
  }
#pragma GCC unroll 2
  for (int r = 0; r < kRows; r++, sums += sums_apart)
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; i++)
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; v++) {
        E* const to = sums + (i * kTileVectors + v) * kStep;
        store_vector(to, add ? load_vector(to) + acc[r][i][v] : acc[r][i][v]);
      }
}

template <class E>
using Tile = void (*)(int64_t, const E*, int64_t, const int64_t*, const E*, E*, int64_t, bool);

template <class E, bool kPairs, int kRows, int kTileVectors, int... kWidth>
Tile<E> lookup(int width, std::integer_sequence<int, kWidth...>) {
  static constexpr Tile<E> table[] = {&multiply_tile<E, kPairs, kRows, kWidth + 1, kTileVectors>...};
  return table[width - 1];
}

// kMost * 2 vectors of sums at most: two rows of kMost positions of one vector, or half as many of two.
template <class E, bool kPairs>
Tile<E> find_tile(int rows, int width, int vectors) {
  constexpr auto whole = std::make_integer_sequence<int, kMost>{};
  constexpr auto half = std::make_integer_sequence<int, kMost / 2>{};
  if (vectors == 1) return rows == 1 ? lookup<E, kPairs, 1, 1>(width, whole) : lookup<E, kPairs, 2, 1>(width, whole);
  return rows == 1 ? lookup<E, kPairs, 1, 2>(width, whole) : lookup<E, kPairs, 2, 2>(width, half);
}

// Panels of up to two vectors of channels: [panel][k][lanes], the last one as narrow as it may be.
template <class E>
MT_INLINE int vectors_of(int64_t channels) {
  return static_cast<int>(min64(kVectors, ceil_div(channels, kLanes<E>)));
}

template <class S>
void pack_channels(const DensePlan& plan, int64_t group, int64_t channel, int64_t channels, Element<S>* dst) {
  using E = Element<S>;
  const Gather& g = plan.g;
  const int64_t padded = vectors_of<E>(channels) * kLanes<E>, taps = plan.stage.tap_offset.size();
  const S* const from = reinterpret_cast<const S*>(g.weight.data) + group * g.weight_group + channel * g.weight_row;
  if (!plan.pairs && plan.dense) {
    gemm::pack_panel<S>(from, g.weight_row, 1, static_cast<int>(channels), static_cast<int>(padded), plan.depth, false,
                        dst);
    return;
  }
  for (int64_t k = 0; k < plan.depth; k++, dst += padded) {
    const S* const at = from + plan.weight_offset[k];
    if constexpr (std::is_same_v<S, BFloat16>) {
      if (plan.pairs) {
        const bool alone = 2 * (k / taps) + 1 == plan.channels;
        const int64_t odd = g.weight_channel / 2;
        for (int64_t c = 0; c < channels; c++) {
          const S* const even = at + c * g.weight_row;
          dst[c] = join(static_cast<float>(*even), alone ? 0.0f : static_cast<float>(even[odd]));
        }
      }
    }
    if (!plan.pairs)
      for (int64_t c = 0; c < channels; c++) dst[c] = static_cast<E>(at[c * g.weight_row]);
    for (int64_t c = channels; c < padded; c++) dst[c] = E(0);
  }
}

// The sums of n positions with their biases, to where they belong: `position` and `channel` are the target's strides.
template <class S, int kTileVectors>
void write_run(const Element<S>* sums, int64_t channels, const Element<S>* bias, int64_t n, S* target, int64_t position,
               int64_t channel) {
  using E = Element<S>;
  constexpr int64_t kStep = kLanes<E>, kPitch = kTileVectors * kStep;
  for (int v = 0; v < kTileVectors; v++, sums += kStep, bias += kStep, target += kStep * channel) {
    const Vector<E> addend = load_vector(bias);
    const int here = static_cast<int>(min64(kStep, channels - v * kStep));
    if (channel == 1) {
      for (int64_t i = 0; i < n; i++)
        gemm::store_narrowed(target + i * position, load_vector(sums + i * kPitch) + addend, here);
      continue;
    }
    for (int64_t i = 0; i < n; i += kStep) {
      const int length = static_cast<int>(min64(kStep, n - i));
      Vector<E> square[kStep];
#pragma GCC unroll 16
      for (int j = 0; j < kStep; j++)
        square[j] = j < length ? load_vector(sums + (i + j) * kPitch) + addend : Vector<E>{};
      gemm::transpose<kStep>(square);
      for (int c = 0; c < here; c++) {
        S* const to = target + c * channel + i * position;
        if (position == 1)
          gemm::store_narrowed(to, square[c], length);
        else
          for (int j = 0; j < length; j++) to[j * position] = static_cast<S>(square[c][j]);
      }
    }
  }
}

// Channels [c0, c1) of one group at the positions of some rows. Uses Scratch::packed_b.
template <class S, int kTileVectors>
void filter_panel(const DensePlan& plan, const Row* rows, int64_t row_count, const Element<S>* staged,
                  const Element<S>* weight, const Element<S>* bias, int64_t channels, S* target) {
  using E = Element<S>;
  constexpr int64_t kPitch = kTileVectors * kLanes<E>;
  const int64_t length = plan.g.count[2], parts = ceil_div(length, kMost);
  const int64_t *stride = plan.g.target.strides, *offset = plan.staged_offset;
  const int64_t together = kTileVectors == 1 || 2 * length <= kMost ? 2 : 1;
  const int64_t chunk_rows = length <= kChunk ? max64(together, kChunk / length / together * together) : together;
  const int64_t chunk_parts = length <= kChunk ? parts : kChunk / kMost;
  const auto part = [&](int64_t p) { return length * min64(p, parts) / parts; };
  E* const sums = scratch<E>(Scratch::packed_b, 2 * kChunk * kPitch);
  for (int64_t r0 = 0; r0 < row_count; r0 += chunk_rows) {
    const int64_t r1 = min64(r0 + chunk_rows, row_count);
    for (int64_t p0 = 0; p0 < parts; p0 += chunk_parts) {
      const int64_t p1 = min64(p0 + chunk_parts, parts), x0 = part(p0), width = part(p1) - x0;
      for (int64_t k = 0; k < plan.depth; k += plan.kc) {
        const int64_t deep = min64(plan.kc, plan.depth - k);
        for (int64_t r = r0; r < r1; r += together) {
          const int64_t n = min64(together, r1 - r), apart = n == 2 ? rows[r + 1].staged - rows[r].staged : 0;
          for (int64_t p = p0; p < p1; p++) {
            const int64_t x = part(p);
            const int tile_rows = static_cast<int>(n), tile_width = static_cast<int>(part(p + 1) - x);
            Tile<E> tile = find_tile<E, false>(tile_rows, tile_width, kTileVectors);
            if constexpr (std::is_same_v<S, BFloat16>) {
              if (plan.pairs) tile = find_tile<E, true>(tile_rows, tile_width, kTileVectors);
            }
            tile(deep, staged + rows[r].staged + x, apart, offset + k, weight + k * kPitch,
                 sums + ((r - r0) * width + x - x0) * kPitch, width * kPitch, k != 0);
          }
        }
      }
      // Rows that follow each other in the target are one run.
      for (int64_t r = r0; r < r1;) {
        int64_t end = r + 1;
        while (end < r1 && width == length && rows[end].target == rows[end - 1].target + length * stride[4]) end++;
        write_run<S, kTileVectors>(sums + (r - r0) * width * kPitch, channels, bias, (end - r) * width,
                                   target + rows[r].target + x0 * stride[4], stride[4], stride[1]);
        r = end;
      }
    }
  }
}

}  // namespace

template <class S>
void gather_direct(const Gather& whole) {
  using E = Element<S>;
  const DensePlan plan = make_dense_plan<S>(whole);
  const Gather& g = plan.g;
  const int64_t threads = num_threads(), depth = plan.depth, panels = ceil_div(g.rows, kColumns<E>);
  const int64_t group_weights = ceil_div(g.rows, kLanes<E>) * kLanes<E> * depth;
  E* const weights = scratch<E>(Scratch::weights, g.groups * group_weights);
  parallel_for(g.groups * panels, max64(1, 65536 / (kColumns<E> * depth)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      const int64_t group = t / panels, c = t % panels * kColumns<E>;
      pack_channels<S>(plan, group, c, min64(kColumns<E>, g.rows - c), weights + group * group_weights + c * depth);
    }
  });

  // Where there are too few items for the threads, channels are split as well.
  const int64_t tasks = plan.items.size() * g.groups;
  const int64_t chunks = tasks >= threads ? 1 : min64(ceil_div(threads, tasks), panels);
  parallel_for(tasks * chunks, 1, [&](int64_t begin, int64_t end) {
    E* const staged = scratch<E>(Scratch::staged, plan.items.images * g.depth * plan.stage.channel);
    Row* const rows = scratch<Row>(Scratch::rows, plan.items.images * plan.items.depths * plan.items.heights);
    for (int64_t t = begin; t < end; t++) {
      const int64_t chunk = t % chunks, group = t / chunks % g.groups;
      const Item item = plan.items.get(g, t / chunks / g.groups);
      stage_group<S>(plan, item, group, staged);
      const int64_t row_count = make_rows(g, plan.stage, item, g.depth, rows);
      for (int64_t p = panels * chunk / chunks; p < panels * (chunk + 1) / chunks; p++) {
        const int64_t c = p * kColumns<E>, channels = min64(kColumns<E>, g.rows - c), channel = group * g.rows + c;
        E bias[kColumns<E>] = {};
        if (g.bias != nullptr)
          for (int64_t i = 0; i < channels; i++)
            bias[i] = static_cast<E>(reinterpret_cast<const S*>(g.bias)[(channel + i) * g.bias_stride]);
        const auto filter = vectors_of<E>(channels) == 1 ? &filter_panel<S, 1> : &filter_panel<S, 2>;
        filter(plan, rows, row_count, staged, weights + group * group_weights + c * depth, bias, channels,
               reinterpret_cast<S*>(g.target.data) + channel * g.target.strides[1]);
      }
    }
  });
}

#define MT_INSTANTIATE(S) template void gather_direct<S>(const Gather&);
MT_INSTANTIATE(float)
MT_INSTANTIATE(double)
MT_INSTANTIATE(BFloat16)
MT_INSTANTIATE(Half)
#undef MT_INSTANTIATE

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
