// The gradient with respect to the weight with output channels in the lanes of vectors: at every position a vector of
// the gradient of the output is multiplied by the broadcast elements that its taps read. See conv_direct.cpp; sums are
// kept as [panel of channels][channel and tap][lane], in one buffer a thread, and added at the end.
#include <utility>

#include "core/parallel.h"
#include "kernels/cpu/conv_core.h"
#include "kernels/cpu/gemm_convert.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {
namespace {

using gemm::kColumns;
using gemm::load_vector;
using gemm::scratch;
using gemm::Scratch;
using gemm::store_vector;
using gemm::Vector;

constexpr int kMost = gemm::kMaxRows < 12 ? gemm::kMaxRows : 12;  // taps of a tile: each has a pointer
constexpr int64_t kChunk = 128;                                   // positions that one sum in registers covers

// Consecutive positions of one row: the staged offset of the first one, and its offset in the target.
struct Segment {
  int64_t staged, target, length;
};

// sums[tap][lanes] = (or += if `add`) sum over the positions of source[offset[tap] + position] * gradient[position].
template <class E, int kTileVectors, int kTaps>
void correlate_tile(const Segment* segments, int64_t count, const E* staged, const int64_t* offset, const E* gradient,
                    E* sums, bool add) {
  constexpr int kStep = kLanes<E>;
  Vector<E> acc[kTaps][kTileVectors] = {};
  for (int64_t s = 0; s < count; s++) {
    const E* from[kTaps];
#pragma GCC unroll 16
    for (int t = 0; t < kTaps; t++) from[t] = staged + segments[s].staged + offset[t];
    const int64_t length = segments[s].length;
    for (int64_t x = 0; x < length; x++, gradient += kTileVectors * kStep) {
      Vector<E> g[kTileVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; v++) g[v] = load_vector(gradient + v * kStep);
#pragma GCC unroll 16
      for (int t = 0; t < kTaps; t++) {
        const E value = from[t][x];
#pragma GCC unroll 2
        for (int v = 0; v < kTileVectors; v++) acc[t][v] += value * g[v];
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTaps; t++)
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; v++) {
      E* const to = sums + (t * kTileVectors + v) * kStep;
      store_vector(to, add ? load_vector(to) + acc[t][v] : acc[t][v]);
    }
}

template <class E>
using Tile = void (*)(const Segment*, int64_t, const E*, const int64_t*, const E*, E*, bool);
template <class E, int kTileVectors, int... kTaps>
Tile<E> find_tile(int taps, std::integer_sequence<int, kTaps...>) {
  static constexpr Tile<E> table[] = {&correlate_tile<E, kTileVectors, kTaps + 1>...};
  return table[taps - 1];
}

// One panel of channels at the positions of a chunk.
template <class S, int kTileVectors>
void add_chunk(const Gather& g, const Segment* segments, int64_t count, const Element<S>* staged, const int64_t* offset,
               int64_t depth, const S* target, int64_t channels, Element<S>* gradient, Element<S>* sums, bool add) {
  using E = Element<S>;
  constexpr int64_t kPitch = kTileVectors * kLanes<E>;
  const int64_t* stride = g.target.strides;
  E* to = gradient;
  for (int64_t s = 0; s < count;) {
    // Rows that follow each other are one.
    const int64_t start = segments[s].target;
    int64_t n = 0;
    for (; s < count && segments[s].target == start + n * stride[4]; s++) n += segments[s].length;
    gemm::pack_panel<S>(target + start, stride[1], stride[4], static_cast<int>(channels), static_cast<int>(kPitch), n,
                        false, to);
    to += n * kPitch;
  }
  const int64_t tiles = ceil_div(depth, kMost);
  for (int64_t t = 0; t < tiles; t++) {
    const int64_t k = depth * t / tiles, taps = depth * (t + 1) / tiles - k;
    const auto tile = find_tile<E, kTileVectors>(static_cast<int>(taps), std::make_integer_sequence<int, kMost>{});
    tile(segments, count, staged, offset + k, gradient, sums + k * kPitch, add);
  }
}

int64_t padded_rows(const Gather& g, int64_t lanes) { return ceil_div(g.rows, lanes) * lanes; }

// Adds one item of one group to its sums.
template <class S>
void add_item(const Gather& g, const Stage& stage, const Item& item, const Items& items, int64_t group,
              const int64_t* offset, int64_t depth, Element<S>* sums, bool first) {
  using E = Element<S>;
  const int64_t length = g.count[2];
  E* const staged = scratch<E>(Scratch::staged, items.images * g.depth * stage.channel);
  Row* const rows = scratch<Row>(Scratch::rows, items.images * items.depths * items.heights);
  E* const gradient = scratch<E>(Scratch::packed_a, kChunk * kColumns<E>);
  stage_source<S>(g, stage, item, group * g.depth, g.depth, staged);
  const int64_t row_count = make_rows(g, stage, item, g.depth, rows);
  const S* const target = reinterpret_cast<const S*>(g.target.data) + group * g.rows * g.target.strides[1];
  Segment segments[kChunk];
  for (int64_t r = 0, x = 0; r < row_count;) {
    int64_t count = 0;
    for (int64_t left = kChunk; left > 0 && r < row_count;) {
      // A row is cut only where it is longer than a chunk.
      if (count > 0 && length - x > left) break;
      const int64_t n = min64(length - x, left);
      segments[count++] = {rows[r].staged + x, rows[r].target + x * g.target.strides[4], n};
      left -= n, x += n;
      if (x == length) r++, x = 0;
    }
    for (int64_t c = 0; c < g.rows; c += kColumns<E>) {
      const int64_t channels = min64(kColumns<E>, g.rows - c);
      const auto add = channels <= kLanes<E> ? &add_chunk<S, 1> : &add_chunk<S, 2>;
      add(g, segments, count, staged, offset, depth, target + c * g.target.strides[1], channels, gradient,
          sums + c * depth, !first);
    }
    first = false;
  }
}

}  // namespace

template <class S>
void weight_direct(const Gather& g) {
  using E = Element<S>;
  constexpr int64_t kStep = kLanes<E>;
  const int64_t rows = padded_rows(g, kStep);
  const WeightPlan plan = make_weight_plan(g, rows, 2 * kChunk, sizeof(E));
  const int64_t depth = plan.depth, group_sums = rows * depth, sums_size = plan.sums_size, parts = plan.parts;
  E* const sums = scratch<E>(Scratch::weights, parts * sums_size);
  for_weight_parts(g, plan, [&](int64_t part, int64_t group, int64_t i0, int64_t i1) {
    E* const to = sums + part * sums_size + group * group_sums;
    for (int64_t i = i0; i < i1; i++)
      add_item<S>(g, plan.stage, plan.items.get(g, i), plan.items, group, plan.offset, depth, to, i == i0);
  });
  S* const weight = reinterpret_cast<S*>(g.weight.data);
  parallel_for(g.groups * g.rows, grain_of(depth), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t group = i / g.rows, r = i % g.rows, panel = r / kColumns<E> * kColumns<E>;
      const int64_t pitch = g.rows - panel <= kStep ? kStep : kColumns<E>;
      const E* const from = sums + group * group_sums + panel * depth + r - panel;
      S* const to = weight + group * g.weight_group + r * g.weight_row;
      for (int64_t k = 0; k < depth; k++) {
        E sum = from[k * pitch];
        for (int64_t p = 1; p < parts; p++) sum += from[p * sums_size + k * pitch];
        to[plan.weight_offset[k]] = static_cast<S>(sum);
      }
    }
  });
}

#define MT_INSTANTIATE(S) template void weight_direct<S>(const Gather&);
MT_INSTANTIATE(float)
MT_INSTANTIATE(double)
MT_INSTANTIATE(Half)
#undef MT_INSTANTIATE

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
