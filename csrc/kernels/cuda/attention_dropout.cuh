// Which of attention's weights dropout keeps, by the rules of native CUDA's two fused kernels, so that a seed gives
// native's numbers.
//
// By tiles (16-bit floats without a mask; T. Dao's FlashAttention-2): the weights of a head lie in tiles of 16 queries
// x 32 keys. Philox of seven rounds gives each of 32 lanes 16 bytes of a tile: those of the accumulators that the lane
// has of four matrix products of 8 columns. A weight stays where its byte is at most 255 (1 - p). Else (PyTorch's
// memory efficient attention): weights take one uniform number each, in the order of the whole matrix (batch, heads,
// queries, keys), and stay where it is above p.
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

  uint2 seed_;
  uint64_t offset_;
  int64_t keys_;
  float p_;
  uint32_t threshold_;
  bool by_tiles_;
};

// A weight that Keep::mark has seen.
__device__ __forceinline__ bool is_kept(float marked) { return __float_as_int(marked) >= 0; }

}  // namespace attention
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
