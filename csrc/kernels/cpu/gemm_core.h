// The parts that matrix products and convolutions are made of: a register-blocked micro-kernel over packed panels, the
// packing, and the store of a finished tile.
//
// The scheme is that of K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (TOMS 2008),
// with the micro-kernel written in GCC vector types. A panel of A holds up to kMaxRows rows as [k][rows], a panel of B
// holds kColumns columns as [k][columns]; the micro-kernel multiplies the two into a tile of accumulators that live in
// registers for the whole of k.
//
// Complex products need no kernel of their own. In memory a panel [k][rows] of complex numbers is a panel
// [k][2 * rows] of reals, and one of B likewise; the real micro-kernel then yields all four partial products
// (re re, re im, im re, im im) side by side in its tile, and the store combines them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/macros.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace gemm {

// The tile fills the register file: rows * 2 accumulators, 2 vectors of B, 1 broadcast of A.
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kMaxRows = 14;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32, kMaxRows = 6;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16, kMaxRows = 12;
#else
inline constexpr int kVectorBytes = 16, kMaxRows = 6;
#endif
inline constexpr int kVectors = 2;
// Lanes of a vector, and columns of a panel of B, in elements of T (complex numbers count as one).
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kColumns = kVectors * kLanes<T>;
// Rows of a panel of A, in elements of T.
template <class T>
inline constexpr int kRows = is_complex_v<T> ? kMaxRows / 2 : kMaxRows;

// The type that products of S are computed in. Integers compute modulo 2^32 or 2^64, which truncates to what the
// narrower type's own wrap-around gives.
template <class S>
struct ComputeOf {
  using type = compute_t<S>;
};
template <>
struct ComputeOf<uint8_t> {
  using type = uint32_t;
};
template <>
struct ComputeOf<uint16_t> {
  using type = uint32_t;
};
template <class S>
using Element = typename ComputeOf<S>::type;
template <class S>
using Real = real_t<Element<S>>;

// Storage types that the templates below are instantiated for; signed integers use the unsigned ones of their size.
using StorageTypes =
    Types<float, double, BFloat16, Half, Complex<float>, Complex<double>, uint8_t, uint16_t, uint32_t, uint64_t>;
constexpr DType storage_dtype(DType d) {
  switch (d) {
    case DType::I8: return DType::U8;
    case DType::I16: return DType::U16;
    case DType::I32: return DType::U32;
    case DType::I64: return DType::U64;
    default: return d;
  }
}

// tile[rows][kColumns<R>] = a[k][rows] * b[k][vectors * kLanes<R>], where successive rows of b are ldb apart. R is a
// real type: a complex panel counts double.
template <class R>
using MicroKernel = void (*)(int64_t k, const R* a, const R* b, int64_t ldb, R* tile);
template <class R>
MicroKernel<R> micro_kernel(int rows, int vectors);

// dst[k][padded] = src[p * stride_p + k * stride_k] for p < width, zero for width <= p < padded; conjugated if asked.
template <class S>
void pack_panel(const S* src, int64_t stride_p, int64_t stride_k, int width, int padded, int64_t k, bool conjugate,
                Element<S>* dst);

// Where finished tiles go: C[i, j] = alpha * sum + beta * D[i, j].
template <class S>
struct Output {
  S* c = nullptr;
  int64_t row = 0, col = 0;
  const int64_t* col_offset = nullptr;  // instead of col, when columns of C are not evenly spaced
  bool runs = false;                    // col_offset ascends, mostly in steps of 1
  const S* d = nullptr;                 // null: no addend
  int64_t d_row = 0, d_col = 0;
  Element<S> alpha{1}, beta{0};
  // Sums of the passes over k before the last one, for storage types that are narrower than their sums: of rows from
  // partial_i and columns from partial_j on. A panel's columns lie together, row by row: further apart, the rows of a
  // tile would fall into the same few sets of the cache.
  Element<S>* partial = nullptr;
  int64_t partial_i = 0, partial_j = 0, partial_rows = 0;
  MT_INLINE Element<S>* partial_at(int64_t i, int64_t j) const {
    if (partial == nullptr) return nullptr;
    return partial + ((j - partial_j) / kColumns<Element<S>> * partial_rows + i - partial_i) * kColumns<Element<S>>;
  }
};
inline constexpr int kTileElements = kMaxRows * kVectors * kVectorBytes / 4;  // of the smallest real type

// Adds one pass over k to C at (i, j). `first` and `last` say which passes this is.
template <class S>
void store_tile(const Output<S>& out, const Real<S>* tile, int64_t i, int64_t j, int rows, int cols, bool first,
                bool last);

// Multiplies a block of packed panels: `a` has `rows` rows in `panels` panels (split_rows), `b` has cols columns.
// Element (0, 0) of the block is element (i, j) of the output. `pairs`: the panels hold pairs of bfloat16 (below), and
// k counts pairs; S is bfloat16, or float for a float result of theirs.
template <class S>
void multiply_block(const Element<S>* a, int64_t rows, const Element<S>* b, int64_t cols, int64_t k,
                    const Output<S>& out, int64_t i, int64_t j, bool first, bool last, bool pairs = false);

// Where the processor multiplies pairs of bfloat16 and adds them to a float, panels hold such pairs, [k / 2][rows],
// each in the place of one float; an odd k is filled up with zeros.
bool has_pair_products();
// Where such a kernel leaves its sums, in whole vectors: in `sums`, or added to those there and rounded into `narrow`.
struct PairSums {
  float* sums;
  int64_t row;
  bool add;  // to what `sums` holds
  BFloat16* narrow = nullptr;
  int64_t narrow_row = 0;
};
using PairKernel = void (*)(int64_t k, const float* a, const float* b, int64_t ldb, const PairSums& to);
PairKernel pair_kernel(int rows, int vectors);
// Few rows of A, packed as pairs, times 32 columns of B where it lies, its rows contiguous: k rows of B, of whose
// columns those in `mask` are there. sums[r * kColumns<float> + c], added to those there if `add`.
using PairRows = void (*)(int64_t k, const float* a, const BFloat16* b, int64_t ldb, uint32_t mask, float* sums,
                          bool add);
PairRows pair_rows(int rows);
// Dot products of rows of A and columns of B, both contiguous along k, as tile[r * kColumns<float> + c]: 1 to 4 rows, 1
// or 4 columns.
using PairDots = void (*)(const BFloat16* a, int64_t lda, const BFloat16* b, int64_t ldb, int64_t k, float* tile);
PairDots pair_dots(int rows, int columns);
void pack_pairs(const BFloat16* src, int64_t stride_p, int64_t stride_k, int width, int padded, int64_t k, float* dst);

// Rows are dealt evenly to the smallest number of panels, so that no panel is left with a row or two.
struct RowPanels {
  int64_t rows, panels;
  MT_INLINE int64_t begin(int64_t p) const { return p * rows / panels; }
  MT_INLINE int width(int64_t p) const { return static_cast<int>(begin(p + 1) - begin(p)); }
};
template <class E>
MT_INLINE RowPanels split_rows(int64_t rows) {
  return {rows, (rows + kRows<E> - 1) / kRows<E>};
}
// Columns of a panel of B rounded up to whole vectors.
template <class E>
MT_INLINE int64_t padded_columns(int64_t cols) {
  return (cols + kLanes<E> - 1) / kLanes<E> * kLanes<E>;
}
MT_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
MT_INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
MT_INLINE int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

// Memory of the calling thread that grows and is kept from call to call; 64-byte aligned, one block a slot.
enum class Scratch : uint8_t { packed_a, packed_b, partial, staged, rows, columns, weights, count };
void* scratch(Scratch slot, size_t bytes);
template <class T>
MT_INLINE T* scratch(Scratch slot, int64_t elements) {
  return static_cast<T*>(scratch(slot, static_cast<size_t>(elements) * sizeof(T)));
}

template <class R>
struct VectorOf {
  typedef R type __attribute__((vector_size(kVectorBytes)));
  typedef R unaligned __attribute__((vector_size(kVectorBytes), aligned(sizeof(R)), may_alias));
};
template <class R>
using Vector = typename VectorOf<R>::type;
template <class R>
MT_INLINE Vector<R> load_vector(const R* p) {
  return *reinterpret_cast<const typename VectorOf<R>::unaligned*>(p);
}
template <class R>
MT_INLINE void store_vector(R* p, Vector<R> v) {
  *reinterpret_cast<typename VectorOf<R>::unaligned*>(p) = v;
}

}  // namespace gemm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
