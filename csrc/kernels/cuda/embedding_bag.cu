// Bags of embedding rows on CUDA: forward, the backward of maxima and of per-sample weights, and renormalisation. A
// thread makes one column of one bag, so sums are in the order of positions. A bad index is recorded for the next
// synchronisation and its row counts for nothing.
#include <cmath>

#include "kernels/cuda/atomic.cuh"
#include "kernels/embedding.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct Report {
  cuda::Fault* fault;
  const char* what;
  __device__ __forceinline__ bool good(int64_t index, int64_t rows) const {
    if (index >= 0 && index < rows) return true;
    cuda::report_fault(fault, what, index, rows);
    return false;
  }
};

__device__ __forceinline__ void bag_limits(const EmbeddingBagArgs& a, int64_t b, int64_t& begin, int64_t& end) {
  begin = min(max(a.offsets[b], int64_t{0}), a.count);
  end = min(max(b + 1 < a.bags || a.end == kNextOffset ? a.offsets[b + 1] : a.end, begin), a.count);
}

template <class T>
__global__ void __launch_bounds__(kThreads) bag_columns(const __grid_constant__ EmbeddingBagArgs a, Report report) {
  using C = compute_t<T>;
  const T* const weight = reinterpret_cast<const T*>(a.weight);
  T* const out = reinterpret_cast<T*>(a.out);
  MT_GRID_LOOP(at, a.bags * a.dim) {
    const int64_t b = at / a.dim, d = at - b * a.dim;
    int64_t begin, end;
    bag_limits(a, b, begin, end);
    int64_t size = 0, winner = 0;
    C value = C(0);
    for (int64_t i = begin; i < end; i++) {
      const int64_t row = a.indices[i];
      if (!report.good(row, a.rows) || row == a.padding_idx) continue;
      const C x = convert<C>(weight[row * a.weight_strides[0] + d * a.weight_strides[1]]);
      if (a.mode == BagMode::max) {
        if (size == 0 || x > value) {
          value = x;
          winner = row;
        }
      } else {
        value += a.sample_weights != nullptr ? convert<C>(reinterpret_cast<const T*>(a.sample_weights)[i]) * x : x;
      }
      size++;
    }
    if (a.mode == BagMode::mean && size > 1) value /= static_cast<C>(size);
    out[at] = convert<T>(value);
    if (a.max_indices != nullptr) a.max_indices[at] = winner;
  }
}

struct OffsetFaults {  // texts that the host reads: they cannot be literals of the kernel
  cuda::Fault* record = cuda::fault_record();
  const char* first =
      "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got ";
  const char* order = "embedding_bag: offsets must not decrease or pass input's length, but one is ";
};

// What does not depend on the column: a warp a bag.
__global__ void __launch_bounds__(kThreads)
    describe_bags(const __grid_constant__ EmbeddingBagArgs a, OffsetFaults faults) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warps = int64_t{gridDim.x} * (kThreads / 32);
  for (int64_t b = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / 32; b < a.bags; b += warps) {
    int64_t begin, end, size = 0;
    bag_limits(a, b, begin, end);
    const int64_t offset = a.offsets[b], least = b > 0 ? a.offsets[b - 1] : 0;
    if (lane == 0) {
      const int64_t next = b + 1 == a.bags && a.end == kNextOffset ? a.offsets[b + 1] : offset;
      if (b == 0 && offset != 0) {
        cuda::report_fault(faults.record, faults.first, offset);
      } else if (offset < least || offset > a.count) {
        cuda::report_fault(faults.record, faults.order, offset);
      } else if (next < offset || next > a.count) {
        cuda::report_fault(faults.record, faults.order, next);
      }
    }
    for (int64_t i = begin + lane; i < end; i += 32) {
      size += a.indices[i] != a.padding_idx;
      if (a.position_bag != nullptr) a.position_bag[i] = b;
    }
    size = warp_reduce(size, Sum());
    if (lane == 0 && a.bag_sizes != nullptr) a.bag_sizes[b] = size;
  }
}

void bag(const EmbeddingBagArgs& a) {
  if (a.bags == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  describe_bags<<<grid_for(a.bags * 32), kThreads, 0, stream>>>(a, OffsetFaults());
  if (a.dim > 0 && !dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
        bag_columns<typename decltype(tag)::type>
            <<<grid_for(a.bags * a.dim), kThreads, 0, stream>>>(a, {cuda::fault_record(), "embedding_bag"});
      }))
    missing_kernel("embedding_bag", name_of(a.dtype));
  cuda::check_launch("launching an embedding_bag");
}

// The element of the table that gave each maximum, -1 for none.
__global__ void __launch_bounds__(kThreads)
    name_elements(const __grid_constant__ EmbeddingBagMaxBackwardArgs a, int64_t* elements) {
  MT_GRID_LOOP(at, a.bags * a.dim) {
    const int64_t b = at / a.dim, row = a.max_indices[at];
    elements[at] = a.bag_sizes[b] != 0 && row >= 0 && row < a.rows ? row * a.dim + (at - b * a.dim) : -1;
  }
}

// Two bags may name the same element: it is the gradient of a table whose rows are the elements.
void max_backward(const EmbeddingBagMaxBackwardArgs& a) {
  const int64_t count = a.bags * a.dim;
  if (count == 0) return;
  const Scratch elements(count * 8);
  name_elements<<<grid_for(count), kThreads, 0, cuda::current_stream()>>>(a, elements.get<int64_t>());
  cuda::check_launch("launching the gradient of an embedding_bag");
  EmbeddingBackwardArgs sum{};
  sum.dtype = a.dtype;
  sum.grad = a.grad;
  sum.grad_stride = 1;
  sum.grad_rows = sum.count = count;
  sum.indices = elements.get<int64_t>();
  sum.padding_idx = -1;
  sum.out = a.out;
  sum.rows = a.rows * a.dim;
  sum.dim = 1;
  embedding_backward_kernel(sum);
}

// A warp a position.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dot_products(const __grid_constant__ SampleWeightsBackwardArgs a, Report report) {
  using C = compute_t<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warps = int64_t{gridDim.x} * (kThreads / 32);
  for (int64_t i = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / 32; i < a.count; i += warps) {
    const int64_t row = a.indices[i];
    C sum = C(0);
    const bool inside = row >= 0 && row < a.rows;
    if (row != a.padding_idx && inside) {
      const T* g = reinterpret_cast<const T*>(a.grad) + a.bags[i] * a.grad_strides[0];
      const T* w = reinterpret_cast<const T*>(a.weight) + row * a.weight_strides[0];
      for (int64_t d = lane; d < a.dim; d += 32)
        sum += convert<C>(g[d * a.grad_strides[1]]) * convert<C>(w[d * a.weight_strides[1]]);
    } else if (!inside && lane == 0) {
      report.good(row, a.rows);
    }
    sum = warp_reduce(sum, Sum());
    if (lane == 0) reinterpret_cast<T*>(a.out)[i] = convert<T>(sum);
  }
}

void sample_weights_backward(const SampleWeightsBackwardArgs& a) {
  if (a.count == 0) return;
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
        dot_products<typename decltype(tag)::type><<<grid_for(a.count * 32), kThreads, 0, cuda::current_stream()>>>(
            a, {cuda::fault_record(), "embedding_bag"});
      }))
    missing_kernel("sample_weights_backward", name_of(a.dtype));
  cuda::check_launch("launching the gradient of per_sample_weights");
}

struct RenormArgs {
  char* weight;
  int64_t rows, dim, strides[2];
  const int64_t* indices;
  int64_t count;
  double max_norm, p;
};

__global__ void __launch_bounds__(kThreads)
    mark_rows(const __grid_constant__ RenormArgs a, bool* named, Report report) {
  MT_GRID_LOOP(i, a.count) {
    if (report.good(a.indices[i], a.rows)) named[a.indices[i]] = true;
  }
}

// A block a row.
template <class T>
__global__ void __launch_bounds__(kThreads) renorm_rows(const __grid_constant__ RenormArgs a, const bool* named) {
  using C = compute_t<T>;
  __shared__ double shared[32];
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    if (!named[r]) continue;
    T* const row = reinterpret_cast<T*>(a.weight) + r * a.strides[0];
    const bool infinite = isinf(a.p), maximum = infinite && a.p > 0;
    const double identity = infinite && !maximum ? INFINITY : 0;
    const auto combine = [=](double x, double y) {
      if (!infinite) return x + y;
      if (x != x || y != y) return x != x ? x : y;
      return maximum ? (x > y ? x : y) : (x < y ? x : y);
    };
    double sum = identity;
    for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) {
      const double x = ::fabs(static_cast<double>(convert<C>(row[d * a.strides[1]])));
      sum = combine(sum, infinite || a.p == 1 ? x : a.p == 2 ? x * x : a.p == 0 ? (x != 0 ? 1.0 : 0.0) : ::pow(x, a.p));
    }
    sum = block_reduce(sum, shared, identity, combine);
    if (a.p == 2) {
      sum = ::sqrt(sum);
    } else if (!infinite && a.p != 1 && a.p != 0) {
      sum = ::pow(sum, 1 / a.p);
    }
    const C norm = static_cast<C>(sum);
    if (static_cast<double>(norm) > a.max_norm) {
      const C scale = static_cast<C>(a.max_norm / (static_cast<double>(norm) + 1e-7));
      for (int64_t d = threadIdx.x; d < a.dim; d += kThreads) {
        T& x = row[d * a.strides[1]];
        x = convert<T>(static_cast<C>(convert<C>(x) * scale));
      }
    }
    __syncthreads();
  }
}

void renorm(const EmbeddingRenormArgs& e) {
  const TensorView& w = e.weight;
  const RenormArgs a{w.data, w.sizes[0], w.sizes[1], {w.strides[0], w.strides[1]}, e.indices, e.count, e.max_norm, e.p};
  if (a.count == 0 || a.rows * a.dim == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  const Scratch named(a.rows);
  cuda::check(cudaMemsetAsync(named.get(), 0, a.rows, stream), "clearing flags");
  mark_rows<<<grid_for(a.count), kThreads, 0, stream>>>(a, named.get<bool>(),
                                                        {cuda::fault_record(), "embedding_renorm_"});
  if (!dispatch(w.dtype, FloatingTypes{}, [&](auto tag) {
        const auto blocks = static_cast<unsigned>(std::min<int64_t>(a.rows, int64_t{1} << 20));
        renorm_rows<typename decltype(tag)::type><<<blocks, kThreads, 0, stream>>>(a, named.get<bool>());
      }))
    missing_kernel("embedding_renorm", name_of(w.dtype));
  cuda::check_launch("launching embedding_renorm_");
}

MT_REGISTER_KERNEL(embedding_bag_kernel, &bag);
MT_REGISTER_KERNEL(embedding_bag_max_backward_kernel, &max_backward);
MT_REGISTER_KERNEL(sample_weights_backward_kernel, &sample_weights_backward);
MT_REGISTER_KERNEL(embedding_renorm_kernel, &renorm);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
