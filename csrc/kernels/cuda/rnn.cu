// LSTM and GRU cells on CUDA: a thread an element of the hidden state.
#include "kernels/rnn.h"

#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class C>
__device__ __forceinline__ C logistic(C x) {
  return C(1) / (C(1) + ::exp(-x));
}

template <class T>
struct Matrix {
  using C = compute_t<T>;
  const char* data;
  __device__ __forceinline__ C operator[](int64_t i) const { return convert<C>(reinterpret_cast<const T*>(data)[i]); }
};
template <class T>
__device__ __forceinline__ void put(char* data, int64_t i, compute_t<T> value) {
  reinterpret_cast<T*>(data)[i] = convert<T>(value);
}

// One gate of one of the two products, with its bias; `gate` counts within the row.
template <class T>
__device__ __forceinline__ compute_t<T> part(const char* gates, const char* bias, int64_t row, int64_t width,
                                             int64_t gate) {
  compute_t<T> x = Matrix<T>{gates}[row * width + gate];
  if (bias != nullptr) x += Matrix<T>{bias}[gate];
  return x;
}
template <class T>
__device__ __forceinline__ compute_t<T> both(const CellArgs& a, int64_t row, int64_t width, int64_t gate) {
  return part<T>(a.input_gates, a.input_bias, row, width, gate) +
         part<T>(a.hidden_gates, a.hidden_bias, row, width, gate);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    lstm_forward(const __grid_constant__ CellArgs a, char* hy, char* cy, char* workspace) {
  using C = compute_t<T>;
  const int64_t hidden = a.hidden, width = 4 * hidden;
  MT_GRID_LOOP(at, a.rows * hidden) {
    const int64_t row = at / hidden, j = at - row * hidden;
    const C i = logistic(both<T>(a, row, width, j)), f = logistic(both<T>(a, row, width, hidden + j));
    const C g = ::tanh(both<T>(a, row, width, 2 * hidden + j)), o = logistic(both<T>(a, row, width, 3 * hidden + j));
    const C c = f * Matrix<T>{a.state}[at] + i * g;
    put<T>(workspace, row * width + j, i);
    put<T>(workspace, row * width + hidden + j, f);
    put<T>(workspace, row * width + 2 * hidden + j, g);
    put<T>(workspace, row * width + 3 * hidden + j, o);
    put<T>(cy, at, c);
    put<T>(hy, at, o * ::tanh(c));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    lstm_gradient(const __grid_constant__ CellBackwardArgs a, char* grad_gates, char* grad_cx) {
  using C = compute_t<T>;
  const int64_t hidden = a.hidden, width = 4 * hidden;
  MT_GRID_LOOP(at, a.rows * hidden) {
    const int64_t row = at / hidden, first = row * width + (at - row * hidden);
    const Matrix<T> gates{a.workspace};
    const C i = gates[first], f = gates[first + hidden], g = gates[first + 2 * hidden], o = gates[first + 3 * hidden];
    const C gh = a.grad_hy != nullptr ? Matrix<T>{a.grad_hy}[at] : C(0);
    const C gc = a.grad_cy != nullptr ? Matrix<T>{a.grad_cy}[at] : C(0);
    const C t = ::tanh(Matrix<T>{a.cy}[at]);
    const C d = gh * o * (1 - t * t) + gc;  // d loss / d cy
    put<T>(grad_gates, first, d * g * i * (1 - i));
    put<T>(grad_gates, first + hidden, d * Matrix<T>{a.cx}[at] * f * (1 - f));
    put<T>(grad_gates, first + 2 * hidden, d * i * (1 - g * g));
    put<T>(grad_gates, first + 3 * hidden, gh * t * o * (1 - o));
    put<T>(grad_cx, at, d * f);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gru_forward(const __grid_constant__ CellArgs a, char* hy, char* workspace) {
  using C = compute_t<T>;
  const int64_t hidden = a.hidden, width = 3 * hidden;
  MT_GRID_LOOP(at, a.rows * hidden) {
    const int64_t row = at / hidden, j = at - row * hidden, kept = row * 5 * hidden + j;
    const C r = logistic(both<T>(a, row, width, j)), z = logistic(both<T>(a, row, width, hidden + j));
    const C hidden_part = part<T>(a.hidden_gates, a.hidden_bias, row, width, 2 * hidden + j);
    const C n = ::tanh(part<T>(a.input_gates, a.input_bias, row, width, 2 * hidden + j) + r * hidden_part);
    const C hx = Matrix<T>{a.state}[at];
    put<T>(workspace, kept, r);
    put<T>(workspace, kept + hidden, z);
    put<T>(workspace, kept + 2 * hidden, n);
    put<T>(workspace, kept + 3 * hidden, hx);
    put<T>(workspace, kept + 4 * hidden, hidden_part);
    put<T>(hy, at, n + z * (hx - n));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gru_gradient(const __grid_constant__ CellBackwardArgs a, char* grad_input, char* grad_hidden, char* grad_hx) {
  using C = compute_t<T>;
  const int64_t hidden = a.hidden, width = 3 * hidden;
  MT_GRID_LOOP(at, a.rows * hidden) {
    const int64_t row = at / hidden, j = at - row * hidden, first = row * 5 * hidden + j, to = row * width + j;
    const Matrix<T> kept{a.workspace};
    const C r = kept[first], z = kept[first + hidden], n = kept[first + 2 * hidden], hx = kept[first + 3 * hidden],
            hn = kept[first + 4 * hidden];
    const C g = Matrix<T>{a.grad_hy}[at];
    const C d = g * (1 - z) * (1 - n * n);  // d loss / d (argument of tanh)
    const C of_r = d * hn * (1 - r) * r, of_z = g * (hx - n) * (1 - z) * z;
    put<T>(grad_input, to, of_r);
    put<T>(grad_hidden, to, of_r);
    put<T>(grad_input, to + hidden, of_z);
    put<T>(grad_hidden, to + hidden, of_z);
    put<T>(grad_input, to + 2 * hidden, d);
    put<T>(grad_hidden, to + 2 * hidden, d * r);
    put<T>(grad_hx, at, g * z);
  }
}

template <class F>
void by_type(DType dtype, int64_t numel, const F& launch) {
  if (numel == 0) return;
  if (!dispatch(dtype, FloatingTypes{}, launch)) missing_kernel("recurrent cell", name_of(dtype));
  cuda::check_launch("launching a recurrent cell");
}
#define MT_LAUNCH(kernel, a) \
  kernel<typename decltype(tag)::type><<<grid_for((a).rows * (a).hidden), kThreads, 0, cuda::current_stream()>>>

void lstm_cell(const CellArgs& a, char* hy, char* cy, char* workspace) {
  by_type(a.dtype, a.rows * a.hidden, [&](auto tag) { MT_LAUNCH(lstm_forward, a)(a, hy, cy, workspace); });
}
void lstm_cell_backward(const CellBackwardArgs& a, char* grad_gates, char* grad_cx) {
  by_type(a.dtype, a.rows * a.hidden, [&](auto tag) { MT_LAUNCH(lstm_gradient, a)(a, grad_gates, grad_cx); });
}
void gru_cell(const CellArgs& a, char* hy, char* workspace) {
  by_type(a.dtype, a.rows * a.hidden, [&](auto tag) { MT_LAUNCH(gru_forward, a)(a, hy, workspace); });
}
void gru_cell_backward(const CellBackwardArgs& a, char* grad_input, char* grad_hidden, char* grad_hx) {
  by_type(a.dtype, a.rows * a.hidden,
          [&](auto tag) { MT_LAUNCH(gru_gradient, a)(a, grad_input, grad_hidden, grad_hx); });
}
#undef MT_LAUNCH

MT_REGISTER_KERNEL(lstm_cell_kernel, &lstm_cell);
MT_REGISTER_KERNEL(lstm_cell_backward_kernel, &lstm_cell_backward);
MT_REGISTER_KERNEL(gru_cell_kernel, &gru_cell);
MT_REGISTER_KERNEL(gru_cell_backward_kernel, &gru_cell_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
