// The gradient with respect to the weight: gradient of the output (rows x positions) times patches (positions x depth *
// taps). Sums of all images are kept wide, in one buffer a thread, and added at the end.
#include <utility>

#include "kernels/cpu/conv_core.h"
#include "kernels/cpu/gemm_convert.h"
#include "kernels/cpu/gemm_transpose.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {
namespace {

using gemm::kColumns;
using gemm::Output;
using gemm::scratch;
using gemm::Scratch;
using gemm::Vector;

constexpr int64_t kLargeSums = 1 << 20;  // bytes of sums that do not stay in cache between chunks

template <class E, size_t... kLane>
MT_INLINE Vector<E> join_halves(const E* low, const E* high, std::index_sequence<kLane...>) {
  typedef E Half __attribute__((vector_size(gemm::kVectorBytes / 2), aligned(sizeof(E)), may_alias));
  return __builtin_shufflevector(*reinterpret_cast<const Half*>(low), *reinterpret_cast<const Half*>(high), kLane...);
}

// One vector of positions: consecutive ones, or half a vector each from two rows that are `apart`.
template <class E, bool kPair>
MT_INLINE Vector<E> load_positions(const E* p, int64_t apart) {
  if constexpr (kPair)
    return join_halves(p, p + apart, std::make_index_sequence<kLanes<E>>{});
  else
    return gemm::load_vector(p);
}

// The upper halves of two vectors of floats, which hold bfloat16 values, as pairs.
template <class E>
MT_INLINE Vector<E> join_pair(Vector<E> low, Vector<E> high) {
  using Bits = Vector<uint32_t>;
  return reinterpret_cast<Vector<E>>(reinterpret_cast<Bits>(low) >> 16 | (reinterpret_cast<Bits>(high) & 0xffff0000u));
}

// dst[position][padded]: patches of `cols` columns (channel and tap) at `length` consecutive positions of one row, or
// at the positions of a pair of rows of half a vector. Squares of vectors are transposed in registers. With kJoin two
// positions, bfloat16 values both, share a row of dst; `length` is even then.
template <class E, bool kPair, bool kJoin>
void pack_row(const E* staged, int64_t apart, const int64_t* offset, int cols, int padded, int64_t length, E* dst) {
  constexpr int kWidth = kLanes<E>;
  for (int64_t x = 0; x < length; x += kWidth) {
    const int64_t rows = min64(kWidth, length - x);
    for (int b = 0; b < padded; b += kWidth) {
      Vector<E> square[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; i++)
        square[i] = b + i < cols ? load_positions<E, kPair>(staged + offset[b + i] + x, apart) : Vector<E>{};
      gemm::transpose<kWidth>(square);
      if constexpr (kJoin) {
        E* const to = dst + x / 2 * padded + b;
#pragma GCC unroll 16
        for (int i = 0; i < kWidth / 2; i++)
          if (2 * i < rows) gemm::store_vector(to + i * padded, join_pair<E>(square[2 * i], square[2 * i + 1]));
        continue;
      }
      E* to = dst + x * padded + b;
      if (rows == kWidth) {
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; i++) gemm::store_vector(to + i * padded, square[i]);
      } else {
        for (int64_t i = 0; i < rows; i++) gemm::store_vector(to + i * padded, square[i]);
      }
    }
  }
}

// Adds one item of one group to sums[row][depth].
template <class S>
void add_item(const Gather& g, const Stage& stage, const Item& item, const Items& items, int64_t group,
              const int64_t* offset, int64_t depth, int64_t chunk, Element<S>* sums, bool first) {
  using E = Element<S>;
  E* const staged = scratch<E>(Scratch::staged, items.images * g.depth * stage.channel);
  Row* const rows = scratch<Row>(Scratch::rows, items.images * items.depths * items.heights);
  E* const gradient = scratch<E>(Scratch::packed_a, g.rows * chunk + kLanes<E>);
  E* const patches = scratch<E>(Scratch::packed_b, chunk * kColumns<E>);
  stage_source<S>(g, stage, item, group * g.depth, g.depth, staged);
  const int64_t length = g.count[2], positions = make_rows(g, stage, item, g.depth, rows) * length;
  const int64_t* stride = g.target.strides;
  const S* const target = reinterpret_cast<const S*>(g.target.data) + group * g.rows * stride[1];
  // Positions that are evenly spaced in the gradient of the output, counted from the start of the item.
  const bool linear = is_linear(g.count, stride);
  const int64_t run = linear ? (item.d1 - item.d0) * (item.h1 - item.h0) * length : length;
  const gemm::RowPanels panels = gemm::split_rows<E>(g.rows);
  // Two positions of a row make a pair of bfloat16.
  const bool pairs = std::is_same_v<S, BFloat16> && gemm::has_pair_products() && length % 2 == 0;
  const int64_t values = pairs ? 2 : 1;
  Output<E> out;
  out.c = sums, out.row = depth, out.col = 1;

  for (int64_t j = 0; j < positions; j += chunk) {
    const int64_t deep = min64(chunk, positions - j);
    for (int64_t p = 0; p < panels.panels; p++) {
      E* to = gradient + panels.begin(p) * (deep / values);
      const int width = panels.width(p);
      for (int64_t at = j; at < j + deep;) {
        const int64_t n = min64(run - at % run, j + deep - at);
        const S* const from = target + rows[at / length].target + at % length * stride[4] + panels.begin(p) * stride[1];
        if constexpr (std::is_same_v<S, BFloat16>) {
          if (pairs) gemm::pack_pairs(from, stride[1], stride[4], width, width, n, to);
        }
        if (!pairs) gemm::pack_panel<S>(from, stride[1], stride[4], width, width, n, false, to);
        to += n / values * width;
        at += n;
      }
    }
    for (int64_t k = 0; k < depth; k += kColumns<E>) {
      const int cols = static_cast<int>(min64(kColumns<E>, depth - k));
      const int padded = static_cast<int>(gemm::padded_columns<E>(cols));
      const auto pack_all = [&]<bool kJoin>() {
        E* to = patches;
        for (int64_t at = j; at < j + deep;) {
          const int64_t x = at % length, r = at / length;
          int64_t n = min64(length - x, j + deep - at);
          if (2 * length == kLanes<E> && x == 0 && at + 2 * length <= j + deep) {
            n = 2 * length;
            pack_row<E, true, kJoin>(staged + rows[r].staged, rows[r + 1].staged - rows[r].staged, offset + k, cols,
                                     padded, n, to);
          } else {
            pack_row<E, false, kJoin>(staged + rows[r].staged + x, 0, offset + k, cols, padded, n, to);
          }
          to += n / values * padded;
          at += n;
        }
      };
      if constexpr (std::is_same_v<S, BFloat16>) {
        if (pairs) pack_all.template operator()<true>();
      }
      if (!pairs) pack_all.template operator()<false>();
      gemm::multiply_block<E>(gradient, g.rows, patches, cols, deep / values, out, 0, k, first && j == 0, true, pairs);
    }
  }
}

}  // namespace

template <class S>
void weight_dense(const Gather& g) {
  using E = Element<S>;
  const int64_t depth = g.depth * tap_count(g), group_sums = g.rows * depth;
  const int64_t chunk = group_sums * static_cast<int64_t>(sizeof(E)) > kLargeSums ? 1024 : 256;
  const WeightPlan plan = make_weight_plan(g, g.rows, chunk, sizeof(E));
  const int64_t sums_size = plan.sums_size, parts = plan.parts;
  E* const sums = scratch<E>(Scratch::weights, parts * sums_size);
  for_weight_parts(g, plan, [&](int64_t part, int64_t group, int64_t i0, int64_t i1) {
    E* const to = sums + part * sums_size + group * group_sums;
    for (int64_t i = i0; i < i1; i++)
      add_item<S>(g, plan.stage, plan.items.get(g, i), plan.items, group, plan.offset, depth, chunk, to, i == i0);
  });
  S* const weight = reinterpret_cast<S*>(g.weight.data);
  parallel_for(g.groups * g.rows, grain_of(depth), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      E* const row = sums + r * depth;
      for (int64_t p = 1; p < parts; p++)
        for (int64_t k = 0; k < depth; k++) row[k] += row[p * sums_size + k];
      S* const to = weight + r / g.rows * g.weight_group + r % g.rows * g.weight_row;
      for (int64_t k = 0; k < depth; k++) to[plan.weight_offset[k]] = static_cast<S>(row[k]);
    }
  });
}

#define MT_INSTANTIATE(S) template void weight_dense<S>(const Gather&);
MT_CONV_STORAGE_TYPES(MT_INSTANTIATE)
#undef MT_INSTANTIATE

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
