// Sorting one long line: a pass moves the items into buckets of about equal size, in the order of their keys, and each
// bucket is then sorted where it fits into a core's own cache. Against radix passes over the whole line, the items
// cross between cores once instead of once a digit. (Sample sort's idea, with a histogram of leading bits instead of a
// sample, which costs a sweep and keeps the pass stable: Frazer and McKellar, JACM 17(3), 1970.)
#pragma once
#include "kernels/cpu/sort_keys.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kLongLine = 65536;    // items worth it, and worth a second thread
constexpr int kLeadingBits = 12;        // of the bits that differ: what a histogram counts, the finest bucket
constexpr int64_t kBucketItems = 8192;  // at which a bucket ends; with its second buffer it fits into L2

// Which bucket the words of a line belong to.
class Partition {
 public:
  // Words differ in bits up to `highest` and not below `lowest`; a bucket takes neighbouring digits.
  Partition(int highest, int lowest, int64_t n, int64_t parts)
      : lowest_(lowest),
        shift_(highest + 1 - kLeadingBits > lowest ? highest + 1 - kLeadingBits : lowest),
        digits_(int64_t{1} << (highest + 1 - shift_)),
        parts_(parts),
        n_(n),
        counts_(parts * digits_),
        bucket_(digits_),
        first_digit_(digits_ + 1),
        starts_(digits_ + 1),
        positions_(parts * digits_) {
    counts_.zero(parts * digits_);
  }

  int64_t* counts(int64_t part) const { return counts_.get() + part * digits_; }
  // What a word's digit is; a copy, so that loops which count keep it in registers.
  Digit digit() const { return {shift_, digits_ - 1}; }
  const uint16_t* bucket_of_digit() const { return bucket_.get(); }
  // Where the next items of a part go, by bucket.
  int64_t* positions(int64_t part) const { return positions_.get() + part * digits_; }
  // The first bucket that starts at a position of the sorted line or behind it.
  int64_t first_from(int64_t position) const {
    return std::lower_bound(starts_.get(), starts_.get() + buckets_, position) - starts_.get();
  }
  int64_t start(int64_t bucket) const { return starts_[bucket]; }
  // The number of bits in which the words of a bucket may differ, the low ones below `lowest` not counted.
  int bits(int64_t bucket) const {
    const int64_t differing = first_digit_[bucket] ^ (first_digit_[bucket + 1] - 1);
    return shift_ - lowest_ + (differing == 0 ? 0 : bit_width(static_cast<uint64_t>(differing)));
  }

  // Makes buckets of what was counted. False where one digit has so many items that a thread would wait for another.
  bool arrange() {
    int64_t total = 0, in_bucket = 0;
    const int64_t most = n_ / (2 * parts_);
    starts_[0] = first_digit_[0] = 0;
    positions_.zero(parts_ * digits_);
    for (int64_t d = 0; d < digits_; d++) {
      int64_t here = 0;
      for (int64_t p = 0; p < parts_; p++) here += counts(p)[d];
      if (parts_ > 1 && here > most) return false;
      if (in_bucket > 0 && in_bucket + here > kBucketItems) {
        starts_[++buckets_] = total;
        first_digit_[buckets_] = static_cast<uint16_t>(d);
        in_bucket = 0;
      }
      bucket_[d] = static_cast<uint16_t>(buckets_);
      for (int64_t p = 0; p < parts_; p++) positions(p)[buckets_] += counts(p)[d];
      in_bucket += here;
      total += here;
    }
    starts_[++buckets_] = total;
    first_digit_[buckets_] = static_cast<uint16_t>(digits_);
    for (int64_t b = 0; b < buckets_; b++) {
      int64_t at = starts_[b];
      for (int64_t p = 0; p < parts_; p++) {
        const int64_t count = positions(p)[b];
        positions(p)[b] = at;
        at += count;
      }
    }
    return true;
  }

 private:
  int lowest_, shift_;
  int64_t digits_, parts_, n_, buckets_ = 0;
  Scratch<int64_t> counts_;
  Scratch<uint16_t> bucket_, first_digit_;
  Scratch<int64_t> starts_, positions_;
};

// Sorts a bucket by `bits` bits of its words from `lowest` on, stably. All digits are counted in one sweep: only the
// order of the items changes from pass to pass. The result is in one of the two buffers.
class BucketSort {
 public:
  BucketSort() : counts_(kMostPasses << kLongDigit) {}

  template <class Item>
  Item* operator()(Item* items, Item* other, int64_t n, int lowest, int bits) const {
    if (n <= kInsertion) {
      insertion_sort(items, n);
      return items;
    }
    if (bits == 0) return items;
    const int passes = (bits + kLongDigit - 1) / kLongDigit;
    switch (passes) {
      case 1: return run<1>(items, other, n, lowest, bits);
      case 2: return run<2>(items, other, n, lowest, bits);
      case 3: return run<3>(items, other, n, lowest, bits);
      case 4: return run<4>(items, other, n, lowest, bits);
      case 5: return run<5>(items, other, n, lowest, bits);
      default: return run<6>(items, other, n, lowest, bits);
    }
  }

 private:
  template <int Passes, class Item>
  Item* run(Item* items, Item* other, int64_t n, int lowest, int bits) const {
    const int width = (bits + Passes - 1) / Passes;
    const int64_t digits = int64_t{1} << width;
    uint32_t* const counts = counts_.get();
    counts_.zero(Passes * digits);
    for (int64_t i = 0; i < n; i++) {
      const uint64_t word = items[i].word >> lowest;
      for (int pass = 0; pass < Passes; pass++) counts[pass * digits + ((word >> pass * width) & (digits - 1))]++;
    }
    for (int pass = 0; pass < Passes; pass++) {
      const Digit digit{lowest + pass * width, digits - 1};
      uint32_t* const position = counts + pass * digits;
      if (position[digit(items[0].word)] == n) continue;  // all have the same
      uint32_t total = 0;
      for (int64_t d = 0; d < digits; d++) {
        const uint32_t count = position[d];
        position[d] = total;
        total += count;
      }
      for (int64_t i = 0; i < n; i++) other[position[digit(items[i].word)]++] = items[i];
      std::swap(items, other);
    }
    return items;
  }

  static constexpr int64_t kMostPasses = (64 + kLongDigit - 1) / kLongDigit;
  Scratch<uint32_t> counts_;
};

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
