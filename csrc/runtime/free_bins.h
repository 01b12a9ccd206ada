// Blocks of memory and the index of the free ones.
//
// Segments come from the system and are cut into blocks, which know their neighbours so that free ones merge. Free
// blocks are found by size in O(1) through a two-level table of lists with bitmaps of the lists that are not empty.
// Method: M. Masmano, I. Ripoll, A. Crespo, J. Real, "TLSF: a new dynamic memory allocator for real-time systems",
// ECRTS 2004. Unlike there, the headers lie outside the memory (it may be a GPU's), and a list is searched a few steps
// for a close fit before a larger one is split.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/backend.h"

namespace minitorch {

inline constexpr size_t kBlockAlignment = 64;
inline constexpr size_t kSmallLimit = size_t{1} << 20;   // requests up to here go to the small pool, as PyTorch's do
inline constexpr size_t kQuickLimit = size_t{32} << 10;  // requests up to here have a list of their exact size
inline constexpr size_t kSegmentAlignment = size_t{2} << 20;  // a huge page
inline constexpr size_t kSmallestSegment = size_t{64} << 10;

inline size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

// Rounds a request (above 0) to a block size: multiples of 64 bytes up to 1 KiB, then eight sizes a doubling up to
// 32 KiB, then multiples of 512 bytes, above 1 MiB of 4 KiB. At most 1/9 is wasted above 512 bytes.
inline size_t round_block_size(size_t n) {
  size_t step;
  if (n <= 1024) {
    step = 64;
  } else if (n <= kQuickLimit) {
    step = std::bit_floor(n - 1) / 8;
  } else {
    step = n <= kSmallLimit ? 512 : 4096;
  }
  return round_up(n, step);
}

inline constexpr int kQuickClasses = 16 + 5 * 8;

// The quick list of a rounded size up to kQuickLimit.
inline int quick_class(size_t size) {
  if (size <= 1024) return static_cast<int>(size / 64) - 1;
  const int doubling = 63 - std::countl_zero(size - 1);  // 10 for (1 KiB, 2 KiB]
  return 16 + (doubling - 10) * 8 + static_cast<int>((size - 1) >> (doubling - 3) & 7);
}

struct Pool;

struct Block;

// Addresses that segments which grow lie in. Memory is put behind `end`; what is taken away before it leaves a hole
// between two segments.
struct AddressRange {
  char* base = nullptr;
  size_t size = 0;
  char* end = nullptr;  // of the last segment
  int segments = 0;

  size_t room() const { return size - (end - base); }
};

struct Segment {
  char* base = nullptr;
  size_t size = 0;
  int device = 0;
  Block* first = nullptr;         // splitting and merging keep it
  AddressRange* range = nullptr;  // of a segment that grows
};

struct Block {
  enum class State : uint8_t { free, quick, held, pending };

  char* base = nullptr;
  size_t size = 0;
  size_t requested = 0;  // by client code, when held
  size_t resident = 0;   // at most: bytes of it that have physical pages
  Pool* pool = nullptr;
  Segment* segment = nullptr;
  Block *before = nullptr, *after = nullptr;   // neighbours in the segment
  Block *next = nullptr, *previous = nullptr;  // in a list of free blocks
  std::vector<Stream>* uses = nullptr;         // streams other than the pool's that use it (record_stream)
  const char* maker = "";                      // who allocated it; only with guards
  State state = State::free;
  bool guarded = false;  // stands between canaries

  char* data() const { return base + (guarded ? kBlockAlignment : 0); }
  int device() const { return segment->device; }
  bool whole_segment() const { return before == nullptr && after == nullptr; }
};

class FreeBins {
 public:
  void insert(Block* block) {
    const int bin = bin_of(block->size);
    block->state = Block::State::free;
    block->previous = nullptr;
    block->next = heads_[bin];
    if (block->next) block->next->previous = block;
    heads_[bin] = block;
    first_level_ |= uint64_t{1} << (bin / kColumns);
    second_level_[bin / kColumns] |= uint32_t{1} << (bin % kColumns);
  }

  void remove(Block* block) {
    const int bin = bin_of(block->size);
    if (block->next) block->next->previous = block->previous;
    if (block->previous) {
      block->previous->next = block->next;
    } else {
      heads_[bin] = block->next;
      if (heads_[bin] == nullptr) {
        second_level_[bin / kColumns] &= ~(uint32_t{1} << (bin % kColumns));
        if (second_level_[bin / kColumns] == 0) first_level_ &= ~(uint64_t{1} << (bin / kColumns));
      }
    }
    block->next = block->previous = nullptr;
  }

  // A free block of at least `size` bytes, or null. The list of the size itself may hold smaller ones, so it is
  // searched for the closest fit, `most_steps` blocks deep; any block of a higher list fits.
  Block* find(size_t size, int most_steps) const {
    const int bin = bin_of(size);
    Block* best = nullptr;
    int steps = 0;
    for (Block* b = heads_[bin]; b != nullptr && steps < most_steps; b = b->next, steps++) {
      if (b->size == size) return b;
      if (b->size > size && (best == nullptr || b->size < best->size)) best = b;
    }
    if (best != nullptr) return best;
    const int row = bin / kColumns, column = bin % kColumns;
    const uint32_t rest = column == kColumns - 1 ? 0 : second_level_[row] & (~uint32_t{0} << (column + 1));
    if (rest != 0) return heads_[row * kColumns + std::countr_zero(rest)];
    const uint64_t rows = row == kRows - 1 ? 0 : first_level_ & (~uint64_t{0} << (row + 1));
    if (rows == 0) return nullptr;
    const int higher = std::countr_zero(rows);
    return heads_[higher * kColumns + std::countr_zero(second_level_[higher])];
  }

  // Calls f(block) for free blocks, the large ones first, until it returns false. f may remove the block.
  template <class F>
  void for_each_descending(F&& f) {
    for (int bin = kRows * kColumns - 1; bin >= 0; bin--)
      for (Block* b = heads_[bin]; b != nullptr;) {
        Block* const following = b->next;
        if (!f(b)) return;
        b = following;
      }
  }

 private:
  static constexpr int kColumns = 32;
  static constexpr int kRows = 40;  // up to 64 * 2^44 bytes

  // Row 0 holds the sizes below 32 units of 64 bytes one by one, each further row a doubling in 32 equal steps.
  static int bin_of(size_t size) {
    const size_t units = size / kBlockAlignment;
    if (units < kColumns) return static_cast<int>(units);
    const int shift = 63 - std::countl_zero(units) - 5;
    return (shift + 1) * kColumns + static_cast<int>(units >> shift & (kColumns - 1));
  }

  Block* heads_[kRows * kColumns] = {};
  uint64_t first_level_ = 0;
  uint32_t second_level_[kRows] = {};
};

}  // namespace minitorch
