// The kernel of products on Hopper's matrix units, of 16-bit floats and of floats rounded to tf32: one warp feeds tiles
// of A and B through the copy engine into four stages of shared memory, two warpgroups multiply 64 rows of the result
// each, and blocks stay for tile after tile, so that loads go on while results are written (after NVIDIA's CUTLASS,
// "warp-specialised persistent" kernels). Results leave through the copy engine too, behind the next tile's products. A
// Loader says where the tiles come from: matrices, or the pixels of a convolution.
#pragma once
#include "kernels/cuda/gemm_problem.cuh"
#include "kernels/cuda/hopper.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace products {

constexpr int kRows = 128, kStages = 4, kConsumers = 2, kThreadCount = 128 * (kConsumers + 1);
constexpr int kLine = 128;  // bytes, the width of a swizzled box
template <class S>
constexpr int kDepth = kLine / static_cast<int>(sizeof(S));  // of k, in a stage
constexpr int kBoxBytes = 64 * kLine;                        // of results; a warpgroup has two
constexpr int kBiasBytes = 256 * 2;                          // a warpgroup's columns of a 16-bit bias

template <int Columns>
constexpr int stage_bytes() {
  return (kRows + Columns) * kLine;
}
template <int Columns>
constexpr int shared_bytes() {
  return stage_bytes<Columns>() * kStages + kConsumers * (2 * kBoxBytes + kBiasBytes) + 1024 + 2 * kStages * 8;
}

struct Work {
  BandOrder order;
  tile::Split split;
  uint32_t tiles, units;  // a unit: a tile of one matrix of the batch and one part of k
  bool boxes;             // results leave as boxes
  bool partial;           // and are sums of parts, floats
  bool bias;              // the addend is a row of 16-bit floats for all rows
  bool addend_pairs;      // the addend is read two by two
};

struct Unit {
  int64_t i, j, begin;
  int steps, batch;
  int64_t part;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ __forceinline__ Unit unit_at(const Work& w, int64_t k, int depth, int columns, uint32_t at) {
  const uint32_t rest = at / w.tiles, splits = static_cast<uint32_t>(w.split.splits);
  const auto place = w.order.place(at - rest * w.tiles);
  Unit u;
  u.i = place.i * kRows;
  u.j = place.j * columns;
  u.batch = static_cast<int>(rest / splits);
  u.part = rest % splits;
  u.begin = u.part * w.split.per_split;
  u.steps = static_cast<int>((min(u.begin + w.split.per_split, k) - u.begin + depth - 1) / depth);
  return u;
}

// A warpgroup's two boxes of shared memory, filled and stored in turn.
struct Boxes {
  uint32_t address, bias;
  int turn = 0;
};

// 64 rows by a line of results of type T, as a lane has them.
template <class T, int N>
__device__ __forceinline__ void store_columns(Boxes& boxes, const CUtensorMap& map, int64_t column, int64_t row,
                                              int64_t z, const float (&x)[N]) {
  static_assert(N * 2 * sizeof(T) == kLine);
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const bool first_thread = threadIdx.x % 128 == 0;
  const uint32_t box = boxes.address + boxes.turn * kBoxBytes;
  boxes.turn ^= 1;
  if (first_thread) hopper::stores_wait<1>();  // the box is free
  hopper::group_barrier(group);
  if constexpr (sizeof(T) == 2) {
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
  hopper::writes_done();
  hopper::group_barrier(group);
  if (first_thread) hopper::store_box(map, static_cast<int>(column), static_cast<int>(row), static_cast<int>(z), box);
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
template <class S, int R>
__device__ __forceinline__ void store_tile(const Strided<S>& p, const CUtensorMap& c_map, const Work& work,
                                           const Unit& u, int64_t i, const float (&sums)[R], Boxes& boxes) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  if (work.partial) {
#pragma unroll
    for (int c = 0; c < R * 2; c += 32) {
      if (u.j + c >= p.n) break;
      float x[16];
#pragma unroll
      for (int e = 0; e < 16; e++) x[e] = sums[c / 2 + e];
      store_columns<float>(boxes, c_map, u.j + c, i, u.part * p.batch + u.batch, x);
    }
    return;
  }
  constexpr int kWidth = kDepth<S>;
#pragma unroll
  for (int c = 0; c < R * 2; c += kWidth) {
    if (u.j + c >= p.n) break;
    float x[kWidth / 2];
#pragma unroll
    for (int e = 0; e < kWidth / 2; e++) x[e] = p.alpha * sums[c / 2 + e];
    bool added = false;
    if constexpr (sizeof(S) == 2) {
      if (work.bias) {
        added = true;
#pragma unroll
        for (int y = 0; y < kWidth / 8; y++) {
          Pack<S, 2> pair;
          asm volatile("ld.shared.b32 %0, [%1];"
                       : "=r"(reinterpret_cast<uint32_t&>(pair))
                       : "r"(boxes.bias + (c + y * 8 + lane % 4 * 2) * 2)
                       : "memory");
#pragma unroll
          for (int e = 0; e < 4; e++) x[y * 4 + e] += p.beta * convert<float>(pair.value[e % 2]);
        }
      }
    }
    if (!added && p.adds) add_addend(p, work, u.batch, i + warp * 16 + lane / 4, u.j + c + lane % 4 * 2, x);
    store_columns<S>(boxes, c_map, u.j + c, i, u.batch, x);
  }
}

// Two columns of the bias, which a thread of a warpgroup fetches before a tile's products and leaves for all behind
// them.
template <class S>
__device__ __forceinline__ uint32_t fetch_bias(const Strided<S>& p, int64_t j) {
  const int64_t column = j + threadIdx.x % 128 * 2;
  const auto* const bias = reinterpret_cast<const uint16_t*>(p.d_view.data);
  const uint32_t low = column < p.n ? bias[column * p.d_view.col] : 0;
  const uint32_t high = column + 1 < p.n ? bias[(column + 1) * p.d_view.col] : 0;
  return low | high << 16;
}
#endif

template <class S, int Columns, bool AK, bool BK, class Loader>
__global__ void __launch_bounds__(kThreadCount, 1)
    product_kernel(const __grid_constant__ Strided<S> p, const __grid_constant__ Loader loader,
                   const __grid_constant__ CUtensorMap c_map, const __grid_constant__ Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char memory[];
  // The swizzle repeats every 1024 bytes.
  const uint32_t base = (mma::shared_address(memory) + 1023) / 1024 * 1024;
  const uint32_t boxes_at = base + stage_bytes<Columns>() * kStages, bias_at = boxes_at + kConsumers * 2 * kBoxBytes,
                 full = bias_at + kConsumers * kBiasBytes, empty = full + kStages * 8;
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; s++) {
      hopper::barrier_init(full + s * 8, 1);
      hopper::barrier_init(empty + s * 8, kConsumers * 4);
    }
    hopper::barrier_init_done();
  }
  __syncthreads();
  int stage = 0;
  uint32_t phase = 0;
  const auto advance = [&] {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  };
  if (group == 0) {
    hopper::registers_shrink<40>();
    if (threadIdx.x != 0) return;
    for (uint32_t at = blockIdx.x; at < work.units; at += gridDim.x) {
      const Unit u = unit_at(work, p.k, kDepth<S>, Columns, at);
      auto state = loader.begin(u);
      for (int step = 0; step < u.steps; step++) {
        hopper::barrier_wait(empty + stage * 8, phase ^ 1);
        const uint32_t to = base + stage * stage_bytes<Columns>(), barrier = full + stage * 8;
        hopper::barrier_expect(barrier, stage_bytes<Columns>());
        loader.load(to, to + kRows * kLine, u, state, step, barrier);
        advance();
      }
    }
  } else {
    hopper::registers_grow<232>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const int rows = (group - 1) * 64;
    Boxes boxes{boxes_at + (group - 1) * 2 * kBoxBytes, bias_at + (group - 1) * kBiasBytes};
    for (uint32_t at = blockIdx.x; at < work.units; at += gridDim.x) {
      const Unit u = unit_at(work, p.k, kDepth<S>, Columns, at);
      float sums[Columns / 2];
      int last = 0;
      uint32_t bias = 0;
      if constexpr (sizeof(S) == 2) {
        if (work.bias) bias = fetch_bias(p, u.j);
      }
      __syncwarp();
#pragma unroll 1
      for (int step = 0; step < u.steps; step++) {
        hopper::barrier_wait(full + stage * 8, phase);
        const uint32_t panel_a = base + stage * stage_bytes<Columns>() + rows * kLine,
                       panel_b = base + stage * stage_bytes<Columns>() + kRows * kLine;
        hopper::products_begin();
#pragma unroll
        for (int k = 0; k < 4; k++) {
          // A quarter of the depth is 32 bytes of a line, or 16 lines.
          const uint64_t a = hopper::descriptor(panel_a + (AK ? k * 32 : k * 16 * kLine), 64 * kLine, 8 * kLine);
          const uint64_t b = hopper::descriptor(panel_b + (BK ? k * 32 : k * 16 * kLine), 64 * kLine, 8 * kLine);
          hopper::product<S, AK, BK>(sums, a, b, step > 0 || k > 0);
        }
        hopper::products_commit();
        // While these run, the ones before are done with their stage.
        hopper::products_wait<1>();
        if (step > 0 && lane == 0) hopper::barrier_arrive(empty + last * 8);
        last = stage;
        advance();
      }
      hopper::products_wait<0>();
#pragma unroll
      for (int e = 0; e < Columns / 2; e++) hopper::settled(sums[e]);
      if (lane == 0) hopper::barrier_arrive(empty + last * 8);
      if (work.boxes) {
        if constexpr (sizeof(S) == 2) {
          if (work.bias) {
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(boxes.bias + threadIdx.x % 128 * 4), "r"(bias) : "memory");
            hopper::group_barrier(group);
          }
        }
        store_tile(p, c_map, work, u, u.i + rows, sums, boxes);
        continue;
      }
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int64_t i = u.i + rows + warp * 16 + half * 8 + lane / 4;
        if (i < p.m) emit_row(p, work.split, u.part, u.batch, i, u.j + lane % 4 * 2, sums, half);
      }
    }
    hopper::stores_wait<0>();
  }
#endif
}

// ---- Host ----------------------------------------------------------------------------------------------------------

template <class T>
bool lines_aligned(const MatrixView& v, int64_t bytes) {
  return v.col == 1 && (v.row | v.batch) * static_cast<int64_t>(sizeof(T)) % bytes == 0 &&
         reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(bytes) == 0;
}

// Runs the kernel over the tiles of p, with `split` of k, whose memory for the sums of parts is the caller's.
template <int Columns, bool AK, bool BK, class S, class Loader>
bool launch(const Strided<S>& p, const Loader& loader, const tile::Split& split) {
  const auto kernel = &product_kernel<S, Columns, AK, BK, Loader>;
  static const bool built = hopper::usable(kernel);
  if (!built) return false;
  const int64_t down = ceil_div(p.m, kRows), across = ceil_div(p.n, Columns), tiles = down * across;
  if (tiles * p.batch >= int64_t{1} << 24) return false;
  Work work;
  work.order = {static_cast<uint32_t>(down), static_cast<uint32_t>(across)};
  work.split = split;
  work.tiles = static_cast<uint32_t>(tiles);
  work.units = static_cast<uint32_t>(tiles * p.batch * split.splits);
  work.addend_pairs = lines_aligned<S>(p.d_view, 2 * sizeof(S));
  work.bias = sizeof(S) == 2 && p.adds && p.d_view.row == 0 && p.d_view.batch == 0;
  work.partial = split.partial != nullptr;
  CUtensorMap c_map = {};
  const MatrixView& c = p.c_view;
  if (work.partial) {
    work.boxes = p.n % 4 == 0 && hopper::make_map<3>(&c_map, DType::F32, split.partial,
                                                     {p.n, p.m, p.batch * split.splits}, {p.n, p.n * p.m}, 64);
  } else {
    work.boxes = lines_aligned<S>(c, 16) && c.row >= p.n && (p.batch == 1 || c.batch > 0) &&
                 hopper::make_map<3>(&c_map, dtype_of<S>, c.data, {p.n, p.m, p.batch},
                                     {c.row, p.batch == 1 ? c.row * p.m : c.batch}, 64);
  }
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<Columns>()),
              "asking for shared memory");
  const int64_t blocks = std::min<int64_t>(work.units, cuda::multiprocessors());
  kernel<<<static_cast<unsigned>(blocks), kThreadCount, shared_bytes<Columns>(), cuda::current_stream()>>>(p, loader,
                                                                                                           c_map, work);
  return true;
}

}  // namespace products
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
