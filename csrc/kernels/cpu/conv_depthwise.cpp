// Convolutions with one source channel in a group: too little to sum for a matrix product, so the taps are applied
// directly to the rows of the staged block.
#include "kernels/cpu/conv_core.h"
#include "kernels/cpu/gemm_convert.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {
namespace {

using gemm::load_vector;
using gemm::scratch;
using gemm::Scratch;
using gemm::store_vector;
using gemm::Vector;

constexpr int64_t kPositions = 256;

// Rows that are filtered together: a lone accumulator would wait for each of its additions.
constexpr int kTogether = 4;

// out[r * pitch + x] = bias + sum over t of weight[t] * rows[r][tap[t] + x], for kRows rows and kVectors vectors.
template <class E, int kRows, int kVectors>
MT_INLINE void filter_block(const E* const* rows, const int64_t* tap, const E* weight, int64_t taps, E bias, int64_t x,
                            E* out, int64_t pitch) {
  Vector<E> acc[kRows][kVectors];
  for (int r = 0; r < kRows; r++)
    for (int i = 0; i < kVectors; i++) acc[r][i] = bias - Vector<E>{};
  for (int64_t t = 0; t < taps; t++)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; i++) acc[r][i] += weight[t] * load_vector(rows[r] + tap[t] + x + i * kLanes<E>);
  for (int r = 0; r < kRows; r++)
    for (int i = 0; i < kVectors; i++) store_vector(out + r * pitch + x + i * kLanes<E>, acc[r][i]);
}

// For x < length rounded up to whole vectors.
template <class E, int kRows>
void filter_rows(const E* const* rows, const int64_t* tap, const E* weight, int64_t taps, E bias, int64_t length,
                 E* out, int64_t pitch) {
  constexpr int kStep = kLanes<E>, kMost = kRows == 1 ? 4 : 2;
  int64_t x = 0;
  for (; x + (kMost - 1) * kStep < length; x += kMost * kStep)
    filter_block<E, kRows, kMost>(rows, tap, weight, taps, bias, x, out, pitch);
  for (; x < length; x += kStep) filter_block<E, kRows, 1>(rows, tap, weight, taps, bias, x, out, pitch);
}

// The lanes of sums[t] += gradient[x] * row[tap[t] + x]. What lies behind the row is not zero, so the last vector is
// cut.
template <class E>
void correlate_row(const E* row, const int64_t* tap, const E* gradient, int64_t taps, int64_t length, E* sums) {
  constexpr int kStep = kLanes<E>;
  const int64_t whole = length / kStep * kStep;
  const int rest = static_cast<int>(length - whole);
  for (int64_t t = 0; t < taps; t++) {
    const E* from = row + tap[t];
    Vector<E> acc = load_vector(sums + t * kStep);
    for (int64_t x = 0; x < whole; x += kStep) acc += load_vector(gradient + x) * load_vector(from + x);
    if (rest != 0) acc += gemm::load_lanes(gradient + whole, 0, rest) * gemm::load_lanes(from + whole, 0, rest);
    store_vector(sums + t * kStep, acc);
  }
}

template <class S>
void load_weights(const Gather& g, int64_t channel, const int64_t* offset, int64_t taps, Element<S>* weight) {
  const S* from =
      reinterpret_cast<const S*>(g.weight.data) + channel / g.rows * g.weight_group + channel % g.rows * g.weight_row;
  for (int64_t t = 0; t < taps; t++) weight[t] = static_cast<Element<S>>(from[offset[t]]);
}

}  // namespace

template <class S>
void gather_depthwise(const Gather& g) {
  using E = Element<S>;
  if constexpr (std::is_floating_point_v<S>) {
    if (filters_planes(g)) return gather_planes<S>(g);
  }
  const Items items = make_items(g, ceil_div(num_threads(), g.groups), kPositions, sizeof(E));
  const Stage stage = make_stage(g, items);
  const int64_t taps = stage.tap_offset.size(), length = g.count[2], across = g.target.strides[4];
  int64_t* const weight_offset = scratch<int64_t>(Scratch::columns, taps + 1);
  make_weight_offsets(g, weight_offset);
  parallel_for(items.size() * g.groups, 1, [&](int64_t begin, int64_t end) {
    E* const staged = scratch<E>(Scratch::staged, items.images * stage.channel);
    Row* const rows = scratch<Row>(Scratch::rows, items.images * items.depths * items.heights);
    E* const weight = scratch<E>(Scratch::packed_a, taps + 1);
    const int64_t pitch = ceil_div(length, kLanes<E>) * kLanes<E>;
    E* const lines = scratch<E>(Scratch::packed_b, kTogether * pitch);
    for (int64_t t = begin; t < end; t++) {
      const Item item = items.get(g, t / g.groups);
      const int64_t group = t % g.groups;
      stage_source<S>(g, stage, item, group, 1, staged);
      const int64_t row_count = make_rows(g, stage, item, 1, rows);
      for (int64_t m = 0; m < g.rows; m++) {
        const int64_t channel = group * g.rows + m;
        load_weights<S>(g, channel, weight_offset, taps, weight);
        const E bias =
            g.bias == nullptr ? E(0) : static_cast<E>(reinterpret_cast<const S*>(g.bias)[channel * g.bias_stride]);
        S* const target = reinterpret_cast<S*>(g.target.data) + channel * g.target.strides[1];
        for (int64_t r = 0; r < row_count; r++) {
          if (r % kTogether == 0) {
            const int64_t together = min64(kTogether, row_count - r);
            const E* from[kTogether];
            for (int64_t i = 0; i < together; i++) from[i] = staged + rows[r + i].staged;
            if (together == kTogether)
              filter_rows<E, kTogether>(from, stage.tap_offset.begin(), weight, taps, bias, length, lines, pitch);
            else
              for (int64_t i = 0; i < together; i++)
                filter_rows<E, 1>(from + i, stage.tap_offset.begin(), weight, taps, bias, length, lines + i * pitch,
                                  pitch);
          }
          const E* const line = lines + r % kTogether * pitch;
          S* const to = target + rows[r].target;
          if (across == 1)
            gemm::narrow<S>(line, to, length);
          else
            for (int64_t x = 0; x < length; x++) to[x * across] = static_cast<S>(line[x]);
        }
      }
    }
  });
}

template <class S>
void weight_depthwise(const Gather& g) {
  using E = Element<S>;
  const Items items = make_items(g, 1, kPositions, sizeof(E));
  const Stage stage = make_stage(g, items);
  const int64_t taps = stage.tap_offset.size(), length = g.count[2], across = g.target.strides[4];
  int64_t* const weight_offset = scratch<int64_t>(Scratch::columns, taps + 1);
  make_weight_offsets(g, weight_offset);
  parallel_for(g.groups, 1, [&](int64_t begin, int64_t end) {
    E* const staged = scratch<E>(Scratch::staged, items.images * stage.channel);
    Row* const rows = scratch<Row>(Scratch::rows, items.images * items.depths * items.heights);
    constexpr int64_t kStep = kLanes<E>;
    E* const sums = scratch<E>(Scratch::packed_a, (g.rows * taps + 1) * kStep);
    E* const line = scratch<E>(Scratch::packed_b, length);
    for (int64_t group = begin; group < end; group++) {
      for (int64_t i = 0; i < g.rows * taps * kStep; i++) sums[i] = E(0);
      for (int64_t i = 0; i < items.size(); i++) {
        const Item item = items.get(g, i);
        stage_source<S>(g, stage, item, group, 1, staged);
        const int64_t row_count = make_rows(g, stage, item, 1, rows);
        for (int64_t m = 0; m < g.rows; m++) {
          const S* const target =
              reinterpret_cast<const S*>(g.target.data) + (group * g.rows + m) * g.target.strides[1];
          for (int64_t r = 0; r < row_count; r++) {
            const S* const from = target + rows[r].target;
            if (across == 1)
              gemm::widen(from, line, length);
            else
              for (int64_t x = 0; x < length; x++) line[x] = static_cast<E>(from[x * across]);
            correlate_row(staged + rows[r].staged, stage.tap_offset.begin(), line, taps, length,
                          sums + m * taps * kStep);
          }
        }
      }
      for (int64_t m = 0; m < g.rows; m++) {
        S* const to = reinterpret_cast<S*>(g.weight.data) + group * g.weight_group + m * g.weight_row;
        for (int64_t t = 0; t < taps; t++) {
          const E* const lanes = sums + (m * taps + t) * kStep;
          E sum = lanes[0];
          for (int64_t i = 1; i < kStep; i++) sum += lanes[i];
          to[weight_offset[t]] = static_cast<S>(sum);
        }
      }
    }
  });
}

#define MT_INSTANTIATE(S)                           \
  template void gather_depthwise<S>(const Gather&); \
  template void weight_depthwise<S>(const Gather&);
MT_CONV_STORAGE_TYPES(MT_INSTANTIATE)
#undef MT_INSTANTIATE

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
