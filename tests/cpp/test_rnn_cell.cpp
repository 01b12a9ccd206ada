// Single steps of recurrent cells: forward against the formulas written out, backward against difference quotients of
// the same formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "views.h"
#include "kernels/rnn.h"

namespace minitorch {
namespace {

struct CellShape {
  int64_t rows, hidden;
};
const CellShape kShapes[] = {{1, 1}, {3, 5}, {7, 64}, {130, 33}};

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// One element of a cell as functions of what it is made from: arguments of the gates from the input, from the hidden
// state, and the state before.
struct Element {
  double input[4], hidden[4], state;
};
struct LstmResult {
  double gates[4], cy, hy;
};
LstmResult lstm(const Element& e) {
  LstmResult r;
  for (int g = 0; g < 4; g++)
    r.gates[g] = g == 2 ? std::tanh(e.input[g] + e.hidden[g]) : logistic(e.input[g] + e.hidden[g]);
  r.cy = r.gates[1] * e.state + r.gates[0] * r.gates[2];
  r.hy = r.gates[3] * std::tanh(r.cy);
  return r;
}
struct GruResult {
  double r, z, n, hy;
};
GruResult gru(const Element& e) {
  GruResult x;
  x.r = logistic(e.input[0] + e.hidden[0]);
  x.z = logistic(e.input[1] + e.hidden[1]);
  x.n = std::tanh(e.input[2] + x.r * e.hidden[2]);
  x.hy = (1 - x.z) * x.n + x.z * e.state;
  return x;
}

// All operands of a cell with `gates` gates, of type T.
template <class T>
struct Cell {
  CellShape shape;
  int64_t gates, width;
  bool biased;
  Vector<T> input, hidden, input_bias, hidden_bias, state;
  Cell(CellShape s, int64_t count, bool with_biases)
      : shape(s),
        gates(count),
        width(count * s.hidden),
        biased(with_biases),
        input(random_of<T>(s.rows * width, 1, -2, 2)),
        hidden(random_of<T>(s.rows * width, 2, -2, 2)),
        input_bias(random_of<T>(width, 3)),
        hidden_bias(random_of<T>(width, 4)),
        state(random_of<T>(s.rows * s.hidden, 5)) {}
  CellArgs args() {
    return {shape.rows,
            shape.hidden,
            dtype_of<T>,
            bytes(input),
            bytes(hidden),
            biased ? bytes(input_bias) : nullptr,
            biased ? bytes(hidden_bias) : nullptr,
            bytes(state)};
  }
  Element element(int64_t row, int64_t j) const {
    Element e{};
    for (int64_t g = 0; g < gates; g++) {
      const int64_t at = g * shape.hidden + j;
      e.input[g] = number(input[row * width + at]) + (biased ? number(input_bias[at]) : 0);
      e.hidden[g] = number(hidden[row * width + at]) + (biased ? number(hidden_bias[at]) : 0);
    }
    e.state = number(state[row * shape.hidden + j]);
    return e;
  }
  // Calls f(row, j, the number of the element) for the hidden state.
  template <class F>
  void each(const F& f) const {
    for (int64_t row = 0; row < shape.rows; row++)
      for (int64_t j = 0; j < shape.hidden; j++) f(row, j, row * shape.hidden + j);
  }
};

// Arguments below 6 in size pass some ten operations; slopes of the functions are at most 1.
template <class T>
double near(double value) {
  return allowed<T>(value, 6, 10);
}

template <class T>
void expect_lstm(CellShape s, bool biased) {
  Cell<T> cell(s, 4, biased);
  Vector<T> hy(s.rows * s.hidden), cy(hy.size()), workspace(s.rows * cell.width);
  lstm_cell_kernel(cell.args(), bytes(hy), bytes(cy), bytes(workspace));
  cell.each([&](int64_t row, int64_t j, int64_t at) {
    const LstmResult exact = lstm(cell.element(row, j));
    for (int64_t g = 0; g < 4; g++)
      ASSERT_NEAR(number(workspace[row * cell.width + g * s.hidden + j]), exact.gates[g], near<T>(exact.gates[g]));
    ASSERT_NEAR(number(cy[at]), exact.cy, near<T>(exact.cy)) << at;
    ASSERT_NEAR(number(hy[at]), exact.hy, near<T>(exact.hy)) << at;
  });
}

template <class T>
void expect_gru(CellShape s, bool biased) {
  Cell<T> cell(s, 3, biased);
  Vector<T> hy(s.rows * s.hidden), workspace(s.rows * 5 * s.hidden);
  gru_cell_kernel(cell.args(), bytes(hy), bytes(workspace));
  cell.each([&](int64_t row, int64_t j, int64_t at) {
    const Element e = cell.element(row, j);
    const GruResult exact = gru(e);
    const double kept[] = {exact.r, exact.z, exact.n, e.state, e.hidden[2]};
    for (int64_t k = 0; k < 5; k++)
      ASSERT_NEAR(number(workspace[(row * 5 + k) * s.hidden + j]), kept[k], near<T>(kept[k])) << k;
    ASSERT_NEAR(number(hy[at]), exact.hy, near<T>(exact.hy)) << at;
  });
}

TEST(RnnCell, ForwardIsItsFormulas) {
  on_each_isa([] {
    for (const CellShape& s : kShapes)
      for (const bool biased : {false, true}) {
        expect_lstm<float>(s, biased), expect_gru<float>(s, biased);
        expect_lstm<BFloat16>(s, biased), expect_gru<BFloat16>(s, biased);
        expect_lstm<double>(s, biased), expect_gru<double>(s, biased);
      }
  });
}

// The slope of f at x. The error of the quotient is the third derivative's, times the step's square, and the rounding
// of f over the step: together below 1e-9 for functions of this size.
double slope(double& x, const std::function<double()>& f) {
  const double saved = x, step = 1e-5;
  x = saved + step;
  const double above = f();
  x = saved - step;
  const double below = f();
  x = saved;
  return (above - below) / (2 * step);
}
constexpr double kSlopeError = 1e-9;

// Which of the two results of an LSTM cell have a gradient.
template <class T>
void expect_lstm_slopes(CellShape s, bool of_hy, bool of_cy) {
  Cell<T> cell(s, 4, false);
  const int64_t n = s.rows * s.hidden;
  const auto grad_hy = random_of<T>(n, 6), grad_cy = random_of<T>(n, 7);
  Vector<T> hy(n), cy(n), workspace(s.rows * cell.width), grad_gates(workspace.size()), grad_cx(n);
  // What the backward pass reads is of double precision rounded once.
  cell.each([&](int64_t row, int64_t j, int64_t at) {
    const LstmResult exact = lstm(cell.element(row, j));
    for (int64_t g = 0; g < 4; g++) workspace[row * cell.width + g * s.hidden + j] = stored<T>(exact.gates[g]);
    cy[at] = stored<T>(exact.cy);
  });
  lstm_cell_backward_kernel({.rows = s.rows,
                             .hidden = s.hidden,
                             .dtype = dtype_of<T>,
                             .grad_hy = of_hy ? reinterpret_cast<const char*>(grad_hy.data()) : nullptr,
                             .grad_cy = of_cy ? reinterpret_cast<const char*>(grad_cy.data()) : nullptr,
                             .cx = bytes(cell.state),
                             .cy = bytes(cy),
                             .workspace = bytes(workspace)},
                            bytes(grad_gates), bytes(grad_cx));
  // Gates and cells of type T are within a rounding; five such factors make a gradient below 2.
  const double error = kSlopeError + 12 * rounding<T>();
  cell.each([&](int64_t row, int64_t j, int64_t at) {
    Element e = cell.element(row, j);
    const auto loss = [&] {
      const LstmResult r = lstm(e);
      return (of_hy ? number(grad_hy[at]) * r.hy : 0) + (of_cy ? number(grad_cy[at]) * r.cy : 0);
    };
    for (int64_t g = 0; g < 4; g++)
      ASSERT_NEAR(number(grad_gates[row * cell.width + g * s.hidden + j]), slope(e.input[g], loss), error) << g;
    ASSERT_NEAR(number(grad_cx[at]), slope(e.state, loss), error) << at;
  });
}

template <class T>
void expect_gru_slopes(CellShape s) {
  Cell<T> cell(s, 3, false);
  const int64_t n = s.rows * s.hidden;
  const auto grad_hy = random_of<T>(n, 6);
  Vector<T> workspace(5 * n), grad_input(s.rows * cell.width), grad_hidden(grad_input.size()), grad_hx(n);
  cell.each([&](int64_t row, int64_t j, int64_t) {
    const Element e = cell.element(row, j);
    const GruResult exact = gru(e);
    const double kept[] = {exact.r, exact.z, exact.n, e.state, e.hidden[2]};
    for (int64_t k = 0; k < 5; k++) workspace[(row * 5 + k) * s.hidden + j] = stored<T>(kept[k]);
  });
  gru_cell_backward_kernel({.rows = s.rows,
                            .hidden = s.hidden,
                            .dtype = dtype_of<T>,
                            .grad_hy = reinterpret_cast<const char*>(grad_hy.data()),
                            .grad_cy = nullptr,
                            .cx = nullptr,
                            .cy = nullptr,
                            .workspace = bytes(workspace)},
                           bytes(grad_input), bytes(grad_hidden), bytes(grad_hx));
  const double error = kSlopeError + 12 * rounding<T>();
  cell.each([&](int64_t row, int64_t j, int64_t at) {
    Element e = cell.element(row, j);
    const auto loss = [&] { return number(grad_hy[at]) * gru(e).hy; };
    for (int64_t g = 0; g < 3; g++) {
      const int64_t to = row * cell.width + g * s.hidden + j;
      ASSERT_NEAR(number(grad_input[to]), slope(e.input[g], loss), error) << g;
      ASSERT_NEAR(number(grad_hidden[to]), slope(e.hidden[g], loss), error) << g;
    }
    ASSERT_NEAR(number(grad_hx[at]), slope(e.state, loss), error) << at;
  });
}

TEST(RnnCell, BackwardIsTheSlopeOfForward) {
  on_each_isa([] {
    for (const CellShape& s : kShapes) {
      for (const bool of_hy : {false, true})
        for (const bool of_cy : {false, true}) {
          expect_lstm_slopes<float>(s, of_hy, of_cy);
          expect_lstm_slopes<BFloat16>(s, of_hy, of_cy);
          expect_lstm_slopes<double>(s, of_hy, of_cy);
        }
      expect_gru_slopes<float>(s);
      expect_gru_slopes<BFloat16>(s);
      expect_gru_slopes<double>(s);
    }
  });
}

}  // namespace
}  // namespace minitorch
