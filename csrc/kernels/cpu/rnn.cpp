// LSTM and GRU cells, a short stretch of a row at a time: its operands are read into buffers of the compute type, the
// loops over those vectorise, and the results go out again.
#include "kernels/rnn.h"

#include "kernels/cpu/cast.h"
#include "kernels/cpu/rnn_gates.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kStretch = 64;

// Calls f(row, first column, columns) for every stretch, in parallel over rows.
template <class F>
void for_each_stretch(int64_t rows, int64_t hidden, const F& f) {
  parallel_for(rows, grain_of(16 * hidden), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
      for (int64_t j = 0; j < hidden; j += kStretch) f(i, j, std::min(kStretch, hidden - j));
  });
}

// Reads and writes stretches of matrices of one dtype as T.
template <class T>
struct Memory {
  DType dtype;
  LoadFn load = load_fn(dtype, dtype_of<T>);
  StoreFn store = store_fn(dtype_of<T>, dtype);
  int64_t size = static_cast<int64_t>(size_of(dtype));

  explicit Memory(DType d) : dtype(d) {}
  void read(T* to, const char* matrix, int64_t element, int64_t n) const { load(to, matrix + element * size, size, n); }
  void write(char* matrix, int64_t element, const T* from, int64_t n) const {
    store(matrix + element * size, size, from, n);
  }
};

// out (+)= one gate of a matrix and of its bias: set by the first call, added to by the next.
template <class T>
void add_gate(const Memory<T>& m, const char* gates, const char* bias, int64_t row, int64_t width, int64_t column,
              int64_t n, T* out, bool first) {
  T buffer[kStretch];
  m.read(first ? out : buffer, gates, row * width + column, n);
  if (!first)
    for (int64_t j = 0; j < n; j++) out[j] += buffer[j];
  if (!bias) return;
  m.read(buffer, bias, column, n);
  for (int64_t j = 0; j < n; j++) out[j] += buffer[j];
}

template <class T>
void lstm(const CellArgs& a, char* hy, char* cy, char* workspace) {
  const Memory<T> m(a.dtype);
  const int64_t hidden = a.hidden, width = 4 * hidden;
  for_each_stretch(a.rows, hidden, [&](int64_t row, int64_t column, int64_t n) {
    alignas(64) T gate[4][kStretch], c[kStretch], h[kStretch];
    for (int g = 0; g < 4; g++) {
      add_gate(m, a.input_gates, a.input_bias, row, width, g * hidden + column, n, gate[g], true);
      add_gate(m, a.hidden_gates, a.hidden_bias, row, width, g * hidden + column, n, gate[g], false);
    }
    m.read(c, a.state, row * hidden + column, n);
    for (int64_t j = 0; j < n; j++) {
      gate[0][j] = logistic(gate[0][j]);
      gate[1][j] = logistic(gate[1][j]);
      gate[2][j] = hyperbolic_tangent(gate[2][j]);
      gate[3][j] = logistic(gate[3][j]);
      c[j] = gate[1][j] * c[j] + gate[0][j] * gate[2][j];
      h[j] = gate[3][j] * hyperbolic_tangent(c[j]);
    }
    for (int g = 0; g < 4; g++) m.write(workspace, row * width + g * hidden + column, gate[g], n);
    m.write(cy, row * hidden + column, c, n);
    m.write(hy, row * hidden + column, h, n);
  });
}

template <class T>
void lstm_backward(const CellBackwardArgs& a, char* grad_gates, char* grad_cx) {
  const Memory<T> m(a.dtype);
  const int64_t hidden = a.hidden, width = 4 * hidden;
  for_each_stretch(a.rows, hidden, [&](int64_t row, int64_t column, int64_t n) {
    alignas(64) T gate[4][kStretch], gh[kStretch] = {}, gc[kStretch] = {}, cx[kStretch], cy[kStretch];
    const int64_t at = row * hidden + column;
    for (int g = 0; g < 4; g++) m.read(gate[g], a.workspace, row * width + g * hidden + column, n);
    if (a.grad_hy) m.read(gh, a.grad_hy, at, n);
    if (a.grad_cy) m.read(gc, a.grad_cy, at, n);
    m.read(cx, a.cx, at, n);
    m.read(cy, a.cy, at, n);
    for (int64_t j = 0; j < n; j++) {
      const T i = gate[0][j], f = gate[1][j], g = gate[2][j], o = gate[3][j], t = hyperbolic_tangent(cy[j]);
      const T d = gh[j] * o * (1 - t * t) + gc[j];  // d loss / d cy
      gate[0][j] = d * g * i * (1 - i);
      gate[1][j] = d * cx[j] * f * (1 - f);
      gate[2][j] = d * i * (1 - g * g);
      gate[3][j] = gh[j] * t * o * (1 - o);
      gc[j] = d * f;
    }
    for (int g = 0; g < 4; g++) m.write(grad_gates, row * width + g * hidden + column, gate[g], n);
    m.write(grad_cx, at, gc, n);
  });
}

template <class T>
void gru(const CellArgs& a, char* hy, char* workspace) {
  const Memory<T> m(a.dtype);
  const int64_t hidden = a.hidden, width = 3 * hidden;
  for_each_stretch(a.rows, hidden, [&](int64_t row, int64_t column, int64_t n) {
    alignas(64) T r[kStretch], z[kStretch], c[kStretch], hidden_part[kStretch], hx[kStretch], h[kStretch];
    T* sums[] = {r, z};
    for (int g = 0; g < 2; g++) {
      add_gate(m, a.input_gates, a.input_bias, row, width, g * hidden + column, n, sums[g], true);
      add_gate(m, a.hidden_gates, a.hidden_bias, row, width, g * hidden + column, n, sums[g], false);
    }
    add_gate(m, a.input_gates, a.input_bias, row, width, 2 * hidden + column, n, c, true);
    add_gate(m, a.hidden_gates, a.hidden_bias, row, width, 2 * hidden + column, n, hidden_part, true);
    m.read(hx, a.state, row * hidden + column, n);
    for (int64_t j = 0; j < n; j++) {
      r[j] = logistic(r[j]);
      z[j] = logistic(z[j]);
      c[j] = hyperbolic_tangent(c[j] + r[j] * hidden_part[j]);
      h[j] = c[j] + z[j] * (hx[j] - c[j]);
    }
    const T* kept[] = {r, z, c, hx, hidden_part};
    for (int g = 0; g < 5; g++) m.write(workspace, row * 5 * hidden + g * hidden + column, kept[g], n);
    m.write(hy, row * hidden + column, h, n);
  });
}

template <class T>
void gru_backward(const CellBackwardArgs& a, char* grad_input, char* grad_hidden, char* grad_hx) {
  const Memory<T> m(a.dtype);
  const int64_t hidden = a.hidden, width = 3 * hidden;
  for_each_stretch(a.rows, hidden, [&](int64_t row, int64_t column, int64_t n) {
    alignas(64) T kept[5][kStretch], g[kStretch], input_part[kStretch], hidden_part[kStretch];
    for (int k = 0; k < 5; k++) m.read(kept[k], a.workspace, row * 5 * hidden + k * hidden + column, n);
    m.read(g, a.grad_hy, row * hidden + column, n);
    for (int64_t j = 0; j < n; j++) {
      const T r = kept[0][j], z = kept[1][j], c = kept[2][j], hx = kept[3][j], hn = kept[4][j];
      const T d = g[j] * (1 - z) * (1 - c * c);  // d loss / d (argument of tanh)
      kept[0][j] = d * hn * (1 - r) * r;
      kept[1][j] = g[j] * (hx - c) * (1 - z) * z;
      input_part[j] = d;
      hidden_part[j] = d * r;
      g[j] *= z;
    }
    for (int k = 0; k < 2; k++) {
      m.write(grad_input, row * width + k * hidden + column, kept[k], n);
      m.write(grad_hidden, row * width + k * hidden + column, kept[k], n);
    }
    m.write(grad_input, row * width + 2 * hidden + column, input_part, n);
    m.write(grad_hidden, row * width + 2 * hidden + column, hidden_part, n);
    m.write(grad_hx, row * hidden + column, g, n);
  });
}

template <class F>
void with_type(DType dtype, const F& f) {
  if (!is_floating(dtype)) missing_kernel("recurrent cell", name_of(dtype));
  return dtype == DType::F64 ? f(Tag<double>{}) : f(Tag<float>{});
}

void lstm_cell(const CellArgs& a, char* hy, char* cy, char* workspace) {
  with_type(a.dtype, [&](auto tag) { lstm<typename decltype(tag)::type>(a, hy, cy, workspace); });
}
void lstm_cell_backward(const CellBackwardArgs& a, char* grad_gates, char* grad_cx) {
  with_type(a.dtype, [&](auto tag) { lstm_backward<typename decltype(tag)::type>(a, grad_gates, grad_cx); });
}
void gru_cell(const CellArgs& a, char* hy, char* workspace) {
  with_type(a.dtype, [&](auto tag) { gru<typename decltype(tag)::type>(a, hy, workspace); });
}
void gru_cell_backward(const CellBackwardArgs& a, char* grad_input, char* grad_hidden, char* grad_hx) {
  with_type(a.dtype,
            [&](auto tag) { gru_backward<typename decltype(tag)::type>(a, grad_input, grad_hidden, grad_hx); });
}

MT_REGISTER_KERNEL(lstm_cell_kernel, &lstm_cell);
MT_REGISTER_KERNEL(lstm_cell_backward_kernel, &lstm_cell_backward);
MT_REGISTER_KERNEL(gru_cell_kernel, &gru_cell);
MT_REGISTER_KERNEL(gru_cell_backward_kernel, &gru_cell_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
