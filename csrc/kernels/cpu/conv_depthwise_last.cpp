// Depthwise convolutions of channels-last images: channels lie next to each other in source and target, so the lanes of
// a vector are channels, and the taps are applied where the source lies. Nothing is staged; a tap that falls outside
// the image is left out.
#include "kernels/cpu/conv_core.h"
#include "kernels/cpu/gemm_convert.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {
namespace {

using gemm::scratch;
using gemm::Scratch;
using gemm::Vector;

// The taps of one row of the source that meets a row of positions: where position 0 reads without width offset, and the
// index of its first tap.
struct Line {
  int64_t source, tap;
};

// The lines that meet the positions (n, d, h); at most one for each depth and height tap.
int64_t make_lines(const Gather& g, int64_t n, int64_t d, int64_t h, Line* lines) {
  int64_t count = 0;
  for (int64_t td = 0; td < g.taps[0].size(); td++)
    for (int64_t th = 0; th < g.taps[1].size(); th++) {
      const int64_t sd = d * g.step[0] + g.taps[0][td].offset, sh = h * g.step[1] + g.taps[1][th].offset;
      if (sd < 0 || sd >= g.source_size[0] || sh < 0 || sh >= g.source_size[1]) continue;
      lines[count++] = {n * g.source.strides[0] + sd * g.source.strides[2] + sh * g.source.strides[3],
                        (td * g.taps[1].size() + th) * g.taps[2].size()};
    }
  return count;
}

struct Position {
  int64_t n, d, h;
  MT_INLINE Position(const Gather& g, int64_t row)
      : n(row / g.count[1] / g.count[0]), d(row / g.count[1] % g.count[0]), h(row % g.count[1]) {}
  MT_INLINE int64_t target(const Gather& g) const {
    return n * g.target.strides[0] + d * g.target.strides[2] + h * g.target.strides[3];
  }
};

template <class S>
MT_INLINE Vector<Element<S>> load_channels(const S* p, int lanes) {
  return lanes == kLanes<Element<S>> ? gemm::load_widened(p) : gemm::load_lanes(p, 0, lanes);
}

// Each line of taps is summed by itself: shorter sums err less.

// kVectors vectors of channels at one position. `lanes`: of the last vector.
template <class S, int kVectors>
MT_INLINE void filter_position(const Gather& g, const Line* lines, int64_t count, const S* source, int64_t at,
                               const Element<S>* weight, int64_t width, const Element<S>* bias, int lanes, S* target) {
  using E = Element<S>;
  Vector<E> acc[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; v++) acc[v] = gemm::load_vector(bias + v * kLanes<E>);
  for (int64_t l = 0; l < count; l++) {
    Vector<E> sum[kVectors] = {};
    for (int64_t t = 0; t < g.taps[2].size(); t++) {
      const int64_t x = at + g.taps[2][t].offset;
      if (static_cast<uint64_t>(x) >= static_cast<uint64_t>(g.source_size[2])) continue;
      const S* const from = source + lines[l].source + x * g.source.strides[4];
      const E* const w = weight + (lines[l].tap + t) * width;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v++)
        sum[v] += gemm::load_vector(w + v * kLanes<E>) *
                  load_channels(from + v * kLanes<E>, v == kVectors - 1 ? lanes : kLanes<E>);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v++) acc[v] += sum[v];
  }
  alignas(64) E out[kVectors * kLanes<E>];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; v++) gemm::store_vector(out + v * kLanes<E>, acc[v]);
  gemm::narrow<S>(out, target, (kVectors - 1) * kLanes<E> + lanes);
}

// The same for kPositions neighbours whose taps all lie inside the image, one vector of channels: each weight is loaded
// once for all.
template <class S, int kPositions>
MT_INLINE void filter_inside(const Gather& g, const Line* lines, int64_t count, const S* source, int64_t at,
                             const Element<S>* weight, int64_t width, const Element<S>* bias, S* target) {
  using E = Element<S>;
  Vector<E> acc[kPositions];
#pragma GCC unroll 8
  for (int p = 0; p < kPositions; p++) acc[p] = gemm::load_vector(bias);
  const int64_t step = g.step[2] * g.source.strides[4];
  for (int64_t l = 0; l < count; l++) {
    Vector<E> sum[kPositions] = {};
    for (int64_t t = 0; t < g.taps[2].size(); t++) {
      const S* const from = source + lines[l].source + (at + g.taps[2][t].offset) * g.source.strides[4];
      const Vector<E> w = gemm::load_vector(weight + (lines[l].tap + t) * width);
#pragma GCC unroll 8
      for (int p = 0; p < kPositions; p++) sum[p] += w * gemm::load_widened(from + p * step);
    }
#pragma GCC unroll 8
    for (int p = 0; p < kPositions; p++) acc[p] += sum[p];
  }
  alignas(64) E out[kLanes<E>];
  for (int p = 0; p < kPositions; p++) {
    gemm::store_vector(out, acc[p]);
    gemm::narrow<S>(out, target + p * g.target.strides[4], kLanes<E>);
  }
}

// The taps of a row lie next to each other, one step of a position apart: their number if the loop below is built for
// it, otherwise 0.
int64_t adjacent_taps(const Gather& g) {
  const int64_t count = g.taps[2].size();
  if (g.step[2] != 1 || (count != 3 && count != 5 && count != 7)) return 0;
  const int64_t way = g.taps[2][1].offset - g.taps[2][0].offset;
  for (int64_t t = 1; t < count; t++)
    if (g.taps[2][t].offset - g.taps[2][t - 1].offset != way) return 0;
  return way == 1 || way == -1 ? count : 0;
}

// kPositions neighbours and kTaps adjacent taps: each column of the source is loaded once for all positions that it
// reaches, and left out if it lies outside.
template <class S, int kPositions, int kTaps>
void filter_adjacent(const Gather& g, const Line* lines, int64_t count, const S* source, int64_t at,
                     const Element<S>* weight, int64_t width, const Element<S>* bias, S* target) {
  using E = Element<S>;
  const bool ascends = g.taps[2][0].offset < g.taps[2][1].offset;
  const int64_t first = at + (ascends ? g.taps[2][0].offset : g.taps[2][kTaps - 1].offset);
  Vector<E> acc[kPositions];
#pragma GCC unroll 8
  for (int p = 0; p < kPositions; p++) acc[p] = gemm::load_vector(bias);
  for (int64_t l = 0; l < count; l++) {
    Vector<E> sum[kPositions] = {}, w[kTaps];
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; t++)
      w[t] = gemm::load_vector(weight + (lines[l].tap + (ascends ? t : kTaps - 1 - t)) * width);
    const S* const from = source + lines[l].source + first * g.source.strides[4];
#pragma GCC unroll 16
    for (int x = 0; x < kPositions + kTaps - 1; x++) {
      if (static_cast<uint64_t>(first + x) >= static_cast<uint64_t>(g.source_size[2])) continue;
      const Vector<E> column = gemm::load_widened(from + x * g.source.strides[4]);
#pragma GCC unroll 8
      for (int t = 0; t < kTaps; t++)
        if (x - t >= 0 && x - t < kPositions) sum[x - t] += w[t] * column;
    }
#pragma GCC unroll 8
    for (int p = 0; p < kPositions; p++) acc[p] += sum[p];
  }
#pragma GCC unroll 8
  for (int p = 0; p < kPositions; p++) gemm::store_narrowed(target + p * g.target.strides[4], acc[p], kLanes<E>);
}

template <class S, int kPositions>
using AdjacentFilter = decltype(&filter_adjacent<S, kPositions, 3>);
template <class S, int kPositions>
AdjacentFilter<S, kPositions> adjacent_filter(const Gather& g) {
  switch (adjacent_taps(g)) {
    case 3: return &filter_adjacent<S, kPositions, 3>;
    case 5: return &filter_adjacent<S, kPositions, 5>;
    case 7: return &filter_adjacent<S, kPositions, 7>;
    default: return nullptr;
  }
}

// sums += over the positions of a row of the gradient times the source that one tap reads there.
template <class S, int kVectors>
MT_INLINE void correlate_tap(const S* gradient, int64_t gradient_step, const S* source, int64_t source_step,
                             int64_t count, int lanes, Element<S>* sums) {
  using E = Element<S>;
  Vector<E> acc[kVectors] = {};
  for (int64_t x = 0; x < count; x++, gradient += gradient_step, source += source_step)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v++) {
      const int here = v == kVectors - 1 ? lanes : kLanes<E>;
      acc[v] += load_channels(gradient + v * kLanes<E>, here) * load_channels(source + v * kLanes<E>, here);
    }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; v++)
    gemm::store_vector(sums + v * kLanes<E>, gemm::load_vector(sums + v * kLanes<E>) + acc[v]);
}

// Calls f.operator()<vectors>(first channel, lanes of the last vector) for all channels.
template <class E, class F>
MT_INLINE void for_each_block(int64_t channels, const F& f) {
  constexpr int64_t kStep = kLanes<E>;
  int64_t c = 0;
  for (; c + 4 * kStep <= channels; c += 4 * kStep) f.template operator()<4>(c, kLanes<E>);
  for (; c + kStep <= channels; c += kStep) f.template operator()<1>(c, kLanes<E>);
  if (c < channels) f.template operator()<1>(c, static_cast<int>(channels - c));
}

}  // namespace

bool is_depthwise_last(const Gather& g) {
  return g.depth == 1 && g.rows == 1 && g.groups >= 8 && g.source.strides[1] == 1 && g.target.strides[1] == 1;
}

template <class S>
void gather_depthwise_last(const Gather& g) {
  using E = Element<S>;
  const int64_t channels = g.groups, width = gemm::padded_columns<E>(channels);
  const int64_t lines = g.taps[0].size() * g.taps[1].size(), taps = lines * g.taps[2].size();
  int64_t* const offset = scratch<int64_t>(Scratch::columns, taps + 1);
  make_weight_offsets(g, offset);
  // [tap][channel], and the bias behind them.
  E* const weight = scratch<E>(Scratch::weights, (taps + 1) * width);
  E* const bias = weight + taps * width;
  for (int64_t c = 0; c < width; c++) {
    const S* const from = reinterpret_cast<const S*>(g.weight.data) + c * g.weight_group;
    for (int64_t t = 0; t < taps; t++) weight[t * width + c] = c < channels ? static_cast<E>(from[offset[t]]) : E(0);
    const bool has_bias = g.bias != nullptr && c < channels;
    bias[c] = has_bias ? static_cast<E>(reinterpret_cast<const S*>(g.bias)[c * g.bias_stride]) : E(0);
  }
  const int64_t work = max64(1, g.count[2] * channels * max64(taps, 1));
  // Positions [inside, inside_end) of a row need no check of the width.
  constexpr int kPositions = 8;
  const int64_t whole = channels / kLanes<E> * kLanes<E>;
  constexpr int kAdjacent = gemm::kVectorBytes == 64 ? 8 : 4;  // positions whose sums fit in the registers
  const auto adjacent = adjacent_filter<S, kAdjacent>(g);
  int64_t least = 0, most = 0;
  for (int64_t t = 0; t < g.taps[2].size(); t++) {
    least = min64(least, g.taps[2][t].offset);
    most = max64(most, g.taps[2][t].offset);
  }
  const int64_t inside = ceil_div(-least, g.step[2]);
  const int64_t inside_end =
      g.source_size[2] > most ? min64(g.count[2], (g.source_size[2] - 1 - most) / g.step[2] + 1) : 0;
  parallel_for(g.batch * g.count[0] * g.count[1], grain_of(work), [&](int64_t begin, int64_t end) {
    Line* const line = scratch<Line>(Scratch::rows, lines + 1);
    const S* const source = reinterpret_cast<const S*>(g.source.data);
    for (int64_t row = begin; row < end; row++) {
      const Position p(g, row);
      const int64_t count = make_lines(g, p.n, p.d, p.h, line);
      S* const target = reinterpret_cast<S*>(g.target.data) + p.target(g);
      if (adjacent != nullptr && g.count[2] >= kAdjacent && whole > 0) {
        for (int64_t b = 0; b < g.count[2]; b += kAdjacent) {
          const int64_t x = min64(b, g.count[2] - kAdjacent);  // the last block may overlap the one before
          for (int64_t c = 0; c < whole; c += kLanes<E>)
            adjacent(g, line, count, source + c, x, weight + c, width, bias + c, target + x * g.target.strides[4] + c);
        }
        for (int64_t x = 0; x < g.count[2] && whole < channels; x++)
          filter_position<S, 1>(g, line, count, source + whole, x, weight + whole, width, bias + whole,
                                static_cast<int>(channels - whole), target + x * g.target.strides[4] + whole);
        continue;
      }
      for (int64_t x = 0; x < g.count[2];) {
        if (x >= inside && x < inside_end && inside + kPositions <= inside_end) {
          x = min64(x, inside_end - kPositions);  // the last block may overlap the one before
          for (int64_t c = 0; c < whole; c += kLanes<E>)
            filter_inside<S, kPositions>(g, line, count, source + c, x * g.step[2], weight + c, width, bias + c,
                                         target + x * g.target.strides[4] + c);
          if (whole < channels)
            for (int64_t p = x; p < x + kPositions; p++)
              filter_position<S, 1>(g, line, count, source + whole, p * g.step[2], weight + whole, width, bias + whole,
                                    static_cast<int>(channels - whole), target + p * g.target.strides[4] + whole);
          x += kPositions;
          continue;
        }
        for_each_block<E>(channels, [&]<int kVectors>(int64_t c, int lanes) __attribute__((always_inline)) {
          filter_position<S, kVectors>(g, line, count, source + c, x * g.step[2], weight + c, width, bias + c, lanes,
                                       target + x * g.target.strides[4] + c);
        });
        x++;
      }
    }
  });
}

template <class S>
void weight_depthwise_last(const Gather& g) {
  using E = Element<S>;
  const int64_t channels = g.groups, width = gemm::padded_columns<E>(channels);
  const int64_t lines = g.taps[0].size() * g.taps[1].size(), taps = lines * g.taps[2].size();
  int64_t* const offset = scratch<int64_t>(Scratch::columns, taps + 1);
  make_weight_offsets(g, offset);
  const int64_t rows = g.batch * g.count[0] * g.count[1], parts = min64(num_threads(), rows);
  E* const sums = scratch<E>(Scratch::weights, parts * taps * width);
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    Line* const line = scratch<Line>(Scratch::rows, lines + 1);
    for (int64_t part = begin; part < end; part++) {
      E* const to = sums + part * taps * width;
      for (int64_t i = 0; i < taps * width; i++) to[i] = E(0);
      for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; row++) {
        const Position p(g, row);
        const int64_t count = make_lines(g, p.n, p.d, p.h, line);
        const S* const gradient = reinterpret_cast<const S*>(g.target.data) + p.target(g);
        // Block by block, so that the rows of a block stay in cache for all taps.
        for_each_block<E>(channels, [&]<int kVectors>(int64_t c, int lanes) __attribute__((always_inline)) {
          for (int64_t l = 0; l < count; l++)
            for (int64_t t = 0; t < g.taps[2].size(); t++) {
              // Positions [low, high) read inside the row.
              const int64_t shift = g.taps[2][t].offset, step = g.step[2];
              const int64_t low = shift >= 0 ? 0 : ceil_div(-shift, step);
              const int64_t last = g.source_size[2] - 1 - shift;
              const int64_t high = last < 0 ? 0 : min64(g.count[2], last / step + 1);
              if (low >= high) continue;
              const S* const source = reinterpret_cast<const S*>(g.source.data) + line[l].source +
                                      (low * step + shift) * g.source.strides[4] + c;
              correlate_tap<S, kVectors>(gradient + low * g.target.strides[4] + c, g.target.strides[4], source,
                                         step * g.source.strides[4], high - low, lanes,
                                         to + (line[l].tap + t) * width + c);
            }
        });
      }
    }
  });
  for (int64_t c = 0; c < channels; c++) {
    S* const to = reinterpret_cast<S*>(g.weight.data) + c * g.weight_group;
    for (int64_t t = 0; t < taps; t++) {
      E sum = sums[t * width + c];
      for (int64_t part = 1; part < parts; part++) sum += sums[(part * taps + t) * width + c];
      to[offset[t]] = static_cast<S>(sum);
    }
  }
}

#define MT_INSTANTIATE(S)                                \
  template void gather_depthwise_last<S>(const Gather&); \
  template void weight_depthwise_last<S>(const Gather&);
MT_INSTANTIATE(float)
MT_INSTANTIATE(double)
MT_INSTANTIATE(BFloat16)
MT_INSTANTIATE(Half)
MT_INSTANTIATE(uint64_t)
#undef MT_INSTANTIATE

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
