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
  static constexpr int kKeyBit = 32;  // the lowest bit of the key
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
  static constexpr int kKeyBit = 0;
  uint64_t word;
  int64_t position;
  static MT_INLINE Item64 make(uint64_t key, int64_t index) { return {key, index}; }
  MT_INLINE uint64_t key() const { return word; }
  MT_INLINE int64_t index() const { return position; }
  friend MT_INLINE bool operator<(Item64 a, Item64 b) {
    return (a.word < b.word) | ((a.word == b.word) & (a.position < b.position));
  }
};

// Bits that x, above 0, takes.
MT_INLINE int bit_width(uint64_t x) { return 64 - __builtin_clzll(x); }

// How keys and indices are packed into items: as the item has it, or in one word where the keys of a line differ in so
// few bits that the index fits below what is left of a key.
template <class ItemType>
struct Whole {
  using Item = ItemType;
  MT_INLINE Item make(typename Item::Key key, int64_t index) const { return Item::make(key, index); }
  MT_INLINE typename Item::Key key(const Item& item) const { return item.key(); }
  MT_INLINE int64_t index(const Item& item) const { return item.index(); }
};
struct Packed {
  using Item = Item32;
  uint64_t lowest;  // key
  int key_bit;
  // Whether keys from `low` to `high` and n indices fit.
  static MT_INLINE bool fits(uint64_t low, uint64_t high, int64_t n) {
    return bit_width((high - low) | 1) + bit_width(static_cast<uint64_t>(n)) <= 64;
  }
  MT_INLINE Item make(uint64_t key, int64_t index) const {
    return {(key - lowest) << key_bit | static_cast<uint64_t>(index)};
  }
  MT_INLINE uint64_t key(const Item& item) const { return (item.word >> key_bit) + lowest; }
  MT_INLINE int64_t index(const Item& item) const {
    return static_cast<int64_t>(item.word & ((uint64_t{1} << key_bit) - 1));
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

// Calls f(part, begin, end) for `parts` parts of n elements, in parallel.
template <class F>
MT_INLINE void for_each_part(int64_t n, int64_t parts, const F& f) {
  parallel_for(parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; p++) f(p, n * p / parts, n * (p + 1) / parts);
  });
}

// Which of a word's bits a pass goes by.
struct Digit {
  int shift;
  int64_t mask;
  MT_INLINE int64_t operator()(uint64_t word) const { return static_cast<int64_t>(word >> shift) & mask; }
};

// One stable pass of a radix sort by the digit of the words that `shift` and `digits`, a power of two, tell.
template <class Item>
void radix_pass(const Item* from, Item* to, int64_t n, int shift, int64_t digits, int64_t parts, int64_t* counts) {
  const Digit digit{shift, digits - 1};
  for_each_part(n, parts, [&](int64_t p, int64_t begin, int64_t end) {
    int64_t* const count = counts + p * digits;
    memset(count, 0, digits * sizeof(int64_t));
    for (int64_t i = begin; i < end; i++) count[digit(from[i].word)]++;
  });
  int64_t total = 0;
  for (int64_t d = 0; d < digits; d++) {
    for (int64_t p = 0; p < parts; p++) {
      const int64_t count = counts[p * digits + d];
      counts[p * digits + d] = total;
      total += count;
    }
  }
  for_each_part(n, parts, [&](int64_t p, int64_t begin, int64_t end) {
    int64_t* const position = counts + p * digits;
    for (int64_t i = begin; i < end; i++) to[position[digit(from[i].word)]++] = from[i];
  });
}

constexpr int64_t kSmallDigits = 4096;  // items up to which short digits win
constexpr int kShortDigit = 8, kLongDigit = 11;

// Sorts by the bits of the words from `lowest` on, stably, with digits from the least significant on, as long as they
// have to be; digits that all words share are skipped. The result is in one of the two buffers.
template <class Item>
Item* radix_sort(Item* items, Item* other, int64_t n, int lowest, int64_t parts) {
  uint64_t varying = 0;
  for (int64_t i = 1; i < n; i++) varying |= items[i].word ^ items[0].word;
  varying >>= lowest;
  if (varying == 0) return items;
  const int bits = bit_width(varying);
  const int longest = n <= kSmallDigits ? kShortDigit : kLongDigit;
  const int passes = (bits + longest - 1) / longest, width = (bits + passes - 1) / passes;
  Scratch<int64_t, 2048> counts(parts << width);
  for (int pass = 0; pass < passes; pass++) {
    if ((varying >> pass * width & ((uint64_t{1} << width) - 1)) == 0) continue;
    radix_pass(items, other, n, lowest + pass * width, int64_t{1} << width, parts, counts.get());
    std::swap(items, other);
  }
  return items;
}

constexpr int64_t kInsertion = 12;  // items up to which insertion sort wins

template <class Item>
Item* sort_items(Item* items, Item* other, int64_t n) {
  if (n <= kInsertion) {
    insertion_sort(items, n);
    return items;
  }
  if (n <= static_cast<int64_t>(kRanked * sizeof(uint32_t) / sizeof(typename Item::Key)))
    return rank_sort(items, other, n);
  return radix_sort(items, other, n, Item::kKeyBit, 1);
}

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
