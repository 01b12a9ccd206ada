// Order-preserving unsigned keys, and sorts of (key, index) items. All of it is internal to the sources that include
// it: comparators and templates over them have no linkage across instruction sets.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/dtype.h"
#include "kernels/cpu/cast.h"
#include "kernels/cpu/scratch.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// Unsigned keys whose order is that of the values; NaN is the largest key, -0.0 and 0.0 share one.
template <class T>
struct KeyOf {
  using Key = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  using Signed = std::make_signed_t<Key>;
  static constexpr Key kSign = Key{1} << (8 * sizeof(Key) - 1);
  static constexpr bool floating = std::is_floating_point_v<T>;
  static constexpr Key kNan = std::numeric_limits<Key>::max();
  static constexpr Key kZero = kSign;
  static constexpr Key kLowest = std::is_unsigned_v<T> ? 0 : kSign;  // what turns an integer's bits into its key

  static MT_INLINE Key key(T x) {
    if constexpr (floating) {
      const Key bits = detail::bit_cast<Key>(x == T(0) ? T(0) : x);
      const Key flip = static_cast<Key>(static_cast<Signed>(bits) >> (8 * sizeof(Key) - 1)) | kSign;
      return x != x ? kNan : bits ^ flip;
    } else {
      return static_cast<Key>(x) ^ kLowest;
    }
  }
  // The value of a key. Of the keys that several values share (see ambiguous) one value.
  static MT_INLINE T value(Key k) {
    if constexpr (floating)
      return detail::bit_cast<T>(static_cast<Key>((k & kSign) ? k ^ kSign : ~k));
    else
      return static_cast<T>(k ^ kLowest);
  }
  static MT_INLINE bool ambiguous(Key k) { return floating && (k == kZero || k == kNan); }
};

// A key and the position it came from. 32-bit keys share a word with their index, which makes every sort of them
// stable.
struct Item32 {
  using Key = uint32_t;
  uint64_t word;
  static MT_INLINE Item32 make(uint32_t key, int64_t index) {
    return {uint64_t{key} << 32 | static_cast<uint32_t>(index)};
  }
  MT_INLINE uint32_t key() const { return static_cast<uint32_t>(word >> 32); }
  MT_INLINE int64_t index() const { return static_cast<int64_t>(word & 0xffffffffu); }
  friend MT_INLINE bool operator<(Item32 a, Item32 b) { return a.word < b.word; }
};
struct Item64 {
  using Key = uint64_t;
  uint64_t word;
  int64_t position;
  static MT_INLINE Item64 make(uint64_t key, int64_t index) { return {key, index}; }
  MT_INLINE uint64_t key() const { return word; }
  MT_INLINE int64_t index() const { return position; }
  friend MT_INLINE bool operator<(Item64 a, Item64 b) {
    return (a.word < b.word) | ((a.word == b.word) & (a.position < b.position));
  }
};

template <class Item>
void insertion_sort(Item* items, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    const Item x = items[i];
    int64_t j = i;
    for (; j > 0 && x < items[j - 1]; j--) items[j] = items[j - 1];
    items[j] = x;
  }
}

// Short lists without a branch: an item belongs where as many keys are smaller, counted whole vectors at a time.
// `items` are in the order of their indices, which decides between equal keys. The result is in `other`.
constexpr int64_t kRanked = 128;
template <class Item>
Item* rank_sort(const Item* items, Item* other, int64_t n) {
  using Key = typename Item::Key;
  constexpr int64_t kStep = 64 / sizeof(Key);
  alignas(64) Key keys[kRanked];
  const int64_t padded = (n + kStep - 1) / kStep * kStep;
  for (int64_t i = 0; i < n; i++) keys[i] = items[i].key();
  for (int64_t i = n; i < padded; i++) keys[i] = std::numeric_limits<Key>::max();
  for (int64_t i = 0; i < n; i++) {
    const Key key = keys[i];
    Key smaller = 0, equal = 0;
    for (int64_t j = 0; j < padded; j++) {
      smaller += keys[j] < key;
      equal += keys[j] == key;
    }
    if (equal > 1)
      for (int64_t j = 0; j < i; j++) smaller += keys[j] == key;
    other[smaller] = items[i];
  }
  return other;
}

// One stable pass of a radix sort by `Bits` bits of the key, in `parts` parallel parts.
template <int Bits, class Item>
void radix_pass(const Item* from, Item* to, int64_t n, int shift, int64_t parts, int64_t* counts) {
  constexpr int64_t kDigits = int64_t{1} << Bits;
  auto digit = [shift](const Item& x) { return static_cast<int64_t>(x.key() >> shift) & (kDigits - 1); };
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; p++) {
      int64_t* count = counts + p * kDigits;
      memset(count, 0, kDigits * sizeof(int64_t));
      for (int64_t i = n * p / parts; i < n * (p + 1) / parts; i++) count[digit(from[i])]++;
    }
  });
  int64_t total = 0;
  for (int64_t d = 0; d < kDigits; d++) {
    for (int64_t p = 0; p < parts; p++) {
      const int64_t count = counts[p * kDigits + d];
      counts[p * kDigits + d] = total;
      total += count;
    }
  }
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; p++) {
      int64_t* position = counts + p * kDigits;
      for (int64_t i = n * p / parts; i < n * (p + 1) / parts; i++) to[position[digit(from[i])]++] = from[i];
    }
  });
}

// Sorts by key, stably, with digits of `Bits` bits from the least significant on; digits that all keys share are
// skipped. The result is in one of the two buffers.
template <int Bits, class Item>
Item* radix_sort(Item* items, Item* other, int64_t n, int64_t parts) {
  Scratch<int64_t, Bits <= 8 ? 2048 : 0> counts(parts << Bits);
  typename Item::Key varying = 0;
  for (int64_t i = 1; i < n; i++) varying |= items[i].key() ^ items[0].key();
  for (int shift = 0; shift < static_cast<int>(8 * sizeof(varying)); shift += Bits) {
    if (((varying >> shift) & ((int64_t{1} << Bits) - 1)) == 0) continue;
    radix_pass<Bits>(items, other, n, shift, parts, counts.get());
    std::swap(items, other);
  }
  return items;
}

constexpr int64_t kInsertion = 12;        // items up to which insertion sort wins
constexpr int64_t kSmallDigits = 4096;    // items up to which short digits win
constexpr int64_t kParallelSort = 65536;  // items of one line worth a second thread

template <class Item>
Item* sort_items(Item* items, Item* other, int64_t n, int64_t parts = 1) {
  if (n <= kInsertion) {
    insertion_sort(items, n);
    return items;
  }
  if (n <= static_cast<int64_t>(kRanked * sizeof(uint32_t) / sizeof(typename Item::Key)))
    return rank_sort(items, other, n);
  return n <= kSmallDigits ? radix_sort<8>(items, other, n, parts) : radix_sort<11>(items, other, n, parts);
}

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
