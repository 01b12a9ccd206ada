// The kernel of products on Hopper's matrix units, of 16-bit floats and of floats rounded to tf32: one warp feeds tiles
// of A and B through the copy engine into four stages of shared memory, two warpgroups multiply 64 rows of the result
// each, and blocks stay for tile after tile, so that loads go on while results are written (after NVIDIA's CUTLASS,
// "warp-specialised persistent" kernels). Results leave through the copy engine too, behind the next tile's products. A
// Loader says where the tiles come from, matrices or the pixels of a convolution, and where results go.
#pragma once
#include "kernels/cuda/gemm_problem.cuh"
#include "kernels/cuda/hopper.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace products {

constexpr int kRows = 128, kConsumers = 2, kThreadCount = 128 * (kConsumers + 1);
constexpr int kLine = 128;  // bytes, the width of a swizzled box
template <class S>
constexpr int kDepth = kLine / static_cast<int>(sizeof(S));  // of k, in a stage
constexpr int kBoxBytes = 64 * kLine;                        // of results; a warpgroup has two
constexpr int kBiasBytes = 256 * 4;                          // a warpgroup's columns of a bias

// As many as fit: the loads of a tile begin while the one before is multiplied.
template <int Columns>
constexpr int kStages = Columns == 64    ? 6
                        : Columns == 128 ? 5
                                         : 4;
template <int Columns>
constexpr int stage_bytes() {
  return (kRows + Columns) * kLine;
}
template <int Columns>
constexpr int shared_bytes() {
  return stage_bytes<Columns>() * kStages<Columns> + kConsumers * (2 * kBoxBytes + kBiasBytes) +
         2 * kStages<Columns> * 8;
}

// Tiles that blocks compute whole, and of the rest, parts of k. Tiles count through the batch.
struct Shares {
  int64_t whole;
  int64_t parts, per_part;  // of k
  float* sums;              // of the parts, in memory of the caller's
  bool by_tile;             // [part][tile][row][column]; or [part][row][column] of all the matrix
};

struct Work {
  BandOrder order;
  Shares shares;
  uint32_t tiles, all_tiles, units;  // tiles of a matrix, of all; a unit: a tile, or a part of one
  int stage_bytes;                   // that the loader brings
  bool boxes;                        // results leave as boxes, through the copy engine; sums of parts always do
  bool bias;                         // the addend is one row for all
  bool addend_pairs;                 // the addend is read two by two
};

struct Unit {
  int64_t i, j, begin;
  int steps, batch;
  int part, rest_tile;  // of a tile that is not whole, or negative
};

// Of floats the matrix units want both operands along k. Where those of A run across it, a stage has them in boxes of
// 32 lines along k by 32 rows, and a lane brings them into registers in this order of k, which B's must have in memory:
// the even ones of eight first, so that lanes meet different banks.
__host__ __device__ __forceinline__ int64_t place_of_k(int64_t k) { return k / 8 * 8 + k % 4 * 2 + k / 4 % 2; }

// What Loaders have in common. begin(unit) gives the state that load(a, b, unit, state, step, barrier) goes on from.
struct LoaderBase {
  static constexpr bool kPlaces = false;  // place() replaces the map of results, but for sums of parts
  static constexpr bool kLeft = false;    // floats of A run across k and go through registers
  static constexpr bool kTurns =
      false;  // results, floats, lie column by column: boxes are 32 columns of 32 rows, twice
  __device__ __forceinline__ void adapt(Unit&) const {}
  template <int Columns>
  int loaded_bytes() const {
    return stage_bytes<Columns>();
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ __forceinline__ Unit unit_at(const Work& w, int64_t k, int depth, int columns, uint32_t at) {
  const auto whole = static_cast<uint32_t>(w.shares.whole);
  uint32_t tile = at;
  Unit u;
  u.part = u.rest_tile = -1;
  u.begin = 0;
  if (at >= whole) {
    const uint32_t rest = w.all_tiles - whole;
    u.part = static_cast<int>((at - whole) / rest);
    u.rest_tile = static_cast<int>((at - whole) % rest);
    u.begin = u.part * w.shares.per_part;
    k = min(u.begin + w.shares.per_part, k);
    tile = whole + u.rest_tile;
  }
  u.batch = static_cast<int>(tile / w.tiles);
  const auto place = w.order.place(tile - u.batch * w.tiles);
  u.i = place.i * kRows;
  u.j = place.j * columns;
  u.steps = static_cast<int>((k - u.begin + depth - 1) / depth);
  return u;
}

// Rows row + 16 w + lane / 4, and eight below, of warp w; k: of which eight.
__device__ __forceinline__ void load_left(uint32_t (&to)[4], uint32_t panel, int row, int k) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int r = row + warp * 16 + lane / 4 + e % 2 * 8, line = k * 8 + lane % 4 * 2 + e / 2;
    asm volatile("ld.shared.b32 %0, [%1];"
                 : "=r"(to[e])
                 : "r"(panel + r / 32 * (32 * kLine) + line * kLine + ((r % 32 / 4 ^ (line & 7)) << 4) + r % 4 * 4)
                 : "memory");
  }
}

// A warpgroup's two boxes of shared memory, filled and stored in turn.
struct Boxes {
  uint32_t address, bias;
  int turn = 0;
};

// Where a matrix of results lies that the copy engine cannot write.
template <class T>
struct Target {
  T* data;
  int64_t row, column;  // strides
  int64_t rows, columns;
};

template <class T>
__device__ __forceinline__ T read_shared(uint32_t address) {
  T x;
  if constexpr (sizeof(T) == 2) {
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(reinterpret_cast<uint16_t&>(x)) : "r"(address) : "memory");
  } else {
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  }
  return x;
}

// Lines line .. line + 15 of a box, which this warp filled, to rows from `row` on. Pairs of 16-bit elements that are a
// word in memory go as one: where a row begins in the middle of a word, lane 31 has its first element.
template <class T>
__device__ __forceinline__ void store_lines(const Target<T>& to, uint32_t box, int line, int64_t row, int64_t column) {
  constexpr int kWord = 4 / static_cast<int>(sizeof(T));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int columns = static_cast<int>(min(to.columns - column, int64_t{32 * kWord}));
  __syncwarp();
#pragma unroll 4
  for (int e = 0; e < 16; e++) {
    if (row + e >= to.rows) break;
    T* const at = to.data + (row + e) * to.row + column * to.column;
    const auto read = [&](int c) {
      const int byte = c * static_cast<int>(sizeof(T));
      return read_shared<T>(box + (line + e) * kLine + ((byte / 16 ^ ((line + e) & 7)) << 4) + byte % 16);
    };
    if (kWord == 1) {
      if (lane < columns) at[lane * to.column] = read(lane);
      continue;
    }
    const int shift = to.column == 1 ? static_cast<int>(reinterpret_cast<uintptr_t>(at) / 2 % 2) : 0;
    const int first = lane * 2 + shift;
    if (to.column == 1 && first + 1 < columns) {
      *reinterpret_cast<Pack<T, 2>*>(at + first) = {read(first), read(first + 1)};
    } else {
#pragma unroll
      for (int w = 0; w < 2; w++)
        if (first + w < columns) at[(first + w) * to.column] = read(first + w);
    }
    if (shift == 1 && lane == 31) at[0] = read(0);
  }
  __syncwarp();
}

// 64 rows by a line of results of type T, as a lane has them.
template <class T, int N, class Loader>
__device__ __forceinline__ void store_columns(Boxes& boxes, const Loader& loader, const CUtensorMap& map, bool boxed,
                                              const Target<T>& target, int64_t column, int64_t row, int64_t z,
                                              const float (&x)[N]) {
  static_assert(N * 2 * sizeof(T) == kLine);
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const bool first_thread = threadIdx.x % 128 == 0;
  const uint32_t box = boxes.address + boxes.turn * kBoxBytes;
  if (boxed) {
    boxes.turn ^= 1;
    if (first_thread) hopper::stores_wait<1>();  // the box is free
    hopper::group_barrier(group);
  }
  if constexpr (Loader::kTurns) {
#pragma unroll
    for (int e = 0; e < N; e++) {
      const int row_in = warp * 16 + e / 2 % 2 * 8 + lane / 4, line = e / 4 * 8 + lane % 4 * 2 + e % 2;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(box + row_in / 32 * (32 * kLine) + line * kLine +
                                                   ((row_in % 32 / 4 ^ (line & 7)) << 4) + row_in % 4 * 4),
                   "f"(x[e])
                   : "memory");
    }
  } else if constexpr (sizeof(T) == 2) {
    const int line = warp * 16 + lane % 16;
#pragma unroll
    for (int y = 0; y < N / 4; y += 2) {
      const uint32_t words[4] = {
          mma::pack_pair<T>(x[y * 4], x[y * 4 + 1]), mma::pack_pair<T>(x[y * 4 + 2], x[y * 4 + 3]),
          mma::pack_pair<T>(x[y * 4 + 4], x[y * 4 + 5]), mma::pack_pair<T>(x[y * 4 + 6], x[y * 4 + 7])};
      hopper::store_matrices(box + line * kLine + (((y + lane / 16) ^ (line & 7)) << 4), words);
    }
  } else {
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      const int line = warp * 16 + e % 4 * 4 + lane / 4, chunk = e / 4 * 2 + lane % 4 / 2;
      asm volatile(
          "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(box + line * kLine + ((chunk ^ (line & 7)) << 4) + lane % 2 * 8),
          "f"(x[e]), "f"(x[e + 1])
          : "memory");
    }
  }
  if (!boxed) return store_lines(target, box, warp * 16, row + warp * 16, column);
  hopper::writes_done();
  hopper::group_barrier(group);
  if (!first_thread) return;
  if constexpr (Loader::kPlaces) {
    loader.place(column, row, z, box);
  } else {
    hopper::store_box(map, static_cast<int>(column), static_cast<int>(row), static_cast<int>(z), box);
  }
}

// x: what a lane has of columns `column` and on, of rows `row` and eight below. Adds beta times the addend.
template <class S, int N>
__device__ __forceinline__ void add_addend(const Strided<S>& p, const Work& work, int64_t batch, int64_t row,
                                           int64_t column, float (&x)[N]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (row + half * 8 >= p.m) continue;
    const S* const addend = reinterpret_cast<const S*>(p.d_view.data) + batch * p.d_view.batch +
                            (row + half * 8) * p.d_view.row + column * p.d_view.col;
#pragma unroll
    for (int y = 0; y < N / 4; y++) {
      float* const to = &x[y * 4 + half * 2];
      if (work.addend_pairs && column + y * 8 + 1 < p.n) {
        const Pack<S, 2> pair = *reinterpret_cast<const Pack<S, 2>*>(addend + y * 8);
        to[0] += p.beta * convert<float>(pair.value[0]);
        to[1] += p.beta * convert<float>(pair.value[1]);
      } else {
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (column + y * 8 + e < p.n) to[e] += p.beta * convert<float>(addend[(y * 8 + e) * p.d_view.col]);
      }
    }
  }
}

// A warpgroup's 64 rows of a tile, from row i on. On an H200 this makes a product of 8192 x 768 x 3072 1.5 times as
// fast as writing from registers to memory, one of 64 of k 2.6 times.
template <class S, int R, class Loader>
__device__ __forceinline__ void store_tile(const Strided<S>& p, const Loader& loader, const CUtensorMap& c_map,
                                           const CUtensorMap& part_map, const Work& work, const Unit& u, int64_t i,
                                           const float (&sums)[R], Boxes& boxes) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  if (u.part >= 0) {
    const bool by_tile = work.shares.by_tile;
    const int64_t row = by_tile ? u.rest_tile * kRows + (i - u.i) : i;
#pragma unroll
    for (int c = 0; c < R * 2; c += 32) {
      if (u.j + c >= p.n) break;
      float x[16];
#pragma unroll
      for (int e = 0; e < 16; e++) x[e] = sums[c / 2 + e];
      store_columns<float>(boxes, loader, part_map, true, {}, (by_tile ? 0 : u.j) + c, row, u.part, x);
    }
    return;
  }
  const Target<S> target{reinterpret_cast<S*>(p.c_view.data) + u.batch * p.c_view.batch, p.c_view.row, p.c_view.col,
                         p.m, p.n};
  constexpr int kWidth = kDepth<S>;
#pragma unroll
  for (int c = 0; c < R * 2; c += kWidth) {
    if (u.j + c >= p.n) break;
    float x[kWidth / 2];
#pragma unroll
    for (int e = 0; e < kWidth / 2; e++) x[e] = p.alpha * sums[c / 2 + e];
    if (work.bias) {
#pragma unroll
      for (int y = 0; y < kWidth / 8; y++) {
        const uint32_t at = boxes.bias + (c + y * 8 + lane % 4 * 2) * static_cast<int>(sizeof(S));
        const S pair[2] = {read_shared<S>(at), read_shared<S>(at + sizeof(S))};
#pragma unroll
        for (int e = 0; e < 4; e++) x[y * 4 + e] += p.beta * convert<float>(pair[e % 2]);
      }
    } else if (p.adds) {
      add_addend(p, work, u.batch, i + warp * 16 + lane / 4, u.j + c + lane % 4 * 2, x);
    }
    store_columns<S>(boxes, loader, c_map, work.boxes, target, u.j + c, i, u.batch, x);
  }
}

// Two columns of the bias, which a thread of a warpgroup fetches before a tile's products and leaves for all behind
// them.
template <class S>
__device__ __forceinline__ Pack<S, 2> fetch_bias(const Strided<S>& p, int64_t j) {
  const int64_t column = j + threadIdx.x % 128 * 2;
  const S* const bias = reinterpret_cast<const S*>(p.d_view.data);
  return {column < p.n ? bias[column * p.d_view.col] : S{}, column + 1 < p.n ? bias[(column + 1) * p.d_view.col] : S{}};
}
template <class S>
__device__ __forceinline__ void leave_bias(uint32_t bias, const Pack<S, 2>& pair) {
  const uint32_t to = bias + threadIdx.x % 128 * static_cast<int>(sizeof(pair));
  if constexpr (sizeof(S) == 2) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(reinterpret_cast<const uint32_t&>(pair)) : "memory");
  } else {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(pair.value[0]), "f"(pair.value[1]) : "memory");
  }
}
#endif

template <class S, int Columns, bool AK, bool BK, class Loader>
__global__ void __launch_bounds__(kThreadCount, 1)
    product_kernel(const __grid_constant__ Strided<S> p, const __grid_constant__ Loader loader,
                   const __grid_constant__ CUtensorMap c_map, const __grid_constant__ CUtensorMap part_map,
                   const __grid_constant__ Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];  // the swizzle repeats every 1024 bytes
  const uint32_t base = mma::shared_address(memory);
  const uint32_t boxes_at = base + stage_bytes<Columns>() * kStages<Columns>,
                 bias_at = boxes_at + kConsumers * 2 * kBoxBytes, full = bias_at + kConsumers * kBiasBytes,
                 empty = full + kStages<Columns> * 8;
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages<Columns>; s++) {
      hopper::barrier_init(full + s * 8, 1);
      hopper::barrier_init(empty + s * 8, kConsumers * 4);
    }
    hopper::barrier_init_done();
  }
  __syncthreads();
  int stage = 0;
  uint32_t phase = 0;
  const auto advance = [&] {
    if (++stage == kStages<Columns>) {
      stage = 0;
      phase ^= 1;
    }
  };
  if (group == 0) {
    hopper::registers_shrink<40>();
    if (threadIdx.x != 0) return;
    for (uint32_t at = blockIdx.x; at < work.units; at += gridDim.x) {
      Unit u = unit_at(work, p.k, kDepth<S>, Columns, at);
      loader.adapt(u);
      auto state = loader.begin(u);
      for (int step = 0; step < u.steps; step++) {
        hopper::barrier_wait(empty + stage * 8, phase ^ 1);
        const uint32_t to = base + stage * stage_bytes<Columns>(), barrier = full + stage * 8;
        hopper::barrier_expect(barrier, work.stage_bytes);
        loader.load(to, to + kRows * kLine, u, state, step, barrier);
        advance();
      }
    }
  } else {
    hopper::registers_grow<232>();
    const int lane = static_cast<int>(threadIdx.x) % 32, rows = (group - 1) * 64;
    Boxes boxes{boxes_at + (group - 1) * 2 * kBoxBytes, bias_at + (group - 1) * kBiasBytes};
    for (uint32_t at = blockIdx.x; at < work.units; at += gridDim.x) {
      Unit u = unit_at(work, p.k, kDepth<S>, Columns, at);
      loader.adapt(u);
      float sums[Columns / 2];
      Pack<S, 2> bias = {};
      if (work.bias) bias = fetch_bias(p, u.j);
      __syncwarp();
      // A quarter of the depth is 32 bytes of a line, or 16 lines.
      const auto quarter = [](uint32_t panel, bool along_k, int k) {
        return hopper::descriptor(panel + (along_k ? k * 32 : k * 16 * kLine), 64 * kLine, 8 * kLine);
      };
      if constexpr (Loader::kLeft) {
#pragma unroll
        for (int e = 0; e < Columns / 2; e++) sums[e] = 0;
#pragma unroll 1
        for (int step = 0; step < u.steps; step++) {
          hopper::barrier_wait(full + stage * 8, phase);
          const uint32_t panel_a = base + stage * stage_bytes<Columns>(), panel_b = panel_a + kRows * kLine;
          uint32_t left[4][4];
#pragma unroll
          for (int k = 0; k < 4; k++) load_left(left[k], panel_a, rows, k);
          hopper::products_begin();
#pragma unroll
          for (int k = 0; k < 4; k++) hopper::product_left<S, BK>(sums, left[k], quarter(panel_b, BK, k));
          hopper::products_commit();
          hopper::products_wait<0>();
          hopper::warp_leaves(empty + stage * 8);
          advance();
        }
      } else {
        int last = 0;
#pragma unroll 1
        for (int step = 0; step < u.steps; step++) {
          hopper::barrier_wait(full + stage * 8, phase);
          const uint32_t panel_a = base + stage * stage_bytes<Columns>() + rows * kLine,
                         panel_b = base + stage * stage_bytes<Columns>() + kRows * kLine;
          hopper::products_begin();
#pragma unroll
          for (int k = 0; k < 4; k++)
            hopper::product<S, AK, BK>(sums, quarter(panel_a, AK, k), quarter(panel_b, BK, k), step > 0 || k > 0);
          hopper::products_commit();
          // While these run, the ones before are done with their stage.
          hopper::products_wait<1>();
          if (step > 0 && lane == 0) hopper::barrier_arrive(empty + last * 8);
          last = stage;
          advance();
        }
        hopper::products_wait<0>();
        if (lane == 0) hopper::barrier_arrive(empty + last * 8);
      }
#pragma unroll
      for (int e = 0; e < Columns / 2; e++) hopper::settled(sums[e]);
      if (work.bias) {
        if (!work.boxes) hopper::group_barrier(group);  // the tile before has been read
        leave_bias(boxes.bias, bias);
        hopper::group_barrier(group);
      }
      store_tile(p, loader, c_map, part_map, work, u, u.i + rows, sums, boxes);
    }
    hopper::stores_wait<0>();
  }
#endif
}

}  // namespace products
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
