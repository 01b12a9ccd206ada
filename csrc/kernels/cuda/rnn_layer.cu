// Recurrent layers on CUDA: each time step is a matrix product with W_hh and one pass over the gates, queued on the
// stream without a wait between steps.
#include "kernels/cuda/launch.cuh"
#include "kernels/gemm.h"
#include "kernels/rnn.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class C>
__device__ __forceinline__ C logistic(C x) {
  return C(1) / (C(1) + ::exp(-x));
}
template <class T>
__device__ __forceinline__ compute_t<T> get(const T* p, int64_t i) {
  return convert<compute_t<T>>(p[i]);
}
template <class T>
__device__ __forceinline__ void put(T* p, int64_t i, compute_t<T> value) {
  p[i] = convert<T>(value);
}

// The pointers of one time step; all have `rows` rows.
template <class T>
struct ForwardStep {
  RnnMode mode;
  int64_t rows, hidden;
  const T *product, *bias, *h, *c;
  T *gates, *y, *cells;
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward_step(const ForwardStep<T> a) {
  using C = compute_t<T>;
  const int64_t hidden = a.hidden, width = gate_count(a.mode) * hidden;
  MT_GRID_LOOP(at, a.rows * hidden) {
    const int64_t row = at / hidden, j = at - row * hidden, first = row * width + j;
    const auto hidden_part = [&](int gate) {
      return get(a.product, first + gate * hidden) + (a.bias != nullptr ? get(a.bias, j + gate * hidden) : C(0));
    };
    const auto sum = [&](int gate) { return get(a.gates, first + gate * hidden) + hidden_part(gate); };
    if (a.mode == RnnMode::lstm) {
      const C i = logistic(sum(0)), f = logistic(sum(1)), g = ::tanh(sum(2)), o = logistic(sum(3));
      const C c = f * get(a.c, at) + i * g;
      put(a.gates, first, i);
      put(a.gates, first + hidden, f);
      put(a.gates, first + 2 * hidden, g);
      put(a.gates, first + 3 * hidden, o);
      put(a.cells, at, c);
      put(a.y, at, o * ::tanh(c));
    } else if (a.mode == RnnMode::gru) {
      const C r = logistic(sum(0)), z = logistic(sum(1)), hn = hidden_part(2);
      const C n = ::tanh(get(a.gates, first + 2 * hidden) + r * hn);
      put(a.gates, first, r);
      put(a.gates, first + hidden, z);
      put(a.gates, first + 2 * hidden, n);
      put(a.cells, at, hn);
      put(a.y, at, n + z * (get(a.h, at) - n));
    } else {
      const C s = sum(0);
      put(a.y, at, a.mode == RnnMode::relu ? (s < C(0) ? C(0) : s) : ::tanh(s));
    }
  }
}

// The gradient of h_t is `product` (through the step after; null at the last step) plus `rest`, which becomes the part
// of the gradient of h_{t-1} that passes by the product. rest_c goes from the gradient of c_t to that of c_{t-1}.
template <class T>
struct BackwardStep {
  RnnMode mode;
  int64_t rows, hidden;
  const T *product, *grad_y, *h, *c, *y, *gates, *cells;
  compute_t<T>*rest, *rest_c;
  T *grad_gates, *grad_hidden_gates;
};

template <class T>
__global__ void __launch_bounds__(kThreads) backward_step(const BackwardStep<T> a) {
  using C = compute_t<T>;
  const int64_t hidden = a.hidden, width = gate_count(a.mode) * hidden;
  MT_GRID_LOOP(at, a.rows * hidden) {
    const int64_t row = at / hidden, first = row * width + (at - row * hidden);
    C gh = a.rest[at];
    if (a.product != nullptr) gh += get(a.product, at);
    if (a.grad_y != nullptr) gh += get(a.grad_y, at);
    C rest = C(0);
    if (a.mode == RnnMode::lstm) {
      const C i = get(a.gates, first), f = get(a.gates, first + hidden), g = get(a.gates, first + 2 * hidden),
              o = get(a.gates, first + 3 * hidden);
      const C t = ::tanh(get(a.cells, at)), d = gh * o * (1 - t * t) + a.rest_c[at];
      put(a.grad_gates, first, d * g * i * (1 - i));
      put(a.grad_gates, first + hidden, d * get(a.c, at) * f * (1 - f));
      put(a.grad_gates, first + 2 * hidden, d * i * (1 - g * g));
      put(a.grad_gates, first + 3 * hidden, gh * t * o * (1 - o));
      a.rest_c[at] = d * f;
    } else if (a.mode == RnnMode::gru) {
      const C r = get(a.gates, first), z = get(a.gates, first + hidden), n = get(a.gates, first + 2 * hidden);
      const C d = gh * (1 - z) * (1 - n * n);  // d loss / d (argument of tanh)
      const C of_r = d * get(a.cells, at) * (1 - r) * r, of_z = gh * (get(a.h, at) - n) * (1 - z) * z;
      put(a.grad_gates, first, of_r);
      put(a.grad_hidden_gates, first, of_r);
      put(a.grad_gates, first + hidden, of_z);
      put(a.grad_hidden_gates, first + hidden, of_z);
      put(a.grad_gates, first + 2 * hidden, d);
      put(a.grad_hidden_gates, first + 2 * hidden, d * r);
      rest = gh * z;
    } else {
      const C y = get(a.y, at);
      put(a.grad_gates, first, a.mode == RnnMode::relu ? (y <= C(0) ? C(0) : gh) : gh * (1 - y * y));
    }
    a.rest[at] = rest;
  }
}

// out = a + b, either of which may be null.
template <class A, class B, class Out>
__global__ void __launch_bounds__(kThreads) add_rows(const A* a, const B* b, Out* out, int64_t n) {
  MT_GRID_LOOP(i, n) {
    using C = compute_t<Out>;
    C sum = C(0);
    if (a != nullptr) sum += convert<C>(a[i]);
    if (b != nullptr) sum += convert<C>(b[i]);
    out[i] = convert<Out>(sum);
  }
}

template <class T>
void multiply(int64_t m, int64_t n, int64_t k, const T* a, const T* b, int64_t b_row, int64_t b_col, T* c) {
  if (m == 0 || n == 0) return;
  const auto view = [](const T* p, int64_t row, int64_t col) {
    return MatrixView{reinterpret_cast<char*>(const_cast<T*>(p)), row, col, 0, false};
  };
  GemmArgs args;
  args.dtype = dtype_of<T>;
  args.m = m, args.n = n, args.k = k;
  args.a = view(a, k, 1), args.b = view(b, b_row, b_col), args.c = args.d = view(c, n, 1);
  gemm_kernel(args);
}

template <class T>
const T* typed(const char* p) {
  return reinterpret_cast<const T*>(p);
}
template <class T>
T* typed(char* p) {
  return reinterpret_cast<T*>(p);
}

template <class T>
void forward(const RnnLayerArgs& a) {
  const int64_t hidden = a.hidden, width = gate_count(a.mode) * hidden, numel = a.batch * hidden;
  const cudaStream_t stream = cuda::current_stream();
  const Scratch memory(a.batch * width * static_cast<int64_t>(sizeof(T)));
  T* const product = memory.get<T>();
  const T *h = typed<T>(a.h0), *c = typed<T>(a.c0);
  for (int64_t s = 0; s < a.steps; s++) {
    const int64_t t = a.reverse ? a.steps - 1 - s : s;
    multiply(a.batch, width, hidden, h, typed<T>(a.weight), 1, hidden, product);
    T* const cells = a.cells != nullptr ? typed<T>(a.cells) + t * numel : nullptr;
    const ForwardStep<T> step{a.mode,
                              a.batch,
                              hidden,
                              product,
                              typed<T>(a.bias),
                              h,
                              c,
                              typed<T>(a.gates) + t * a.batch * width,
                              typed<T>(a.y) + t * numel,
                              cells};
    forward_step<T><<<grid_for(numel), kThreads, 0, stream>>>(step);
    h = step.y;
    if (c != nullptr) c = cells;
  }
  const auto bytes = static_cast<size_t>(numel) * sizeof(T);
  cuda::check(cudaMemcpyAsync(a.hn, h, bytes, cudaMemcpyDefault, stream), "copying the last hidden state");
  if (c != nullptr)
    cuda::check(cudaMemcpyAsync(a.cn, c, bytes, cudaMemcpyDefault, stream), "copying the last cell state");
}

template <class T>
void backward(const RnnLayerBackwardArgs& a) {
  using C = compute_t<T>;
  const int64_t hidden = a.hidden, width = gate_count(a.mode) * hidden, numel = a.batch * hidden;
  const cudaStream_t stream = cuda::current_stream();
  const unsigned grid = grid_for(numel);
  const Scratch memory(numel * static_cast<int64_t>(2 * sizeof(C) + sizeof(T)));
  C *const rest = memory.get<C>(), *const rest_c = rest + numel;
  T* const product = reinterpret_cast<T*>(rest_c + numel);
  const T* const none = nullptr;
  add_rows<<<grid, kThreads, 0, stream>>>(typed<T>(a.grad_hn), none, rest, numel);
  add_rows<<<grid, kThreads, 0, stream>>>(typed<T>(a.grad_cn), none, rest_c, numel);
  for (int64_t s = a.steps - 1; s >= 0; s--) {
    const int64_t t = a.reverse ? a.steps - 1 - s : s, before = (a.reverse ? t + 1 : t - 1) * numel;
    BackwardStep<T> step{};
    step.mode = a.mode, step.rows = a.batch, step.hidden = hidden;
    step.product = s == a.steps - 1 ? nullptr : product;
    step.grad_y = a.grad_y != nullptr ? typed<T>(a.grad_y) + t * numel : nullptr;
    step.h = s == 0 ? typed<T>(a.h0) : typed<T>(a.y) + before;
    if (a.mode == RnnMode::lstm) step.c = s == 0 ? typed<T>(a.c0) : typed<T>(a.cells) + before;
    step.y = typed<T>(a.y) + t * numel;
    step.gates = typed<T>(a.gates) + t * a.batch * width;
    if (a.cells != nullptr) step.cells = typed<T>(a.cells) + t * numel;
    step.rest = rest, step.rest_c = rest_c;
    step.grad_gates = typed<T>(a.grad_gates) + t * a.batch * width;
    if (a.grad_hidden_gates != nullptr) step.grad_hidden_gates = typed<T>(a.grad_hidden_gates) + t * a.batch * width;
    backward_step<T><<<grid, kThreads, 0, stream>>>(step);
    multiply<T>(a.batch, hidden, width, a.grad_hidden_gates != nullptr ? step.grad_hidden_gates : step.grad_gates,
                typed<T>(a.weight), hidden, 1, product);
  }
  add_rows<<<grid, kThreads, 0, stream>>>(a.steps > 0 ? product : none, rest, typed<T>(a.grad_h0), numel);
  if (a.grad_c0 != nullptr) add_rows<<<grid, kThreads, 0, stream>>>(none, rest_c, typed<T>(a.grad_c0), numel);
}

template <class Args, class F>
void by_type(const Args& a, const F& run) {
  if (a.batch * a.hidden == 0) return;
  if (!dispatch(a.dtype, FloatingTypes{}, run)) missing_kernel("rnn_layer", name_of(a.dtype));
  cuda::check_launch("launching a recurrent layer");
}

void rnn_layer(const RnnLayerArgs& a) {
  by_type(a, [&](auto tag) { forward<typename decltype(tag)::type>(a); });
}
void rnn_layer_backward(const RnnLayerBackwardArgs& a) {
  by_type(a, [&](auto tag) { backward<typename decltype(tag)::type>(a); });
}

MT_REGISTER_KERNEL(rnn_layer_kernel, &rnn_layer);
MT_REGISTER_KERNEL(rnn_layer_backward_kernel, &rnn_layer_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
