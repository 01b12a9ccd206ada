// Products with few rows (matrix-vector, small batches through a linear layer): B is read once, in place.
//
// Columns of B contiguous along k: each result is a dot product; 4 columns x up to 4 rows are computed together so that
// each vector loaded is used four times. Rows of B contiguous along n: the micro-kernel reads B where it lies, a panel
// of columns at a time; with so few rows that memory is the limit, whole rows of B are streamed into sums in L1
// instead.
#include "kernels/cpu/gemm_skinny.h"

#include <omp.h>

#include <algorithm>

#include "kernels/cpu/gemm_convert.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace gemm {
namespace {

constexpr int64_t kSerialElements = 1 << 16;  // elements of B that are not worth a second thread
constexpr int64_t kDotRows = 16;

// tile[r * row + c] = dot(a + r * lda, b + c * ldb) for kHeight rows and kWidth columns.
template <class S, int kHeight, int kWidth>
void dot_block(const Element<S>* a, int64_t lda, const S* b, int64_t ldb, int64_t k, Element<S>* tile) {
  using E = Element<S>;
  constexpr int kStep = kLanes<E>;
  // A lone dot product gets four chains of its own: one would wait for each addition.
  constexpr int kChains = kHeight * kWidth == 1 ? 4 : kHeight * kWidth <= 4 ? 2 : 1;
  Vector<E> acc[kChains][kHeight][kWidth] = {};
  int64_t i = 0;
  const auto step = [&](int chain, int64_t at) {
    Vector<E> av[kHeight];
#pragma GCC unroll 4
    for (int r = 0; r < kHeight; r++) av[r] = load_vector(a + r * lda + at);
#pragma GCC unroll 4
    for (int c = 0; c < kWidth; c++) {
      const Vector<E> bv = load_widened(b + c * ldb + at);
#pragma GCC unroll 4
      for (int r = 0; r < kHeight; r++) acc[chain][r][c] += av[r] * bv;
    }
  };
  for (; i + kChains * kStep <= k; i += kChains * kStep)
#pragma GCC unroll 4
    for (int chain = 0; chain < kChains; chain++) step(chain, i + chain * kStep);
  for (; i + kStep <= k; i += kStep) step(0, i);
#pragma GCC unroll 4
  for (int chain = 1; chain < kChains; chain++)
#pragma GCC unroll 4
    for (int r = 0; r < kHeight; r++)
#pragma GCC unroll 4
      for (int c = 0; c < kWidth; c++) acc[0][r][c] += acc[chain][r][c];
  sum_block<E, kHeight, kWidth>(acc[0], [&](int r, int c, E sum) {
    for (int64_t t = i; t < k; t++) sum += a[r * lda + t] * static_cast<E>(b[c * ldb + t]);
    tile[r * kColumns<E> + c] = sum;
  });
}

// `a` is of bfloat16 where pairs are multiplied, else widened.
template <class S, int kWidth, class A>
MT_INLINE void dot_rows(int rows, const A* a, int64_t lda, const S* b, int64_t ldb, int64_t k, Element<S>* tile) {
  if constexpr (std::is_same_v<A, BFloat16>)
    return pair_dots(rows, kWidth)(a, lda, b, ldb, k, tile);
  else
    switch (rows) {
      case 1: return dot_block<S, 1, kWidth>(a, lda, b, ldb, k, tile);
      case 2: return dot_block<S, 2, kWidth>(a, lda, b, ldb, k, tile);
      case 3: return dot_block<S, 3, kWidth>(a, lda, b, ldb, k, tile);
      default: return dot_block<S, 4, kWidth>(a, lda, b, ldb, k, tile);
    }
}

// Columns [j0, j1) of C, where column j of B is contiguous. Rows of `a`, the m x k matrix A, are contiguous.
template <class S, class A>
void dot_range(const Problem<S>& p, const A* a, int64_t lda, int64_t j0, int64_t j1) {
  using E = Element<S>;
  alignas(64) E tile[4 * kColumns<E>];
  for (int64_t j = j0; j < j1; j += kColumns<E>) {
    const int cols = static_cast<int>(min64(kColumns<E>, j1 - j));
    for (int64_t i = 0; i < p.m; i += 4) {
      const int rows = static_cast<int>(min64(4, p.m - i));
      for (int c = 0; c < cols;) {
        const S* b = p.b + (j + c) * p.b_col;
        const bool four = c + 4 <= cols;
        if (four)
          dot_rows<S, 4>(rows, a + i * lda, lda, b, p.b_col, p.k, tile + c);
        else
          dot_rows<S, 1>(rows, a + i * lda, lda, b, p.b_col, p.k, tile + c);
        c += four ? 4 : 1;
      }
      store_tile<S>(p.out, tile, i, j, rows, cols, true, true);
    }
  }
}

// One dot product too long for one thread: partial sums in equal pieces, so the result does not depend on timing.
template <class S>
void long_dot(const Problem<S>& p, const Element<S>* a, int pieces) {
  using E = Element<S>;
  E* const sums = scratch<E>(Scratch::partial, pieces);
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      const int64_t k0 = p.k * t / pieces, k1 = p.k * (t + 1) / pieces;
      dot_block<S, 1, 1>(a + k0, 0, p.b + k0, 0, k1 - k0, sums + t);
    }
  });
  alignas(64) E tile[kColumns<E>] = {};
  for (int t = 0; t < pieces; t++) tile[0] += sums[t];
  store_tile<S>(p.out, tile, 0, 0, 1, 1, true, true);
}

template <class S>
void multiply_dots(const Problem<S>& p, int threads) {
  using E = Element<S>;
  const int64_t grain = threads == 1 ? p.n : max64(ceil_div(kSerialElements, p.k), 4);
  if constexpr (std::is_same_v<S, BFloat16>) {
    if (has_pair_products() && p.a_col == 1 && p.m * p.n > 1)
      return parallel_for(p.n, grain, [&](int64_t begin, int64_t end) { dot_range(p, p.a, p.a_row, begin, end); });
  }
  const E* a;
  bool in_place = false;
  if constexpr (std::is_same_v<S, E>) in_place = p.a_col == 1 && (p.m == 1 || p.a_row == p.k);
  if (in_place) {
    a = reinterpret_cast<const E*>(p.a);
  } else {
    E* widened = scratch<E>(Scratch::packed_a, p.m * p.k);
    for (int64_t i = 0; i < p.m; i++) {
      if (p.a_col == 1)
        widen(p.a + i * p.a_row, widened + i * p.k, p.k);
      else
        for (int64_t t = 0; t < p.k; t++) widened[i * p.k + t] = static_cast<E>(p.a[i * p.a_row + t * p.a_col]);
    }
    a = widened;
  }
  if (p.m * p.n == 1 && threads > 1 && p.k >= 2 * kSerialElements && !omp_in_parallel()) return long_dot(p, a, threads);
  parallel_for(p.n, grain, [&](int64_t begin, int64_t end) { dot_range(p, a, p.k, begin, end); });
}

// Columns [j0, j1) of C over k in [k0, k1), with rows of B contiguous; A is packed in passes over k, which also keep
// the pages of B that one panel touches within the TLB's reach.
template <class S>
void direct_range(const Problem<S>& p, int64_t j0, int64_t j1, int64_t k0, int64_t k1) {
  using E = Element<S>;
  using R = Real<S>;
  constexpr int kParts = is_complex_v<E> ? 2 : 1;
  constexpr int64_t kDepth = 256;
  alignas(64) R tile[kMaxRows * kColumns<R>];
  const RowPanels panels = split_rows<E>(p.m);
  E* const packed = scratch<E>(Scratch::packed_a, p.m * min64(kDepth, k1 - k0) + kLanes<E>);
  for (int64_t kk = k0; kk < k1; kk += kDepth) {
    const int64_t depth = min64(kDepth, k1 - kk);
    for (int64_t q = 0; q < panels.panels; q++)
      pack_panel<S>(p.a + panels.begin(q) * p.a_row + kk * p.a_col, p.a_row, p.a_col, panels.width(q), panels.width(q),
                    depth, p.conj_a, packed + panels.begin(q) * depth);
    for (int64_t j = j0; j < j1; j += kColumns<E>) {
      const int width = static_cast<int>(min64(kColumns<E>, j1 - j));
      const E* b = reinterpret_cast<const E*>(p.b) + kk * p.b_row + j;
      int64_t ldb = p.b_row;
      const int padded = static_cast<int>(padded_columns<E>(width));
      if (padded != width) {
        E* tail = scratch<E>(Scratch::packed_b, depth * padded);
        pack_panel<S>(reinterpret_cast<const S*>(b), 1, ldb, width, padded, depth, false, tail);
        b = tail;
        ldb = padded;
      }
      for (int64_t q = 0; q < panels.panels; q++) {
        const int height = panels.width(q);
        micro_kernel<R>(kParts * height, padded / kLanes<E>)(
            depth, reinterpret_cast<const R*>(packed + panels.begin(q) * depth), reinterpret_cast<const R*>(b),
            kParts * ldb, tile);
        store_tile<S>(p.out, tile, panels.begin(q), j, height, width, kk == k0, kk + depth == k1);
      }
    }
  }
}

constexpr int64_t kStreamRows = 4;     // of A: beyond, the panels' reuse of B's vectors is worth more
constexpr int64_t kStreamPanels = 64;  // whose sums fit in L1

// sums += rows of B times the columns of A, for one panel and four rows of B: b[t * ldb + c], a[t * kHeight + r].
template <class E, int kHeight, int kSteps>
MT_INLINE void stream_panel(const E* MT_RESTRICT a, const E* MT_RESTRICT b, int64_t ldb, int64_t width,
                            E* MT_RESTRICT sums) {
  for (int64_t c = 0; c < width; c++)
#pragma GCC unroll 4
    for (int r = 0; r < kHeight; r++) {
      E sum = sums[r * kColumns<E> + c];
#pragma GCC unroll 4
      for (int t = 0; t < kSteps; t++) sum = static_cast<E>(sum + a[t * kHeight + r] * b[t * ldb + c]);
      sums[r * kColumns<E> + c] = sum;
    }
}

// Columns [j0, j1) of C; A is one packed panel of kHeight rows. Sums over 256 steps are added up by store_tile, so
// their rounding error stays that of the other paths.
template <class S, int kHeight>
void stream_range(const Problem<S>& p, const S* a, int64_t j0, int64_t j1) {
  constexpr int64_t kDepth = 256, kTile = kHeight * kColumns<S>;
  alignas(64) S sums[kStreamPanels * kTile];
  for (int64_t kk = 0; kk < p.k; kk += kDepth) {
    const int64_t end = min64(kk + kDepth, p.k), panels = ceil_div(j1 - j0, kColumns<S>);
    std::fill_n(sums, panels * kTile, S(0));
    const auto rows = [&]<int kSteps>(int64_t t) __attribute__((always_inline)) {
      for (int64_t q = 0; q < panels; q++) {
        const int64_t j = j0 + q * kColumns<S>;
        stream_panel<S, kHeight, kSteps>(a + t * kHeight, p.b + t * p.b_row + j, p.b_row, min64(kColumns<S>, j1 - j),
                                         sums + q * kTile);
      }
    };
    int64_t t = kk;
    for (; t + 4 <= end; t += 4) rows.template operator()<4>(t);
    for (; t < end; t++) rows.template operator()<1>(t);
    for (int64_t q = 0; q < panels; q++) {
      const int64_t j = j0 + q * kColumns<S>;
      store_tile<S>(p.out, sums + q * kTile, 0, j, kHeight, static_cast<int>(min64(kColumns<S>, j1 - j)), kk == 0,
                    end == p.k);
    }
  }
}

template <class S>
void stream_columns(const Problem<S>& p, const S* a, int64_t j0, int64_t j1) {
  for (; j0 < j1; j0 += kStreamPanels * kColumns<S>) {
    const int64_t end = min64(j1, j0 + kStreamPanels * kColumns<S>);
    switch (p.m) {
      case 1: stream_range<S, 1>(p, a, j0, end); break;
      case 2: stream_range<S, 2>(p, a, j0, end); break;
      case 3: stream_range<S, 3>(p, a, j0, end); break;
      default: stream_range<S, 4>(p, a, j0, end); break;
    }
  }
}

// A small result of a long sum: equal pieces of k, one a thread, are added up in order.
template <class S>
void split_sum(const Problem<S>& p, int pieces) {
  S* const parts = scratch<S>(Scratch::partial, pieces * p.m * p.n + kColumns<S>);
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      Problem<S> part = p;
      part.out = {};
      part.out.c = parts + t * p.m * p.n;
      part.out.row = p.n, part.out.col = 1;
      direct_range(part, 0, p.n, p.k * t / pieces, p.k * (t + 1) / pieces);
    }
  });
  for (int64_t t = 1; t < pieces; t++)
    for (int64_t i = 0; i < p.m * p.n; i++) parts[i] += parts[t * p.m * p.n + i];
  for (int64_t i = 0; i < p.m; i++)
    for (int64_t j = 0; j < p.n; j += kColumns<S>) {
      alignas(64) S tile[kColumns<S>];
      std::copy_n(parts + i * p.n + j, kColumns<S>, tile);
      store_tile<S>(p.out, tile, i, j, 1, static_cast<int>(min64(kColumns<S>, p.n - j)), true, true);
    }
}

template <class S>
void multiply_direct(const Problem<S>& p, int threads) {
  using E = Element<S>;
  const int64_t panels = ceil_div(p.n, kColumns<E>);
  if constexpr (std::is_floating_point_v<S>) {
    if (panels < threads && p.k > 2 * kSerialElements / kColumns<E> && p.m > kStreamRows && !omp_in_parallel())
      return split_sum(p, threads);
  }
  const E* a = nullptr;
  if (std::is_floating_point_v<S> && p.m <= kStreamRows) {
    E* const packed = scratch<E>(Scratch::packed_a, p.m * p.k + kLanes<E>);
    const int rows = static_cast<int>(p.m);
    pack_panel<S>(p.a, p.a_row, p.a_col, rows, rows, p.k, p.conj_a, packed);
    a = packed;
  }
  const int64_t grain = threads == 1 ? panels : max64(ceil_div(kSerialElements, p.k * kColumns<E>), 1);
  parallel_for(panels, grain, [&](int64_t begin, int64_t end) {
    const int64_t j0 = begin * kColumns<E>, j1 = min64(p.n, end * kColumns<E>);
    if constexpr (std::is_floating_point_v<S>) {
      if (a != nullptr) return stream_columns<S>(p, a, j0, j1);
    }
    direct_range(p, j0, j1, 0, p.k);
  });
}

// Products of pairs of bfloat16 with rows of B contiguous along n. A pass reads few enough rows that their pages stay
// known from panel to panel.
void multiply_pair_rows(const Problem<BFloat16>& p, int threads) {
  constexpr int64_t kDepth = 128, kPanel = kColumns<float>;
  const int rows = static_cast<int>(p.m);
  float* const a = scratch<float>(Scratch::packed_a, ceil_div(p.k, 2) * p.m + kLanes<float>);
  pack_pairs(p.a, p.a_row, p.a_col, rows, rows, p.k, a);
  const int64_t panels = ceil_div(p.n, kPanel);
  const int64_t grain = threads == 1 ? panels : max64(ceil_div(kSerialElements, p.k * kPanel), 1);
  const auto width = [&](int64_t q) { return min64(kPanel, p.n - q * kPanel); };
  parallel_for(panels, grain, [&](int64_t begin, int64_t end) {
    float* const sums = scratch<float>(Scratch::partial, (end - begin) * p.m * kPanel);
    for (int64_t kk = 0; kk < p.k; kk += kDepth)
      for (int64_t q = begin; q < end; q++)
        pair_rows(rows)(min64(kDepth, p.k - kk), a + kk / 2 * p.m, p.b + kk * p.b_row + q * kPanel, p.b_row,
                        ~uint32_t{0} >> (kPanel - width(q)), sums + (q - begin) * p.m * kPanel, kk > 0);
    for (int64_t q = begin; q < end; q++)
      store_tile<BFloat16>(p.out, sums + (q - begin) * p.m * kPanel, 0, q * kPanel, rows, static_cast<int>(width(q)),
                           true, true);
  });
}

// Up to one panel of rows; up to two where few columns mean that all of a pass over B stays in L1 for the second; any
// number where the whole of B does.
template <class S>
MT_INLINE bool reads_in_place(const Problem<S>& p) {
  if (p.b_col != 1 || p.conj_b) return false;
  if (p.m <= kRows<S>) return true;
  if (p.n > 2 * kColumns<S>) return false;
  return p.m <= 2 * kRows<S> || (p.m <= 8 * kRows<S> && p.k * p.n * static_cast<int64_t>(sizeof(S)) <= 16 << 10);
}

}  // namespace

template <class S>
bool multiply_skinny(const Problem<S>& p, int threads) {
  using E = Element<S>;
  if constexpr (is_floating_v<S>) {
    if (p.b_row == 1 && p.m <= kDotRows && p.k >= 2 * kLanes<E>) {
      multiply_dots(p, threads);
      return true;
    }
  }
  if constexpr (std::is_same_v<S, BFloat16>) {
    if (has_pair_products() && p.b_col == 1 && p.m <= kRows<float>) {
      multiply_pair_rows(p, threads);
      return true;
    }
  }
  if constexpr (std::is_same_v<S, E>) {
    if (reads_in_place(p)) {
      multiply_direct(p, threads);
      return true;
    }
  }
  return false;
}

#define MT_INSTANTIATE(S) template bool multiply_skinny<S>(const Problem<S>&, int);
MT_INSTANTIATE(float)
MT_INSTANTIATE(double)
MT_INSTANTIATE(BFloat16)
MT_INSTANTIATE(Half)
MT_INSTANTIATE(Complex<float>)
MT_INSTANTIATE(Complex<double>)
MT_INSTANTIATE(uint8_t)
MT_INSTANTIATE(uint16_t)
MT_INSTANTIATE(uint32_t)
MT_INSTANTIATE(uint64_t)
#undef MT_INSTANTIATE

}  // namespace gemm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
