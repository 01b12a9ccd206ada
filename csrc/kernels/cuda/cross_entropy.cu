// Cross-entropy on CUDA, a block a row. Sums over rows are made in double by one block, in a fixed order. A bad target
// is recorded for the next synchronisation and its row counts for nothing.
#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct Pair {
  double a, b;
};
struct AddPairs {
  __device__ __forceinline__ Pair operator()(Pair x, Pair y) const { return {x.a + y.a, x.b + y.b}; }
};

template <class T>
struct Exponentials {  // sum of exp(x - high), and what smoothing needs: sum of w x
  T high, sum;
  double spread;
};

template <class T>
struct CrossEntropy {
  CrossEntropyArgs a;
  LossReduction reduction;
  cuda::Fault* fault;
  const char* what;
  int64_t size;

  __device__ T logit(int64_t row, int64_t c) const {
    return load_as<T>(a.logits + (row * a.logits_stride + c) * size, a.dtype);
  }
  __device__ T weight(int64_t c) const { return a.weight == nullptr ? T(1) : load_as<T>(a.weight + c * size, a.dtype); }
  __device__ int64_t target(int64_t row) const {
    const int64_t t = a.target[row * a.target_stride];
    if (t == a.ignore_index) return -1;
    if (t >= 0 && t < a.classes) return t;
    cuda::report_fault(fault, what, t, a.classes);
    return -1;
  }
};

// A block a row: its log-sum-exp, loss and weight.
template <class T>
__global__ void __launch_bounds__(1024)
    cross_entropy_rows(const __grid_constant__ CrossEntropy<T> p, T* losses, T* counted) {
  __shared__ Exponentials<T> shared[32];
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  const CrossEntropyArgs& a = p.a;
  const auto merge = [](const Exponentials<T>& x, const Exponentials<T>& y) -> Exponentials<T> {
    const T high = x.high != x.high || x.high > y.high ? x.high : y.high;
    if (high == lowest) return {high, x.sum + y.sum, 0};
    return {high, x.sum * ::exp(x.high - high) + y.sum * ::exp(y.high - high), 0};
  };
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    Exponentials<T> mine{lowest, T(0), 0};
    for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x) {
      const T x = p.logit(row, c);
      if (x > mine.high) {
        mine.sum = mine.sum * ::exp(mine.high - x) + T(1);
        mine.high = x;
      } else if (x > lowest || x != x) {
        mine.sum += ::exp(x - mine.high);
      }
    }
    const Exponentials<T> all = block_reduce(mine, shared, Exponentials<T>{lowest, T(0), 0}, merge);
    // NaN and a row of infinities come out as NaN, as the definition has it.
    const T lse = all.high == lowest ? std::numeric_limits<T>::quiet_NaN() : all.high + ::log(all.sum);
    const int64_t t = p.target(row);
    double spread = 0;
    if (a.smoothing != 0) {
      __shared__ double sums[32];
      for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x)
        spread += static_cast<double>(p.weight(c) * (lse - p.logit(row, c)));
      spread = block_reduce(spread, sums, 0.0, Sum());
    }
    if (threadIdx.x != 0) continue;
    reinterpret_cast<T*>(a.lse)[row] = lse;
    const T w = t < 0 ? T(0) : p.weight(t);
    T loss = 0;
    if (t >= 0) {
      loss = w * (lse - p.logit(row, t));
      if (a.smoothing != 0)
        loss = static_cast<T>(1 - a.smoothing) * loss +
               static_cast<T>(a.smoothing / static_cast<double>(a.classes)) * static_cast<T>(spread);
    }
    losses[row] = loss;
    counted[row] = w;
  }
}

template <class T>
__global__ void __launch_bounds__(1024)
    cross_entropy_total(const __grid_constant__ CrossEntropy<T> p, const T* losses, const T* counted, char* loss) {
  __shared__ Pair shared[32];
  Pair sums{0, 0};
  for (int64_t i = threadIdx.x; i < p.a.rows; i += blockDim.x) {
    sums.a += static_cast<double>(losses[i]);
    sums.b += static_cast<double>(counted[i]);
    if (p.reduction == LossReduction::none) store_as<T>(loss + i * p.size, p.a.dtype, losses[i]);
  }
  sums = block_reduce(sums, shared, Pair{0, 0}, AddPairs());
  if (threadIdx.x != 0) return;
  *reinterpret_cast<T*>(p.a.total_weight) = static_cast<T>(sums.b);
  if (p.reduction != LossReduction::none)
    store_as<T>(loss, p.a.dtype, static_cast<T>(p.reduction == LossReduction::mean ? sums.a / sums.b : sums.a));
}

template <class T>
__global__ void __launch_bounds__(1024)
    cross_entropy_gradient(const __grid_constant__ CrossEntropy<T> p, const char* grad_loss, int64_t grad_stride,
                           char* grad_logits) {
  __shared__ double shared[32];
  const CrossEntropyArgs& a = p.a;
  double all_weights = static_cast<double>(a.classes);
  if (a.weight != nullptr && a.smoothing != 0) {
    all_weights = 0;
    for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x) all_weights += static_cast<double>(p.weight(c));
    all_weights = block_reduce(all_weights, shared, 0.0, Sum());
  }
  const T normaliser = p.reduction == LossReduction::mean ? *reinterpret_cast<const T*>(a.total_weight) : T(1);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const int64_t t = p.target(row);
    const int64_t at = p.reduction == LossReduction::none ? row * grad_stride : 0;
    const T g = t < 0 ? T(0) : load_as<T>(grad_loss + at * p.size, a.dtype) / normaliser;
    const T lse = reinterpret_cast<const T*>(a.lse)[row];
    const T hard = t < 0 ? T(0) : g * static_cast<T>(1 - a.smoothing) * p.weight(t);
    const T soft = g * static_cast<T>(a.smoothing / static_cast<double>(a.classes));
    const T scale = hard + soft * static_cast<T>(all_weights);
    for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x) {
      T y = 0;
      if (t >= 0) {
        y = scale * ::exp(p.logit(row, c) - lse);
        if (a.smoothing != 0) y -= soft * p.weight(c);
        if (c == t) y -= hard;
      }
      store_as<T>(grad_logits + (row * a.classes + c) * p.size, a.dtype, y);
    }
  }
}

template <class F>
void with_type(DType dtype, const F& f) {
  if (!is_floating(dtype)) missing_kernel("cross_entropy", name_of(dtype));
  return dtype == DType::F64 ? f(Tag<double>{}) : f(Tag<float>{});
}

template <class T>
CrossEntropy<T> problem(const CrossEntropyArgs& a, LossReduction reduction) {
  return {a, reduction, cuda::fault_record(), "cross_entropy target", static_cast<int64_t>(size_of(a.dtype))};
}

unsigned row_threads(int64_t classes) {
  return static_cast<unsigned>(std::clamp<int64_t>(ceil_div(classes, 4 * 32) * 32, 32, 1024));
}
unsigned row_blocks(int64_t rows) { return static_cast<unsigned>(std::clamp<int64_t>(rows, 1, int64_t{1} << 20)); }

void cross_entropy(const CrossEntropyArgs& a, LossReduction reduction, char* loss) {
  with_type(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const cudaStream_t stream = cuda::current_stream();
    const Scratch memory(2 * a.rows * static_cast<int64_t>(sizeof(T)));
    T *losses = memory.get<T>(), *counted = losses + a.rows;
    const auto p = problem<T>(a, reduction);
    cross_entropy_rows<T><<<row_blocks(a.rows), row_threads(a.classes), 0, stream>>>(p, losses, counted);
    cross_entropy_total<T><<<1, 1024, 0, stream>>>(p, losses, counted, loss);
  });
  cuda::check_launch("launching a cross-entropy");
}

void cross_entropy_backward(const CrossEntropyArgs& a, LossReduction reduction, const char* grad_loss,
                            int64_t grad_stride, char* grad_logits) {
  if (a.rows * a.classes == 0) return;
  with_type(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    cross_entropy_gradient<T><<<row_blocks(a.rows), row_threads(a.classes), 0, cuda::current_stream()>>>(
        problem<T>(a, reduction), grad_loss, grad_stride, grad_logits);
  });
  cuda::check_launch("launching the gradient of a cross-entropy");
}

MT_REGISTER_KERNEL(cross_entropy_kernel, &cross_entropy);
MT_REGISTER_KERNEL(cross_entropy_backward_kernel, &cross_entropy_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
