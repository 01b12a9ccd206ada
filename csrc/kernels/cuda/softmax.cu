// softmax and log_softmax on CUDA. A block holds a slice: one pass for its maximum and sum of exponentials together
// (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018), one to write. Short slices, and those
// with a stride, are given to a warp and to a thread.
#include "kernels/softmax.h"

#include <limits>

#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct Args {
  SoftmaxShape shape;
  SoftmaxOperand to, from, third;  // forward: output, input; backward: grad_input, grad, output
  SoftmaxMask mask;
  int64_t sizes[3];  // bytes of an element of to, from, third
  bool log;
};

template <class T>
struct Exponentials {  // sum of exp(x - high)
  T high, sum;
};
template <class T>
struct MergeExponentials {
  __device__ __forceinline__ Exponentials<T> operator()(Exponentials<T> a, Exponentials<T> b) const {
    const T high = a.high != a.high || a.high > b.high ? a.high : b.high;
    if (high == -std::numeric_limits<T>::infinity()) return {high, T(0)};
    return {high, a.sum * ::exp(a.high - high) + b.sum * ::exp(b.high - high)};
  }
};

// Lanes that share a slice: threads of a block, of a warp, or one.
enum class Group { block, warp, thread };

template <Group G, class T, class F>
__device__ __forceinline__ T group_reduce(T value, T* shared, const T& identity, const F& combine) {
  if constexpr (G == Group::block) {
    return block_reduce(value, shared, identity, combine);
  } else if constexpr (G == Group::warp) {
    return warp_reduce(value, combine);
  } else {
    return value;
  }
}

// Calls f(slice offset in elements, stride, first element, step, mask row or null) for the slices of this group.
template <Group G, class F>
__device__ __forceinline__ void for_slices(const Args& a, const F& f) {
  const int64_t slices = a.shape.outer * a.shape.inner;
  int64_t slice, step;
  int lane, lanes;
  if constexpr (G == Group::block) {
    slice = blockIdx.x, step = gridDim.x, lane = threadIdx.x, lanes = blockDim.x;
  } else if constexpr (G == Group::warp) {
    slice = blockIdx.x * int64_t{blockDim.x / 32} + threadIdx.x / 32, step = gridDim.x * int64_t{blockDim.x / 32};
    lane = threadIdx.x % 32, lanes = 32;
  } else {
    slice = blockIdx.x * int64_t{blockDim.x} + threadIdx.x, step = gridDim.x * int64_t{blockDim.x};
    lane = 0, lanes = 1;
  }
  for (; slice < slices; slice += step) {
    const int64_t outer = slice / a.shape.inner, inner = slice - outer * a.shape.inner;
    const bool* masked =
        a.mask.data == nullptr ? nullptr : a.mask.data + slice / a.mask.repeat % a.mask.rows * a.shape.dim;
    f(outer * a.shape.dim * a.shape.inner + inner, lane, lanes, masked);
  }
}

template <class T, Group G>
__global__ void __launch_bounds__(1024) forward_kernel(const __grid_constant__ Args a) {
  __shared__ Exponentials<T> shared[32];
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  const int64_t n = a.shape.dim, stride = a.shape.inner;
  for_slices<G>(a, [&](int64_t base, int lane, int lanes, const bool* masked) {
    Exponentials<T> mine{lowest, T(0)};
    const MergeExponentials<T> merge;
    for (int64_t i = lane; i < n; i += lanes) {
      if (masked != nullptr && masked[i]) continue;
      const T x = load_as<T>(a.from.data + (base + i * stride) * a.sizes[1], a.from.dtype);
      if (x > mine.high) {
        mine = {x, mine.sum * ::exp(mine.high - x) + T(1)};
      } else if (x > lowest || x != x) {
        mine.sum += ::exp(x - mine.high);
      }
    }
    const Exponentials<T> all = group_reduce<G>(mine, shared, Exponentials<T>{lowest, T(0)}, merge);
    const T log_sum = a.log ? ::log(all.sum) : T(0);
    for (int64_t i = lane; i < n; i += lanes) {
      T y = 0;
      if (masked != nullptr && masked[i]) {
        y = all.sum == T(0) ? std::numeric_limits<T>::quiet_NaN() : T(0);
      } else {
        const T x = load_as<T>(a.from.data + (base + i * stride) * a.sizes[1], a.from.dtype);
        y = a.log ? x - all.high - log_sum : ::exp(x - all.high) / all.sum;
      }
      store_as<T>(a.to.data + (base + i * stride) * a.sizes[0], a.to.dtype, y);
    }
  });
}

// softmax: dx = y (dy - sum dy y); log_softmax: dx = dy - exp(y) sum dy.
template <class T, Group G>
__global__ void __launch_bounds__(1024) backward_kernel(const __grid_constant__ Args a) {
  __shared__ T shared[32];
  const int64_t n = a.shape.dim, stride = a.shape.inner;
  for_slices<G>(a, [&](int64_t base, int lane, int lanes, const bool* masked) {
    T sum = 0;
    for (int64_t i = lane; i < n; i += lanes) {
      if (masked != nullptr && masked[i]) continue;
      const T g = load_as<T>(a.from.data + (base + i * stride) * a.sizes[1], a.from.dtype);
      sum += a.log ? g : g * load_as<T>(a.third.data + (base + i * stride) * a.sizes[2], a.third.dtype);
    }
    sum = group_reduce<G>(sum, shared, T(0), Sum());
    for (int64_t i = lane; i < n; i += lanes) {
      T dx = 0;
      if (masked == nullptr || !masked[i]) {
        const T g = load_as<T>(a.from.data + (base + i * stride) * a.sizes[1], a.from.dtype);
        const T y = load_as<T>(a.third.data + (base + i * stride) * a.sizes[2], a.third.dtype);
        dx = a.log ? g - ::exp(y) * sum : (g - sum) * y;
      }
      store_as<T>(a.to.data + (base + i * stride) * a.sizes[0], a.to.dtype, dx);
    }
  });
}

template <class T, bool Forward>
void launch(const Args& a) {
  const int64_t slices = a.shape.outer * a.shape.inner;
  const cudaStream_t stream = cuda::current_stream();
  const auto start = [&](auto kernel, int64_t blocks, int64_t threads) {
    kernel<<<static_cast<unsigned>(std::min<int64_t>(blocks, int64_t{1} << 20)), static_cast<unsigned>(threads), 0,
             stream>>>(a);
  };
  if (a.shape.inner > 1 && slices >= 1024) {
    start(Forward ? &forward_kernel<T, Group::thread> : &backward_kernel<T, Group::thread>, ceil_div(slices, 128), 128);
  } else if (a.shape.dim <= 512) {
    start(Forward ? &forward_kernel<T, Group::warp> : &backward_kernel<T, Group::warp>, ceil_div(slices, 8), 256);
  } else {
    start(Forward ? &forward_kernel<T, Group::block> : &backward_kernel<T, Group::block>, slices,
          std::clamp<int64_t>(ceil_div(a.shape.dim, 8 * 32) * 32, 64, 1024));
  }
  cuda::check_launch("launching a softmax");
}

template <bool Forward>
void run(const char* name, const Args& a) {
  if (a.shape.outer * a.shape.inner * a.shape.dim == 0) return;
  if (!dispatch(compute_dtype(a.from.dtype), FloatTypes{},
                [&](auto tag) { launch<typename decltype(tag)::type, Forward>(a); }))
    missing_kernel(name, name_of(a.from.dtype));
}

int64_t bytes(const SoftmaxOperand& operand) { return static_cast<int64_t>(size_of(operand.dtype)); }

void softmax(SoftmaxOp op, const SoftmaxShape& shape, const SoftmaxOperand& output, const SoftmaxOperand& input,
             const SoftmaxMask& mask) {
  run<true>("softmax",
            {shape, output, input, {}, mask, {bytes(output), bytes(input), 0}, op == SoftmaxOp::log_softmax});
}

void softmax_backward(SoftmaxOp op, const SoftmaxShape& shape, const SoftmaxOperand& grad_input,
                      const SoftmaxOperand& grad, const SoftmaxOperand& output, const SoftmaxMask& mask) {
  run<false>("softmax_backward", {shape,
                                  grad_input,
                                  grad,
                                  output,
                                  mask,
                                  {bytes(grad_input), bytes(grad), bytes(output)},
                                  op == SoftmaxOp::log_softmax});
}

MT_REGISTER_KERNEL(softmax_kernel, &softmax);
MT_REGISTER_KERNEL(softmax_backward_kernel, &softmax_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
