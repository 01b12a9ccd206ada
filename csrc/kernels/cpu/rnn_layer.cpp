// A recurrent layer over a whole sequence. W_hh is packed once into the panels of the matrix product. Rows of the batch
// do not depend on each other, so each thread runs all time steps for its rows, without a barrier, a block of rows at a
// time whose gates stay in its cache.
#include "kernels/rnn.h"

#include <initializer_list>

#include "core/parallel.h"
#include "kernels/cpu/gemm_convert.h"
#include "kernels/cpu/gemm_core.h"
#include "kernels/cpu/rnn_gates.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace gemm;

constexpr int64_t kBlockK = 192;              // as in the matrix product: longer sums cost accuracy
constexpr int64_t kBlockBytes = 256 << 10;    // of the products of one block of rows
constexpr int64_t kSerialProducts = 1 << 17;  // multiplications that are not worth a second thread
constexpr int64_t kStretch = 64;

// A matrix k x n as the right factor of products, packed by the calling thread and read by all.
template <class S>
struct PackedMatrix {
  using E = Element<S>;
  int64_t k, n, depth;
  E* data;

  PackedMatrix(const S* src, int64_t rows, int64_t cols, int64_t stride_k, int64_t stride_n)
      : k(rows), n(cols), depth(ceil_div(rows, ceil_div(rows, kBlockK))) {
    data = scratch<E>(Scratch::packed_b, k * padded_columns<E>(n));
    const int64_t panels = ceil_div(n, kColumns<E>);
    parallel_for(panels, grain_of(k * kColumns<E>), [&](int64_t begin, int64_t end) {
      for (int64_t kk = 0; kk < k; kk += depth) {
        const int64_t deep = min64(depth, k - kk);
        for (int64_t q = begin; q < end; q++) {
          const int64_t column = q * kColumns<E>, width = min64(n - column, kColumns<E>);
          pack_panel<S>(src + kk * stride_k + column * stride_n, stride_n, stride_k, static_cast<int>(width),
                        static_cast<int>(padded_columns<E>(width)), deep, false,
                        data + kk * padded_columns<E>(n) + column * deep);
        }
      }
    });
  }

  // out (rows x n) = or += a (rows x k, contiguous) times this.
  void multiply(const S* a, int64_t rows, E* out, bool add) const {
    E* const packed = scratch<E>(Scratch::packed_a, rows * depth + kLanes<E>);
    Output<E> to;
    to.c = out, to.row = n, to.col = 1;
    const RowPanels panels = split_rows<E>(rows);
    for (int64_t kk = 0; kk < k; kk += depth) {
      const int64_t deep = min64(depth, k - kk);
      for (int64_t p = 0; p < panels.panels; p++)
        pack_panel<S>(a + panels.begin(p) * k + kk, k, 1, panels.width(p), panels.width(p), deep, false,
                      packed + panels.begin(p) * deep);
      multiply_block<E>(packed, rows, data + kk * padded_columns<E>(n), n, deep, to, 0, 0, kk == 0 && !add,
                        kk + deep == k);
    }
  }
};

// One stretch of a row in the compute type. Loops run over whole vectors; what lies behind n is never written back.
template <class E>
struct Stretch {
  alignas(64) E v[kStretch];
  template <class S>
  MT_INLINE void read(const S* from, int64_t n) {
    widen<S>(from, v, n);
  }
  template <class S>
  MT_INLINE void write(S* to, int64_t n) const {
    narrow<S>(v, to, n);
  }
  MT_INLINE void fill(E x) {
    for (int64_t i = 0; i < kStretch; i++) v[i] = x;
  }
};

// Calls f(first column, columns, columns rounded up to whole vectors) for each stretch of a row.
template <class E, class F>
MT_INLINE void for_each_stretch(int64_t hidden, const F& f) {
  for (int64_t j = 0; j < hidden; j += kStretch) {
    const int64_t n = min64(kStretch, hidden - j);
    f(j, n, padded_columns<E>(n));
  }
}

// The pointers of one row at one time step; `product` is its row of h W_hh^T + nothing, `bias` has a value a column.
template <class S>
struct ForwardRow {
  using E = Element<S>;
  int64_t hidden;
  const E *product, *bias;
  const S *h, *c;
  S *gates, *y, *cells;

  MT_INLINE void hidden_part(int64_t gate, int64_t j, int64_t n, Stretch<E>& to) const {
    const E *p = product + gate * hidden + j, *b = bias + gate * hidden + j;
    for (int64_t x = 0; x < n; x++) to.v[x] = p[x] + b[x];
  }
  MT_INLINE void sum(int64_t gate, int64_t j, int64_t n, int64_t m, Stretch<E>& to) const {
    const E *p = product + gate * hidden + j, *b = bias + gate * hidden + j;
    to.read(gates + gate * hidden + j, n);
    for (int64_t x = 0; x < m; x++) to.v[x] += p[x] + b[x];
  }

  void lstm() const {
    Stretch<E> gate[4] = {}, state = {}, out;
    for_each_stretch<E>(hidden, [&](int64_t j, int64_t n, int64_t m) {
      for (int g = 0; g < 4; g++) sum(g, j, n, m, gate[g]);
      state.read(c + j, n);
      E *const i = gate[0].v, *const f = gate[1].v, *const g = gate[2].v, *const o = gate[3].v;
      for (int64_t x = 0; x < m; x++) {
        i[x] = logistic(i[x]);
        f[x] = logistic(f[x]);
        g[x] = hyperbolic_tangent(g[x]);
        o[x] = logistic(o[x]);
        state.v[x] = f[x] * state.v[x] + i[x] * g[x];
        out.v[x] = o[x] * hyperbolic_tangent(state.v[x]);
      }
      for (int k = 0; k < 4; k++) gate[k].write(gates + k * hidden + j, n);
      state.write(cells + j, n);
      out.write(y + j, n);
    });
  }

  void gru() const {
    Stretch<E> r = {}, z = {}, c_new = {}, hn = {}, state = {}, out;
    for_each_stretch<E>(hidden, [&](int64_t j, int64_t n, int64_t m) {
      sum(0, j, n, m, r);
      sum(1, j, n, m, z);
      hidden_part(2, j, m, hn);
      c_new.read(gates + 2 * hidden + j, n);
      state.read(h + j, n);
      for (int64_t x = 0; x < m; x++) {
        r.v[x] = logistic(r.v[x]);
        z.v[x] = logistic(z.v[x]);
        c_new.v[x] = hyperbolic_tangent(c_new.v[x] + r.v[x] * hn.v[x]);
        out.v[x] = c_new.v[x] + z.v[x] * (state.v[x] - c_new.v[x]);
      }
      r.write(gates + j, n);
      z.write(gates + hidden + j, n);
      c_new.write(gates + 2 * hidden + j, n);
      hn.write(cells + j, n);
      out.write(y + j, n);
    });
  }

  void simple(bool relu) const {
    Stretch<E> s = {};
    for_each_stretch<E>(hidden, [&](int64_t j, int64_t n, int64_t m) {
      sum(0, j, n, m, s);
      if (relu) {
        for (int64_t x = 0; x < m; x++) s.v[x] = s.v[x] < E(0) ? E(0) : s.v[x];
      } else {
        for (int64_t x = 0; x < m; x++) s.v[x] = hyperbolic_tangent(s.v[x]);
      }
      s.write(y + j, n);
    });
  }
};

// `grad` holds the gradient of h_t from the step after, and becomes what of the gradient of h_{t-1} does not pass
// through the product (only the GRU has such a part); grad_c goes from that of c_t to that of c_{t-1}.
template <class S>
struct BackwardRow {
  using E = Element<S>;
  int64_t hidden;
  E *grad, *grad_c;
  const S *grad_y, *h, *c, *y, *gates, *cells;
  S *grad_gates, *grad_hidden_gates;

  MT_INLINE void total(int64_t j, int64_t n, int64_t m, Stretch<E>& to) const {
    if (grad_y == nullptr) {
      to.fill(E(0));
    } else {
      to.read(grad_y + j, n);
    }
    for (int64_t x = 0; x < m; x++) to.v[x] += grad[j + x];
  }

  void lstm() const {
    Stretch<E> gate[4] = {}, gh = {}, gc = {}, before = {}, now = {};
    for_each_stretch<E>(hidden, [&](int64_t j, int64_t n, int64_t m) {
      for (int k = 0; k < 4; k++) gate[k].read(gates + k * hidden + j, n);
      before.read(c + j, n);
      now.read(cells + j, n);
      gc.read(grad_c + j, n);
      total(j, n, m, gh);
      for (int64_t x = 0; x < m; x++) {
        const E i = gate[0].v[x], f = gate[1].v[x], g = gate[2].v[x], o = gate[3].v[x];
        const E t = hyperbolic_tangent(now.v[x]), d = gh.v[x] * o * (1 - t * t) + gc.v[x];
        gate[0].v[x] = d * g * i * (1 - i);
        gate[1].v[x] = d * before.v[x] * f * (1 - f);
        gate[2].v[x] = d * i * (1 - g * g);
        gate[3].v[x] = gh.v[x] * t * o * (1 - o);
        gc.v[x] = d * f;
      }
      for (int k = 0; k < 4; k++) gate[k].write(grad_gates + k * hidden + j, n);
      gc.write(grad_c + j, n);
    });
  }

  void gru() const {
    Stretch<E> r = {}, z = {}, c_new = {}, hn = {}, state = {}, gh = {}, input = {};
    for_each_stretch<E>(hidden, [&](int64_t j, int64_t n, int64_t m) {
      r.read(gates + j, n);
      z.read(gates + hidden + j, n);
      c_new.read(gates + 2 * hidden + j, n);
      hn.read(cells + j, n);
      state.read(h + j, n);
      total(j, n, m, gh);
      for (int64_t x = 0; x < m; x++) {
        const E rx = r.v[x], zx = z.v[x], cx = c_new.v[x], g = gh.v[x];
        const E d = g * (1 - zx) * (1 - cx * cx);  // d loss / d (argument of tanh)
        input.v[x] = d;
        c_new.v[x] = d * rx;
        r.v[x] = d * hn.v[x] * (1 - rx) * rx;
        z.v[x] = g * (state.v[x] - cx) * (1 - zx) * zx;
        gh.v[x] = g * zx;
      }
      for (S* to : {grad_gates, grad_hidden_gates}) {
        r.write(to + j, n);
        z.write(to + hidden + j, n);
      }
      input.write(grad_gates + 2 * hidden + j, n);
      c_new.write(grad_hidden_gates + 2 * hidden + j, n);
      gh.write(grad + j, n);
    });
  }

  void simple(bool relu) const {
    Stretch<E> gh = {}, out = {};
    for_each_stretch<E>(hidden, [&](int64_t j, int64_t n, int64_t m) {
      out.read(y + j, n);
      total(j, n, m, gh);
      if (relu) {
        for (int64_t x = 0; x < m; x++) gh.v[x] = out.v[x] <= E(0) ? E(0) : gh.v[x];
      } else {
        for (int64_t x = 0; x < m; x++) gh.v[x] *= 1 - out.v[x] * out.v[x];
      }
      gh.write(grad_gates + j, n);
    });
  }
};

// Calls f(first row, rows) for blocks of rows, in parallel.
template <class E, class Args, class F>
void for_each_block(const Args& a, int64_t width, const F& f) {
  const int64_t fitting = kBlockBytes / (width * static_cast<int64_t>(sizeof(E))) / kMaxRows * kMaxRows;
  const int64_t most = min64(max64(fitting, kMaxRows), 8 * kMaxRows);
  const int64_t products = max64(a.steps * a.hidden * a.hidden * gate_count(a.mode), 1);
  parallel_for(a.batch, ceil_div(kSerialProducts, products), [&](int64_t begin, int64_t end) {
    const int64_t blocks = ceil_div(end - begin, most), rows = ceil_div(end - begin, blocks);
    for (int64_t i = begin; i < end; i += rows) f(i, min64(rows, end - i));
  });
}

template <class S>
void forward(const RnnLayerArgs& a) {
  using E = Element<S>;
  const int64_t hidden = a.hidden, width = gate_count(a.mode) * hidden;
  const auto at = [](auto* p) { return reinterpret_cast<const S*>(p); };
  const PackedMatrix<S> weight(at(a.weight), hidden, width, 1, hidden);
  E* const bias = scratch<E>(Scratch::columns, width + kStretch);
  for (int64_t j = 0; j < width + kStretch; j++) bias[j] = E(0);
  if (a.bias) widen<S>(at(a.bias), bias, width);
  S *const gates = reinterpret_cast<S*>(a.gates), *const y = reinterpret_cast<S*>(a.y);
  S* const cells = reinterpret_cast<S*>(a.cells);
  for_each_block<E>(a, width, [&](int64_t first, int64_t rows) {
    E* const product = scratch<E>(Scratch::partial, rows * width + kStretch);
    const S *h = at(a.h0) + first * hidden, *c = a.c0 ? at(a.c0) + first * hidden : nullptr;
    for (int64_t s = 0; s < a.steps; s++) {
      const int64_t row = (a.reverse ? a.steps - 1 - s : s) * a.batch + first;
      weight.multiply(h, rows, product, false);
      for (int64_t r = 0; r < rows; r++) {
        const int64_t to = (row + r) * hidden;
        const ForwardRow<S> cell{hidden,         product + r * width,          bias,
                                 h + r * hidden, c ? c + r * hidden : nullptr, gates + (row + r) * width,
                                 y + to,         cells ? cells + to : nullptr};
        switch (a.mode) {
          case RnnMode::lstm: cell.lstm(); break;
          case RnnMode::gru: cell.gru(); break;
          default: cell.simple(a.mode == RnnMode::relu);
        }
      }
      h = y + row * hidden;
      if (c) c = cells + row * hidden;
    }
    memcpy(reinterpret_cast<S*>(a.hn) + first * hidden, h, static_cast<size_t>(rows * hidden) * sizeof(S));
    if (c) memcpy(reinterpret_cast<S*>(a.cn) + first * hidden, c, static_cast<size_t>(rows * hidden) * sizeof(S));
  });
}

template <class S>
void backward(const RnnLayerBackwardArgs& a) {
  using E = Element<S>;
  const int64_t hidden = a.hidden, width = gate_count(a.mode) * hidden;
  const auto at = [](auto* p) { return reinterpret_cast<const S*>(p); };
  const PackedMatrix<S> weight(at(a.weight), width, hidden, hidden, 1);
  S* const grad_gates = reinterpret_cast<S*>(a.grad_gates);
  S* const grad_hidden_gates = reinterpret_cast<S*>(a.grad_hidden_gates);
  for_each_block<E>(a, width, [&](int64_t first, int64_t rows) {
    const int64_t numel = rows * hidden, start = first * hidden;
    E* const grad = scratch<E>(Scratch::partial, 2 * numel + 2 * kStretch);
    E* const grad_c = grad + numel + kStretch;
    for (int64_t i = 0; i < 2 * numel + 2 * kStretch; i++) grad[i] = E(0);
    if (a.grad_hn) widen<S>(at(a.grad_hn) + start, grad, numel);
    if (a.grad_cn) widen<S>(at(a.grad_cn) + start, grad_c, numel);
    for (int64_t s = a.steps - 1; s >= 0; s--) {
      const int64_t row = (a.reverse ? a.steps - 1 - s : s) * a.batch + first;
      const int64_t before = (a.reverse ? row + a.batch : row - a.batch) * hidden;
      const S* const h = s == 0 ? at(a.h0) + start : at(a.y) + before;
      const S* const c = a.mode != RnnMode::lstm ? nullptr : s == 0 ? at(a.c0) + start : at(a.cells) + before;
      for (int64_t r = 0; r < rows; r++) {
        const int64_t from = (row + r) * hidden, gate = (row + r) * width;
        const BackwardRow<S> cell{hidden,
                                  grad + r * hidden,
                                  grad_c + r * hidden,
                                  a.grad_y ? at(a.grad_y) + from : nullptr,
                                  h + r * hidden,
                                  c ? c + r * hidden : nullptr,
                                  at(a.y) + from,
                                  at(a.gates) + gate,
                                  a.cells ? at(a.cells) + from : nullptr,
                                  grad_gates + gate,
                                  grad_hidden_gates ? grad_hidden_gates + gate : nullptr};
        switch (a.mode) {
          case RnnMode::lstm: cell.lstm(); break;
          case RnnMode::gru: cell.gru(); break;
          default: cell.simple(a.mode == RnnMode::relu);
        }
      }
      const S* const through = grad_hidden_gates ? grad_hidden_gates : grad_gates;
      weight.multiply(through + row * width, rows, grad, a.mode == RnnMode::gru);
    }
    narrow<S>(grad, reinterpret_cast<S*>(a.grad_h0) + start, numel);
    if (a.grad_c0) narrow<S>(grad_c, reinterpret_cast<S*>(a.grad_c0) + start, numel);
  });
}

using LayerTypes = Types<float, double, BFloat16, Half>;

void rnn_layer(const RnnLayerArgs& a) {
  if (!dispatch(a.dtype, LayerTypes{}, [&](auto tag) { forward<typename decltype(tag)::type>(a); }))
    missing_kernel("rnn_layer", name_of(a.dtype));
}
void rnn_layer_backward(const RnnLayerBackwardArgs& a) {
  if (!dispatch(a.dtype, LayerTypes{}, [&](auto tag) { backward<typename decltype(tag)::type>(a); }))
    missing_kernel("rnn_layer_backward", name_of(a.dtype));
}

MT_REGISTER_KERNEL(rnn_layer_kernel, &rnn_layer);
MT_REGISTER_KERNEL(rnn_layer_backward_kernel, &rnn_layer_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
