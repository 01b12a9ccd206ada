// The matrix product: chooses a path by shape, splits the result over threads, and runs the blocked loops.
//
// Each thread takes a rectangle of C and packs what it needs of A and B by itself. With a grid of t x u threads A is
// packed u times and B t times, which costs a few percent and spares every barrier.
#include "kernels/gemm.h"

#include "kernels/cpu/gemm_core.h"
#include "kernels/cpu/gemm_skinny.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace gemm {
namespace {

// Longer sums would cost accuracy: this keeps the error at that of native. A panel of B then takes 24 KiB, within L1.
constexpr int64_t kBlockK = 192;
constexpr int64_t kBlockABytes = 384 << 10;   // a block of A stays in L2
constexpr int64_t kBlockBBytes = 2 << 20;     // a block of B is read once a block of A
constexpr int64_t kPartialBytes = 8 << 20;    // sums of narrow types while k is split
constexpr int64_t kSerialProducts = 1 << 17;  // multiplications that are not worth a second thread

template <class S>
Problem<S> make_problem(const GemmArgs& args, int64_t batch) {
  Problem<S> p;
  p.m = args.m, p.n = args.n, p.k = args.k;
  p.a = reinterpret_cast<const S*>(args.a.data) + batch * args.a.batch;
  p.b = reinterpret_cast<const S*>(args.b.data) + batch * args.b.batch;
  p.a_row = args.a.row, p.a_col = args.a.col, p.b_row = args.b.row, p.b_col = args.b.col;
  p.conj_a = args.a.conj, p.conj_b = args.b.conj;
  p.out.c = reinterpret_cast<S*>(args.c.data) + batch * args.c.batch;
  p.out.row = args.c.row, p.out.col = args.c.col;
  p.out.alpha = args.alpha.to<Element<S>>();
  p.out.beta = args.beta.to<Element<S>>();
  if (!(p.out.beta == Element<S>(0)) && args.d.data != nullptr) {
    p.out.d = reinterpret_cast<const S*>(args.d.data) + batch * args.d.batch;
    p.out.d_row = args.d.row, p.out.d_col = args.d.col;
  }
  return p;
}

// The same product with rows and columns exchanged: C^T = B^T A^T.
GemmArgs transposed(const GemmArgs& args) {
  const auto flip = [](MatrixView v) { return MatrixView{v.data, v.col, v.row, v.batch, v.conj}; };
  GemmArgs t = args;
  t.m = args.n, t.n = args.m;
  t.a = flip(args.b), t.b = flip(args.a), t.c = flip(args.c), t.d = flip(args.d);
  return t;
}

// C = beta * D: what is left when there is nothing to sum.
template <class S>
void scale(const Problem<S>& p) {
  alignas(64) Real<S> zeros[kMaxRows * kColumns<Real<S>>] = {};
  for (int64_t i = 0; i < p.m; i++)
    for (int64_t j = 0; j < p.n; j += kColumns<Element<S>>)
      store_tile<S>(p.out, zeros, i, j, 1, static_cast<int>(min64(p.n - j, kColumns<Element<S>>)), true, true);
}

// Packs one panel, as pairs or as plain elements.
template <class S>
MT_INLINE void pack(bool pairs, const S* src, int64_t stride_p, int64_t stride_k, int width, int padded, int64_t k,
                    bool conjugate, Element<S>* dst) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    if (pairs) return pack_pairs(src, stride_p, stride_k, width, padded, k, dst);
  }
  pack_panel<S>(src, stride_p, stride_k, width, padded, k, conjugate, dst);
}

// Rows [i0, i1) x columns [j0, j1) of C.
template <class S>
void multiply_range(const Problem<S>& p, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  using E = Element<S>;
  constexpr bool kNarrow = !std::is_same_v<S, E>;
  if (i0 >= i1 || j0 >= j1) return;
  Output<S> out = p.out;
  // One packed element holds this many values of k.
  const bool pairs = std::is_same_v<S, BFloat16> && has_pair_products();
  const int64_t values = pairs ? 2 : 1;
  const int64_t passes = ceil_div(p.k, kBlockK * values), kc = ceil_div(p.k, passes * values);
  constexpr int64_t kMostRows = kPartialBytes / (2 * kColumns<E> * static_cast<int64_t>(sizeof(E)));
  if (kNarrow && passes > 1 && i1 - i0 > kMostRows) {
    for (int64_t i = i0; i < i1; i += kMostRows) multiply_range(p, i, min64(i + kMostRows, i1), j0, j1);
    return;
  }
  const int64_t element = sizeof(E), rows = i1 - i0;
  const int64_t mc = ceil_div(rows, ceil_div(rows * kc * element, kBlockABytes));
  int64_t nc = kBlockBBytes / (kc * element);
  if (kNarrow && passes > 1) nc = min64(nc, kPartialBytes / (rows * element));
  nc = min64(max64(nc / kColumns<E> * kColumns<E>, kColumns<E>), j1 - j0);
  E* const packed_a = scratch<E>(Scratch::packed_a, mc * kc + kLanes<E>);
  E* const packed_b = scratch<E>(Scratch::packed_b, padded_columns<E>(nc) * kc);
  if (kNarrow && passes > 1) {
    out.partial = scratch<E>(Scratch::partial, rows * ceil_div(nc, kColumns<E>) * kColumns<E>);
    out.partial_i = i0, out.partial_rows = rows;
  }
  for (int64_t j = j0; j < j1; j += nc) {
    const int64_t cols = min64(nc, j1 - j);
    Output<S> block = out;
    block.partial_j = j;
    for (int64_t kk = 0; kk < p.k; kk += kc * values) {
      const int64_t deep = min64(kc * values, p.k - kk), depth = ceil_div(deep, values);
      for (int64_t q = 0; q < cols; q += kColumns<E>) {
        const int64_t width = min64(cols - q, kColumns<E>);
        pack<S>(pairs, p.b + kk * p.b_row + (j + q) * p.b_col, p.b_col, p.b_row, static_cast<int>(width),
                static_cast<int>(padded_columns<E>(width)), deep, p.conj_b, packed_b + q * depth);
      }
      for (int64_t i = i0; i < i1; i += mc) {
        const RowPanels panels = split_rows<E>(min64(mc, i1 - i));
        for (int64_t q = 0; q < panels.panels; q++)
          pack<S>(pairs, p.a + (i + panels.begin(q)) * p.a_row + kk * p.a_col, p.a_row, p.a_col, panels.width(q),
                  panels.width(q), deep, p.conj_a, packed_a + panels.begin(q) * depth);
        multiply_block<S>(packed_a, panels.rows, packed_b, cols, depth, block, i, j, kk == 0, kk + deep == p.k, pairs);
      }
    }
  }
}

// k = 1: every element is one product, and what counts is to write them once.
template <class S>
void outer_product(const Problem<S>& p) {
  parallel_for(p.m, grain_of(p.n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const S x = p.out.alpha * p.a[i * p.a_row];
      const S* const y = p.b;
      S* const c = p.out.c + i * p.out.row;
      for (int64_t j = 0; j < p.n; j++) c[j] = x * y[j];
    }
  });
}

// The factorisation rows x cols of `threads` that packs least, with the share of each thread in whole panels.
template <class S>
void multiply(const Problem<S>& p, int threads) {
  if (p.k == 0 || p.out.alpha == Element<S>(0)) return scale(p);
  if constexpr (std::is_floating_point_v<S>) {
    if (p.k == 1 && p.b_col == 1 && p.out.col == 1 && p.out.beta == S(0) && p.n >= kColumns<S>) return outer_product(p);
  }
  if (multiply_skinny(p, threads)) return;
  if (p.m * p.n * p.k < kSerialProducts || threads == 1) return multiply_range(p, 0, p.m, 0, p.n);
  const int64_t row_panels = ceil_div(p.m, kRows<Element<S>>), col_panels = ceil_div(p.n, kColumns<Element<S>>);
  int64_t best_rows = 1, best_cols = 1, best_cost = INT64_MAX;
  for (int64_t rows = 1; rows <= threads; rows++) {
    const int64_t cols = threads / rows;
    if (rows > row_panels || cols > col_panels) continue;
    const int64_t share_rows = ceil_div(row_panels, rows) * kRows<Element<S>>;
    const int64_t share_cols = ceil_div(col_panels, cols) * kColumns<Element<S>>;
    const int64_t cost = share_rows * share_cols + 16 * (share_rows + share_cols);
    if (cost < best_cost) best_rows = rows, best_cols = cols, best_cost = cost;
  }
  parallel_for(best_rows * best_cols, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      const int64_t r = t / best_cols, c = t % best_cols;
      multiply_range(p, p.m * r / best_rows, p.m * (r + 1) / best_rows,
                     min64(p.n, col_panels * c / best_cols * kColumns<Element<S>>),
                     min64(p.n, col_panels * (c + 1) / best_cols * kColumns<Element<S>>));
    }
  });
}

// Strides of dimensions of size 1 mean nothing: set them to what the contiguous paths look for.
void normalise(GemmArgs& args) {
  const auto fix = [](MatrixView& v, int64_t rows, int64_t cols) {
    if (rows == 1) v.row = v.col == 1 ? cols : 1;
    if (cols == 1) v.col = v.row == 1 ? rows : 1;
  };
  fix(args.a, args.m, args.k);
  fix(args.b, args.k, args.n);
  fix(args.c, args.m, args.n);
}

void gemm_dispatch(const GemmArgs& given) {
  if (given.m == 0 || given.n == 0 || given.batch == 0) return;
  GemmArgs args = given;
  normalise(args);
  // A narrow result is computed with its short side as rows; otherwise the side that is contiguous in C gives columns.
  const bool narrow = is_narrow(args.n, args.m), wide = is_narrow(args.m, args.n);
  if (narrow || (!wide && args.c.row == 1 && args.c.col != 1)) args = transposed(args);
  const int threads = num_threads();
  const bool known = dispatch(storage_dtype(args.dtype), StorageTypes{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    if (args.batch == 1) return multiply(make_problem<S>(args, 0), threads);
    if (args.batch < threads) {
      for (int64_t i = 0; i < args.batch; i++) multiply(make_problem<S>(args, i), threads);
      return;
    }
    const int64_t products = max64(args.m * args.n * max64(args.k, 1), 1);
    parallel_for(args.batch, ceil_div(kSerialProducts, products), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) multiply(make_problem<S>(args, i), 1);
    });
  });
  if (!known) missing_kernel("gemm", name_of(args.dtype));
}

}  // namespace
}  // namespace gemm

namespace {
MT_REGISTER_KERNEL(gemm_kernel, &gemm::gemm_dispatch);
}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
