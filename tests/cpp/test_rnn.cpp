// Recurrent layers: forward against the formulas written out, backward against difference quotients of the forward
// pass.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "isas.h"
#include "memory.h"
#include "kernels/rnn.h"

namespace minitorch {
namespace {

using Numbers = Vector<double>;
constexpr int64_t kSteps = 3, kBatch = 2, kHidden = 5;

Numbers noise(int64_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Numbers x(static_cast<size_t>(n));
  for (double& v : x) v = uniform(engine);
  return x;
}
char* bytes(Numbers& x) { return reinterpret_cast<char*>(x.data()); }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }

struct Layer {
  RnnMode mode;
  bool reverse;
  int64_t gates = gate_count(mode);
  Numbers weight = noise(gates * kHidden * kHidden, 1), bias = noise(gates * kHidden, 2);
  Numbers h0 = noise(kBatch * kHidden, 3), c0 = noise(kBatch * kHidden, 4);
  Numbers input = noise(kSteps * kBatch * gates * kHidden, 5);
  Numbers activated = input, y = Numbers(kSteps * kBatch * kHidden), cells = y, hn = h0, cn = c0;

  void forward() {
    activated = input;
    const bool lstm = mode == RnnMode::lstm, gru = mode == RnnMode::gru;
    rnn_layer_kernel({mode, reverse, DType::F64, kSteps, kBatch, kHidden, bytes(weight), bytes(bias), bytes(h0),
                      lstm ? bytes(c0) : nullptr, bytes(activated), bytes(y), lstm || gru ? bytes(cells) : nullptr,
                      bytes(hn), lstm ? bytes(cn) : nullptr});
  }
  // A linear function of all results.
  double loss() {
    forward();
    double sum = 0;
    for (size_t i = 0; i < y.size(); i++) sum += grad_y[i] * y[i];
    for (size_t i = 0; i < hn.size(); i++) sum += grad_hn[i] * hn[i];
    if (mode == RnnMode::lstm)
      for (size_t i = 0; i < cn.size(); i++) sum += grad_cn[i] * cn[i];
    return sum;
  }
  Numbers grad_y = noise(kSteps * kBatch * kHidden, 6), grad_hn = noise(kBatch * kHidden, 7),
          grad_cn = noise(kBatch * kHidden, 8);
};

constexpr RnnMode kModes[] = {RnnMode::tanh, RnnMode::relu, RnnMode::lstm, RnnMode::gru};

TEST(RnnLayer, ForwardIsItsFormulas) {
  on_each_isa([] {
    for (const RnnMode mode : kModes)
      for (const bool reverse : {false, true}) {
        Layer layer{mode, reverse};
        layer.forward();
        const int64_t width = layer.gates * kHidden;
        for (int64_t b = 0; b < kBatch; b++) {
          Numbers h(kHidden), c(kHidden);
          for (int64_t j = 0; j < kHidden; j++)
            h[static_cast<size_t>(j)] = layer.h0[static_cast<size_t>(b * kHidden + j)],
            c[static_cast<size_t>(j)] = layer.c0[static_cast<size_t>(b * kHidden + j)];
          for (int64_t s = 0; s < kSteps; s++) {
            const int64_t row = (reverse ? kSteps - 1 - s : s) * kBatch + b;
            const Numbers before = h;
            const auto hidden = [&](int64_t g, int64_t j) {
              double sum = layer.bias[static_cast<size_t>(g * kHidden + j)];
              for (int64_t k = 0; k < kHidden; k++)
                sum +=
                    layer.weight[static_cast<size_t>((g * kHidden + j) * kHidden + k)] * before[static_cast<size_t>(k)];
              return sum;
            };
            const auto given = [&](int64_t g, int64_t j) {
              return layer.input[static_cast<size_t>(row * width + g * kHidden + j)];
            };
            for (int64_t j = 0; j < kHidden; j++) {
              double& to = h[static_cast<size_t>(j)];
              const auto both = [&](int64_t g) { return given(g, j) + hidden(g, j); };
              if (mode == RnnMode::lstm) {
                double& cell = c[static_cast<size_t>(j)];
                cell = logistic(both(1)) * cell + logistic(both(0)) * std::tanh(both(2));
                to = logistic(both(3)) * std::tanh(cell);
              } else if (mode == RnnMode::gru) {
                const double z = logistic(both(1)), n = std::tanh(given(2, j) + logistic(both(0)) * hidden(2, j));
                to = (1 - z) * n + z * before[static_cast<size_t>(j)];
              } else {
                to = mode == RnnMode::tanh ? std::tanh(both(0)) : std::max(0.0, both(0));
              }
              EXPECT_NEAR(layer.y[static_cast<size_t>(row * kHidden + j)], to, 1e-12);
              if (s == kSteps - 1) {
                EXPECT_NEAR(layer.hn[static_cast<size_t>(b * kHidden + j)], to, 1e-12);
                if (mode == RnnMode::lstm)
                  EXPECT_NEAR(layer.cn[static_cast<size_t>(b * kHidden + j)], c[static_cast<size_t>(j)], 1e-12);
              }
            }
          }
        }
      }
  });
}

TEST(RnnLayer, BackwardIsTheSlopeOfForward) {
  on_each_isa([] {
    for (const RnnMode mode : kModes)
      for (const bool reverse : {false, true}) {
        Layer layer{mode, reverse};
        layer.forward();
        const bool lstm = mode == RnnMode::lstm, gru = mode == RnnMode::gru;
        Numbers grad_gates(layer.input.size()), grad_hidden(layer.input.size()), grad_h0(layer.h0.size()),
            grad_c0(layer.c0.size());
        rnn_layer_backward_kernel({mode, reverse, DType::F64, kSteps, kBatch, kHidden, bytes(layer.weight),
                                   bytes(layer.grad_y), bytes(layer.grad_hn), lstm ? bytes(layer.grad_cn) : nullptr,
                                   bytes(layer.h0), lstm ? bytes(layer.c0) : nullptr, bytes(layer.y),
                                   bytes(layer.activated), lstm || gru ? bytes(layer.cells) : nullptr,
                                   bytes(grad_gates), gru ? bytes(grad_hidden) : nullptr, bytes(grad_h0),
                                   lstm ? bytes(grad_c0) : nullptr});
        const auto expect_slopes = [&](Numbers& x, const Numbers& grad, const char* what) {
          for (size_t i = 0; i < x.size(); i += short_tests() ? 7 : 1) {
            const double saved = x[i], step = 1e-6;
            x[i] = saved + step;
            const double above = layer.loss();
            x[i] = saved - step;
            const double below = layer.loss();
            x[i] = saved;
            EXPECT_NEAR(grad[i], (above - below) / (2 * step), 1e-7) << what << " " << i;
          }
        };
        expect_slopes(layer.input, grad_gates, "gates");
        expect_slopes(layer.h0, grad_h0, "h0");
        if (lstm) expect_slopes(layer.c0, grad_c0, "c0");
      }
  });
}

}  // namespace
}  // namespace minitorch
