// What the attention kernels work on: tiles that fit in cache, a product of two such tiles, and moving tiles between
// memory and float buffers.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/cpu/cast.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace attention {

inline constexpr int64_t kQueries = 64, kKeys = 128;  // rows and columns of a tile of scores

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kVectors = 4;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32, kVectors = 2;
#else
inline constexpr int kVectorBytes = 16, kVectors = 2;
#endif
inline constexpr int64_t kLanes = kVectorBytes / 4;
typedef float Vector __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));

// n rounded up to whole vectors.
inline int64_t whole_vectors(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// A block of C (M rows, V vectors wide) += A B. The products of a tile are summed in registers, apart from what C
// holds: one sum of all keys would round at its own size as many times (1024 keys: outputs are off by 6.4e-7 instead
// of 3.6e-7).
template <int M, int V>
MT_INLINE void block_product(const float* a, int64_t a_row, int64_t a_column, const float* b, int64_t ldb, float* c,
                             int64_t ldc, int64_t k) {
  Vector sum[M][V] = {};
  for (int64_t p = 0; p < k; p++) {
    Vector bv[V];
    for (int v = 0; v < V; v++) bv[v] = *reinterpret_cast<const Vector*>(b + p * ldb + v * kLanes);
    for (int i = 0; i < M; i++) {
      const float s = a[i * a_row + p * a_column];
      for (int v = 0; v < V; v++) sum[i][v] += s * bv[v];
    }
  }
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) *reinterpret_cast<Vector*>(c + i * ldc + v * kLanes) += sum[i][v];
}

template <int V>
MT_INLINE void strip_product(const float* a, int64_t a_row, int64_t a_column, const float* b, int64_t ldb, float* c,
                             int64_t ldc, int64_t m, int64_t k) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4) block_product<4, V>(a + i * a_row, a_row, a_column, b, ldb, c + i * ldc, ldc, k);
  for (; i < m; i++) block_product<1, V>(a + i * a_row, a_row, a_column, b, ldb, c + i * ldc, ldc, k);
}

// C (m x n) += A (m x k, any strides) B (k x n). n is a multiple of kLanes and B and C are padded to it.
inline void tile_product(const float* a, int64_t a_row, int64_t a_column, const float* b, int64_t ldb, float* c,
                         int64_t ldc, int64_t m, int64_t n, int64_t k) {
  int64_t j = 0;
  for (; j + kVectors * kLanes <= n; j += kVectors * kLanes)
    strip_product<kVectors>(a, a_row, a_column, b + j, ldb, c + j, ldc, m, k);
  if constexpr (kVectors == 4) {
    for (; j + 2 * kLanes <= n; j += 2 * kLanes) strip_product<2>(a, a_row, a_column, b + j, ldb, c + j, ldc, m, k);
  }
  for (; j < n; j += kLanes) strip_product<1>(a, a_row, a_column, b + j, ldb, c + j, ldc, m, k);
}

// One (rows x columns) matrix of an operand.
struct Matrix {
  char* data;
  int64_t row, column;
  DType dtype;
  int64_t size = static_cast<int64_t>(size_of(dtype));

  Matrix(const AttentionOperand& x, DType d, int64_t batch, int64_t head) : row(x.row), column(x.column), dtype(d) {
    data = x.data + (batch * x.batch + head * x.head) * size;
  }
  char* at(int64_t i, int64_t j) const { return data + (i * row + j * column) * size; }
};

// to[i * ld + j] = factor * m[first + i, j], zero from `columns` up to ld.
inline void read_rows(const Matrix& m, int64_t first, int64_t rows, int64_t columns, float* to, int64_t ld,
                      float factor = 1.0f) {
  const LoadFn load = load_fn(m.dtype, DType::F32);
  for (int64_t i = 0; i < rows; i++) {
    float* out = to + i * ld;
    load(out, m.at(first + i, 0), m.column * m.size, columns);
    if (factor != 1.0f)
      for (int64_t j = 0; j < columns; j++) out[j] *= factor;
    for (int64_t j = columns; j < ld; j++) out[j] = 0;
  }
}

// to[j * ld + i] = m[first + i, j], zero from `rows` up to ld.
inline void read_transposed(const Matrix& m, int64_t first, int64_t rows, int64_t columns, float* to, int64_t ld) {
  const LoadFn load = load_fn(m.dtype, DType::F32);
  for (int64_t j = 0; j < columns; j++) {
    load(to + j * ld, m.at(first, j), m.row * m.size, rows);
    for (int64_t i = rows; i < ld; i++) to[j * ld + i] = 0;
  }
}

inline void write_rows(const Matrix& m, int64_t first, int64_t rows, int64_t columns, const float* from, int64_t ld) {
  const StoreFn store = store_fn(DType::F32, m.dtype);
  for (int64_t i = 0; i < rows; i++) store(m.at(first + i, 0), m.column * m.size, from + i * ld, columns);
}

// How many keys, of those from `first_key` on, the queries up to `last_query` meet in this tile.
inline int64_t keys_met(const AttentionArgs& a, int64_t last_query, int64_t first_key) {
  const int64_t end = a.causal ? std::min(a.keys, last_query + 1) : a.keys;
  return std::clamp<int64_t>(end - first_key, 0, kKeys);
}

// Adds the mask to a tile of scores and puts minus infinity where a query does not meet a key, up to `width`.
inline void mask_tile(const AttentionArgs& a, int64_t batch, int64_t head, int64_t first_query, int64_t queries,
                      int64_t first_key, int64_t keys, int64_t width, float* scores) {
  if (a.mask.data) {
    const Matrix mask(a.mask, a.dtype, batch, head);
    const LoadFn load = load_fn(a.dtype, DType::F32);
    float row[kKeys];
    for (int64_t i = 0; i < queries; i++) {
      load(row, mask.at(first_query + i, first_key), mask.column * mask.size, keys);
      for (int64_t j = 0; j < keys; j++) scores[i * kKeys + j] += row[j];
    }
  }
  for (int64_t i = 0; i < queries; i++) {
    const int64_t met = a.causal ? std::clamp<int64_t>(first_query + i + 1 - first_key, 0, keys) : keys;
    for (int64_t j = met; j < width; j++) scores[i * kKeys + j] = -INFINITY;
  }
}

}  // namespace attention
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
