// Moving many short rows of elements whose type does not matter, between any two layouts. A call for each row, even of
// memcpy, would take longer than the row.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/macros.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// Calls move(i) for pieces of Piece bytes that cover [0, bytes), bytes >= Piece; the last one overlaps its predecessor.
template <int Piece, class F>
MT_INLINE void for_each_piece(int64_t bytes, const F& move) {
  for (int64_t i = 0; i + Piece <= bytes; i += Piece) move(i);
  if (bytes % Piece != 0) move(bytes - Piece);
}

// memcpy for some ten to some hundred bytes.
MT_INLINE void copy_short(char* to, const char* from, int64_t bytes) {
  if (bytes >= 64)
    for_each_piece<64>(bytes, [&](int64_t i) { memcpy(to + i, from + i, 64); });
  else if (bytes >= 16)
    for_each_piece<16>(bytes, [&](int64_t i) { memcpy(to + i, from + i, 16); });
  else if (bytes > 0)
    memcpy(to, from, bytes);
}

// Rows up to which this beats a call for each.
inline constexpr int64_t kShortRowElements = 64;

// A matrix in memory; distances in bytes.
struct RowLayout {
  char* data;
  int64_t element, row;
};

// to[r][i] = from[r][i] for r < rows and i < n, elements of `size` bytes. The layouts do not overlap.
void move_rows(const RowLayout& to, const RowLayout& from, int64_t n, int64_t rows, int64_t size);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
