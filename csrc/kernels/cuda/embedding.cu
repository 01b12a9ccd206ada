// The gradient of an embedding table on CUDA. Positions are sorted by the row that they name; neighbours that name one
// row are a run, and a run is summed in order, so the result does not depend on timing. Runs that reach over blocks of
// positions are summed block by block and put together by a second launch.
#include "kernels/embedding.h"

#include "kernels/cuda/radix.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kBlock = 64;  // positions

struct Sorted {
  const uint64_t* rows;  // a.rows where a position does not count
  const int64_t* positions;
};

__global__ void __launch_bounds__(kThreads)
    name_rows(const __grid_constant__ EmbeddingBackwardArgs a, uint64_t* rows, int64_t* positions) {
  MT_GRID_LOOP(i, a.count) {
    const int64_t row = a.indices[i], source = a.source == nullptr ? i : a.source[i];
    const bool counts = row >= 0 && row < a.rows && row != a.padding_idx && source >= 0 && source < a.grad_rows;
    rows[i] = static_cast<uint64_t>(counts ? row : a.rows);
    positions[i] = i;
  }
}

__device__ __forceinline__ bool begins_run(const Sorted& s, int64_t i) { return i == 0 || s.rows[i - 1] != s.rows[i]; }

// The number of positions that name `row`, the first of which is `begin`.
__device__ int64_t occurrences(const Sorted& s, int64_t begin, int64_t count) {
  int64_t low = begin, high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (s.rows[middle] == s.rows[begin]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - begin;
}

template <class T, class C>
__device__ __forceinline__ void finish(const EmbeddingBackwardArgs& a, const Sorted& s, int64_t begin, int64_t d,
                                       C sum) {
  if (a.scale_by_frequency) sum = sum * (C(1) / static_cast<C>(occurrences(s, begin, a.count)));
  reinterpret_cast<T*>(a.out)[static_cast<int64_t>(s.rows[begin]) * a.dim + d] = convert<T>(sum);
}

// Of a block's sums at most two belong to runs that go on elsewhere: that of its first and that of its last position.
__device__ __forceinline__ int64_t partial_slot(int64_t i) { return i / kBlock * 2 + (i % kBlock != 0); }

template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    sum_blocks(const __grid_constant__ EmbeddingBackwardArgs a, Sorted s, C* partial) {
  const T* grad = reinterpret_cast<const T*>(a.grad);
  MT_GRID_LOOP(at, a.count * a.dim) {
    const int64_t begin = at / a.dim, d = at - begin * a.dim;
    const uint64_t row = s.rows[begin];
    const bool first = begins_run(s, begin);
    if (row == static_cast<uint64_t>(a.rows) || (!first && begin % kBlock != 0)) continue;
    const int64_t block_end = min((begin / kBlock + 1) * kBlock, a.count);
    C sum = C(0);
    int64_t k = begin;
    for (; k < block_end && s.rows[k] == row; k++) {
      const int64_t i = s.positions[k], source = a.source == nullptr ? i : a.source[i];
      C factor = a.sample_weights == nullptr ? C(1) : convert<C>(reinterpret_cast<const T*>(a.sample_weights)[i]);
      if (a.bag_sizes != nullptr) factor /= static_cast<C>(a.bag_sizes[source]);
      sum += factor * convert<C>(grad[source * a.grad_stride + d]);
    }
    if (first && (k == a.count || s.rows[k] != row)) {
      finish<T>(a, s, begin, d, sum);
    } else {
      partial[partial_slot(begin) * a.dim + d] = sum;
    }
  }
}

// A thread for each block and column: the run that begins in the block and reaches over its end.
template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    join_blocks(const __grid_constant__ EmbeddingBackwardArgs a, Sorted s, const C* partial, int64_t blocks) {
  MT_GRID_LOOP(at, blocks * a.dim) {
    const int64_t block = at / a.dim, d = at - block * a.dim;
    int64_t next = (block + 1) * kBlock, begin = next - 1;
    if (next >= a.count || s.rows[next] != s.rows[begin] || s.rows[begin] == static_cast<uint64_t>(a.rows)) continue;
    const uint64_t row = s.rows[begin];
    while (begin > block * kBlock && s.rows[begin - 1] == row) begin--;
    if (!begins_run(s, begin)) continue;
    C sum = partial[partial_slot(begin) * a.dim + d];
    for (; next < a.count && s.rows[next] == row; next += kBlock) sum += partial[partial_slot(next) * a.dim + d];
    finish<T>(a, s, begin, d, sum);
  }
}

void backward(const EmbeddingBackwardArgs& a) {
  if (a.rows * a.dim == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  cuda::check(cudaMemsetAsync(a.out, 0, static_cast<size_t>(a.rows * a.dim) * size_of(a.dtype), stream),
              "clearing an embedding's gradient");
  if (a.count == 0) return cuda::check_launch("clearing an embedding's gradient");
  const Scratch memory(4 * a.count * 8);
  auto *rows = memory.get<uint64_t>(), *other_rows = rows + a.count;
  auto *positions = memory.get<int64_t>() + 2 * a.count, *other_positions = positions + a.count;
  name_rows<<<grid_for(a.count), kThreads, 0, stream>>>(a, rows, positions);
  int bytes = 1;
  while (bytes < 8 && a.rows >> (bytes * 8) != 0) bytes++;
  radix::sort(rows, positions, other_rows, other_positions, a.count, bytes);
  const Sorted sorted{rows, positions};
  const int64_t blocks = ceil_div(a.count, kBlock);
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using C = compute_t<T>;
        const Scratch partial(2 * blocks * a.dim * static_cast<int64_t>(sizeof(C)));
        sum_blocks<T><<<grid_for(a.count * a.dim), kThreads, 0, stream>>>(a, sorted, partial.get<C>());
        if (blocks > 1)
          join_blocks<T><<<grid_for(blocks * a.dim), kThreads, 0, stream>>>(a, sorted, partial.get<C>(), blocks);
      }))
    missing_kernel("embedding_backward", name_of(a.dtype));
  cuda::check_launch("launching an embedding's gradient");
}

MT_REGISTER_KERNEL(embedding_backward_kernel, &backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
