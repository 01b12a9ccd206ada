// Permutations and draws of categories on CUDA, with native CUDA's numbers.
#include <cmath>
#include <limits>

#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/radix.cuh"
#include "kernels/random.h"
#include "kernels/scan.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// ---- Permutations: random keys, sorted -----------------------------------------------------------------------------

// Only the lowest `bits` of a key count. Keys of whole words are signed.
__global__ void __launch_bounds__(kThreads)
    make_keys(const int64_t* random, int64_t n, int bits, bool narrow, uint64_t* keys, int64_t* positions) {
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  MT_GRID_LOOP(i, n) {
    auto key = static_cast<uint64_t>(random[i]);
    if (bits == (narrow ? 32 : 64)) key ^= uint64_t{1} << (bits - 1);
    keys[i] = key & mask;
    positions[i] = i;
  }
}

// Equal keys would leave their elements in order: the first of them shuffles them (R. Durstenfeld, CACM 1964).
__global__ void __launch_bounds__(kThreads)
    shuffle_equal(const uint64_t* keys, int64_t* positions, int64_t n, uint64_t seed, uint64_t offset) {
  MT_GRID_LOOP(i, n - 1) {
    if (keys[i] != keys[i + 1] || (i > 0 && keys[i] == keys[i - 1])) continue;
    int64_t size = 1;
    while (i + size < n && keys[i + size] == keys[i]) size++;
    philox::Generator generator(seed, i, offset);
    uint32_t words[4];
    int used = 4;
    for (int64_t k = size - 1; k > 0; k--) {
      if (used == 4) {
        DrawWords()(generator, words);
        used = 0;
      }
      const int64_t r = words[used++] % static_cast<uint32_t>(k + 1);
      const int64_t other = positions[i + r];
      positions[i + r] = positions[i + k];
      positions[i + k] = other;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    spread_indices(const int64_t* from, char* to, DType dtype, int64_t stride, int64_t n) {
  MT_GRID_LOOP(i, n) store_as<int64_t>(to + i * stride, dtype, from[i]);
}

// So many bits that all keys differ with probability 0.9.
int key_bits(double n) {
  const double threshold = std::log(0.9) * 12;
  return std::min(64, static_cast<int>(std::ceil(std::log2(n - (6 * n * n + 1) / threshold))));
}

void randperm(RandomState& state, const TensorView& result) {
  const int64_t n = result.numel;
  if (n == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  const int bits = key_bits(static_cast<double>(n));
  const bool narrow = bits <= 32;
  const Scratch memory(4 * n * 8);
  auto *keys = memory.get<uint64_t>(), *other_keys = keys + n;
  auto *positions = memory.get<int64_t>() + 2 * n, *other_positions = positions + n;

  PointwiseView random;
  random.ndim = random.num_outputs = random.num_operands = 1;
  random.numel = random.sizes[0] = n;
  random.data[0] = reinterpret_cast<char*>(other_keys);
  random.dtype[0] = random.compute = DType::I64;
  random.strides[0][0] = 8;
  const DistributionParams whole{
      .range = narrow ? (uint64_t{1} << 32) - 1 : ~uint64_t{0},
      .base = narrow ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min()};
  distribution_kernel(state, Distribution::integers_range, random, whole);
  make_keys<<<grid_for(n), kThreads, 0, stream>>>(reinterpret_cast<const int64_t*>(other_keys), n, bits, narrow, keys,
                                                  positions);
  radix::sort(keys, positions, other_keys, other_positions, n, (bits + 7) / 8);
  shuffle_equal<<<grid_for(n), kThreads, 0, stream>>>(keys, positions, n, state.seed,
                                                      advance(state, static_cast<uint64_t>(n)));
  spread_indices<<<grid_for(n), kThreads, 0, stream>>>(
      positions, result.data, result.dtype, result.strides[0] * static_cast<int64_t>(size_of(result.dtype)), n);
  cuda::check_launch("launching randperm");
}

// ---- Multinomial: a uniform number looks up the running sum of a row's weights -------------------------------------

// What is wrong with a row of weights, for the record of faults.
struct WeightFaults {
  cuda::Fault* record;
  const char* negative = "invalid multinomial distribution (encountering probability entry < 0)";
  const char* infinite = "invalid multinomial distribution (encountering probability entry = infinity or NaN)";
  const char* empty = "invalid multinomial distribution (sum of probabilities <= 0)";
};

// A block a row.
template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    normalise_rows(const T* weights, int64_t row_stride, int64_t stride, int64_t rows, int64_t categories, C* out,
                   WeightFaults faults) {
  __shared__ C shared[32];
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    C sum = C(0);
    bool good = true;
    for (int64_t c = threadIdx.x; c < categories; c += kThreads) {
      const C x = convert<C>(weights[r * row_stride + c * stride]);
      const bool negative = !(x >= C(0)), infinite = x > std::numeric_limits<C>::max();
      if (negative || infinite) cuda::report_fault(faults.record, negative ? faults.negative : faults.infinite);
      good = good && !negative && !infinite;
      sum += x;
    }
    good = __syncthreads_and(good);
    sum = block_reduce(sum, shared, C(0), Sum());
    if (good && threadIdx.x == 0 && !(sum > C(0))) cuda::report_fault(faults.record, faults.empty);
    for (int64_t c = threadIdx.x; c < categories; c += kThreads) {
      const C x = convert<C>(weights[r * row_stride + c * stride]);
      out[r * categories + c] = sum > C(0) ? x / sum : x;
    }
  }
}

constexpr int kSampleThreads = 128;
constexpr int64_t kMaxGridY = 65535;

template <class C>
__global__ void __launch_bounds__(kSampleThreads)
    draw_categories(const C* weights, const C* sums, int64_t rows, int64_t categories, int64_t samples, int64_t* out,
                    int64_t row_stride, int64_t stride, uint64_t seed, uint64_t offset) {
  const int64_t sample = blockIdx.x * int64_t{kSampleThreads} + threadIdx.x;
  philox::Generator generator(seed, blockIdx.y * (int64_t{gridDim.x} * kSampleThreads) + sample, offset);
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) {
    if (sample >= samples) continue;
    float u[4];
    DrawUniform()(generator, u);
    const C value = static_cast<C>(u[0]);
    int64_t low = 0, high = categories;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (sums[r * categories + middle] < value) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    // The sum may end below 1, and a category without weight is never drawn.
    if (low == categories) low--;
    while (low > 0 && weights[r * categories + low] == C(0)) low--;
    out[r * row_stride + sample * stride] = low;
  }
}

template <class C>
TensorView matrix(C* data, int64_t rows, int64_t columns) {
  TensorView v;
  v.data = reinterpret_cast<char*>(data);
  v.dtype = dtype_of<C>;
  v.ndim = 2;
  v.numel = rows * columns;
  v.sizes[0] = rows, v.sizes[1] = columns;
  v.strides[0] = columns, v.strides[1] = 1;
  return v;
}

void multinomial(RandomState& state, const TensorView& result, const TensorView& weights) {
  const int64_t rows = weights.sizes[0], categories = weights.sizes[1], samples = result.sizes[1];
  if (result.numel == 0 || categories == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  const dim3 grid(static_cast<unsigned>(ceil_div(samples, kSampleThreads)),
                  static_cast<unsigned>(std::min(rows, kMaxGridY)));
  const uint64_t offset = advance(state, static_cast<uint64_t>(ceil_div(rows, int64_t{grid.y})) * 4);
  if (!dispatch(weights.dtype, FloatingTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using C = compute_t<T>;
        const Scratch memory(2 * rows * categories * static_cast<int64_t>(sizeof(C)));
        C *const normalised = memory.get<C>(), *const sums = normalised + rows * categories;
        normalise_rows<T, C><<<static_cast<unsigned>(std::min(rows, kMaxGridY)), kThreads, 0, stream>>>(
            weights.ptr<T>(), weights.strides[0], weights.strides[1], rows, categories, normalised,
            WeightFaults{cuda::fault_record()});
        scan_kernel(ScanOp::sum, matrix(sums, rows, categories), matrix(normalised, rows, categories), 1);
        draw_categories<C><<<grid, kSampleThreads, 0, stream>>>(normalised, sums, rows, categories, samples,
                                                                result.ptr<int64_t>(), result.strides[0],
                                                                result.strides[1], state.seed, offset);
      }))
    missing_kernel("multinomial", name_of(weights.dtype));
  cuda::check_launch("launching multinomial");
}

MT_REGISTER_KERNEL(randperm_kernel, &randperm);
MT_REGISTER_KERNEL(multinomial_kernel, &multinomial);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
