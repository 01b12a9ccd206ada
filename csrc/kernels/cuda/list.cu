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

// Calls f(x) for the elements [begin, end) of N tensors stored as S, x[k] being that of tensor k: whole packs where all
// tensors begin at one, `Loads` of them in flight; then element by element. A bit of `read` for each tensor says
// whether it is loaded (else its x[k] is 0), one of `written` whether x[k] is stored.
template <class S, int Loads, int N, class F>
__device__ __forceinline__ void each_element(char* const (&data)[N], unsigned read, unsigned written, int64_t begin,
                                             int64_t end, const F& f) {
  constexpr int V = pack_width<S>(), kStep = kThreads * V;
  using Packed = Pack<S, V>;
  uintptr_t bits = 0;
#pragma unroll
  for (int k = 0; k < N; k++) bits |= ((read | written) >> k & 1) != 0 ? reinterpret_cast<uintptr_t>(data[k]) : 0;
  if (bits % 16 == 0) {
    const int64_t whole = begin + (end - begin) / V * V;
    for (int64_t base = begin + threadIdx.x * V; base < whole; base += kStep * Loads) {
      Packed held[Loads][N] = {};
#pragma unroll
      for (int u = 0; u < Loads; u++) {
        if (base + u * kStep >= whole) continue;
#pragma unroll
        for (int k = 0; k < N; k++)
          if ((read >> k & 1) != 0)
            held[u][k] = *reinterpret_cast<const Packed*>(reinterpret_cast<const S*>(data[k]) + base + u * kStep);
      }
#pragma unroll
      for (int u = 0; u < Loads; u++) {
        if (base + u * kStep >= whole) continue;
#pragma unroll
        for (int v = 0; v < V; v++) {
          S x[N];
#pragma unroll
          for (int k = 0; k < N; k++) x[k] = held[u][k].value[v];
          f(x);
#pragma unroll
          for (int k = 0; k < N; k++) held[u][k].value[v] = x[k];
        }
#pragma unroll
        for (int k = 0; k < N; k++)
          if ((written >> k & 1) != 0)
            *reinterpret_cast<Packed*>(reinterpret_cast<S*>(data[k]) + base + u * kStep) = held[u][k];
      }
    }
    begin = whole;
  }
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    S x[N] = {};
#pragma unroll
    for (int k = 0; k < N; k++)
      if ((read >> k & 1) != 0) x[k] = reinterpret_cast<const S*>(data[k])[i];
    f(x);
#pragma unroll
    for (int k = 0; k < N; k++)
      if ((written >> k & 1) != 0) reinterpret_cast<S*>(data[k])[i] = x[k];
  }
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

template <ForeachOp op, class S>
__global__ void __launch_bounds__(kThreads)
    foreach_pieces(const __grid_constant__ List<ForeachItem> list, const char* device_scalar) {
  using T = compute_t<S>;
  constexpr int N = inputs_of(op);
  int64_t begin, end;
  const ForeachItem& item = list.item[piece_of(list, begin, end)];
  const T s = device_scalar == nullptr ? static_cast<T>(item.s) : load_as<T>(device_scalar, dtype_of<S>);
  char* data[1 + N];
#pragma unroll
  for (int k = 0; k <= N; k++) data[k] = item.data[k];
  each_element<S, N == 1 ? 4 : 2>(data, (2u << N) - 2, 1, begin, end, [&](S(&x)[1 + N]) {
    x[0] = convert_to_store<S>(apply<T>(op, convert<T>(x[1]), convert<T>(x[N > 1 ? 2 : 1]), convert<T>(x[N]), s));
  });
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

// Calls f(Tag<storage type>).
template <class F>
void by_storage(const char* name, DType dtype, const F& f) {
  if (!dispatch(dtype, FloatingTypes{}, f)) missing_kernel(name, name_of(dtype));
}

void foreach_op(ForeachOp op, const std::vector<ForeachItem>& items, DType dtype, const char* device_scalar) {
  by_storage("foreach", dtype, [&](auto tag) {
    const auto kernel = foreach_kernel_of<typename decltype(tag)::type>(op);
    for_groups(items, [&](const List<ForeachItem>& list, uint32_t blocks, size_t, int64_t) {
      kernel<<<blocks, kThreads, 0, cuda::current_stream()>>>(list, device_scalar);
    });
  });
  cuda::check_launch("launching a foreach operator");
}

struct MaxOfNumbers {  // NaN wins
  __device__ __forceinline__ double operator()(double a, double b) const { return a != a || a > b ? a : b; }
};

template <class S>
__global__ void __launch_bounds__(kThreads)
    norm_pieces(const __grid_constant__ List<ForeachItem> list, double order, double* partial) {
  __shared__ double shared[32];
  int64_t begin, end;
  const ForeachItem& item = list.item[piece_of(list, begin, end)];
  double sum = 0;
  char* const data[1] = {item.data[1]};
  each_element<S, 4>(data, 1, 0, begin, end, [&](S(&element)[1]) {
    const double x = ::fabs(static_cast<double>(convert<compute_t<S>>(element[0])));
    sum = isinf(order) ? MaxOfNumbers()(x, sum) : sum + (order == 2 ? x * x : x);
  });
  sum = isinf(order) ? block_reduce(sum, shared, 0.0, MaxOfNumbers()) : block_reduce(sum, shared, 0.0, Sum());
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    norm_totals(const __grid_constant__ List<ForeachItem> list, double order, const double* partial) {
  __shared__ double shared[32];
  const int k = static_cast<int>(blockIdx.x);
  double sum = 0;
  for (uint32_t b = list.first_block[k] + threadIdx.x; b < list.first_block[k + 1]; b += kThreads)
    sum = isinf(order) ? MaxOfNumbers()(partial[b], sum) : sum + partial[b];
  sum = isinf(order) ? block_reduce(sum, shared, 0.0, MaxOfNumbers()) : block_reduce(sum, shared, 0.0, Sum());
  if (threadIdx.x == 0)
    *reinterpret_cast<S*>(list.item[k].data[0]) = convert<S>(static_cast<compute_t<S>>(order == 2 ? ::sqrt(sum) : sum));
}

void foreach_norm(const std::vector<ForeachItem>& items, DType dtype, double order) {
  by_storage("foreach_norm", dtype, [&](auto tag) {
    using S = typename decltype(tag)::type;
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
      if (blocks > 0) norm_pieces<S><<<blocks, kThreads, 0, stream>>>(list, order, partial.get<double>());
      norm_totals<S><<<list.count, kThreads, 0, stream>>>(list, order, partial.get<double>());
    }
  });
  cuda::check_launch("launching foreach_norm");
}

// ---- Gradient scaler -----------------------------------------------------------------------------------------------

template <class S>
__global__ void __launch_bounds__(kThreads)
    unscale_pieces(const __grid_constant__ List<ForeachItem> list, const float* inv_scale, float* found_inf) {
  using T = compute_t<S>;
  int64_t begin, end;
  const ForeachItem& item = list.item[piece_of(list, begin, end)];
  const T scale = static_cast<T>(*inv_scale);
  bool infinite = false;
  char* const data[1] = {item.data[0]};
  each_element<S, 4>(data, 1, scale != T(1), begin, end, [&](S(&element)[1]) {
    const T x = convert<T>(element[0]);
    infinite = infinite || !isfinite(x);
    element[0] = convert_to_store<S>(x * scale);
  });
  if (infinite) *found_inf = 1.0f;
}

void unscale(const std::vector<ForeachItem>& items, DType dtype, const float* inv_scale, float* found_inf) {
  by_storage("_amp_foreach_non_finite_check_and_unscale_", dtype, [&](auto tag) {
    for_groups(items, [&](const List<ForeachItem>& list, uint32_t blocks, size_t, int64_t) {
      unscale_pieces<typename decltype(tag)::type>
          <<<blocks, kThreads, 0, cuda::current_stream()>>>(list, inv_scale, found_inf);
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
  T lr, step_size, root_correction, rate, shrink;
  __device__ Step(const OptimizerParams& p, double step) {
    const double exact = p.lr_on_device != nullptr ? *p.lr_on_device : p.lr;
    lr = static_cast<T>(exact);
    step_size = static_cast<T>(exact / (1 - ::pow(p.beta1, step)));
    root_correction = static_cast<T>(::sqrt(1 - ::pow(p.beta2, step)));
    rate = static_cast<T>(exact / (1 + (step - 1) * p.lr_decay));
    shrink = static_cast<T>(p.decoupled_decay ? 1 - exact * p.weight_decay : 1);
  }
};

template <Rule R, class T>
__device__ __forceinline__ void update(Element<T>& e, const OptimizerParams& p, const Step<T>& s, T grad) {
  if constexpr (R == Rule::adam) {
    const T decay = static_cast<T>(p.decoupled_decay ? 0 : p.weight_decay);
    const T beta1 = static_cast<T>(p.beta1), rest1 = static_cast<T>(1 - p.beta1);
    const T beta2 = static_cast<T>(p.beta2), rest2 = static_cast<T>(1 - p.beta2);
    const T w = e.param * s.shrink, g = grad + w * decay;
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
    e.param -= s.lr * g;
  } else {
    const T g = grad + e.param * static_cast<T>(p.weight_decay), sum = e.state[0] + g * g;
    e.state[0] = sum;
    e.param -= s.rate * (g / (::sqrt(sum) + static_cast<T>(p.eps)));
  }
}

template <Rule R, class S>
__global__ void __launch_bounds__(kThreads)
    optimizer_pieces(const __grid_constant__ List<OptimizerItem> list, const __grid_constant__ OptimizerParams p) {
  using T = compute_t<S>;
  if (p.found_inf != nullptr && *p.found_inf == 1.0f) return;
  int64_t begin, end;
  const OptimizerItem& item = list.item[piece_of(list, begin, end)];
  const Step<T> step(p, item.step == nullptr ? 1.0 : static_cast<double>(*item.step));
  const T scale = p.grad_scale == nullptr ? T(1) : static_cast<T>(*p.grad_scale);
  char* const data[5] = {item.param, item.grad, item.state[0], item.state[1], item.state[2]};
  unsigned read = 0b11;
#pragma unroll
  for (int k = 2; k < 5; k++) read |= data[k] != nullptr ? 1u << k : 0;
  const unsigned written = p.grad_scale != nullptr ? read : read & ~0b10u;  // an unscaled gradient is kept
  each_element<S, 1>(data, read, written, begin, end, [&](S(&x)[5]) {
    Element<T> e{convert<T>(x[0]), convert<T>(x[1]), {convert<T>(x[2]), convert<T>(x[3]), convert<T>(x[4])}};
    if (p.grad_scale != nullptr) e.grad /= scale;
    update<R, T>(e, p, step, p.maximize ? -e.grad : e.grad);
    x[0] = convert_to_store<S>(e.param);
    x[1] = convert_to_store<S>(e.grad);
#pragma unroll
    for (int k = 0; k < 3; k++) x[2 + k] = convert_to_store<S>(e.state[k]);
  });
}

template <Rule R>
void fused(const std::vector<OptimizerItem>& items, DType dtype, const OptimizerParams& p) {
  by_storage("fused optimizer", dtype, [&](auto tag) {
    for_groups(items, [&](const List<OptimizerItem>& list, uint32_t blocks, size_t, int64_t) {
      optimizer_pieces<R, typename decltype(tag)::type><<<blocks, kThreads, 0, cuda::current_stream()>>>(list, p);
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
