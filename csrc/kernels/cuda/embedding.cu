// The gradient of an embedding table on CUDA: rows add into float sums, which become the table's dtype at the end.
#include "kernels/embedding.h"

#include "kernels/cuda/atomic.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

__device__ __forceinline__ bool counts(const EmbeddingBackwardArgs& a, int64_t row) {
  return row >= 0 && row < a.rows && row != a.padding_idx;
}

__global__ void __launch_bounds__(kThreads)
    count_rows(const __grid_constant__ EmbeddingBackwardArgs a, unsigned* occurrences) {
  MT_GRID_LOOP(i, a.count) {
    const int64_t row = a.indices[i];
    if (counts(a, row)) atomicAdd(occurrences + row, 1u);
  }
}

template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    add_rows(const __grid_constant__ EmbeddingBackwardArgs a, const unsigned* occurrences, C* sums) {
  const T* grad = reinterpret_cast<const T*>(a.grad);
  MT_GRID_LOOP(at, a.count * a.dim) {
    const int64_t i = at / a.dim, d = at - i * a.dim, row = a.indices[i];
    if (!counts(a, row)) continue;
    const int64_t source = a.source == nullptr ? i : a.source[i];
    C factor = a.sample_weights == nullptr ? C(1) : convert<C>(reinterpret_cast<const T*>(a.sample_weights)[i]);
    if (a.bag_sizes != nullptr) factor /= static_cast<C>(a.bag_sizes[source]);
    if (occurrences != nullptr) factor /= static_cast<C>(occurrences[row]);
    atomicAdd(sums + row * a.dim + d, factor * convert<C>(grad[source * a.grad_stride + d]));
  }
}

template <class T, class C>
__global__ void __launch_bounds__(kThreads) convert_sums(const C* sums, T* out, int64_t numel) {
  MT_GRID_LOOP(i, numel) out[i] = convert<T>(sums[i]);
}

void backward(const EmbeddingBackwardArgs& a) {
  const int64_t numel = a.rows * a.dim;
  if (numel == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using C = compute_t<T>;
        constexpr bool direct = std::is_same_v<T, C>;
        const Scratch memory(direct ? 0 : numel * static_cast<int64_t>(sizeof(C)));
        const Scratch occurrences(a.scale_by_frequency ? a.rows * 4 : 0);
        C* const sums = direct ? reinterpret_cast<C*>(a.out) : memory.get<C>();
        cuda::check(cudaMemsetAsync(sums, 0, numel * sizeof(C), stream), "clearing an embedding's gradient");
        if (a.scale_by_frequency) {
          cuda::check(cudaMemsetAsync(occurrences.get(), 0, a.rows * 4, stream), "clearing counts");
          if (a.count > 0) count_rows<<<grid_for(a.count), kThreads, 0, stream>>>(a, occurrences.get<unsigned>());
        }
        if (a.count > 0)
          add_rows<T, C><<<grid_for(a.count * a.dim), kThreads, 0, stream>>>(
              a, a.scale_by_frequency ? occurrences.get<unsigned>() : nullptr, sums);
        if (!direct) convert_sums<<<grid_for(numel), kThreads, 0, stream>>>(sums, reinterpret_cast<T*>(a.out), numel);
      }))
    missing_kernel("embedding_backward", name_of(a.dtype));
  cuda::check_launch("launching an embedding's gradient");
}

MT_REGISTER_KERNEL(embedding_backward_kernel, &backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
