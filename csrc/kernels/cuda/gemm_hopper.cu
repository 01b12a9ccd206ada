// Matrix products of 16-bit floats on Hopper's matrix units: one warp feeds tiles of A and B through the copy engine
// into four stages of shared memory, two warpgroups multiply 64 rows of the result each, and blocks stay for tile after
// tile, so that loads go on while results are written (after NVIDIA's CUTLASS, "warp-specialised persistent" kernels).
#include "kernels/cuda/gemm_problem.cuh"
#include "kernels/cuda/hopper.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kRows = 128, kDepth = 64, kStages = 4, kConsumers = 2, kThreadCount = 128 * (kConsumers + 1);
constexpr int kLine = 128;  // bytes: 64 elements, the width of a swizzled box

template <int Columns>
constexpr int stage_bytes() {
  return (kRows + Columns) * kDepth * 2;
}
template <int Columns>
constexpr int shared_bytes() {
  return stage_bytes<Columns>() * kStages + 1024 + 2 * kStages * 8;
}

struct Work {
  BandOrder order;
  tile::Split split;
  uint32_t tiles, units;  // a unit: a tile of one matrix of the batch and one part of k
  int a_batch, b_batch;   // 0: all of the batch share the operand
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
struct Unit {
  int64_t i, j, begin;
  int steps, batch;
  int64_t part;
};
__device__ __forceinline__ Unit unit_at(const Work& w, int64_t k, int columns, uint32_t at) {
  const uint32_t rest = at / w.tiles, splits = static_cast<uint32_t>(w.split.splits);
  const auto place = w.order.place(at - rest * w.tiles);
  Unit u;
  u.i = place.i * kRows;
  u.j = place.j * columns;
  u.batch = static_cast<int>(rest / splits);
  u.part = rest % splits;
  u.begin = u.part * w.split.per_split;
  u.steps = static_cast<int>((min(u.begin + w.split.per_split, k) - u.begin + kDepth - 1) / kDepth);
  return u;
}

// Brings `lines` rows of an operand by kDepth of k. Along k a box is 64 of k by all the rows; across it, boxes of 64
// rows by 64 of k follow each other.
template <bool AlongK, int Lines>
__device__ __forceinline__ void copy_panel(uint32_t to, const CUtensorMap& map, int row, int k, int batch,
                                           uint32_t barrier) {
  if constexpr (AlongK) {
    hopper::copy_box(to, map, k, row, batch, barrier);
  } else {
#pragma unroll
    for (int r = 0; r < Lines; r += 64) hopper::copy_box(to + r * kLine, map, row + r, k, batch, barrier);
  }
}
#endif

template <class S, int Columns, bool AK, bool BK>
__global__ void __launch_bounds__(kThreadCount, 1)
    hopper_kernel(const __grid_constant__ Strided<S> p, const __grid_constant__ CUtensorMap a_map,
                  const __grid_constant__ CUtensorMap b_map, const __grid_constant__ Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char memory[];
  // The swizzle repeats every 1024 bytes.
  const uint32_t base = (mma::shared_address(memory) + 1023) / 1024 * 1024;
  const uint32_t full = base + stage_bytes<Columns>() * kStages, empty = full + kStages * 8;
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
      const Unit u = unit_at(work, p.k, Columns, at);
      for (int step = 0; step < u.steps; step++) {
        hopper::barrier_wait(empty + stage * 8, phase ^ 1);
        const uint32_t to = base + stage * stage_bytes<Columns>(), barrier = full + stage * 8;
        hopper::barrier_expect(barrier, stage_bytes<Columns>());
        const int k = static_cast<int>(u.begin) + step * kDepth;
        copy_panel<AK, kRows>(to, a_map, static_cast<int>(u.i), k, u.batch * work.a_batch, barrier);
        copy_panel<BK, Columns>(to + kRows * kLine, b_map, static_cast<int>(u.j), k, u.batch * work.b_batch, barrier);
        advance();
      }
    }
  } else {
    hopper::registers_grow<232>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const int rows = (group - 1) * 64;
    for (uint32_t at = blockIdx.x; at < work.units; at += gridDim.x) {
      const Unit u = unit_at(work, p.k, Columns, at);
      float sums[Columns / 2];
      int last = 0;
      __syncwarp();
#pragma unroll 1
      for (int step = 0; step < u.steps; step++) {
        hopper::barrier_wait(full + stage * 8, phase);
        const uint32_t panel_a = base + stage * stage_bytes<Columns>() + rows * kLine,
                       panel_b = base + stage * stage_bytes<Columns>() + kRows * kLine;
        hopper::products_begin();
#pragma unroll
        for (int k = 0; k < kDepth; k += 16) {
          // 16 of k are 32 bytes of a line, or 16 lines.
          const uint64_t a = hopper::descriptor(panel_a + (AK ? k * 2 : k * kLine), kDepth * kLine, 8 * kLine);
          const uint64_t b = hopper::descriptor(panel_b + (BK ? k * 2 : k * kLine), kDepth * kLine, 8 * kLine);
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
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int64_t i = u.i + rows + warp * 16 + half * 8 + lane / 4;
        if (i < p.m) emit_row(p, work.split, u.part, u.batch, i, u.j + lane % 4 * 2, sums, half);
      }
    }
  }
#endif
}

// ---- Host ----------------------------------------------------------------------------------------------------------

template <class S, int Columns, bool AK, bool BK>
bool launch(const Strided<S>& p) {
  const auto kernel = &hopper_kernel<S, Columns, AK, BK>;
  static const bool built = hopper::usable(kernel);
  if (!built) return false;
  Work work;
  work.a_batch = p.a_view.batch != 0 && p.batch > 1;
  work.b_batch = p.b_view.batch != 0 && p.batch > 1;
  CUtensorMap a_map, b_map;
  const auto map = [&](CUtensorMap* to, const MatrixView& v, bool along_k, int64_t rows, bool whole_batch, int box) {
    const int64_t pitch = along_k ? v.row : v.col, width = along_k ? p.k : rows, lines = along_k ? rows : p.k;
    return hopper::make_map<3>(to, dtype_of<S>, v.data, {width, lines, whole_batch ? p.batch : 1},
                               {pitch, whole_batch ? v.batch : pitch * lines}, along_k ? box : kDepth);
  };
  const MatrixView b_rows{p.b_view.data, p.b_view.col, p.b_view.row, p.b_view.batch};  // B with n for its rows
  if (!map(&a_map, p.a_view, AK, p.m, work.a_batch, kRows) || !map(&b_map, b_rows, BK, p.n, work.b_batch, Columns))
    return false;
  const int64_t down = ceil_div(p.m, kRows), across = ceil_div(p.n, Columns), tiles = down * across;
  const int64_t sm = cuda::multiprocessors();
  if (tiles * p.batch >= int64_t{1} << 24) return false;
  work.order = {static_cast<uint32_t>(down), static_cast<uint32_t>(across)};
  work.split = split_for(tiles * p.batch, p.k, kDepth, sm);
  const Scratch partial(work.split.splits > 1 ? work.split.splits * p.batch * p.m * p.n * 4 : 0);
  work.split.partial = partial.get();
  work.tiles = static_cast<uint32_t>(tiles);
  work.units = static_cast<uint32_t>(tiles * p.batch * work.split.splits);
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<Columns>()),
              "asking for shared memory");
  const cudaStream_t stream = cuda::current_stream();
  kernel<<<static_cast<unsigned>(std::min<int64_t>(work.units, sm)), kThreadCount, shared_bytes<Columns>(), stream>>>(
      p, a_map, b_map, work);
  if (work.split.splits > 1)
    tile::add_splits<float><<<grid_for(p.batch * p.m * p.n), kThreads, 0, stream>>>(p, work.split);
  return true;
}

template <class S, int Columns>
bool by_layout(const Strided<S>& p) {
  if (p.a_along_k) return p.b_along_k ? launch<S, Columns, true, true>(p) : launch<S, Columns, true, false>(p);
  return p.b_along_k ? launch<S, Columns, false, true>(p) : launch<S, Columns, false, false>(p);
}

bool on_hopper() {
  static const bool hopper = [] {
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9;
  }();
  return hopper;
}

}  // namespace

template <class S>
bool gemm_hopper(const Strided<S>& p) {
  constexpr int64_t limit = int64_t{1} << 31;
  const auto maps = [](const MatrixView& v, int64_t pitch) { return pitch > 0 && v.batch >= 0; };
  if (!on_hopper() || hopper::encoder() == nullptr || !p.a_vectors || !p.b_vectors || p.k == 0 ||
      std::max({p.m, p.n, p.k, p.batch}) >= limit || !maps(p.a_view, p.a_along_k ? p.a_view.row : p.a_view.col) ||
      !maps(p.b_view, p.b_along_k ? p.b_view.col : p.b_view.row))
    return false;
  // Wide tiles move less and need many of them.
  const bool wide = p.n > 128 && ceil_div(p.m, kRows) * ceil_div(p.n, 256) * p.batch * 4 >= cuda::multiprocessors() * 3;
  return wide ? by_layout<S, 256>(p) : by_layout<S, 128>(p);
}
template bool gemm_hopper(const Strided<BFloat16>&);
template bool gemm_hopper(const Strided<Half>&);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
