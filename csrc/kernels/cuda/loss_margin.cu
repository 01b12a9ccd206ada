// Multi-class and multi-label margin losses on CUDA, a block a row. Sums over rows are made in double by one block, in a
// fixed order. A bad target is recorded for the next synchronisation and its row counts for nothing.
#include "kernels/cuda/launch.cuh"
#include "kernels/loss.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kRowThreads = 128;

struct Report {
  cuda::Fault* fault;
  const char* what;
};

// The factor of row r's gradient.
template <class T>
__device__ __forceinline__ T row_gradient(const MarginArgs& a, int64_t r) {
  const T* g = static_cast<const T*>(a.grad_output);
  const double elements = static_cast<double>(a.reduction == LossReduction::mean ? a.n * a.classes : a.classes);
  return static_cast<T>(g[a.reduction == LossReduction::none ? r : 0] / elements);
}

// The target of row r, or -1 after reporting one out of range.
__device__ __forceinline__ int64_t target_of(const MarginArgs& a, int64_t r, Report report) {
  const int64_t t = static_cast<const int64_t*>(a.target)[r];
  if (t >= 0 && t < a.classes) return t;
  if (threadIdx.x == 0) cuda::report_fault(report.fault, report.what, t, a.classes);
  return -1;
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    multi_rows(const __grid_constant__ MarginArgs a, double* losses, Report report) {
  __shared__ double shared[32];
  const T* weight = static_cast<const T*>(a.weight);
  const T margin = static_cast<T>(a.margin);
  for (int64_t r = blockIdx.x; r < a.n; r += gridDim.x) {
    const T* x = static_cast<const T*>(a.input) + r * a.classes;
    const int64_t t = target_of(a, r, report);
    double sum = 0;
    if (t >= 0)
      for (int64_t i = threadIdx.x; i < a.classes; i += kRowThreads) {
        const T z = margin - x[t] + x[i];
        if (i != t && z > 0) sum += a.p == 1 ? z : z * z;
      }
    sum = block_reduce(sum, shared, 0.0, Sum());
    if (threadIdx.x == 0)
      losses[r] = t < 0 ? 0 : sum * (weight ? weight[t] : T(1)) / static_cast<double>(a.classes);
  }
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    multi_gradient(const __grid_constant__ MarginArgs a, Report report) {
  __shared__ T shared[32];
  const T* weight = static_cast<const T*>(a.weight);
  const T margin = static_cast<T>(a.margin);
  for (int64_t r = blockIdx.x; r < a.n; r += gridDim.x) {
    const T* x = static_cast<const T*>(a.input) + r * a.classes;
    T* dx = static_cast<T*>(a.grad_input) + r * a.classes;
    const int64_t t = target_of(a, r, report);
    const T g = t < 0 ? T(0) : row_gradient<T>(a, r) * (weight ? weight[t] : T(1));
    T of_target = 0;
    for (int64_t i = threadIdx.x; i < a.classes; i += kRowThreads) {
      const T z = t < 0 ? T(0) : margin - x[t] + x[i];
      const T d = i != t && z > 0 ? (a.p == 1 ? g : 2 * g * z) : T(0);
      of_target -= d;
      if (i != t) dx[i] = d;
    }
    of_target = block_reduce(of_target, shared, T(0), Sum());
    if (threadIdx.x == 0 && t >= 0) dx[t] = of_target;
  }
}

// The number of targets of a row, the same for all threads of the block; 0 after reporting one out of range.
__device__ __forceinline__ int64_t count_targets(const MarginArgs& a, const int64_t* target, int64_t* shared,
                                                 Report report) {
  int64_t first_end = a.classes;
  for (int64_t i = threadIdx.x; i < a.classes; i += kRowThreads) {
    const int64_t t = target[i];
    if (t == -1) {
      first_end = min(first_end, i);
    } else if (t < 0 || t >= a.classes) {
      cuda::report_fault(report.fault, report.what, t, a.classes);
      first_end = -1;
      break;
    }
  }
  first_end = block_reduce(first_end, shared, a.classes, [](int64_t x, int64_t y) { return x < y ? x : y; });
  return first_end < 0 ? 0 : first_end;
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    multilabel_rows(const __grid_constant__ MarginArgs a, double* losses, Report report) {
  __shared__ double shared[32];
  __shared__ int64_t counts[32];
  for (int64_t r = blockIdx.x; r < a.n; r += gridDim.x) {
    const auto* target = static_cast<const int64_t*>(a.target) + r * a.classes;
    const T* x = static_cast<const T*>(a.input) + r * a.classes;
    T* is_target = static_cast<T*>(a.is_target) + r * a.classes;
    const int64_t count = count_targets(a, target, counts, report);
    for (int64_t i = threadIdx.x; i < a.classes; i += kRowThreads) is_target[i] = T(0);
    __syncthreads();
    for (int64_t k = threadIdx.x; k < count; k += kRowThreads) is_target[target[k]] = T(1);
    __syncthreads();
    double sum = 0;
    for (int64_t k = 0; k < count; k++) {
      const T of_target = x[target[k]];
      for (int64_t i = threadIdx.x; i < a.classes; i += kRowThreads) {
        const T z = 1 - of_target + x[i];
        if (is_target[i] == T(0) && z > 0) sum += z;
      }
    }
    sum = block_reduce(sum, shared, 0.0, Sum());
    if (threadIdx.x == 0) losses[r] = sum / static_cast<double>(a.classes);
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    multilabel_gradient(const __grid_constant__ MarginArgs a, Report report) {
  __shared__ T shared[32];
  __shared__ int64_t counts[32];
  for (int64_t r = blockIdx.x; r < a.n; r += gridDim.x) {
    const auto* target = static_cast<const int64_t*>(a.target) + r * a.classes;
    const T* x = static_cast<const T*>(a.input) + r * a.classes;
    const T* is_target = static_cast<const T*>(a.is_target) + r * a.classes;
    T* dx = static_cast<T*>(a.grad_input) + r * a.classes;
    const T g = row_gradient<T>(a, r);
    const int64_t count = count_targets(a, target, counts, report);
    for (int64_t i = threadIdx.x; i < a.classes; i += kRowThreads) dx[i] = T(0);
    for (int64_t k = 0; k < count; k++) {
      const T of_target = x[target[k]];
      T sum = 0;
      __syncthreads();
      for (int64_t i = threadIdx.x; i < a.classes; i += kRowThreads) {
        if (is_target[i] != T(0) || !(1 - of_target + x[i] > 0)) continue;
        sum -= g;
        dx[i] += g;
      }
      sum = block_reduce(sum, shared, T(0), Sum());
      if (threadIdx.x == 0) dx[target[k]] += sum;
    }
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(1024) reduce_rows(const __grid_constant__ MarginArgs a, const double* losses) {
  T* output = static_cast<T*>(a.output);
  if (a.reduction == LossReduction::none) {
    for (int64_t r = threadIdx.x; r < a.n; r += blockDim.x) output[r] = static_cast<T>(losses[r]);
    return;
  }
  __shared__ double shared[32];
  double sum = 0;
  for (int64_t r = threadIdx.x; r < a.n; r += blockDim.x) sum += losses[r];
  sum = block_reduce(sum, shared, 0.0, Sum());
  if (threadIdx.x == 0) *output = static_cast<T>(a.reduction == LossReduction::mean ? sum / static_cast<double>(a.n) : sum);
}

unsigned blocks(const MarginArgs& a) { return static_cast<unsigned>(std::clamp<int64_t>(a.n, 1, int64_t{1} << 20)); }

template <class F>
void by_float(const char* name, DType dtype, const F& f) {
  if (!dispatch(dtype, FloatTypes{}, f)) missing_kernel(name, name_of(dtype));
  cuda::check_launch("launching a margin loss");
}

void multi_margin(const MarginArgs& a) {
  by_float("multi_margin", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Scratch losses(a.n * 8);
    const cudaStream_t stream = cuda::current_stream();
    const Report report{cuda::fault_record(), "multi_margin_loss target"};
    multi_rows<T><<<blocks(a), kRowThreads, 0, stream>>>(a, losses.get<double>(), report);
    reduce_rows<T><<<1, 1024, 0, stream>>>(a, losses.get<double>());
  });
}

void multi_margin_backward(const MarginArgs& a) {
  by_float("multi_margin_backward", a.dtype, [&](auto tag) {
    const Report report{cuda::fault_record(), "multi_margin_loss target"};
    multi_gradient<typename decltype(tag)::type><<<blocks(a), kRowThreads, 0, cuda::current_stream()>>>(a, report);
  });
}

void multilabel_margin(const MarginArgs& a) {
  by_float("multilabel_margin", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Scratch losses(a.n * 8);
    const cudaStream_t stream = cuda::current_stream();
    const Report report{cuda::fault_record(), "multilabel_margin_loss target"};
    multilabel_rows<T><<<blocks(a), kRowThreads, 0, stream>>>(a, losses.get<double>(), report);
    reduce_rows<T><<<1, 1024, 0, stream>>>(a, losses.get<double>());
  });
}

void multilabel_margin_backward(const MarginArgs& a) {
  by_float("multilabel_margin_backward", a.dtype, [&](auto tag) {
    const Report report{cuda::fault_record(), "multilabel_margin_loss target"};
    multilabel_gradient<typename decltype(tag)::type>
        <<<blocks(a), kRowThreads, 0, cuda::current_stream()>>>(a, report);
  });
}

MT_REGISTER_KERNEL(multi_margin_kernel, &multi_margin);
MT_REGISTER_KERNEL(multi_margin_backward_kernel, &multi_margin_backward);
MT_REGISTER_KERNEL(multilabel_margin_kernel, &multilabel_margin);
MT_REGISTER_KERNEL(multilabel_margin_backward_kernel, &multilabel_margin_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
