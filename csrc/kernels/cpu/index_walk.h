// Walks the iteration space of an IndexArgs row by row, and turns indices into byte offsets.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/index.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

inline constexpr int64_t kIndexBlock = 512;   // offsets computed at a time: 4 KiB
inline constexpr int64_t kIndexGrain = 8192;  // elements worth a thread: each one is a random access

// A piece of a row (dimension 0).
struct IndexRow {
  char* values;
  char* self;
  const char* index[kMaxIndices];
};

// Calls f(row, n) for the pieces of rows that cover elements [begin, end) of the space, in order.
template <class F>
inline void walk_rows(const IndexArgs& a, int64_t begin, int64_t end, const F& f) {
  if (begin >= end) return;
  const int indices = a.num_indices;
  int64_t position[kMaxDims];
  IndexRow row;
  row.values = a.values;
  row.self = a.self;
  for (int k = 0; k < indices; k++) row.index[k] = a.index[k];
  const auto advance = [&](int d, int64_t steps) {
    row.values += steps * a.values_strides[d];
    row.self += steps * a.self_strides[d];
    for (int k = 0; k < indices; k++) row.index[k] += steps * a.index_strides[k][d];
  };
  int64_t rest = begin;
  for (int d = 0; d < a.ndim; d++) {
    position[d] = rest % a.sizes[d];
    rest /= a.sizes[d];
    advance(d, position[d]);
  }
  for (int64_t i = begin; i < end;) {
    const int64_t n = std::min(a.sizes[0] - position[0], end - i);
    f(static_cast<const IndexRow&>(row), n);
    i += n;
    if (i == end) break;
    if (position[0] != 0) advance(0, -position[0]);
    position[0] = 0;
    for (int d = 1; d < a.ndim; d++) {
      advance(d, 1);
      if (++position[d] < a.sizes[d]) break;
      advance(d, -a.sizes[d]);
      position[d] = 0;
    }
  }
}

// True if all elements of a row have the same indices, so that the row moves as one piece.
inline bool rows_share_index(const IndexArgs& a) {
  for (int k = 0; k < a.num_indices; k++)
    if (a.index_strides[k][0] != 0) return false;
  return true;
}

MT_INLINE int64_t load_index(const char* p, int64_t size) {
  const int64_t i = *reinterpret_cast<const int64_t*>(p);
  return i + (i < 0 ? size : 0);
}

MT_INLINE int64_t row_offset(const IndexArgs& a, const IndexRow& row) {
  int64_t offset = 0;
  for (int k = 0; k < a.num_indices; k++) offset += load_index(row.index[k], a.indexed_size[k]) * a.indexed_stride[k];
  return offset;
}

// Where the elements of a row are: element i is at base + i * self stride + wrap(index[i]) * stride bytes, where a
// negative index counts from `size`. For one contiguous index tensor that is the tensor itself; otherwise the byte
// offsets are worked out in a buffer of kIndexBlock elements.
struct RowIndices {
  const int64_t* index;
  int64_t size;
  int64_t stride;
  MT_INLINE int64_t offset(int64_t i) const {
    const int64_t k = index[i];
    return (k + (k < 0 ? size : 0)) * stride;
  }
};

// Elements [first, first + n) of the row, n at most kIndexBlock.
inline RowIndices row_indices(const IndexArgs& a, const IndexRow& row, int64_t first, int64_t n, int64_t* buffer) {
  if (a.num_indices == 1 && a.index_strides[0][0] == sizeof(int64_t))
    return {reinterpret_cast<const int64_t*>(row.index[0]) + first, a.indexed_size[0], a.indexed_stride[0]};
  for (int k = 0; k < a.num_indices; k++) {
    const int64_t step = a.index_strides[k][0], size = a.indexed_size[k], stride = a.indexed_stride[k];
    const char* p = row.index[k] + first * step;
    if (k == 0) {
      for (int64_t i = 0; i < n; i++) buffer[i] = load_index(p + i * step, size) * stride;
    } else {
      for (int64_t i = 0; i < n; i++) buffer[i] += load_index(p + i * step, size) * stride;
    }
  }
  return {buffer, 0, 1};
}

MT_INLINE bool all_within(const char* p, int64_t stride, int64_t n, int64_t low, int64_t high) {
  int64_t smallest = std::numeric_limits<int64_t>::max(), largest = std::numeric_limits<int64_t>::min();
  const auto see = [&](int64_t i) {
    smallest = i < smallest ? i : smallest;
    largest = i > largest ? i : largest;
  };
  if (stride == sizeof(int64_t)) {
    const int64_t* index = reinterpret_cast<const int64_t*>(p);
    for (int64_t i = 0; i < n; i++) see(index[i]);
  } else {
    for (int64_t i = 0; i < n; i++) see(*reinterpret_cast<const int64_t*>(p + i * stride));
  }
  return smallest >= low && largest < high;
}

// One contiguous index tensor is checked block by block where check_first allows it.
inline bool checks_in_blocks(const IndexArgs& a) {
  return !a.check_first && a.num_indices == 1 && a.index_strides[0][0] == sizeof(int64_t);
}
// Elements [first, first + n) of such a row.
MT_INLINE bool block_within(const IndexArgs& a, const IndexRow& row, int64_t first, int64_t n) {
  return all_within(row.index[0] + first * sizeof(int64_t), sizeof(int64_t), n,
                    a.allow_negative ? -a.indexed_size[0] : 0, a.indexed_size[0]);
}

// Throws IndexOutOfRange unless every index is within its bounds.
void validate_indices(const IndexArgs& a);

// Copies n bytes without a call when they are few.
MT_INLINE void copy_bytes(char* MT_RESTRICT out, const char* MT_RESTRICT in, int64_t n) {
  if (n > 64 || n < 4) {
    memcpy(out, in, n);
  } else if (n >= 32) {  // two pieces that overlap where they must
    memcpy(out, in, 32);
    memcpy(out + n - 32, in + n - 32, 32);
  } else if (n >= 16) {
    memcpy(out, in, 16);
    memcpy(out + n - 16, in + n - 16, 16);
  } else if (n >= 8) {
    memcpy(out, in, 8);
    memcpy(out + n - 8, in + n - 8, 8);
  } else {
    memcpy(out, in, 4);
    memcpy(out + n - 4, in + n - 4, 4);
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
