// Operators over lists of tensors on CUDA: foreach, the gradient scaler and the fused optimizers. A launch takes some
// dozen tensors as an argument; each block works on one piece of one of them.
#include <cmath>
#include <limits>

#include "kernels/cuda/launch.cuh"
#include "kernels/foreach.h"
#include "kernels/functors/loss_scale.h"
#include "kernels/optimizer.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kItems = 40;        // of a launch; kernel arguments are limited to 4 KiB
constexpr int64_t kPiece = 8192;  // elements of a block

template <class Item>
struct List {
  int count;
  uint32_t first_block[kItems + 1];
  Item item[kItems];
};

// Calls launch(list, blocks, index of the list's first item, blocks before it) for the items in groups.
template <class Item, class F>
void for_groups(const std::vector<Item>& items, const F& launch) {
  int64_t before = 0;
  for (size_t first = 0; first < items.size();) {
    List<Item> list;
    list.count = 0;
    uint32_t blocks = 0;
    const size_t begin = first;
    for (; first < items.size() && list.count < kItems; first++) {
      list.first_block[list.count] = blocks;
      list.item[list.count++] = items[first];
      blocks += static_cast<uint32_t>(ceil_div(items[first].numel, kPiece));
    }
    list.first_block[list.count] = blocks;
    if (blocks > 0) launch(list, blocks, begin, before);
    before += blocks;
  }
}

// The item of this block, and its elements [begin, end).
template <class Item>
__device__ __forceinline__ int piece_of(const List<Item>& list, int64_t& begin, int64_t& end) {
  int k = 0;
  while (k + 1 < list.count && list.first_block[k + 1] <= blockIdx.x) k++;
  begin = (blockIdx.x - list.first_block[k]) * kPiece;
  end = min(begin + kPiece, list.item[k].numel);
  return k;
}

template <class T>
__device__ __forceinline__ T read(const char* p, DType dtype, int64_t size, int64_t i) {
  return load_as<T>(p + i * size, dtype);
}

// ---- Foreach -------------------------------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ T apply(ForeachOp op, T a, T b, T c, T s) {
  switch (op) {
#define MT_CASE(name, expression, inputs) \
  case ForeachOp::name: return expression;
    MT_FOREACH_OPS(MT_CASE)
#undef MT_CASE
  }
  return a;
}
constexpr int inputs_of(ForeachOp op) {
  switch (op) {
#define MT_CASE(name, expression, inputs) \
  case ForeachOp::name: return inputs;
    MT_FOREACH_OPS(MT_CASE)
#undef MT_CASE
  }
  return 1;
}

// Whole packs where all of an item's tensors begin at one, several of them in flight; then element by element.
template <ForeachOp op, class S>
__global__ void __launch_bounds__(kThreads)
    foreach_pieces(const __grid_constant__ List<ForeachItem> list, const char* device_scalar) {
  using T = compute_t<S>;
  constexpr int N = inputs_of(op), V = pack_width<S>(), kLoads = N == 1 ? 4 : 2;
  using Packed = Pack<S, V>;
  int64_t begin, end;
  const ForeachItem& item = list.item[piece_of(list, begin, end)];
  const T s = device_scalar == nullptr ? static_cast<T>(item.s) : load_as<T>(device_scalar, dtype_of<S>);
  const auto result = [&](T a, T b, T c) { return convert_to_store<S>(apply<T>(op, a, b, c, s)); };
  S* const out = reinterpret_cast<S*>(item.data[0]);
  const S* in[3] = {};
  auto bits = reinterpret_cast<uintptr_t>(out);
#pragma unroll
  for (int k = 0; k < N; k++) {
    in[k] = reinterpret_cast<const S*>(item.data[1 + k]);
    bits |= reinterpret_cast<uintptr_t>(in[k]);
  }
  if (bits % 16 == 0) {
    const int64_t whole = begin + (end - begin) / V * V;
    for (int64_t base = begin + threadIdx.x * V; base < whole; base += kThreads * V * kLoads) {
      Packed held[kLoads][3];
#pragma unroll
      for (int u = 0; u < kLoads; u++) {
        const int64_t at = base + u * kThreads * V;
        if (at >= whole) continue;
#pragma unroll
        for (int k = 0; k < N; k++) held[u][k] = *reinterpret_cast<const Packed*>(in[k] + at);
      }
#pragma unroll
      for (int u = 0; u < kLoads; u++) {
        const int64_t at = base + u * kThreads * V;
        if (at >= whole) continue;
        Packed to;
#pragma unroll
        for (int v = 0; v < V; v++)
          to.value[v] = result(convert<T>(held[u][0].value[v]), N > 1 ? convert<T>(held[u][1].value[v]) : T(0),
                               N > 2 ? convert<T>(held[u][2].value[v]) : T(0));
        *reinterpret_cast<Packed*>(out + at) = to;
      }
    }
    begin = whole;
  }
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads)
    out[i] = result(convert<T>(in[0][i]), N > 1 ? convert<T>(in[1][i]) : T(0), N > 2 ? convert<T>(in[2][i]) : T(0));
}

template <class F>
void by_compute(const char* name, DType dtype, const F& f) {
  if (!is_floating(dtype)) missing_kernel(name, name_of(dtype));
  if (dtype == DType::F64) {
    f(Tag<double>{});
  } else {
    f(Tag<float>{});
  }
}

template <class S>
auto foreach_kernel_of(ForeachOp op) {
  switch (op) {
#define MT_CASE(name, expression, inputs) \
  case ForeachOp::name: return &foreach_pieces<ForeachOp::name, S>;
    MT_FOREACH_OPS(MT_CASE)
#undef MT_CASE
  }
  return &foreach_pieces<ForeachOp::neg, S>;
}

void foreach_op(ForeachOp op, const std::vector<ForeachItem>& items, DType dtype, const char* device_scalar) {
  if (!dispatch(dtype, FloatingTypes{}, [&](auto tag) {
        const auto kernel = foreach_kernel_of<typename decltype(tag)::type>(op);
        for_groups(items, [&](const List<ForeachItem>& list, uint32_t blocks, size_t, int64_t) {
          kernel<<<blocks, kThreads, 0, cuda::current_stream()>>>(list, device_scalar);
        });
      }))
    missing_kernel("foreach", name_of(dtype));
  cuda::check_launch("launching a foreach operator");
}

struct MaxOfNumbers {  // NaN wins
  __device__ __forceinline__ double operator()(double a, double b) const { return a != a || a > b ? a : b; }
};

template <class T>
__global__ void __launch_bounds__(kThreads) norm_pieces(const __grid_constant__ List<ForeachItem> list, DType dtype,
                                                        int64_t size, double order, double* partial) {
  __shared__ double shared[32];
  int64_t begin, end;
  const ForeachItem& item = list.item[piece_of(list, begin, end)];
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const double x = ::fabs(static_cast<double>(read<T>(item.data[1], dtype, size, i)));
    sum = isinf(order) ? MaxOfNumbers()(x, sum) : sum + (order == 2 ? x * x : x);
  }
  sum = isinf(order) ? block_reduce(sum, shared, 0.0, MaxOfNumbers()) : block_reduce(sum, shared, 0.0, Sum());
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    norm_totals(const __grid_constant__ List<ForeachItem> list, DType dtype, double order, const double* partial) {
  __shared__ double shared[32];
  const int k = static_cast<int>(blockIdx.x);
  double sum = 0;
  for (uint32_t b = list.first_block[k] + threadIdx.x; b < list.first_block[k + 1]; b += kThreads)
    sum = isinf(order) ? MaxOfNumbers()(partial[b], sum) : sum + partial[b];
  sum = isinf(order) ? block_reduce(sum, shared, 0.0, MaxOfNumbers()) : block_reduce(sum, shared, 0.0, Sum());
  if (threadIdx.x == 0) store_as<T>(list.item[k].data[0], dtype, static_cast<T>(order == 2 ? ::sqrt(sum) : sum));
}

void foreach_norm(const std::vector<ForeachItem>& items, DType dtype, double order) {
  by_compute("foreach_norm", dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const cudaStream_t stream = cuda::current_stream();
    for (size_t first = 0; first < items.size(); first += kItems) {
      // Every item has a result, the empty ones too.
      List<ForeachItem> list;
      list.count = 0;
      uint32_t blocks = 0;
      for (size_t i = first; i < std::min(items.size(), first + kItems); i++) {
        list.first_block[list.count] = blocks;
        list.item[list.count++] = items[i];
        blocks += static_cast<uint32_t>(ceil_div(items[i].numel, kPiece));
      }
      list.first_block[list.count] = blocks;
      const Scratch partial(int64_t{blocks} * 8);
      if (blocks > 0)
        norm_pieces<T><<<blocks, kThreads, 0, stream>>>(list, dtype, static_cast<int64_t>(size_of(dtype)), order,
                                                        partial.get<double>());
      norm_totals<T><<<list.count, kThreads, 0, stream>>>(list, dtype, order, partial.get<double>());
    }
  });
  cuda::check_launch("launching foreach_norm");
}

// ---- Gradient scaler -----------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads) unscale_pieces(const __grid_constant__ List<ForeachItem> list, DType dtype,
                                                           int64_t size, const float* inv_scale, float* found_inf) {
  int64_t begin, end;
  const ForeachItem& item = list.item[piece_of(list, begin, end)];
  const T scale = static_cast<T>(*inv_scale);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const T x = read<T>(item.data[0], dtype, size, i);
    if (!isfinite(x)) *found_inf = 1.0f;
    if (scale != T(1)) store_as<T>(item.data[0] + i * size, dtype, x * scale);
  }
}

void unscale(const std::vector<ForeachItem>& items, DType dtype, const float* inv_scale, float* found_inf) {
  by_compute("_amp_foreach_non_finite_check_and_unscale_", dtype, [&](auto tag) {
    for_groups(items, [&](const List<ForeachItem>& list, uint32_t blocks, size_t, int64_t) {
      unscale_pieces<typename decltype(tag)::type><<<blocks, kThreads, 0, cuda::current_stream()>>>(
          list, dtype, static_cast<int64_t>(size_of(dtype)), inv_scale, found_inf);
    });
  });
  cuda::check_launch("launching an unscaling");
}

__global__ void next_scale(float* scale, int32_t* growth_tracker, const float* found_inf, double growth, double backoff,
                           int64_t interval) {
  functors::next_loss_scale(scale, growth_tracker, *found_inf != 0, growth, backoff, interval);
}

void update_scale(float* scale, int32_t* growth_tracker, const float* found_inf, double growth, double backoff,
                  int64_t interval) {
  next_scale<<<1, 1, 0, cuda::current_stream()>>>(scale, growth_tracker, found_inf, growth, backoff, interval);
  cuda::check_launch("launching a scaler's update");
}

// ---- Optimizers ----------------------------------------------------------------------------------------------------

enum class Rule { adam, sgd, adagrad };

// One element: parameter, gradient and states in the compute type.
template <class T>
struct Element {
  T param, grad, state[3];
};

// The rules of kernels/cpu/optimizer.cpp, with what depends on the step worked out once a block.
template <class T>
struct Step {
  T step_size, root_correction, rate;
  __device__ Step(const OptimizerParams& p, double step) {
    step_size = static_cast<T>(p.lr / (1 - ::pow(p.beta1, step)));
    root_correction = static_cast<T>(::sqrt(1 - ::pow(p.beta2, step)));
    rate = static_cast<T>(p.lr / (1 + (step - 1) * p.lr_decay));
  }
};

template <Rule R, class T>
__device__ __forceinline__ void update(Element<T>& e, const OptimizerParams& p, const Step<T>& s, T grad) {
  if constexpr (R == Rule::adam) {
    const T decay = static_cast<T>(p.decoupled_decay ? 0 : p.weight_decay);
    const T shrink = static_cast<T>(p.decoupled_decay ? 1 - p.lr * p.weight_decay : 1);
    const T beta1 = static_cast<T>(p.beta1), rest1 = static_cast<T>(1 - p.beta1);
    const T beta2 = static_cast<T>(p.beta2), rest2 = static_cast<T>(1 - p.beta2);
    const T w = e.param * shrink, g = grad + w * decay;
    const T m = rest1 < T(0.5) ? e.state[0] + rest1 * (g - e.state[0]) : g - (g - e.state[0]) * beta1;
    const T v = beta2 * e.state[1] + rest2 * g * g;
    e.state[0] = m;
    e.state[1] = v;
    T denominator = v;
    if (p.amsgrad) {
      denominator = e.state[2] > v ? e.state[2] : v;
      e.state[2] = denominator;
    }
    e.param = w - s.step_size * (m / (::sqrt(denominator) / s.root_correction + static_cast<T>(p.eps)));
  } else if constexpr (R == Rule::sgd) {
    T g = grad + e.param * static_cast<T>(p.weight_decay);
    if (p.momentum != 0) {
      const T momentum = static_cast<T>(p.momentum);
      const T b = p.first_step ? g : e.state[0] * momentum + g * static_cast<T>(1 - p.dampening);
      e.state[0] = b;
      g = p.nesterov ? g + b * momentum : b;
    }
    e.param -= static_cast<T>(p.lr) * g;
  } else {
    const T g = grad + e.param * static_cast<T>(p.weight_decay), sum = e.state[0] + g * g;
    e.state[0] = sum;
    e.param -= s.rate * (g / (::sqrt(sum) + static_cast<T>(p.eps)));
  }
}

template <Rule R, class T>
__global__ void __launch_bounds__(kThreads)
    optimizer_pieces(const __grid_constant__ List<OptimizerItem> list, DType dtype, int64_t size,
                     const __grid_constant__ OptimizerParams p) {
  if (p.found_inf != nullptr && *p.found_inf == 1.0f) return;
  int64_t begin, end;
  const OptimizerItem& item = list.item[piece_of(list, begin, end)];
  const Step<T> step(p, item.step == nullptr ? 1.0 : static_cast<double>(*item.step));
  const T scale = p.grad_scale == nullptr ? T(1) : static_cast<T>(*p.grad_scale);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    Element<T> e;
    e.param = read<T>(item.param, dtype, size, i);
    e.grad = read<T>(item.grad, dtype, size, i);
#pragma unroll
    for (int k = 0; k < 3; k++) e.state[k] = item.state[k] == nullptr ? T(0) : read<T>(item.state[k], dtype, size, i);
    if (p.grad_scale != nullptr) {
      e.grad /= scale;
      store_as<T>(item.grad + i * size, dtype, e.grad);
    }
    update<R, T>(e, p, step, p.maximize ? -e.grad : e.grad);
    store_as<T>(item.param + i * size, dtype, e.param);
#pragma unroll
    for (int k = 0; k < 3; k++)
      if (item.state[k] != nullptr) store_as<T>(item.state[k] + i * size, dtype, e.state[k]);
  }
}

template <Rule R>
void fused(const std::vector<OptimizerItem>& items, DType dtype, const OptimizerParams& p) {
  by_compute("fused optimizer", dtype, [&](auto tag) {
    for_groups(items, [&](const List<OptimizerItem>& list, uint32_t blocks, size_t, int64_t) {
      optimizer_pieces<R, typename decltype(tag)::type>
          <<<blocks, kThreads, 0, cuda::current_stream()>>>(list, dtype, static_cast<int64_t>(size_of(dtype)), p);
    });
  });
  cuda::check_launch("launching a fused optimizer");
}

MT_REGISTER_KERNEL(foreach_kernel, &foreach_op);
MT_REGISTER_KERNEL(foreach_norm_kernel, &foreach_norm);
MT_REGISTER_KERNEL(unscale_kernel, &unscale);
MT_REGISTER_KERNEL(update_scale_kernel, &update_scale);
MT_REGISTER_KERNEL(fused_adam_kernel, &fused<Rule::adam>);
MT_REGISTER_KERNEL(fused_sgd_kernel, &fused<Rule::sgd>);
MT_REGISTER_KERNEL(fused_adagrad_kernel, &fused<Rule::adagrad>);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
