// Short rows, moved in the way that suits their layouts (see the header).
#include "kernels/cpu/move_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/element_size.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// Rows of N elements without gaps, so few that a row is less than a vector. Where the source runs along the rows, this
// is N runs woven into one.
template <class T, int N>
void weave(const RowLayout& to, const RowLayout& from, int64_t rows) {
  T* MT_RESTRICT out = reinterpret_cast<T*>(to.data);
  if (from.row == static_cast<int64_t>(sizeof(T))) {
    const T* in[N];
    for (int k = 0; k < N; k++) in[k] = reinterpret_cast<const T*>(from.data + k * from.element);
    for (int64_t r = 0; r < rows; r++)
#pragma GCC unroll 4
      for (int k = 0; k < N; k++) out[r * N + k] = in[k][r];
  } else {
    for (int64_t r = 0; r < rows; r++)
#pragma GCC unroll 4
      for (int k = 0; k < N; k++)
        out[r * N + k] = *reinterpret_cast<const T*>(from.data + r * from.row + k * from.element);
  }
}

// As one vector: a memcpy of as many bytes is made of narrower moves.
template <int Size>
struct BytesOf {
  typedef char type __attribute__((vector_size(Size), aligned(1), may_alias));
};
template <int Size>
using Bytes = typename BytesOf<Size>::type;

template <int Piece>
void copy_pieces(const RowLayout& to, const RowLayout& from, int64_t bytes, int64_t rows) {
  for (int64_t r = 0; r < rows; r++) {
    char* const out = to.data + r * to.row;
    const char* const in = from.data + r * from.row;
    for_each_piece<Piece>(bytes, [&](int64_t i) {
      *reinterpret_cast<Bytes<Piece>*>(out + i) = *reinterpret_cast<const Bytes<Piece>*>(in + i);
    });
  }
}

template <class T, int Piece>
void fill_pieces(const RowLayout& to, const RowLayout& from, int64_t bytes, int64_t rows) {
  constexpr int kCount = Piece / static_cast<int>(sizeof(T));
  for (int64_t r = 0; r < rows; r++) {
    char* const out = to.data + r * to.row;
    const T value = *reinterpret_cast<const T*>(from.data + r * from.row);
    alignas(64) T piece[kCount];
    for (int i = 0; i < kCount; i++) piece[i] = value;
    const Bytes<Piece> whole = *reinterpret_cast<const Bytes<Piece>*>(piece);
    for_each_piece<Piece>(bytes, [&](int64_t i) { *reinterpret_cast<Bytes<Piece>*>(out + i) = whole; });
  }
}

template <class T>
void move_each(const RowLayout& to, const RowLayout& from, int64_t n, int64_t rows) {
  const auto move = [&](int64_t r, int64_t i) {
    *reinterpret_cast<T*>(to.data + r * to.row + i * to.element) =
        *reinterpret_cast<const T*>(from.data + r * from.row + i * from.element);
  };
  if (rows > n) {
    for (int64_t i = 0; i < n; i++)
      for (int64_t r = 0; r < rows; r++) move(r, i);
  } else {
    for (int64_t r = 0; r < rows; r++)
      for (int64_t i = 0; i < n; i++) move(r, i);
  }
}

template <class T>
void move_typed(const RowLayout& to, const RowLayout& from, int64_t n, int64_t rows) {
  constexpr int64_t size = sizeof(T);
  const int64_t bytes = n * size;
  if (to.element == size && to.row == bytes) {
    if (n == 2) return weave<T, 2>(to, from, rows);
    if (n == 3) return weave<T, 3>(to, from, rows);
    if (n == 4) return weave<T, 4>(to, from, rows);
  }
  if (to.element == size && from.element == size) {
    if (bytes >= 64) return copy_pieces<64>(to, from, bytes, rows);
    if (bytes >= 16) return copy_pieces<16>(to, from, bytes, rows);
  }
  if (to.element == size && from.element == 0) {
    if (bytes >= 64) return fill_pieces<T, 64>(to, from, bytes, rows);
    if (bytes >= 16) return fill_pieces<T, 16>(to, from, bytes, rows);
  }
  move_each<T>(to, from, n, rows);
}

}  // namespace

void move_rows(const RowLayout& to, const RowLayout& from, int64_t n, int64_t rows, int64_t size) {
  with_element_size(size, [&](auto tag) { move_typed<typename decltype(tag)::type>(to, from, n, rows); });
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
