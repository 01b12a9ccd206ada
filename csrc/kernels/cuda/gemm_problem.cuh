// Strided matrices as a Problem of tile.cuh, and what the kernels for matrix products share.
#pragma once
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/tile.cuh"
#include "kernels/gemm.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

template <class S>
struct Strided {
  using C = tile::sum_t<S>;
  static constexpr int kPack = sizeof(S) == 2 ? 2 : 4;
  int64_t m, n, k, batch;
  bool a_along_k, b_along_k;
  bool a_vectors, b_vectors;  // lines of the operand start at multiples of 16 bytes
  bool c_packs;               // kPack neighbours of a row of C, from a multiple of it on, are one aligned access
  MatrixView a_view, b_view, c_view, d_view;
  C alpha, beta;
  bool adds;

  __device__ __forceinline__ static S element(const MatrixView& v, int64_t batch, int64_t row, int64_t col) {
    S x = reinterpret_cast<const S*>(v.data)[batch * v.batch + row * v.row + col * v.col];
    if constexpr (is_complex_v<S>) {
      if (v.conj) x = conj(x);
    }
    return x;
  }
  __device__ __forceinline__ S a(int64_t b, int64_t i, int64_t kk) const { return element(a_view, b, i, kk); }
  __device__ __forceinline__ S b(int64_t b, int64_t kk, int64_t j) const { return element(b_view, b, kk, j); }
  __device__ __forceinline__ C result(int64_t b, int64_t i, int64_t j, C sum) const {
    const C scaled = tile::multiply_add(alpha, sum, C(0));
    return adds ? tile::multiply_add(beta, convert<C>(element(d_view, b, i, j)), scaled) : scaled;
  }
  __device__ __forceinline__ void store(int64_t b, int64_t i, int64_t j, C sum) const {
    reinterpret_cast<S*>(c_view.data)[b * c_view.batch + i * c_view.row + j * c_view.col] =
        convert<S>(result(b, i, j, sum));
  }
};

template <class S>
Strided<S> strided_problem(const GemmArgs& g) {
  using C = tile::sum_t<S>;
  Strided<S> p;
  p.m = g.m, p.n = g.n, p.k = g.k, p.batch = g.batch;
  const auto size = [](int64_t stride) { return stride < 0 ? -stride : stride; };
  // Lines run along the unit stride: the stride of an expanded dimension is smaller, and says nothing.
  p.a_along_k = g.a.col == 1 || (g.a.row != 1 && size(g.a.col) <= size(g.a.row));
  p.b_along_k = g.b.col != 1 && (g.b.row == 1 || size(g.b.row) < size(g.b.col));
  p.a_view = g.a, p.b_view = g.b, p.c_view = g.c, p.d_view = g.d;
  p.alpha = g.alpha.to<C>();
  p.beta = g.beta.to<C>();
  p.adds = !(p.beta == C(0)) && g.d.data != nullptr;
  constexpr auto bytes = static_cast<int64_t>(sizeof(S));
  const auto aligned = [](const MatrixView& v, int64_t pitch, int64_t unit) {
    return reinterpret_cast<uintptr_t>(v.data) % unit == 0 && pitch * bytes % unit == 0 && v.batch * bytes % unit == 0;
  };
  p.a_vectors = aligned(g.a, p.a_along_k ? g.a.row : g.a.col, 16);
  p.b_vectors = aligned(g.b, p.b_along_k ? g.b.col : g.b.row, 16);
  p.c_packs = g.c.col == 1 && aligned(g.c, g.c.row, Strided<S>::kPack * bytes);
  return p;
}

// The same product with rows and columns exchanged: C' = B' A'. For results that lie column by column.
inline GemmArgs transposed(const GemmArgs& g) {
  const auto flip = [](MatrixView v) {
    std::swap(v.row, v.col);
    return v;
  };
  GemmArgs t = g;
  t.m = g.n, t.n = g.m;
  t.a = flip(g.b), t.b = flip(g.a), t.c = flip(g.c), t.d = flip(g.d);
  return t;
}

// Blocks that run together form bands of eight tiles along m, and share operands in cache.
struct BandOrder {
  uint32_t rows, columns;
  struct Place {
    int64_t i, j;
  };
  __device__ __forceinline__ Place place(uint32_t at) const {
    constexpr uint32_t kBand = 8;
    const uint32_t band = at / (kBand * columns), in_band = at - band * kBand * columns;
    const uint32_t height = min(kBand, rows - band * kBand);
    return {band * kBand + in_band % height, in_band / height};
  }
};

// Sums of columns j .. j + kPack - 1, j a multiple of kPack.
template <class S>
__device__ __forceinline__ void emit_pack(const Strided<S>& p, const tile::Split& split, int64_t part, int64_t batch,
                                          int64_t i, int64_t j, const float (&sums)[Strided<S>::kPack]) {
  constexpr int W = Strided<S>::kPack;
  if (p.c_packs && split.splits == 1 && j + W <= p.n) {
    Pack<S, W> pack;
#pragma unroll
    for (int w = 0; w < W; w++) pack.value[w] = convert<S>(p.result(batch, i, j + w, sums[w]));
    *reinterpret_cast<Pack<S, W>*>(reinterpret_cast<S*>(p.c_view.data) + batch * p.c_view.batch + i * p.c_view.row +
                                   j) = pack;
  } else {
#pragma unroll
    for (int w = 0; w < W; w++) tile::emit<float>(p, split, part, batch, i, j + w, sums[w]);
  }
}

// How often to split k so that tiles fill the device, and its last round of `wanted` blocks too: the least of rounds
// times the steps of a part and what adding the parts costs, `part` steps for each part of a tile. The memory of the
// partial sums is the caller's.
inline tile::Split split_for(int64_t tiles, int64_t k, int64_t depth, int64_t wanted, double part) {
  tile::Split best{1, std::max<int64_t>(k, 1), nullptr};
  if (tiles >= 8 * wanted || k < 8 * depth) return best;
  auto least = static_cast<double>(ceil_div(tiles, wanted) * k);
  const auto consider = [&](int64_t parts) {
    tile::Split split{1, ceil_div(ceil_div(k, parts), depth) * depth, nullptr};
    split.splits = ceil_div(k, split.per_split);
    const double cost = static_cast<double>(ceil_div(tiles * split.splits, wanted) * split.per_split) +
                        part * static_cast<double>(split.splits * tiles);
    if (cost < least) least = cost, best = split;
  };
  const int64_t most = std::min<int64_t>(k / (depth * 4), 256);
  for (int64_t parts = 2; parts <= std::min<int64_t>(most, 16); parts++) consider(parts);
  if (const int64_t filling = std::min(wanted / tiles, most); filling > 16) consider(filling);
  return best;
}

// Adds the parts of a split product, and writes it.
template <class S>
void finish_split(const Strided<S>& p, tile::Split split) {
  if (split.splits <= 1) return;
  const int64_t size = p.batch * p.m * p.n;
  split.splits = parts::add_many(static_cast<float*>(split.partial), split.splits, size);
  tile::add_splits<float><<<grid_for(size), kThreads, 0, cuda::current_stream()>>>(p, split);
}

template <class S>
using TileKernel = void(Strided<S>, BandOrder, tile::Split);

// What launch_tiles must know of a kernel: the tile of a block and how far along k it goes at once, its threads, its
// dynamic shared memory, and how many blocks a multiprocessor should have.
struct Tiling {
  int64_t rows, columns, depth;
  int threads, shared_bytes, blocks_per_multiprocessor;
};

// A form of a kernel in which clusters of blocks add their parts of a tile before anything is written.
template <class S>
struct Clustered {
  TileKernel<S>* kernel;
  const cluster::Room& room;
};

// Puts the parts of `tiles` into clusters, and returns the blocks of one. They are large while such clusters all run at
// once, for then little or nothing is left to add by way of memory; else pairs, which fill the device whatever its
// size. On an H100 eight parts in a cluster make a product of 1024 x 128 x 256 1.2 times as fast as parts in memory,
// pairs one of 8192 x 768 x 768; clusters that do not all run at once are slower.
inline int in_clusters(const cluster::Room& room, tile::Split& split, int64_t tiles, int64_t k, const Tiling& t) {
  if (split.splits == 1 || room.clusters(2) == 0) return 1;
  const auto regrouped = [&](int count) {
    const int64_t groups = ceil_div(split.splits, int64_t{count});
    return tile::Split{groups, ceil_div(ceil_div(k, groups * count), t.depth) * t.depth, nullptr};
  };
  const int most = static_cast<int>(std::min<int64_t>(split.splits, cluster::kMost));
  if (const tile::Split large = regrouped(most); tiles * large.splits <= room.clusters(most)) {
    split = large;
    return most;
  }
  const auto steps = [&](const tile::Split& s, int count) {
    const int64_t at_once = int64_t{cuda::multiprocessors()} * t.blocks_per_multiprocessor;
    return ceil_div(tiles * s.splits * count, at_once) * s.per_split;
  };
  const tile::Split pairs = regrouped(2);
  if (steps(pairs, 2) * 5 > steps(split, 1) * 6) return 1;
  split = pairs;
  return 2;
}

// Runs kernel(p, order, split) over tiles, and adds the parts of a split product.
template <class S>
void launch_tiles(TileKernel<S>* kernel, const Strided<S>& p, const Tiling& t,
                  const Clustered<S>* clustered = nullptr) {
  const int64_t down = ceil_div(p.m, t.rows), across = ceil_div(p.n, t.columns), tiles = down * across;
  if (tiles >= (int64_t{1} << 31)) throw std::runtime_error("minitorch: matrix product too large for one launch");
  // A part of a result costs eight bytes of traffic, of which a multiprocessor has 18 in a cycle; a step costs one of
  // 128 multiplications in a cycle, or of 1024 on tensor cores.
  const double part = (is_half_v<S> ? 1024 : 128) * 8 / 18.0 / cuda::multiprocessors() / t.blocks_per_multiprocessor;
  tile::Split split =
      split_for(tiles * p.batch, p.k, t.depth, int64_t{cuda::multiprocessors()} * t.blocks_per_multiprocessor, part);
  const int together = clustered != nullptr ? in_clusters(clustered->room, split, tiles * p.batch, p.k, t) : 1;
  const Scratch partial(split.splits > 1 ? split.splits * p.batch * p.m * p.n * 4 : 0);
  split.partial = partial.get();
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(split.splits * together),
                  static_cast<unsigned>(std::min<int64_t>(p.batch, 65535)));
  const BandOrder order{static_cast<uint32_t>(down), static_cast<uint32_t>(across)};
  if (together > 1) {
    cluster::Launch(grid, together, t.threads, clustered->room.bytes()).run(clustered->kernel, p, order, split);
  } else {
    launch_kernel(kernel, grid, t.threads, t.shared_bytes, p, order, split);
  }
  finish_split(p, split);
}

// Whether memory runs along one axis of each operand, element by element.
inline bool has_unit_strides(const GemmArgs& g) {
  const auto unit = [](const MatrixView& v) { return v.row == 1 || v.col == 1; };
  return unit(g.a) && unit(g.b);
}

// Products that have a kernel of their own; false: the shape or the layout is not for it.
bool gemm_half(const GemmArgs& g);  // 16-bit floats on tensor cores
// The same on Hopper's own instructions; false also where the device or the build lacks them.
template <class S>
bool gemm_hopper(const Strided<S>& p);
bool gemm_tf32(const GemmArgs& g);   // floats that the arguments let be rounded, on Hopper
bool gemm_thin(const GemmArgs& g);   // float with few rows or columns
bool gemm_float(const GemmArgs& g);  // float, plain arithmetic
bool on_hopper();                    // whether the device and its driver have what gemm_hopper needs

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
