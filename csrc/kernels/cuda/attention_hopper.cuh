// What the attention kernels on Hopper's matrix units share: how operands lie in shared memory, and their tensor maps.
#pragma once
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_tensor.h"
#include "kernels/cuda/hopper.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace attention {

constexpr int kLine = 128;  // bytes: 64 columns

// An operand of D columns lies in panels of 64 columns, `lines` lines of 128 bytes each.
template <int D>
constexpr int panel_bytes(int lines) {
  return lines * D * 2;
}

// Rows [row, row + Lines) of one head's operand.
template <int D, int Lines>
__device__ __forceinline__ void copy_rows(uint32_t to, const CUtensorMap& map, int row, int head, int batch,
                                          uint32_t barrier) {
#pragma unroll
  for (int c = 0; c < D; c += 64) hopper::copy_box(to + c / 64 * Lines * kLine, map, c, row, head, batch, barrier);
}

// sum (64 x N) = rows of panel A from `row` on, times all N lines of panel B transposed.
template <class S, int D, int Lines, int R>
__device__ __forceinline__ void multiply_rows(float (&sum)[R], uint32_t a, int row, uint32_t b) {
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    const uint32_t at = k % 64 * 2;
    hopper::product<S, true, true>(sum, hopper::descriptor(a + k / 64 * Lines * kLine + row * kLine + at, 0, 8 * kLine),
                                   hopper::descriptor(b + k / 64 * (R * 2) * kLine + at, 0, 8 * kLine), k > 0);
  }
}

// sum (64 x D) += left (64 x 16 K, in registers) times the 16 K lines of panel B.
template <class S, int K, int R>
__device__ __forceinline__ void multiply_lines(float (&sum)[R], const uint32_t (&left)[K][4], uint32_t b) {
#pragma unroll
  for (int k = 0; k < K; k++)
    hopper::product_left<S, false>(sum, left[k], hopper::descriptor(b + k * 16 * kLine, K * 16 * kLine, 8 * kLine));
}

// Accumulators (64 x 16 K), rounded, as the left operand of a product. Positive: what is negative counts as zero.
template <class S, bool Positive = false, int K>
__device__ __forceinline__ void round_left(uint32_t (&to)[K][4], const float (&from)[K * 8]) {
#pragma unroll
  for (int k = 0; k < K; k++)
#pragma unroll
    for (int e = 0; e < 4; e++) to[k][e] = mma::pack_pair<S, Positive>(from[k * 8 + e * 2], from[k * 8 + e * 2 + 1]);
}

template <int R>
__device__ __forceinline__ void settle(float (&sum)[R]) {
#pragma unroll
  for (int e = 0; e < R; e++) hopper::settled(sum[e]);
}

template <class S, int R>
__device__ __forceinline__ void put_sums(const AttentionOperand& o, int64_t batch, int64_t head, int64_t first,
                                         int64_t rows, const float (&sum)[R], const float (&factor)[2]) {
  float tiles[R / 4][4];
#pragma unroll
  for (int e = 0; e < R; e++) tiles[e / 4][e % 4] = sum[e];
  put_rows<S>(o, batch, head, first, rows, R * 2, tiles, factor);
}

// Whether the copy engine can read the operand.
inline bool mappable(const AttentionOperand& o) {
  return o.column == 1 && o.row > 0 && o.head > 0 && o.batch > 0 &&
         ((o.row | o.head | o.batch) % 8 | reinterpret_cast<uintptr_t>(o.data) % 16) == 0;
}

// Heads of 64 and 128 columns without a mask, whose weights are dropped by tiles, if at all.
inline bool hopper_fits(const AttentionArgs& a) {
  return is_half(a.dtype) && a.batch * a.heads <= 65535 && a.head_dim == a.value_dim &&
         (a.head_dim == 64 || a.head_dim == 128) && a.keys > 0 && a.mask.data == nullptr &&
         (a.dropout.p == 0 || a.dropout.by_tiles) && std::max(a.queries, a.keys) < int64_t{1} << 30 && mappable(a.q) &&
         mappable(a.k) && mappable(a.v);
}

template <class S, int D>
bool map_rows(CUtensorMap* to, const AttentionOperand& o, int64_t rows, int64_t heads, int64_t batch, int lines) {
  return hopper::make_map<4>(to, dtype_of<S>, o.data, {D, rows, heads, batch}, {o.row, o.head, o.batch}, lines);
}

}  // namespace attention
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
