// Convolution as a matrix product: weights (rows x depth * taps) times patches (depth * taps x positions), the patches
// being copied from the staged block into the product's packed panels.
#include "kernels/cpu/conv_core.h"
#include "kernels/cpu/gemm_convert.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {
namespace {

using gemm::kColumns;
using gemm::Output;
using gemm::scratch;
using gemm::Scratch;

constexpr int64_t kBlockColumns = 256;

// How the columns of a panel lie in the staged block: pieces of rows, each moved as one vector, or as half a vector
// where no row is longer. What a move writes too much is overwritten by what follows.
struct Moves {
  int64_t from[64];
  int64_t at[64];
  int count;
  bool half;
};

template <class E>
Moves make_moves(const Row* rows, int64_t row_length, int64_t j, int width) {
  Moves moves;
  moves.count = 0;
  moves.half = row_length <= kLanes<E> / 2;
  const int64_t step = moves.half ? kLanes<E> / 2 : kLanes<E>;
  int64_t r = j / row_length, x = j % row_length;
  for (int64_t at = 0; at < width; r++, x = 0) {
    const int64_t length = min64(row_length - x, width - at);
    for (int64_t i = 0; i < length; i += step, moves.count++) {
      moves.from[moves.count] = rows[r].staged + x + i;
      moves.at[moves.count] = at + i;
    }
    at += length;
  }
  return moves;
}

// dst[k][padded]: patches for k in [0, depth). kCount is the number of moves, or 0 if that is not known here.
template <class E, int kBytes, int kCount>
void move_patches(const E* staged, const int64_t* offset, int64_t depth, const Moves& moves, int padded, E* dst) {
  typedef E Piece __attribute__((vector_size(kBytes), aligned(sizeof(E)), may_alias));
  const int count = kCount > 0 ? kCount : moves.count;
  for (int64_t k = 0; k < depth; k++, dst += padded) {
    const E* from = staged + offset[k];
#pragma GCC unroll 8
    for (int m = 0; m < count; m++)
      *reinterpret_cast<Piece*>(dst + moves.at[m]) = *reinterpret_cast<const Piece*>(from + moves.from[m]);
  }
}

template <class E, int kBytes>
void pack_patches(const E* staged, const int64_t* offset, int64_t depth, const Moves& moves, int padded, E* dst) {
  switch (moves.count) {
    case 1: return move_patches<E, kBytes, 1>(staged, offset, depth, moves, padded, dst);
    case 2: return move_patches<E, kBytes, 2>(staged, offset, depth, moves, padded, dst);
    case 3: return move_patches<E, kBytes, 3>(staged, offset, depth, moves, padded, dst);
    case 4: return move_patches<E, kBytes, 4>(staged, offset, depth, moves, padded, dst);
    case 5: return move_patches<E, kBytes, 5>(staged, offset, depth, moves, padded, dst);
    default: return move_patches<E, kBytes, 0>(staged, offset, depth, moves, padded, dst);
  }
}

// The weights of rows [r0, r1) of a group, packed panel by panel for depths [k0, k1).
template <class S>
void pack_weights(const Gather& g, const int64_t* offset, bool dense, int64_t group, int64_t r0, int64_t r1, int64_t k0,
                  int64_t k1, Element<S>* dst) {
  using E = Element<S>;
  const S* w = reinterpret_cast<const S*>(g.weight.data) + group * g.weight_group;
  const gemm::RowPanels panels = gemm::split_rows<E>(r1 - r0);
  for (int64_t p = 0; p < panels.panels; p++) {
    const int width = panels.width(p);
    const S* from = w + (r0 + panels.begin(p)) * g.weight_row;
    if (dense) {
      gemm::pack_panel<S>(from + k0, g.weight_row, 1, width, width, k1 - k0, false, dst);
      dst += (k1 - k0) * width;
    } else {
      for (int64_t k = k0; k < k1; k++)
        for (int r = 0; r < width; r++) *dst++ = static_cast<E>(from[r * g.weight_row + offset[k]]);
    }
  }
}

void pack_weight_pairs(const Gather& g, const int64_t* offset, int64_t taps, int64_t group, int64_t r0, int64_t r1,
                       int64_t k0, int64_t k1, float* dst) {
  const BFloat16* w = reinterpret_cast<const BFloat16*>(g.weight.data) + group * g.weight_group;
  const gemm::RowPanels panels = gemm::split_rows<float>(r1 - r0);
  for (int64_t p = 0; p < panels.panels; p++) {
    const BFloat16* const from = w + (r0 + panels.begin(p)) * g.weight_row;
    for (int64_t k = k0; k < k1; k++) {
      const bool alone = 2 * (k / taps) + 1 == g.depth;
      for (int r = 0; r < panels.width(p); r++) {
        const BFloat16* const even = from + r * g.weight_row + offset[k];
        *dst++ = join(static_cast<float>(*even), alone ? 0.0f : static_cast<float>(even[g.weight_channel]));
      }
    }
  }
}

}  // namespace

template <class S>
void gather_dense(const Gather& whole) {
  using E = Element<S>;
  constexpr bool kNarrow = !std::is_same_v<S, E>;
  const DensePlan plan = make_dense_plan<S>(whole);
  const Gather& g = plan.g;
  const Items& items = plan.items;
  const Stage& stage = plan.stage;
  const bool pairs = plan.pairs;
  const int64_t threads = num_threads(), depth = plan.depth, kc = plan.kc;

  // Where there are too few items for the threads, rows are split as well.
  const int64_t tasks = items.size() * g.groups;
  const int64_t chunks = tasks >= threads ? 1 : min64(ceil_div(threads, tasks), ceil_div(g.rows, 2 * gemm::kRows<E>));
  const auto chunk_begin = [&](int64_t c) { return g.rows * c / chunks; };

  E* const weights = scratch<E>(Scratch::weights, g.groups * g.rows * depth + kLanes<E>);
  parallel_for(g.groups * chunks, max64(1, 65536 / (g.rows * depth + 1)), [&](int64_t begin, int64_t end_task) {
    for (int64_t t = begin; t < end_task; t++) {
      const int64_t group = t / chunks, r0 = chunk_begin(t % chunks), r1 = chunk_begin(t % chunks + 1);
      E* const to = weights + (group * g.rows + r0) * depth;
      for (int64_t k = 0; k < depth; k += kc) {
        E* const panel = to + (r1 - r0) * k;
        const int64_t end = min64(k + kc, depth);
        if constexpr (std::is_same_v<S, BFloat16>) {
          if (pairs) {
            pack_weight_pairs(whole, plan.weight_offset, stage.tap_offset.size(), group, r0, r1, k, end, panel);
            continue;
          }
        }
        pack_weights<S>(g, plan.weight_offset, plan.dense, group, r0, r1, k, end, panel);
      }
    }
  });

  const int64_t* stride = g.target.strides;
  const bool linear = is_linear(g.count, stride);
  const bool ascending = stride[4] == 1 && (g.count[1] == 1 || stride[3] >= g.count[2]) &&
                         (g.count[0] == 1 || stride[2] >= (g.count[1] - 1) * stride[3] + g.count[2]) &&
                         (items.images == 1 || (linear && stride[0] >= g.count[0] * g.count[1] * g.count[2]));
  parallel_for(tasks * chunks, 1, [&](int64_t begin, int64_t end) {
    E* const staged = scratch<E>(Scratch::staged, items.images * g.depth * stage.channel);
    const int64_t most_rows = items.images * items.depths * items.heights;
    Row* const rows = scratch<Row>(Scratch::rows, most_rows + most_rows * g.count[2] / 2 + 1);
    int64_t* const columns = reinterpret_cast<int64_t*>(rows + most_rows);
    E* const packed = scratch<E>(Scratch::packed_b, kBlockColumns * kc + kColumns<E>);
    for (int64_t t = begin; t < end; t++) {
      const int64_t chunk = t % chunks, group = t / chunks % g.groups;
      const Item item = items.get(g, t / chunks / g.groups);
      const int64_t r0 = chunk_begin(chunk), r1 = chunk_begin(chunk + 1);
      stage_group<S>(plan, item, group, staged);
      const int64_t row_count = make_rows(g, stage, item, g.depth, rows);
      const int64_t positions = row_count * g.count[2];

      Output<S> out;
      out.c = reinterpret_cast<S*>(g.target.data) + (group * g.rows + r0) * stride[1];
      out.row = stride[1];
      if (item.n1 - item.n0 == 1 && linear) {
        out.c += rows[0].target;
        out.col = stride[4];
      } else {
        for (int64_t r = 0; r < row_count; r++)
          for (int64_t x = 0; x < g.count[2]; x++) columns[r * g.count[2] + x] = rows[r].target + x * stride[4];
        out.col_offset = columns;
        out.runs = ascending;
      }
      if (g.bias != nullptr) {
        out.d = reinterpret_cast<const S*>(g.bias) + (group * g.rows + r0) * g.bias_stride;
        out.d_row = g.bias_stride;
        out.beta = E(1);
      }
      if (kNarrow && kc < depth) out.partial = scratch<E>(Scratch::partial, (r1 - r0) * kBlockColumns);
      out.partial_rows = r1 - r0;

      const E* const panel_weights = weights + (group * g.rows + r0) * depth;
      for (int64_t j = 0; j < positions; j += kBlockColumns) {
        const int64_t cols = min64(kBlockColumns, positions - j);
        Output<S> block = out;
        block.partial_j = j;
        for (int64_t k = 0; k < depth || k == 0; k += max64(kc, 1)) {
          const int64_t deep = min64(kc, depth - k);
          for (int64_t q = 0; q < cols; q += kColumns<E>) {
            const int width = static_cast<int>(min64(kColumns<E>, cols - q));
            const Moves moves = make_moves<E>(rows, g.count[2], j + q, width);
            const int padded = static_cast<int>(gemm::padded_columns<E>(width));
            if (moves.half)
              pack_patches<E, gemm::kVectorBytes / 2>(staged, plan.staged_offset + k, deep, moves, padded,
                                                      packed + q * deep);
            else
              pack_patches<E, gemm::kVectorBytes>(staged, plan.staged_offset + k, deep, moves, padded,
                                                  packed + q * deep);
          }
          gemm::multiply_block<S>(panel_weights + (r1 - r0) * k, r1 - r0, packed, cols, deep, block, 0, j, k == 0,
                                  k + deep == depth, pairs);
        }
      }
    }
  });
}

#define MT_INSTANTIATE(S) template void gather_dense<S>(const Gather&);
MT_CONV_STORAGE_TYPES(MT_INSTANTIATE)
#undef MT_INSTANTIATE

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
