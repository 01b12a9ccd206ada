// How the tiles of a product are shared out over the device, and the launch of the kernel of gemm_hopper.cuh.
#pragma once
#include "kernels/cuda/gemm_hopper.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace products {

template <class T>
bool lines_aligned(const MatrixView& v, int64_t bytes) {
  return v.col == 1 && (v.row | v.batch) * static_cast<int64_t>(sizeof(T)) % bytes == 0 &&
         reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(bytes) == 0;
}

// How wide tiles are, how many of them blocks compute whole, and in how many parts the rest.
struct Plan {
  int columns;
  int64_t whole, parts;
};

// What a step of the depth and the end of a tile take, in cycles as measured on an H200: of matrices, and where a
// loader brings many small boxes.
struct Width {
  int columns, step, end;
};
constexpr Width kMatrixWidths[] = {{64, 350, 600}, {128, 600, 900}, {256, 1060, 1500}};
constexpr Width kWindowWidths[] = {{64, 600, 700}, {128, 750, 1000}, {256, 1250, 1600}};

// The plan that keeps the device busy for the shortest time: rounds of blocks that run together, times what these take.
// Only the last round's tiles are parted, or all of them, if `all`.
inline Plan plan_tiles(const Width (&widths)[3], int64_t m, int64_t n, int64_t batch, int64_t steps, int64_t most_parts,
                       bool all) {
  const int64_t blocks = cuda::multiprocessors();
  Plan best{};
  double least = 0;
  for (const Width& w : widths) {
    if (w.columns > 64 && n <= w.columns / 2) break;
    const int64_t tiles = ceil_div(m, kRows) * ceil_div(n, w.columns) * batch;
    const int64_t whole = all ? 0 : tiles / blocks * blocks, rest = tiles - whole;
    // As many parts as fill a number of rounds.
    for (int64_t fill = 0; fill <= (rest > 0 ? 4 : 0); fill++) {
      const int64_t parts = fill == 0 ? 1 : std::min({blocks * fill / rest, most_parts, steps / 4});
      if (fill > 0 && parts <= 1) continue;
      double cost = static_cast<double>(whole / blocks * (steps * w.step + w.end) +
                                        ceil_div(rest * parts, blocks) * (ceil_div(steps, parts) * w.step + w.end));
      // Sums of parts are written and read once more, at about 3 kB a cycle, by another launch.
      if (parts > 1) cost += 4000.0 + static_cast<double>(parts * rest * kRows * w.columns) * 8 / 3000;
      if (least == 0 || cost < least) best = {w.columns, parts == 1 && !all ? tiles : whole, parts}, least = cost;
    }
  }
  return best;
}

// Runs the kernel over the tiles of p.
template <int Columns, bool AK, bool BK, class S, class Loader>
bool launch(const Strided<S>& p, const Loader& loader, const Shares& shares) {
  static_assert((!Loader::kTurns || Loader::kPlaces) && (!Loader::kLeft || (std::is_same_v<S, float> && !AK && BK)));
  const auto kernel = &product_kernel<S, Columns, AK, BK, Loader>;
  static const bool built = hopper::usable(kernel);
  if (!built) return false;
  const int64_t down = ceil_div(p.m, kRows), across = ceil_div(p.n, Columns), tiles = down * across * p.batch;
  if (tiles >= int64_t{1} << 24) return false;
  const int64_t rest = tiles - shares.whole;
  Work work;
  work.order = {static_cast<uint32_t>(down), static_cast<uint32_t>(across)};
  work.shares = shares;
  work.tiles = static_cast<uint32_t>(down * across);
  work.all_tiles = static_cast<uint32_t>(tiles);
  work.units = static_cast<uint32_t>(shares.whole + rest * shares.parts);
  work.stage_bytes = loader.template loaded_bytes<Columns>();
  work.addend_pairs = lines_aligned<S>(p.d_view, 2 * sizeof(S));
  work.bias = p.adds && p.d_view.row == 0 && p.d_view.batch == 0;
  CUtensorMap c_map = {}, part_map = {};
  const MatrixView& c = p.c_view;
  // The copy engine writes whole pieces of 16 bytes: what lies between rows may be somebody else's.
  const bool whole_pieces = p.n * static_cast<int64_t>(sizeof(S)) % 16 == 0;
  work.boxes = Loader::kPlaces || (shares.whole > 0 && whole_pieces && lines_aligned<S>(c, 16) && c.row >= p.n &&
                                   (p.batch == 1 || c.batch > 0) &&
                                   hopper::make_map<3>(&c_map, dtype_of<S>, c.data, {p.n, p.m, p.batch},
                                                       {c.row, p.batch == 1 ? c.row * p.m : c.batch}, 64));
  if (rest > 0) {
    const int64_t width = shares.by_tile ? Columns : p.n, lines = shares.by_tile ? rest * kRows : p.m;
    if (!hopper::make_map<3>(&part_map, DType::F32, shares.sums, {width, lines, shares.parts}, {width, width * lines},
                             64))
      return false;
  }
  const int64_t blocks = std::min<int64_t>(work.units, cuda::multiprocessors());
  launch_kernel(kernel, static_cast<unsigned>(blocks), kThreadCount, shared_bytes<Columns>(), p, loader, c_map,
                part_map, work);
  return true;
}

// Tiles of which parts have been summed, from `first` on.
struct RestTiles {
  BandOrder order;
  const float* sums;  // [part][tile][kRows][Columns]
  int64_t first, tiles, parts;
};

template <class S, int Columns>
__global__ void __launch_bounds__(kThreads)
    finish_rest(const __grid_constant__ Strided<S> p, const __grid_constant__ RestTiles r) {
  const int64_t size = r.tiles * kRows * Columns, of_matrix = int64_t{r.order.rows} * r.order.columns;
  MT_GRID_LOOP(at, size / 4) {
    const int64_t tile = r.first + at * 4 / (kRows * Columns), batch = tile / of_matrix;
    const auto place = r.order.place(static_cast<uint32_t>(tile - batch * of_matrix));
    const int in_tile = static_cast<int>(at * 4 % (kRows * Columns));
    const int64_t i = place.i * kRows + in_tile / Columns, j = place.j * Columns + in_tile % Columns;
    if (i >= p.m || j >= p.n) continue;
    float sums[4] = {};
    for (int64_t part = 0; part < r.parts; part++) {
      const float4 x = *reinterpret_cast<const float4*>(r.sums + part * size + at * 4);
      sums[0] += x.x, sums[1] += x.y, sums[2] += x.z, sums[3] += x.w;
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (j + e < p.n) p.store(batch, i, j + e, sums[e]);
  }
}

// Runs the kernel by a plan and completes the tiles that came in parts.
template <int Columns, bool AK, bool BK, class S, class Loader>
bool run(const Strided<S>& p, const Loader& loader, const Plan& plan) {
  const int64_t down = ceil_div(p.m, kRows), across = ceil_div(p.n, Columns),
                rest = down * across * p.batch - plan.whole;
  Shares shares{plan.whole, 1, p.k, nullptr, true};
  shares.per_part = ceil_div(ceil_div(p.k, kDepth<S>), plan.parts) * kDepth<S>;
  shares.parts = ceil_div(p.k, shares.per_part);
  const int64_t size = rest * kRows * Columns;
  const Scratch sums(shares.parts * size * 4);
  shares.sums = sums.get<float>();
  if (!launch<Columns, AK, BK>(p, loader, shares)) return false;
  if (rest > 0) {
    const int64_t parts = parts::add_many(shares.sums, shares.parts, size);
    const RestTiles r{
        {static_cast<uint32_t>(down), static_cast<uint32_t>(across)}, shares.sums, plan.whole, rest, parts};
    finish_rest<S, Columns><<<grid_for(size / 4), kThreads, 0, cuda::current_stream()>>>(p, r);
  }
  return true;
}

}  // namespace products
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
