// The gathering form of convolutions, its division into items, and the staged copy.
#include "kernels/cpu/conv_core.h"
#include "kernels/cpu/gemm_convert.h"
#include "kernels/cpu/gemm_transpose.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {

Gather forward_gather(const ConvArgs& a) {
  Gather g;
  g.batch = a.batch, g.groups = a.groups;
  g.rows = a.out_channels / a.groups, g.depth = a.in_channels / a.groups;
  for (int d = 0; d < 3; d++) {
    g.count[d] = a.out_size[d];
    // Of a single position no step is taken: one that is longer than its taps reach says as much as any longer one.
    g.step[d] = a.out_size[d] > 1 ? a.stride[d] : min64(a.stride[d], (a.kernel[d] - 1) * a.dilation[d] + 1);
    g.source_size[d] = a.in_size[d];
    for (int64_t t = 0; t < a.kernel[d]; t++) g.taps[d].push_back({t * a.dilation[d] - a.padding[d], t});
    g.weight_tap[d] = a.weight.strides[2 + d];
  }
  g.source = a.input, g.target = a.output, g.weight = a.weight;
  g.weight_row = a.weight.strides[0], g.weight_channel = a.weight.strides[1];
  g.weight_group = g.rows * a.weight.strides[0];
  g.bias = a.bias, g.bias_stride = a.bias_stride;
  return g;
}

// Input x meets output p through tap t where x = p * stride - padding + t * dilation. For x = r + q * stride that is
// p = q + (r + padding - t * dilation) / stride, if it divides.
Gather backward_input_gather(const ConvArgs& a, const int64_t* r) {
  Gather g;
  g.batch = a.batch, g.groups = a.groups;
  g.rows = a.in_channels / a.groups, g.depth = a.out_channels / a.groups;
  g.source = a.output, g.target = a.input, g.weight = a.weight;
  g.weight_row = a.weight.strides[1], g.weight_channel = a.weight.strides[0];
  g.weight_group = g.depth * a.weight.strides[0];
  g.bias = a.bias, g.bias_stride = a.bias_stride;
  g.scattered = true;
  for (int d = 0; d < 3; d++) {
    const int64_t s = a.stride[d];
    g.step[d] = 1;
    g.source_size[d] = a.out_size[d];
    g.weight_tap[d] = a.weight.strides[2 + d];
    g.count[d] = a.in_size[d] > r[d] ? ceil_div(a.in_size[d] - r[d], s) : 0;
    for (int64_t t = 0; t < a.kernel[d]; t++) {
      const int64_t distance = r[d] + a.padding[d] - t * a.dilation[d];
      if (distance % s == 0) g.taps[d].push_back({distance / s, t});
    }
    g.target.data += r[d] * a.input.strides[2 + d] * static_cast<int64_t>(size_of(a.dtype));
    g.target.strides[2 + d] = a.input.strides[2 + d] * (g.count[d] > 1 ? s : 1);
  }
  return g;
}

namespace {
constexpr int64_t kStageBytes = 512 << 10;

int64_t reach(const Gather& g, int d) {
  if (g.taps[d].size() == 0) return 0;
  int64_t low = g.taps[d][0].offset, high = low;
  for (Tap t : g.taps[d]) low = min64(low, t.offset), high = max64(high, t.offset);
  return high - low;
}
int64_t lowest_offset(const Gather& g, int d) {
  int64_t low = g.taps[d].size() == 0 ? 0 : g.taps[d][0].offset;
  for (Tap t : g.taps[d]) low = min64(low, t.offset);
  return low;
}
}  // namespace

Item Items::get(const Gather& g, int64_t i) const {
  const int64_t h = i % across_h, d = i / across_h % across_d, n = i / across_h / across_d;
  return {n * images,  min64(g.batch, (n + 1) * images),    d * depths, min64(g.count[0], (d + 1) * depths),
          h * heights, min64(g.count[1], (h + 1) * heights)};
}

Items make_items(const Gather& g, int64_t least, int64_t positions, int64_t element_bytes) {
  const int64_t whole = g.count[0] * g.count[1] * g.count[2];
  Items items{1, g.count[0], g.count[1], g.batch, 1, 1};
  if (whole < positions) {
    items.images = max64(1, min64(positions / whole, g.batch / max64(least, 1)));
  } else {
    // Bands of whole planes, then of rows.
    const int64_t bytes = g.count[0] * g.step[0] * g.count[1] * g.step[1] * (g.count[2] * g.step[2] + reach(g, 2)) *
                          g.depth * element_bytes;
    const int64_t bands = min64(max64(ceil_div(least, g.batch), ceil_div(bytes, kStageBytes)), whole / positions);
    items.depths = ceil_div(g.count[0], min64(bands, g.count[0]));
    items.heights = ceil_div(g.count[1], min64(ceil_div(bands, ceil_div(g.count[0], items.depths)), g.count[1]));
  }
  items.across_n = ceil_div(g.batch, items.images);
  items.across_d = ceil_div(g.count[0], items.depths);
  items.across_h = ceil_div(g.count[1], items.heights);
  return items;
}

Stage make_stage(const Gather& g, const Items& items) {
  Stage s;
  for (int d = 0; d < 3; d++) s.lowest[d] = lowest_offset(g, d);
  s.rows_d = (items.depths - 1) * g.step[0] + reach(g, 0) + 1;
  s.rows_h = (items.heights - 1) * g.step[1] + reach(g, 1) + 1;
  for (int64_t residue = 0; residue < g.step[2]; residue++) {
    bool used = false;
    for (Tap t : g.taps[2]) used = used || (t.offset - s.lowest[2]) % g.step[2] == residue;
    if (used) s.phase_of.push_back(residue);
  }
  s.phases = s.phase_of.size();
  s.row = g.count[2] + reach(g, 2) / g.step[2];
  s.channel = s.rows_d * s.rows_h * s.phases * s.row + kSlack;
  for (Tap td : g.taps[0])
    for (Tap th : g.taps[1])
      for (Tap tw : g.taps[2]) {
        const int64_t w = tw.offset - s.lowest[2];
        int64_t phase = 0;
        while (s.phase_of[phase] != w % g.step[2]) phase++;
        const int64_t line = (td.offset - s.lowest[0]) * s.rows_h + th.offset - s.lowest[1];
        s.tap_offset.push_back((line * s.phases + phase) * s.row + w / g.step[2]);
      }
  return s;
}

namespace {

// Staged coordinates [begin, end) of a row lie inside the source; coordinate v reads source coordinate v * step +
// start.
struct Range {
  int64_t start, begin, end;
};

// Rows are written in whole vectors. What a vector writes past its row belongs to the next row of the same channel,
// which is written later, or to the slack behind the channel.
template <class E>
MT_INLINE void zero(E* row, int64_t begin, int64_t end) {
  for (int64_t v = begin; v < end; v += kLanes<E>) gemm::store_vector(row + v, gemm::Vector<E>{});
}

// The same row of all channels, which are `across` apart in the source. Its vectors have the same shape in all of them.
template <class S>
MT_INLINE void stage_contiguous(const S* src, int64_t across, const Range& r, int64_t length, int64_t channels,
                                int64_t channel, Element<S>* row) {
  constexpr int kStep = kLanes<Element<S>>;
  for (int64_t v = 0; v < length; v += kStep) {
    const auto begin = static_cast<int>(min64(max64(r.begin - v, 0), kStep));
    const auto end = static_cast<int>(min64(max64(r.end - v, begin), kStep));
    const S* in = src + v;
    Element<S>* out = row + v;
    if (begin == 0 && end == kStep) {
      for (int64_t c = 0; c < channels; c++, in += across, out += channel)
        gemm::store_vector(out, gemm::load_widened(in));
    } else if (begin < end) {
      for (int64_t c = 0; c < channels; c++, in += across, out += channel)
        gemm::store_vector(out, gemm::load_lanes(in, begin, end));
    } else {
      for (int64_t c = 0; c < channels; c++, out += channel) gemm::store_vector(out, gemm::Vector<Element<S>>{});
    }
  }
}

// Every other element: whole vectors are read and the unwanted half of their lanes left out.
template <class S>
MT_INLINE void stage_every_other(const S* src, const Range& r, int64_t length, Element<S>* row) {
  using E = Element<S>;
  constexpr int64_t kStep = kLanes<E>;
  for (int64_t v = 0; v < length; v += kStep) {
    const int64_t begin = max64(r.begin - v, 0), end = min64(r.end - v, kStep);
    gemm::Vector<E> wanted{}, other{};
    if (begin < end) {
      const S* const from = src + 2 * v;
      const int64_t first = 2 * begin, last = 2 * end - 1;
      const auto half = [&](int64_t at) {
        return gemm::load_lanes(from + at, static_cast<int>(min64(max64(first - at, 0), kStep)),
                                static_cast<int>(min64(max64(last - at, 0), kStep)));
      };
      gemm::split_pairs(wanted, other, half(0), half(kStep));
    }
    gemm::store_vector(row + v, wanted);
  }
}

// The rows of up to one vector of channels, which are contiguous in the source.
template <class S>
void stage_channels(const S* src, int64_t across, const Range& r, int64_t length, int channels, int64_t channel,
                    Element<S>* row) {
  using E = Element<S>;
  constexpr int kStep = kLanes<E>;
  for (int c = 0; c < channels; c++) zero(row + c * channel, 0, r.begin);
  int64_t v = r.begin;
  for (; v < r.end; v += kStep) {
    gemm::Vector<E> square[kStep];
#pragma GCC unroll 16
    for (int i = 0; i < kStep; i++) {
      if (v + i >= r.end)
        square[i] = gemm::Vector<E>{};
      else if (channels == kStep)
        square[i] = gemm::load_widened(src + (v + i) * across);
      else
        square[i] = gemm::load_lanes(src + (v + i) * across, 0, channels);
    }
    gemm::transpose<kStep>(square);
    for (int c = 0; c < channels; c++) gemm::store_vector(row + c * channel + v, square[c]);
  }
  for (int c = 0; c < channels; c++) zero(row + c * channel, v, length);
}

}  // namespace

template <class S>
void stage_source(const Gather& g, const Stage& stage, const Item& item, int64_t c0, int64_t channels,
                  Element<S>* block) {
  using E = Element<S>;
  const S* source = reinterpret_cast<const S*>(g.source.data);
  const int64_t* stride = g.source.strides;
  const int64_t across = stride[4] * g.step[2];
  Array<Range> range;
  for (int64_t residue : stage.phase_of) {
    const int64_t start = stage.lowest[2] + residue, step = g.step[2];
    const int64_t begin = min64(stage.row, start >= 0 ? 0 : ceil_div(-start, step));
    const int64_t end = start >= g.source_size[2] ? 0 : min64(stage.row, (g.source_size[2] - 1 - start) / step + 1);
    range.push_back({start, begin, max64(begin, end)});
  }
  const int64_t line = stage.phases * stage.row, image = channels * stage.channel;
  const bool by_channels = stride[1] == 1 && across != 1 && channels > 1;
  for (int64_t n = item.n0; n < item.n1; n++)
    for (int64_t d = 0; d < stage.rows_d; d++)
      for (int64_t h = 0; h < stage.rows_h; h++) {
        const int64_t sd = item.d0 * g.step[0] + stage.lowest[0] + d, sh = item.h0 * g.step[1] + stage.lowest[1] + h;
        const bool inside = sd >= 0 && sd < g.source_size[0] && sh >= 0 && sh < g.source_size[1];
        E* const to = block + (n - item.n0) * image + (d * stage.rows_h + h) * line;
        const S* const from = source + n * stride[0] + c0 * stride[1] + sd * stride[2] + sh * stride[3];
        if (!inside) {
          for (int64_t c = 0; c < channels; c++) zero(to + c * stage.channel, 0, line);
          continue;
        }
        for (int64_t p = 0; p < stage.phases; p++) {
          const Range& r = range[p];
          E* const row = to + p * stage.row;
          const S* const src = from + r.start * stride[4];
          if (by_channels) {
            for (int64_t c = 0; c < channels; c += kLanes<E>)
              stage_channels(src + c, across, r, stage.row, static_cast<int>(min64(kLanes<E>, channels - c)),
                             stage.channel, row + c * stage.channel);
          } else if (across == 1) {
            stage_contiguous(src, stride[1], r, stage.row, channels, stage.channel, row);
          } else if (is_floating_v<S> && across == 2) {
            for (int64_t c = 0; c < channels; c++)
              stage_every_other(src + c * stride[1], r, stage.row, row + c * stage.channel);
          } else {
            for (int64_t c = 0; c < channels; c++) {
              E* const out = row + c * stage.channel;
              const S* const in = src + c * stride[1];
              zero(out, 0, r.begin);
              for (int64_t v = r.begin; v < r.end; v++) out[v] = static_cast<E>(in[v * across]);
              zero(out, r.end, stage.row);
            }
          }
        }
      }
}

int64_t make_rows(const Gather& g, const Stage& stage, const Item& item, int64_t channels, Row* rows) {
  const int64_t* stride = g.target.strides;
  int64_t count = 0;
  for (int64_t n = item.n0; n < item.n1; n++)
    for (int64_t d = item.d0; d < item.d1; d++)
      for (int64_t h = item.h0; h < item.h1; h++)
        rows[count++] = {
            (n - item.n0) * channels * stage.channel +
                ((d - item.d0) * g.step[0] * stage.rows_h + (h - item.h0) * g.step[1]) * stage.phases * stage.row,
            n * stride[0] + d * stride[2] + h * stride[3]};
  return count;
}

bool is_linear(const int64_t* count, const int64_t* strides) {
  return (count[1] == 1 || strides[3] == count[2] * strides[4]) &&
         (count[0] == 1 || strides[2] == count[1] * count[2] * strides[4]);
}

void make_depth_offsets(const Gather& g, const Stage& stage, int64_t* offset) {
  for (int64_t c = 0; c < g.depth; c++)
    for (int64_t tap : stage.tap_offset) *offset++ = c * stage.channel + tap;
}

void make_weight_offsets(const Gather& g, int64_t* offset) {
  for (int64_t c = 0; c < g.depth; c++)
    for (Tap d : g.taps[0])
      for (Tap h : g.taps[1])
        for (Tap w : g.taps[2])
          *offset++ =
              c * g.weight_channel + d.index * g.weight_tap[0] + h.index * g.weight_tap[1] + w.index * g.weight_tap[2];
}

#define MT_INSTANTIATE(S) \
  template void stage_source<S>(const Gather&, const Stage&, const Item&, int64_t, int64_t, Element<S>*);
MT_CONV_STORAGE_TYPES(MT_INSTANTIATE)
#undef MT_INSTANTIATE

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
