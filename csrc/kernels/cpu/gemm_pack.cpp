// Packing of operands into panels, the store of finished tiles, and the loop over the panels of a packed block.
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/cpu/gemm_convert.h"
#include "kernels/cpu/gemm_core.h"
#include "kernels/cpu/gemm_transpose.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace gemm {
namespace {

// Rows of dst are contiguous in src: they are copied.
template <class S, int kFixedWidth>
void pack_rows(const S* src, int64_t stride_k, int width, int padded, int64_t k, Element<S>* MT_RESTRICT dst) {
  using E = Element<S>;
  if constexpr (kFixedWidth > 0) width = padded = kFixedWidth;
  for (int64_t kk = 0; kk < k; kk++, src += stride_k, dst += padded) {
    widen(src, dst, width);
    for (int p = width; p < padded; p++) dst[p] = E(0);
  }
}

// Columns of dst are contiguous in src: squares of one vector by one vector are transposed in registers. Where a row of
// dst is not a whole number of vectors the last store runs into the next row, which is written after it.
template <class S, int kBlocks>
void pack_columns(const S* src, int64_t stride_p, int width, int padded, int64_t k, Element<S>* dst) {
  using E = Element<S>;
  // Complex numbers of 8 bytes move as doubles: nothing is computed.
  using Lane = std::conditional_t<is_complex_v<E>, double, E>;
  constexpr int kWidth = kLanes<Lane>;
  const auto square = [&](int64_t kk) {
    Vector<Lane> x[kBlocks][kWidth];
    for (int b = 0; b < kBlocks; b++) {
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; i++) {
        const int p = b * kWidth + i;
        if (p >= width) {
          x[b][i] = Vector<Lane>{};
        } else if constexpr (is_complex_v<E>) {
          x[b][i] = load_vector(reinterpret_cast<const Lane*>(src + p * stride_p + kk));
        } else {
          x[b][i] = load_widened(src + p * stride_p + kk);
        }
      }
      transpose<kWidth>(x[b]);
    }
    for (int i = 0; i < kWidth; i++) {
      E* row = dst + (kk + i) * padded;
      for (int b = 0; b < kBlocks; b++) {
        const int left = padded - b * kWidth;
        if (left >= kWidth || kk + i + 1 < k)
          store_vector(reinterpret_cast<Lane*>(row + b * kWidth), x[b][i]);
        else
          memcpy(row + b * kWidth, &x[b][i], static_cast<size_t>(left) * sizeof(E));
      }
    }
  };
  int64_t kk = 0;
  for (; kk + kWidth <= k; kk += kWidth) square(kk);
  if (kk < k) square(k - kWidth);  // overlaps the last one; the caller has seen to k >= kWidth
}

// Chooses the number of vectors that one row of dst takes.
template <class S, int kBlocks = 1>
MT_INLINE void pack_columns_any(const S* src, int64_t stride_p, int width, int padded, int64_t k, Element<S>* dst) {
  using E = Element<S>;
  constexpr int kMost = (kRows < E >> kColumns<E> ? kRows<E> : kColumns<E>);
  if constexpr (kBlocks * kLanes<E> < kMost) {
    if (padded > kBlocks * kLanes<E>) return pack_columns_any<S, kBlocks + 1>(src, stride_p, width, padded, k, dst);
  }
  pack_columns<S, kBlocks>(src, stride_p, width, padded, k, dst);
}

template <class S>
void pack_strided(const S* src, int64_t stride_p, int64_t stride_k, int width, int padded, int64_t k, Element<S>* dst) {
  using E = Element<S>;
  for (int64_t kk = 0; kk < k; kk++, src += stride_k, dst += padded) {
    for (int p = 0; p < width; p++) dst[p] = static_cast<E>(src[p * stride_p]);
    for (int p = width; p < padded; p++) dst[p] = E(0);
  }
}

}  // namespace

template <class S>
void pack_panel(const S* src, int64_t stride_p, int64_t stride_k, int width, int padded, int64_t k, bool conjugate,
                Element<S>* dst) {
  using E = Element<S>;
  if (stride_p == 1) {
    if (width == padded && width == kColumns<E>)
      pack_rows<S, kColumns<E>>(src, stride_k, width, padded, k, dst);
    else if (width == padded && width == kRows<E>)
      pack_rows<S, kRows<E>>(src, stride_k, width, padded, k, dst);
    else
      pack_rows<S, 0>(src, stride_k, width, padded, k, dst);
  } else if (sizeof(E) <= 8 && stride_k == 1 && k >= kLanes<E>) {
    if constexpr (sizeof(E) <= 8) pack_columns_any<S>(src, stride_p, width, padded, k, dst);
  } else {
    pack_strided(src, stride_p, stride_k, width, padded, k, dst);
  }
  if constexpr (is_complex_v<E>) {
    if (conjugate)
      for (int64_t i = 0; i < k * padded; i++) dst[i].im = -dst[i].im;
  }
}

// How the columns [j, j + cols) lie in C.
template <class S>
MT_INLINE bool is_contiguous(const Output<S>& out, int64_t j, int cols) {
  if (out.col_offset == nullptr) return out.col == 1;
  return out.runs && out.col_offset[j + cols - 1] - out.col_offset[j] == cols - 1;
}
template <class S>
MT_INLINE int64_t column(const Output<S>& out, int64_t j) {
  return out.col_offset != nullptr ? out.col_offset[j] : j * out.col;
}

// Sums of narrow storage types wait in out.partial between the passes over k, those of others in C itself.
template <class S>
inline constexpr bool kKeepsPartial = !std::is_same_v<S, Element<S>>;

template <class E>
MT_INLINE void add_partial(const E* tile, E* partial, int rows, bool first) {
  for (int n = 0; n < rows * kColumns<E>; n += kLanes<E>) {
    const Vector<E> sum = load_vector(tile + n);
    store_vector(partial + n, first ? sum : sum + load_vector(partial + n));
  }
}

// The common case, C with contiguous rows, in whole vectors. `partial`: the sums of earlier passes, or null; `d`: null
// where there is no addend, or it was added before.
template <class S>
MT_INLINE void store_plain(const Output<S>& out, const Element<S>* tile, S* c, int rows, int cols, bool add,
                           const Element<S>* partial, const S* d) {
  using E = Element<S>;
  constexpr int kStep = kLanes<E>;
  const auto load = [](const auto* from, int here) __attribute__((always_inline)) {
    if constexpr (std::is_same_v<decltype(from), const E*>) {
      if (here == kStep) return load_vector(from);
    }
    return load_lanes(from, 0, here);
  };
  for (int r = 0; r < rows; r++, tile += kColumns<E>, c += out.row) {
    for (int n = 0; n < cols; n += kStep) {
      const int here = cols - n < kStep ? cols - n : kStep;
      Vector<E> sum = load_vector(tile + n);
      if constexpr (kKeepsPartial<S>) {
        if (partial != nullptr) sum += load(partial + r * kColumns<E> + n, here);
      }
      sum *= out.alpha;
      if (d != nullptr) {
        const S* const addend = d + r * out.d_row;
        sum += out.beta * (out.d_col == 0 ? Vector<E>{} + static_cast<E>(addend[0]) : load(addend + n, here));
      }
      if constexpr (!kKeepsPartial<S>) {
        if (add) sum += load(static_cast<const S*>(c) + n, here);
      }
      store_narrowed(c + n, sum, here);
    }
  }
}

// C with contiguous columns (channels last): squares of the tile are transposed in registers. `d` is null or holds one
// value for each row.
template <class S>
MT_INLINE void store_transposed(const Output<S>& out, const Element<S>* tile, int64_t i, int64_t j, int rows, int cols,
                                bool add, const S* d, const Element<S>* partial) {
  using E = Element<S>;
  constexpr int kStep = kLanes<E>;
  S* const c = out.c + i;
  const Vector<E> addend = d != nullptr ? out.beta * load_lanes(d, 0, rows) : Vector<E>{};
  for (int n = 0; n < cols; n += kStep) {
    const int here = cols - n < kStep ? cols - n : kStep;
    Vector<E> square[kStep];
#pragma GCC unroll 16
    for (int r = 0; r < kStep; r++) {
      square[r] = r < rows ? load_vector(tile + r * kColumns<E> + n) : Vector<E>{};
      if (kKeepsPartial<S> && partial != nullptr && r < rows)
        square[r] += load_lanes(partial + r * kColumns<E> + n, 0, here);
    }
    transpose<kStep>(square);
    for (int x = 0; x < here; x++) {
      S* const to = c + column(out, j + n + x);
      Vector<E> sum = out.alpha * square[x] + addend;
      if constexpr (!kKeepsPartial<S>) {
        if (add) sum += load_lanes(to, 0, rows);
      }
      store_narrowed(to, sum, rows);
    }
  }
}

// A complex factor of one would make NaN of what stands beside an infinity.
template <class E>
MT_INLINE E times_factor(E factor, E x) {
  if constexpr (is_complex_v<E>) {
    if (factor == E(1)) return x;
  }
  return factor * x;
}

template <class S>
__attribute__((noinline)) void store_tile(const Output<S>& out, const Real<S>* tile, int64_t i, int64_t j, int rows,
                                          int cols, bool first, bool last) {
  using E = Element<S>;
  using R = Real<S>;
  constexpr bool kNarrow = !std::is_same_v<S, E>;
  constexpr int kTileRow = kColumns<R>, kWidth = kColumns<E>;
  const bool contiguous = is_contiguous(out, j, cols), add = !kNarrow && !first;
  const bool with_d = out.d != nullptr && (kNarrow || first);
  if constexpr (std::is_same_v<S, R> || is_half_v<S>) {
    const E* const partial = kNarrow && !first ? out.partial_at(i, j) : nullptr;
    const bool whole = !kNarrow || last;
    if (!whole) return add_partial<E>(tile, out.partial_at(i, j), rows, first);
    if (whole && contiguous && (!with_d || out.d_col == 0 || out.d_col == 1))
      return store_plain<S>(out, tile, out.c + i * out.row + column(out, j), rows, cols, add, partial,
                            with_d ? out.d + i * out.d_row + j * out.d_col : nullptr);
    if (whole && out.row == 1 && !contiguous && rows <= kLanes<E> && (!with_d || (out.d_row == 1 && out.d_col == 0)))
      return store_transposed<S>(out, tile, i, j, rows, cols, add, with_d ? out.d + i : nullptr, partial);
  }
  for (int r = 0; r < rows; r++) {
    // Arithmetic runs over the whole width, which the compiler unrolls; memory is touched only within cols.
    E value[kWidth];
    if constexpr (is_complex_v<E>) {
      const R *re = tile + 2 * r * kTileRow, *im = re + kTileRow;
      for (int n = 0; n < kWidth; n++) value[n] = E(re[2 * n] - im[2 * n + 1], re[2 * n + 1] + im[2 * n]);
    } else {
      for (int n = 0; n < kWidth; n++) value[n] = tile[r * kTileRow + n];
    }
    if constexpr (kNarrow) {
      E* partial = out.partial_at(i + r, j);
      if (!first)
        for (int n = 0; n < cols; n++) value[n] += partial[n];
      if (!last) {
        for (int n = 0; n < cols; n++) partial[n] = value[n];
        continue;
      }
    }
    for (int n = 0; n < kWidth; n++) value[n] = times_factor(out.alpha, value[n]);
    if (with_d) {
      const S* d = out.d + (i + r) * out.d_row + j * out.d_col;
      if (out.d_col == 0) {
        const E addend = times_factor(out.beta, static_cast<E>(d[0]));
        for (int n = 0; n < kWidth; n++) value[n] += addend;
      } else if (out.d_col == 1) {
        for (int n = 0; n < cols; n++) value[n] += times_factor(out.beta, static_cast<E>(d[n]));
      } else {
        for (int n = 0; n < cols; n++) value[n] += times_factor(out.beta, static_cast<E>(d[n * out.d_col]));
      }
    }
    S* c = out.c + (i + r) * out.row;
    if (contiguous) {
      c += column(out, j);
      if constexpr (!kNarrow) {
        if (add)
          for (int n = 0; n < cols; n++) value[n] += c[n];
      }
      narrow<S>(value, c, cols);
    } else if (out.col_offset != nullptr) {
      const int64_t* offset = out.col_offset + j;
      for (int n = 0; n < cols; n++)
        c[offset[n]] = add ? static_cast<S>(c[offset[n]] + value[n]) : static_cast<S>(value[n]);
    } else {
      c += j * out.col;
      for (int n = 0; n < cols; n++)
        c[n * out.col] = add ? static_cast<S>(c[n * out.col] + value[n]) : static_cast<S>(value[n]);
    }
  }
}

// Where a kernel of pairs leaves its sums: those that need no more than rounding go where they belong straight from the
// registers, others to `tile`.
template <class S>
MT_INLINE PairSums place_of_pairs(const Output<S>& out, float* tile, int64_t i, int64_t j, int cols, bool first,
                                  bool last) {
  const bool plain = cols % kLanes<float> == 0 && is_contiguous(out, j, cols) && out.d == nullptr && out.alpha == 1.0f;
  if constexpr (std::is_same_v<S, BFloat16>) {
    PairSums to{out.partial_at(i, j), kColumns<float>, !first};
    if (!last) return to;
    to.narrow = out.c + i * out.row + column(out, j), to.narrow_row = out.row;
    if (plain) return to;
  } else if constexpr (std::is_same_v<S, float>) {
    if (plain) return {out.c + i * out.row + column(out, j), out.row, !first};
  }
  return {tile, kColumns<float>, false};
}

template <class S>
void multiply_block(const Element<S>* a, int64_t rows, const Element<S>* b, int64_t cols, int64_t k,
                    const Output<S>& out, int64_t i, int64_t j, bool first, bool last, bool pairs) {
  using E = Element<S>;
  using R = Real<S>;
  constexpr int kParts = is_complex_v<E> ? 2 : 1;
  alignas(64) R tile[kMaxRows * kColumns<R>];
  const RowPanels panels = split_rows<E>(rows);
  const auto multiply = [&](int64_t p, int64_t jj) {
    const int height = panels.width(p), width = static_cast<int>(min64(cols - jj, kColumns<E>));
    const int64_t padded = padded_columns<E>(width), row = i + panels.begin(p);
    if ((last || !kKeepsPartial<S>) && is_contiguous(out, j + jj, width)) {
      // The tile of C is needed when the sums are done; its rows are too far apart for the processor to guess.
      const char* c = reinterpret_cast<const char*>(out.c + row * out.row + column(out, j + jj));
      for (int r = 0; r < height; r++, c += out.row * static_cast<int64_t>(sizeof(S)))
        for (int64_t line = 0; line < static_cast<int64_t>(width * sizeof(S)); line += 64)
          __builtin_prefetch(c + line, 1);
    }
    const int vectors = static_cast<int>(padded / kLanes<E>);
    const R* const left = reinterpret_cast<const R*>(a + panels.begin(p) * k);
    const R* const right = reinterpret_cast<const R*>(b + jj * k);
    if constexpr (std::is_same_v<E, float>) {
      if (pairs) {
        const PairSums to = place_of_pairs(out, tile, row, j + jj, width, first, last);
        pair_kernel(height, vectors)(k, left, right, padded, to);
        if (to.sums == tile) store_tile<S>(out, tile, row, j + jj, height, width, first, last);
        return;
      }
    }
    micro_kernel<R>(kParts * height, vectors)(k, left, right, kParts * padded, tile);
    store_tile<S>(out, tile, row, j + jj, height, width, first, last);
  };
  // The larger block streams through the inner loop once for each panel of the smaller one.
  if (rows > cols) {
    for (int64_t p = 0; p < panels.panels; p++)
      for (int64_t jj = 0; jj < cols; jj += kColumns<E>) multiply(p, jj);
  } else {
    for (int64_t jj = 0; jj < cols; jj += kColumns<E>)
      for (int64_t p = 0; p < panels.panels; p++) multiply(p, jj);
  }
}

#define MT_INSTANTIATE(S)                                                                                            \
  template void pack_panel<S>(const S*, int64_t, int64_t, int, int, int64_t, bool, Element<S>*);                     \
  template void store_tile<S>(const Output<S>&, const Real<S>*, int64_t, int64_t, int, int, bool, bool);             \
  template void multiply_block<S>(const Element<S>*, int64_t, const Element<S>*, int64_t, int64_t, const Output<S>&, \
                                  int64_t, int64_t, bool, bool, bool);
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

namespace {
struct ThreadScratch {
  void* data[static_cast<int>(Scratch::count)] = {};
  size_t size[static_cast<int>(Scratch::count)] = {};
  ~ThreadScratch() {
    for (void* p : data) std::free(p);
  }
};
thread_local ThreadScratch thread_scratch;
}  // namespace

void* scratch(Scratch slot, size_t bytes) {
  const int s = static_cast<int>(slot);
  ThreadScratch& t = thread_scratch;
  if (t.size[s] < bytes) {
    std::free(t.data[s]);
    t.size[s] = 0;
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    t.data[s] = std::aligned_alloc(4096, rounded);
    if (t.data[s] == nullptr) throw std::bad_alloc();
    t.size[s] = rounded;
  }
  return t.data[s];
}

}  // namespace gemm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
