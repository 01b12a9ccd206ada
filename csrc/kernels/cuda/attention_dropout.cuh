// Which of attention's weights dropout keeps, by the rules of native CUDA's two fused kernels, so that a seed gives
// native's numbers.
//
// By tiles (16-bit floats without a mask; T. Dao's FlashAttention-2): the weights of a head lie in tiles of 16 queries
// x 32 keys. Philox of seven rounds gives each of 32 lanes 16 bytes of a tile: those of the accumulators that the lane
// has of four matrix products of 8 columns, a word each (Hopper's deal their sums to the lanes of a warp alike). A
// weight stays where its byte is at most 255 (1 - p). Else (PyTorch's memory efficient attention): weights take one
// uniform number each, in the order of the whole matrix (batch, heads, queries, keys), and stay where it is above p.
#pragma once
#include "kernels/attention.h"
#include "kernels/cuda/philox.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace attention {

__device__ __forceinline__ uint32_t word_of(const uint4& words, int64_t n) {
  const uint32_t low = n % 2 == 0 ? words.x : words.y, high = n % 2 == 0 ? words.z : words.w;
  return n < 2 ? low : high;
}

// Where flags of a lane lie among those of a warp: words that a lane of mark_by_flags needs together lie together.
__device__ __forceinline__ int flag_place(int lane) { return lane / 8 * 8 + lane % 4 * 2 + lane / 4 % 2; }

// The weights of one head.
class Keep {
 public:
  __device__ __forceinline__ Keep(const AttentionArgs& a, int64_t batch, int64_t head)
      : seed_(philox::halves(a.dropout.seed)),
        keys_(a.keys),
        p_(static_cast<float>(a.dropout.p)),
        threshold_(static_cast<uint32_t>(floor((1.0f - p_) * 255.0))),
        by_tiles_(a.dropout.by_tiles) {
    const int64_t number = a.dropout.first + batch * a.dropout.heads + head;
    offset_ = a.dropout.offset + static_cast<uint64_t>(by_tiles_ ? number * 32 : number * a.queries * a.keys);
  }

  // What the weights that stay are multiplied by.
  __device__ __forceinline__ float scale() const { return 1.0f / (1.0f - p_); }

  __device__ __forceinline__ bool operator()(int64_t query, int64_t key) const {
    if (by_tiles_) {
      const uint4 words = tile(query / 16, key / 32, static_cast<int>(query % 8 * 4 + key % 8 / 2));
      return stays(word_of(words, key % 32 / 8), static_cast<int>(query % 16 / 8 * 2 + key % 2));
    }
    return stays(word_of(numbers(query, key), static_cast<int64_t>(place(query, key) % 4)));
  }

  // weights (16 x 8 N, accumulators of a warp whose first row is `query` - lane / 4, a multiple of 16) that go become
  // zeros; `first`, of the first column, is a multiple of 32.
  template <int N>
  __device__ __forceinline__ void drop(float (&weights)[N][4], int64_t query, int64_t first) const {
    if (fours()) return drop_fours(weights, query, first);
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int y = 0; y < N; y += 4) {
      uint4 words{};
      if (by_tiles_) words = tile(query / 16, first / 32 + y / 4, lane);
#pragma unroll
      for (int at = 0; at < 16; at++) {
        const int e = at % 4;
        const bool stay = by_tiles_ ? stays(word_of(words, at / 4), e)
                                    : (*this)(query + e / 2 * 8, first + (y + at / 4) * 8 + lane % 4 * 2 + e % 2);
        if (!stay) weights[y + at / 4][e] = 0.0f;
      }
    }
  }

  // The same by tiles and in two steps: first the words of 32 N columns, which can be drawn while products run, then
  // what they say of weights (64 x 32 N over a warpgroup) that are the left operand of a product already, 16 bits each.
  template <int N>
  __device__ __forceinline__ void draw(uint4 (&words)[N], int64_t query, int64_t first) const {
#pragma unroll
    for (int n = 0; n < N; n++) words[n] = tile(query / 16, first / 32 + n, static_cast<int>(threadIdx.x) % 32);
  }
  template <int N>
  __device__ __forceinline__ void drop(uint32_t (&left)[2 * N][4], const uint4 (&words)[N]) const {
#pragma unroll
    for (int k = 0; k < 2 * N; k++)
#pragma unroll
      for (int e = 0; e < 4; e++) left[k][e] &= stay_pair(word_of(words[k / 2], k % 2 * 2 + e / 2), e % 2);
  }

  // The same with keys as rows (the warp's first is a multiple of 16) and queries as columns (the first a multiple of
  // 16). Weights that go are told by their sign, for the gradient needs them, too.
  template <int N>
  __device__ __forceinline__ void mark(float (&weights)[N][4], int64_t key, int64_t first) const {
    if (fours()) return mark_fours(weights, key, first);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool second_half = key / 16 % 2 != 0;
#pragma unroll
    for (int y = 0; y < N; y += 2) {
      uint32_t low = 0, high = 0;  // this warp's keys are half of a tile: two of four words
      if (by_tiles_) {
        const uint4 words = tile(first / 16 + y / 2, key / 32, lane);
        low = second_half ? words.z : words.x, high = second_half ? words.w : words.y;
      }
#pragma unroll
      for (int right = 0; right < 2; right++) {  // the lane's columns 2 (lane % 4) and the next
        const int column = lane % 4 * 2 + right, owner = column * 4 + lane / 8;
        const uint32_t above = __shfl_sync(0xffffffffu, low, owner), below = __shfl_sync(0xffffffffu, high, owner);
#pragma unroll
        for (int at = 0; at < 4; at++) {
          const int down = at / 2, tile_y = at % 2;
          const bool stay = by_tiles_ ? stays(down == 0 ? above : below, tile_y * 2 + lane / 4 % 2)
                                      : (*this)(first + (y + tile_y) * 8 + column, key + down * 8);
          float& w = weights[y + tile_y][down * 2 + right];
          if (!stay) w = -w;
        }
      }
    }
  }

  // The last Warps warps of the block's first warpgroup leave flags of Queries x Keys, from 16 `row` and 64 `column`
  // on, in shared memory for its other warpgroups: 32 words for 16 queries and 64 keys, then the next keys, then the
  // next queries.
  template <int Queries, int Keys, int Warps>
  __device__ __forceinline__ void leave(uint32_t* to, uint32_t row, uint32_t column) const {
    constexpr int kColumns = Keys / 64;
    const int warp = static_cast<int>(threadIdx.x) / 32 - (4 - Warps), lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
    for (int n = warp; n < Queries / 16 * kColumns; n += Warps)
      to[n * 32 + flag_place(lane)] = flags(row + n / kColumns, column + n % kColumns, lane);
  }

 private:
  __device__ __forceinline__ uint4 tile(int64_t row, int64_t column, int lane) const {
    const uint64_t place = static_cast<uint32_t>(row) | static_cast<uint64_t>(column) << 32;
    return philox::mix<7>(philox::halves(offset_ + static_cast<uint64_t>(lane), place), seed_);
  }
  __device__ __forceinline__ uint64_t place(int64_t query, int64_t key) const {
    return offset_ + static_cast<uint64_t>(query * keys_ + key);
  }
  // Those of four weights in a row, one of which is this.
  __device__ __forceinline__ uint4 numbers(int64_t query, int64_t key) const {
    return philox::mix(philox::halves(place(query, key) / 4, 0), seed_);
  }
  __device__ __forceinline__ bool stays(uint32_t word) const { return philox::uniform(word) > p_; }

  // Whether four keys from a multiple of four on get their numbers at once: then lanes draw for each other, each once
  // for its four weights of a tile of 8 columns.
  __device__ __forceinline__ bool fours() const { return !by_tiles_ && keys_ % 4 == 0 && offset_ % 4 == 0; }

  // Two lanes have four keys of two queries: each draws for one query and hands half of it over.
  template <int N>
  __device__ __forceinline__ void drop_fours(float (&weights)[N][4], int64_t query, int64_t first) const {
    const int c = static_cast<int>(threadIdx.x) % 4, odd = c % 2;
#pragma unroll
    for (int y = 0; y < N; y++) {
      const uint4 words = numbers(query + odd * 8, first + y * 8 + c / 2 * 4);
      const uint2 own = odd ? make_uint2(words.z, words.w) : make_uint2(words.x, words.y);
      const uint2 other = make_uint2(__shfl_xor_sync(0xffffffffu, odd ? words.x : words.z, 1),
                                     __shfl_xor_sync(0xffffffffu, odd ? words.y : words.w, 1));
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const uint2 pair = e / 2 == odd ? own : other;
        if (!stays(e % 2 == 0 ? pair.x : pair.y)) weights[y][e] = 0.0f;
      }
    }
  }

  // With keys as rows, four lanes have four keys, and as many eight below, of two queries: each draws one of these four
  // fours, and gets a number of each.
  template <int N>
  __device__ __forceinline__ void mark_fours(float (&weights)[N][4], int64_t key, int64_t first) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, mine = lane / 4 % 4;
#pragma unroll
    for (int y = 0; y < N; y++) {
      const uint4 words = numbers(first + y * 8 + lane % 4 * 2 + mine % 2, key - mine + mine / 2 * 8);
      const auto from = [&](int away) { return __shfl_xor_sync(0xffffffffu, word_of(words, mine ^ away), away * 4); };
      const uint4 given = make_uint4(from(0), from(1), from(2), from(3));
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (!stays(word_of(given, mine ^ e))) weights[y][e] = -weights[y][e];
    }
  }

  __device__ __forceinline__ bool stays(uint32_t word, int byte) const {
    return (word >> byte * 8 & 255u) <= threshold_;
  }

  // What two tiles side by side (64 keys from 64 `column` on) tell a lane in a bit for each of its accumulators: for
  // byte e of word n of the eight, bit 7 - n of byte e.
  __device__ __forceinline__ uint32_t flags(int64_t row, int64_t column, int lane) const {
    uint32_t result = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint4 words = tile(row, column * 2 + half, lane);
#pragma unroll
      for (int n = 0; n < 4; n++) result |= (stay_bits(word_of(words, n)) & 0x80808080u) >> (half * 4 + n);
    }
    return result;
  }
  // All bits of each of the two halves of a pair (bytes 2 `pair` and the next) that stays. A byte as a half float is a
  // small number, and in the same order.
  __device__ __forceinline__ uint32_t stay_pair(uint32_t word, int pair) const {
    const uint32_t bytes = __byte_perm(word, 0, pair == 0 ? 0x4140 : 0x4342);
    uint32_t result;
    asm("set.le.u32.f16x2 %0, %1, %2;" : "=r"(result) : "r"(bytes), "r"(threshold_ * 0x00010001u));
    return result;
  }
  // The highest bit of each byte that stays. Seven bits of it are compared by a subtraction that never borrows from the
  // next byte, the eighth apart.
  __device__ __forceinline__ uint32_t stay_bits(uint32_t word) const {
    const uint32_t low = (0x80808080u | (threshold_ & 127u) * 0x01010101u) - (word & 0x7f7f7f7fu);
    const uint32_t always = threshold_ > 127 ? ~0u : 0u;  // those whose eighth bit is not set; else only those
    return (low & ~word) | ((low | ~word) & always);
  }

  uint2 seed_;
  uint64_t offset_;
  int64_t keys_;
  float p_;
  uint32_t threshold_;
  bool by_tiles_;
};

// A weight that Keep::mark has seen.
__device__ __forceinline__ bool is_kept(float marked) { return __float_as_int(marked) >= 0; }

// By the flags that Keep::leave left of the 16 queries of this warp: R * 2 columns of weights of which some go.
template <int R>
__device__ __forceinline__ void drop_by_flags(float (&weights)[R], const uint32_t (&flags)[R / 32]) {
#pragma unroll
  for (int at = 0; at < R; at++)
    if ((flags[at / 32] >> (at % 4 * 8 + 7 - at / 4 % 8) & 1) == 0) weights[at] = 0.0f;
}

// As Keep::mark, of R * 2 queries, by the flags that Keep::leave left of the 64 keys of this warpgroup. Pitch: words
// from those of 16 queries to the next.
template <int Pitch, int R>
__device__ __forceinline__ void mark_by_flags(float (&weights)[R], const uint32_t* flags) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  // This lane's keys are lane / 4 of the warp's 16 and the one eight below: in each half of a word, two bits of a byte.
  const int shift = lane / 4 % 2 * 8 + 6 - warp * 2;
#pragma unroll
  for (int y = 0; y < R / 4; y += 2) {
    // Of the queries 2 (lane % 4) and the next, and those eight below.
    const uint2 pair = *reinterpret_cast<const uint2*>(flags + y / 2 * Pitch + (lane % 4 * 4 + lane / 8) * 2);
#pragma unroll
    for (int at = 0; at < 8; at++) {
      const int right = at % 2, down = at / 2 % 2, tile_y = at / 4;
      float& w = weights[(y + tile_y) * 4 + down * 2 + right];
      if (((right == 0 ? pair.x : pair.y) >> shift >> (tile_y * 16 + 1 - down) & 1) == 0) w = -w;
    }
  }
}

}  // namespace attention
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
