// softmax and log_softmax on CUDA. A block holds a slice: one pass for its maximum and sum of exponentials together
// (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018), one to write. Short slices, and those
// with a stride, are given to a warp and to a thread. Rows of floats that fit in registers are read only once.
#include "kernels/softmax.h"

#include <limits>

#include "kernels/cuda/rows.cuh"

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
    if (high == -std::numeric_limits<T>::infinity()) return {high, a.sum + b.sum};  // zeros, or NaN
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
        mine = {x, mine.sum * ::exp(mine.high - x) + (x - x + T(1))};  // exp(x - x), which is NaN of an infinity
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

template <class S, bool Log>
__global__ void __launch_bounds__(1024) forward_rows(const __grid_constant__ Args a) {
  __shared__ float shared[2][32];
  const int64_t n = a.shape.dim;
  rows::for_each(a.shape.outer, [&](int64_t r) {
    rows::Row<S> row;
    row.load(a.from.data, r * n, n);
    float high = -INFINITY, sum = 0;
    row.each(n, [&](float x, int, int, int) { high = fmaxf(high, x); });
    high = rows::reduce(high, shared[0], -INFINITY, [](float x, float y) { return fmaxf(x, y); });
    row.each(n, [&](float& x, int, int, int) {
      const float e = ::expf(x - high);
      sum += e;
      x = Log ? x - high : e;
    });
    sum = rows::reduce(sum, shared[1], 0.0f, Sum());
    const float last = Log ? ::logf(sum) : 1.0f / sum;
    row.each(n, [&](float& x, int, int, int) { x = Log ? x - last : x * last; });
    row.store(a.to.data, r * n, n);
  });
}

template <class S, bool Log>
__global__ void __launch_bounds__(1024) backward_rows(const __grid_constant__ Args a) {
  __shared__ float shared[32];
  const int64_t n = a.shape.dim;
  rows::for_each(a.shape.outer, [&](int64_t r) {
    rows::Row<S> grad, y;
    grad.load(a.from.data, r * n, n);
    y.load(a.third.data, r * n, n);
    float sum = 0;
    grad.each(n, [&](float g, int u, int v, int) { sum += Log ? g : g * y.x[u][v]; });
    sum = rows::reduce(sum, shared, 0.0f, Sum());
    grad.each(n, [&](float& g, int u, int v, int) { g = Log ? g - ::expf(y.x[u][v]) * sum : (g - sum) * y.x[u][v]; });
    grad.store(a.to.data, r * n, n);
  });
}

template <bool Forward>
bool try_rows(const Args& a) {
  const DType d = a.from.dtype;
  const bool same = a.to.dtype == d && (Forward || a.third.dtype == d);
  if (a.shape.inner != 1 || a.mask.data != nullptr || !same || !rows::fits(a.shape.dim, a.sizes[1]) ||
      !rows::aligned({a.to.data, a.from.data, a.third.data}))
    return false;
  const rows::Grid grid = rows::grid_for_rows(a.shape.outer, a.shape.dim, a.sizes[1]);
  return dispatch(d, Types<float, BFloat16, Half>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    const auto kernel = Forward ? (a.log ? &forward_rows<S, true> : &forward_rows<S, false>)
                                : (a.log ? &backward_rows<S, true> : &backward_rows<S, false>);
    kernel<<<grid.blocks, grid.threads, 0, cuda::current_stream()>>>(a);
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
  if (try_rows<Forward>(a)) return cuda::check_launch("launching a softmax");
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
