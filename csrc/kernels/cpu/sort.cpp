// CPU sort, topk and selection. A line is loaded as order-preserving keys with their indices, sorted by radix
// (insertion when short), and written back from the keys; only values that share a key (zeros of both signs, NaN) are
// fetched again. Short selections scan with a threshold: the candidates are the items below the k-th best seen so far.
#include "kernels/sort.h"

#include "kernels/cpu/lines.h"
#include "kernels/cpu/sort_keys.h"
#include "kernels/cpu/sort_partition.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kBlockElements = 512;

// How the lines of one call are read and written.
struct LineAccess {
  LoadFn load;
  StoreFn store, store_index;
  int64_t in_step, value_step, index_step;
  int64_t in_size;
};

// What a descending sort inverts keys with.
template <class T>
MT_INLINE typename KeyOf<T>::Key flip_of(bool invert) {
  return invert ? ~typename KeyOf<T>::Key{0} : 0;
}

// Calls f(first, values, n) for blocks of a line converted to T.
template <class T, class F>
MT_INLINE void for_each_block(const LineAccess& a, const char* in, int64_t n, const F& f) {
  alignas(64) T block[kBlockElements];
  for (int64_t i = 0; i < n; i += kBlockElements) {
    const int64_t m = std::min(kBlockElements, n - i);
    a.load(block, in + i * a.in_step, a.in_step, m);
    f(i, block, m);
  }
}

// Loads elements begin to end of a line. `flip` inverts the keys of a descending sort.
template <class T, class Packing>
void load_items(const LineAccess& a, typename Packing::Item* items, const char* in, int64_t begin, int64_t end,
                typename KeyOf<T>::Key flip, const Packing& packing) {
  for_each_block<T>(a, in + begin * a.in_step, end - begin, [&](int64_t first, const T* block, int64_t m) {
    for (int64_t k = 0; k < m; k++) {
      const int64_t i = begin + first + k;
      items[i] = packing.make(KeyOf<T>::key(block[k]) ^ flip, i);
    }
  });
}
template <class T, class Item>
void load_items(const LineAccess& a, Item* items, const char* in, int64_t n, bool invert) {
  load_items<T>(a, items, in, 0, n, flip_of<T>(invert), Whole<Item>{});
}

template <class T, class Packing>
void store_items(const LineAccess& a, char* values, char* indices, const char* in, const typename Packing::Item* items,
                 int64_t begin, int64_t end, typename KeyOf<T>::Key flip, const Packing& packing) {
  using K = KeyOf<T>;
  alignas(64) T block[kBlockElements];
  alignas(64) int64_t at[kBlockElements];
  for (int64_t i = begin; i < end; i += kBlockElements) {
    const int64_t m = std::min(kBlockElements, end - i);
    bool ambiguous = false;
    for (int64_t k = 0; k < m; k++) {
      const auto key = static_cast<typename K::Key>(packing.key(items[i + k]) ^ flip);
      block[k] = K::value(key);
      at[k] = packing.index(items[i + k]);
      ambiguous |= K::ambiguous(key);
    }
    if (ambiguous)
      for (int64_t k = 0; k < m; k++)
        if (K::ambiguous(static_cast<typename K::Key>(packing.key(items[i + k]) ^ flip)))
          a.load(block + k, in + at[k] * a.in_step, a.in_step, 1);
    a.store(values + i * a.value_step, a.value_step, block, m);
    a.store_index(indices + i * a.index_step, a.index_step, at, m);
  }
}
template <class T, class Item>
void store_items(const LineAccess& a, char* values, char* indices, const char* in, const Item* items, int64_t n,
                 bool inverted) {
  store_items<T>(a, values, indices, in, items, 0, n, flip_of<T>(inverted), Whole<Item>{});
}

// Items and a second buffer of the same size for a thread.
template <class Item>
struct Buffers {
  explicit Buffers(int64_t n) : memory(2 * n), items(memory.get()), other(memory.get() + n) {}
  Scratch<Item, 8192> memory;
  Item *items, *other;
};

// Calls f(tag of the type the loops compute in, tag of the item type).
template <class F>
void dispatch_line(const char* name, DType dtype, int64_t length, const F& f) {
  DType compute = compute_dtype(dtype);
  if (dtype == DType::Bool || dtype == DType::U8 || dtype == DType::I8 || dtype == DType::I16 || dtype == DType::U16)
    compute = DType::I32;
  if (dtype == DType::U32) compute = DType::I64;
  const bool known = dispatch(compute, Types<float, double, int32_t, int64_t, uint64_t>{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) == 4) {
      if (length < (int64_t{1} << 32)) return f(tag, Tag<Item32>{});
    }
    f(tag, Tag<Item64>{});
  });
  if (!known) missing_kernel(name, name_of(dtype));
}

template <class T>
LineAccess access(const Lines& lines, const TensorView& values, const TensorView& indices, const TensorView& input) {
  return {load_fn(input.dtype, dtype_of<T>),
          store_fn(dtype_of<T>, values.dtype),
          store_fn(DType::I64, indices.dtype),
          lines.step(0),
          lines.step(1),
          lines.step(2),
          static_cast<int64_t>(size_of(input.dtype))};
}

// The lowest and the highest key of a line.
template <class T>
struct KeyRange {
  uint64_t low = ~uint64_t{0}, high = 0;
  KeyRange() : low(0), high(std::numeric_limits<typename KeyOf<T>::Key>::max()) {}  // all there are
  KeyRange(const LineAccess& a, const char* in, int64_t n, typename KeyOf<T>::Key flip, int64_t parts) {
    Scratch<uint64_t, 1024> found(2 * parts);
    for_each_part(n, parts, [&](int64_t p, int64_t begin, int64_t end) {
      uint64_t least = ~uint64_t{0}, most = 0;
      for_each_block<T>(a, in + begin * a.in_step, end - begin, [&](int64_t, const T* block, int64_t m) {
        for (int64_t k = 0; k < m; k++) {
          const uint64_t key = KeyOf<T>::key(block[k]) ^ flip;
          least = key < least ? key : least;
          most = key > most ? key : most;
        }
      });
      found[2 * p] = least, found[2 * p + 1] = most;
    });
    for (int64_t p = 0; p < parts; p++) low = std::min(low, found[2 * p]), high = std::max(high, found[2 * p + 1]);
  }
};

template <class T, class Packing>
void sort_whole(const LineAccess& a, char* const* p, int64_t n, bool descending, int64_t parts, int key_bit,
                const Packing& packing) {
  using Item = typename Packing::Item;
  const Buffers<Item> b(n);
  const auto flip = flip_of<T>(descending);
  for_each_part(n, parts, [&](int64_t, int64_t begin, int64_t end) {
    load_items<T>(a, b.items, p[0], begin, end, flip, packing);
  });
  const Item* const sorted = radix_sort(b.items, b.other, n, key_bit, parts);
  for_each_part(n, parts, [&](int64_t, int64_t begin, int64_t end) {
    store_items<T>(a, p[1], p[2], p[0], sorted, begin, end, flip, packing);
  });
}

// Calls f(item) for the elements begin to end of a line; their keys are made whole vectors at a time.
template <class T, class Packing, class F>
MT_INLINE void for_each_item(const LineAccess& a, const char* in, int64_t begin, int64_t end,
                             typename KeyOf<T>::Key flip, const Packing& packing, const F& f) {
  for_each_block<T>(a, in + begin * a.in_step, end - begin, [&](int64_t first, const T* block, int64_t m) {
    alignas(64) typename Packing::Item items[kBlockElements];
    for (int64_t k = 0; k < m; k++) items[k] = packing.make(KeyOf<T>::key(block[k]) ^ flip, begin + first + k);
    for (int64_t k = 0; k < m; k++) f(items[k]);
  });
}

// Bucket after bucket; false, with nothing done, where too many keys begin alike.
template <class T, class Packing>
bool sort_in_buckets(const LineAccess& a, char* const* p, int64_t n, bool descending, int64_t parts, int key_bit,
                     const KeyRange<T>& range, const Packing& packing) {
  using Item = typename Packing::Item;
  using Key = typename KeyOf<T>::Key;
  const auto flip = flip_of<T>(descending);
  const uint64_t differing =
      packing.make(static_cast<Key>(range.low), 0).word ^ packing.make(static_cast<Key>(range.high), 0).word;
  if (differing == 0) return false;
  Partition partition(bit_width(differing) - 1, key_bit, n, parts);
  const Digit digit = partition.digit();
  for_each_part(n, parts, [&](int64_t part, int64_t begin, int64_t end) {
    int64_t* const counts = partition.counts(part);
    for_each_item<T>(a, p[0], begin, end, flip, packing, [&](const Item& item) { counts[digit(item.word)]++; });
  });
  if (!partition.arrange()) return false;
  const Buffers<Item> b(n);
  for_each_part(n, parts, [&](int64_t part, int64_t begin, int64_t end) {
    int64_t* const positions = partition.positions(part);
    const uint16_t* const bucket = partition.bucket_of_digit();
    Item* const to = b.items;
    for_each_item<T>(a, p[0], begin, end, flip, packing,
                     [&](const Item& item) { to[positions[bucket[digit(item.word)]]++] = item; });
  });
  for_each_part(n, parts, [&](int64_t, int64_t begin, int64_t end) {
    const BucketSort sort_bucket;
    for (int64_t k = partition.first_from(begin); k < partition.first_from(end); k++) {
      const int64_t start = partition.start(k), count = partition.start(k + 1) - start;
      const Item* const sorted = sort_bucket(b.items + start, b.other + start, count, key_bit, partition.bits(k));
      store_items<T>(a, p[1], p[2], p[0], sorted - start, start, start + count, flip, packing);
    }
  });
  return true;
}

// In `parts` parallel parts.
template <class T, class Item>
void sort_line(const LineAccess& a, char* const* p, int64_t n, bool descending, int64_t parts) {
  if (n <= kRanked) {
    const Buffers<Item> b(n);
    load_items<T>(a, b.items, p[0], n, descending);
    return store_items<T>(a, p[1], p[2], p[0], sort_items(b.items, b.other, n), n, descending);
  }
  if (sizeof(T) == 4 && n < kLongLine) return sort_whole<T>(a, p, n, descending, parts, Item::kKeyBit, Whole<Item>{});
  const KeyRange<T> range = sizeof(T) == 8 ? KeyRange<T>(a, p[0], n, flip_of<T>(descending), parts) : KeyRange<T>();
  const auto sort_as = [&](const auto& packing, int key_bit) {
    if (n < kLongLine || !sort_in_buckets(a, p, n, descending, parts, key_bit, range, packing))
      sort_whole<T>(a, p, n, descending, parts, key_bit, packing);
  };
  if constexpr (sizeof(T) == 8) {
    if (Packed::fits(range.low, range.high, n)) {
      const Packed packing{range.low, bit_width(static_cast<uint64_t>(n))};
      return sort_as(packing, packing.key_bit);
    }
  }
  sort_as(Whole<Item>{}, Item::kKeyBit);
}

void sort(const TensorView& values, const TensorView& indices, const TensorView& input, int dim, bool descending) {
  const TensorView* tensors[] = {&input, &values, &indices};
  const Lines lines(tensors, 3, dim);
  const int64_t n = lines.length();
  dispatch_line(sort_kernel.name(), input.dtype, n, [&](auto tag, auto item_tag) {
    using T = typename decltype(tag)::type;
    using Item = typename decltype(item_tag)::type;
    const LineAccess a = access<T>(lines, values, indices, input);
    if (lines.count() < num_threads() && n >= kLongLine) {
      lines.for_each(1, 0, [&](char* const* p, int64_t) { sort_line<T, Item>(a, p, n, descending, num_threads()); });
    } else {
      lines.for_each(1, 8, [&](char* const* p, int64_t) { sort_line<T, Item>(a, p, n, descending, 1); });
    }
  });
}

// Moves the k smallest of n items to the front, in any order.
template <class Item>
void partition_smallest(Item* items, int64_t n, int64_t k) {
  if (k > 0 && k < n) std::nth_element(items, items + (k - 1), items + n);
}

// Gathers candidates for the k best items of a line, as keys of which smaller is better, into items[0..capacity);
// returns how many there are. Once it is known that k items are at least as good as `limit`, most groups of elements
// are passed over after one vectorised comparison.
template <class T, class Item>
int64_t gather_candidates(const LineAccess& a, Item* items, int64_t capacity, const char* in, int64_t n, int64_t k,
                          bool largest) {
  using K = KeyOf<T>;
  using Key = typename K::Key;
  constexpr int64_t kGroup = 64;
  const Key flip = largest ? ~Key{0} : 0;
  int64_t count = 0;
  bool limited = false;
  Key limit = 0;
  T limit_value = 0;
  for_each_block<T>(a, in, n, [&](int64_t first, const T* block, int64_t m) {
    for (int64_t g = 0; g < m; g += kGroup) {
      const int64_t end = std::min(m, g + kGroup);
      if (limited) {
        int candidates = 0;  // a NaN passes here; its key decides
        if (largest)
          for (int64_t i = g; i < end; i++) candidates |= !(block[i] <= limit_value);
        else
          for (int64_t i = g; i < end; i++) candidates |= !(block[i] >= limit_value);
        if (!candidates) continue;
      }
      for (int64_t i = g; i < end; i++) {
        const Key key = K::key(block[i]) ^ flip;
        if (limited && key >= limit) continue;
        items[count++] = Item::make(key, first + i);
        if (count < capacity) continue;
        partition_smallest(items, count, k);
        count = k;
        limit = items[k - 1].key();
        limit_value = K::value(limit ^ flip);
        limited = true;
      }
    }
  });
  return count;
}

// The k best of a line that fits in L1, best first: the maximum of each group of keys, then k times the best group's
// best key, which leaves that group. Equal keys come in the order of their indices. False if the line has to be sorted
// instead, because a key that stands for "taken" is among the results.
constexpr int64_t kTournamentGroup = 64, kTournament = kTournamentGroup * kTournamentGroup;

template <class Key>
MT_INLINE Key largest_of_group(const Key* group) {
  Key most = 0;
  for (int64_t i = 0; i < kTournamentGroup; i++) most = group[i] > most ? group[i] : most;
  return most;
}
template <class Key>
MT_INLINE int64_t first_in_group(const Key* group, Key key) {
  using Index = std::make_signed_t<Key>;  // as wide as the keys, so that the loop vectorises
  Index first = kTournamentGroup;
  for (Index i = 0; i < kTournamentGroup; i++) {
    const Index found = group[i] == key ? i : Index{kTournamentGroup};
    first = found < first ? found : first;
  }
  return first;
}

template <class T, class Item>
bool tournament(const LineAccess& a, Item* best, const char* in, int64_t n, int64_t k, bool largest) {
  using K = KeyOf<T>;
  using Key = typename K::Key;
  alignas(64) Key keys[kTournament], tops[kTournamentGroup] = {};
  const Key flip = largest ? 0 : ~Key{0};
  for_each_block<T>(a, in, n, [&](int64_t first, const T* block, int64_t m) {
    for (int64_t i = 0; i < m; i++) keys[first + i] = K::key(block[i]) ^ flip;
  });
  const int64_t groups = (n + kTournamentGroup - 1) / kTournamentGroup;
  for (int64_t i = n; i < groups * kTournamentGroup; i++) keys[i] = 0;
  for (int64_t g = 0; g < groups; g++) tops[g] = largest_of_group(keys + g * kTournamentGroup);
  for (int64_t j = 0; j < k; j++) {
    const Key key = groups == 1 ? tops[0] : largest_of_group(tops);
    if (key == 0) return false;
    const int64_t g = groups == 1 ? 0 : first_in_group(tops, key);
    Key* const group = keys + g * kTournamentGroup;
    const int64_t i = first_in_group(group, key);
    best[j] = Item::make(~key, g * kTournamentGroup + i);
    group[i] = 0;
    tops[g] = largest_of_group(group);
  }
  return true;
}

void topk(const TensorView& values, const TensorView& indices, const TensorView& input, int dim, int64_t k,
          bool largest) {
  const TensorView* tensors[] = {&input, &values, &indices};
  const Lines lines(tensors, 3, dim);
  const int64_t n = lines.length();
  dispatch_line(topk_kernel.name(), input.dtype, n, [&](auto tag, auto item_tag) {
    using T = typename decltype(tag)::type;
    using Item = typename decltype(item_tag)::type;
    const LineAccess a = access<T>(lines, values, indices, input);
    const bool scan = k < n / 8, in_cache = n <= kTournament && k <= n / 8 + 8;
    const int64_t capacity = scan ? std::min(n, 2 * k + 64) : n;
    lines.for_each(1, scan ? 1 : 8, [&](char* const* p, int64_t) {
      const Buffers<Item> b(capacity);
      const Item* best = b.items;
      if (in_cache && tournament<T>(a, b.items, p[0], n, k, largest))
        return store_items<T>(a, p[1], p[2], p[0], best, k, largest);
      if (scan) {
        const int64_t count = gather_candidates<T>(a, b.items, capacity, p[0], n, k, largest);
        partition_smallest(b.items, count, k);
        std::sort(b.items, b.items + k);
      } else {
        load_items<T>(a, b.items, p[0], n, largest);
        best = sort_items(b.items, b.other, n);
      }
      store_items<T>(a, p[1], p[2], p[0], best, k, largest);
    });
  });
}

// The last item of the first longest run of equal values. Items that compare as NaN equal none.
template <class Item>
struct Longest {
  const Item* item;
  int64_t length;
  static MT_INLINE Longest in(const Item* sorted, int64_t n, typename Item::Key nan, bool has_nan) {
    Longest found{sorted, 0};
    for (int64_t i = 0, run = 0; i < n; i++) {
      const bool same = i > 0 && sorted[i].key() == sorted[i - 1].key() && !(has_nan && sorted[i].key() == nan);
      run = same ? run + 1 : 1;
      if (run > found.length) found = {sorted + i, run};
    }
    return found;
  }
};

// Which of equal elements is the mode's, and where NaNs lead, native leaves to std::sort: the same comparisons give the
// same.
template <class T, class Item>
Item mode(const LineAccess& a, const char* in, Item* items, Item* other, int64_t n) {
  constexpr bool kHasNan = KeyOf<T>::floating;
  constexpr typename Item::Key kNan{KeyOf<T>::kNan};
  if (kHasNan && sizeof(T) > 2 && n > 16) {  // seldom two equal ones; the faster sort
    const Item* sorted = sort_items(items, other, n);
    const auto found = Longest<Item>::in(sorted, n, kNan, kHasNan);
    if (found.length == 1 && sorted[n - 1].key() != kNan) return *found.item;
    load_items<T>(a, items, in, n, false);
  }
  std::sort(items, items + n, [](const Item& x, const Item& y) {
    return x.key() < y.key() && !(kHasNan && y.key() == kNan);  // NaN is the largest key
  });
  return *Longest<Item>::in(items, n, kNan, kHasNan).item;
}

// The item that `op` asks for, not the mode, from the n items of a line in their order; `items` is scrambled.
template <class Item>
Item selected(SelectOp op, Item* items, int64_t n, int64_t k, typename Item::Key nan, bool has_nan) {
  int64_t rank = k - 1;
  if (op != SelectOp::kth) {
    int64_t nans = 0;
    if (has_nan) {
      for (int64_t i = n - 1; i >= 0; i--) {
        if (items[i].key() != nan) continue;
        nans++;
        items[n] = items[i];
      }
    }
    if (nans > 0 && (op == SelectOp::median || nans == n)) return items[n];  // the first NaN
    rank = (n - nans - 1) / 2;
  }
  std::nth_element(items, items + rank, items + n);
  return items[rank];
}

void select(SelectOp op, const TensorView& values, const TensorView& indices, const TensorView& input, int dim,
            int64_t k) {
  const TensorView* tensors[] = {&input, &values, &indices};
  const Lines lines(tensors, 3, dim);
  const int64_t n = lines.length();
  dispatch_line(select_kernel.name(), input.dtype, n, [&](auto tag, auto item_tag) {
    using T = typename decltype(tag)::type;
    using Item = typename decltype(item_tag)::type;
    const LineAccess a = access<T>(lines, values, indices, input);
    lines.for_each(1, 4, [&](char* const* p, int64_t) {
      const Buffers<Item> b(n + 1);
      load_items<T>(a, b.items, p[0], n, false);
      const typename Item::Key nan{KeyOf<T>::kNan};
      const Item item = op == SelectOp::mode ? mode<T>(a, p[0], b.items, b.other, n)
                                             : selected(op, b.items, n, k, nan, KeyOf<T>::floating);
      store_items<T>(a, p[1], p[2], p[0], &item, 1, false);
    });
  });
}

MT_REGISTER_KERNEL(sort_kernel, &sort);
MT_REGISTER_KERNEL(topk_kernel, &topk);
MT_REGISTER_KERNEL(select_kernel, &select);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
