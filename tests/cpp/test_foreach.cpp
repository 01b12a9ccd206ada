// Operators over lists of tensors, the gradient scaler and the fused optimizers, against their formulas in double.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "views.h"
#include "kernels/foreach.h"
#include "kernels/optimizer.h"

namespace minitorch {
namespace {

// Lists that reach over pieces and launches: nothing, single elements, what is left of a vector, more than a block of a
// GPU takes, and more tensors than a launch.
std::vector<int64_t> sizes_of_lists() {
  std::vector<int64_t> sizes{0, 1, 7, 8192, 8193, 20011, 0};
  for (int64_t k = 0; k < 45; k++) sizes.push_back(k * 3);
  return sizes;
}

// One tensor of each list: memory that begins on a multiple of sixteen bytes or, shifted, one element after.
template <class T>
struct Tensors {
  std::vector<Vector<T>> memory;
  int64_t shift;
  Tensors(const std::vector<int64_t>& sizes, unsigned seed, bool shifted, double low = 0.5, double high = 2)
      : shift(shifted ? 1 : 0) {
    for (const int64_t n : sizes) memory.push_back(random_of<T>(n + shift + 1, seed++, low, high));
  }
  char* data(size_t k) { return bytes(memory[k], shift); }
  double at(size_t k, int64_t i) const { return number(memory[k][static_cast<size_t>(i + shift)]); }
};

struct Operator {
  ForeachOp op;
  double (*formula)(double a, double b, double c, double s);
};
const Operator kOperators[] = {
    {ForeachOp::add_scalar, [](double a, double, double, double s) { return a + s; }},
    {ForeachOp::mul_scalar, [](double a, double, double, double s) { return a * s; }},
    {ForeachOp::div_scalar, [](double a, double, double, double s) { return a / s; }},
    {ForeachOp::add, [](double a, double b, double, double s) { return a + s * b; }},
    {ForeachOp::mul, [](double a, double b, double, double) { return a * b; }},
    {ForeachOp::div, [](double a, double b, double, double) { return a / b; }},
    {ForeachOp::maximum, [](double a, double b, double, double) { return a > b ? a : b; }},
    {ForeachOp::lerp, [](double a, double b, double, double s) { return a + s * (b - a); }},
    {ForeachOp::addcmul, [](double a, double b, double c, double s) { return a + s * b * c; }},
    {ForeachOp::addcdiv, [](double a, double b, double c, double s) { return a + s * b / c; }},
    {ForeachOp::sqrt, [](double a, double, double, double) { return std::sqrt(a); }},
    {ForeachOp::neg, [](double a, double, double, double) { return -a; }},
};

template <class T>
void expect_operator(const Operator& op, bool shifted, bool device_scalar, bool in_place) {
  const auto sizes = sizes_of_lists();
  Tensors<T> a(sizes, 100, shifted), b(sizes, 200, shifted), c(sizes, 300, shifted), out(sizes, 400, shifted);
  const Tensors<T> before = a, rest = in_place ? a : out;
  Vector<T> shared(1, stored<T>(0.75));
  const auto scalar = [&](size_t k) { return device_scalar ? 0.75 : k % 2 == 0 ? 0.25 : 1.5; };
  std::vector<ForeachItem> items;
  for (size_t k = 0; k < sizes.size(); k++)
    items.push_back({sizes[k], {in_place ? a.data(k) : out.data(k), a.data(k), b.data(k), c.data(k)}, scalar(k)});
  foreach_kernel(op.op, items, dtype_of<T>, device_scalar ? bytes(shared) : nullptr);
  const Tensors<T>& result = in_place ? a : out;
  for (size_t k = 0; k < sizes.size(); k++) {
    for (int64_t i = 0; i < sizes[k]; i++) {
      const double x = before.at(k, i), y = b.at(k, i), z = c.at(k, i), s = scalar(k);
      const double exact = op.formula(x, y, z, s);
      ASSERT_NEAR(result.at(k, i), exact, allowed<T>(exact, std::abs(exact) + x + y, 3))
          << static_cast<int>(op.op) << ", tensor " << k << ", " << i;
    }
    ASSERT_EQ(result.at(k, sizes[k]), rest.at(k, sizes[k])) << k;  // what follows
  }
}

TEST(Foreach, OperatorsAreTheirFormulas) {
  on_each_isa([] {
    for (const Operator& op : kOperators)
      for (const bool shifted : {false, true})
        for (const bool device_scalar : {false, true}) {
          expect_operator<float>(op, shifted, device_scalar, shifted == device_scalar);
          if (shifted == device_scalar) expect_operator<BFloat16>(op, shifted, device_scalar, shifted);
          if (!shifted && !device_scalar) expect_operator<double>(op, shifted, device_scalar, false);
        }
  });
}

template <class T>
void expect_norms(double order, bool shifted) {
  const auto sizes = sizes_of_lists();
  Tensors<T> x(sizes, 100, shifted, -1, 1);
  Vector<T> result(sizes.size(), stored<T>(-1));
  std::vector<ForeachItem> items;
  for (size_t k = 0; k < sizes.size(); k++)
    items.push_back({sizes[k], {bytes(result, static_cast<int64_t>(k)), x.data(k), nullptr, nullptr}, 0});
  foreach_norm_kernel(items, dtype_of<T>, order);
  for (size_t k = 0; k < sizes.size(); k++) {
    double norm = 0;
    for (int64_t i = 0; i < sizes[k]; i++) {
      const double v = std::abs(x.at(k, i));
      norm = std::isinf(order) ? std::max(norm, v) : norm + (order == 2 ? v * v : v);
    }
    if (order == 2) norm = std::sqrt(norm);
    // A sum is made in some tens of lanes, over runs of some thousand elements, in the compute type.
    ASSERT_NEAR(number(result[k]), norm, allowed<T>(norm, norm, std::isinf(order) ? 0 : 140)) << k << ", " << order;
  }
}

TEST(Foreach, NormsOfEachTensor) {
  on_each_isa([] {
    for (const double order : {1.0, 2.0, double{INFINITY}})
      for (const bool shifted : {false, true}) {
        expect_norms<float>(order, shifted);
        expect_norms<BFloat16>(order, shifted);
      }
    Vector<float> x(9000, 1.0f), result(3);
    x[8999] = NAN;
    for (int k = 0; k < 3; k++)
      foreach_norm_kernel({{9000, {bytes(result, k), bytes(x), nullptr, nullptr}, 0}}, DType::F32,
                          k == 2 ? INFINITY : k + 1.0);
    for (const float norm : result) EXPECT_TRUE(std::isnan(norm));
  });
}

template <class T>
void expect_unscaled(float factor, double bad) {
  const auto sizes = sizes_of_lists();
  for (const bool shifted : {false, true}) {
    Tensors<T> x(sizes, 100, shifted);
    // Finite tensors, or one element in the last place of a long one.
    if (!std::isfinite(bad)) x.memory[5][static_cast<size_t>(sizes[5] - 1 + x.shift)] = stored<T>(bad);
    const Tensors<T> before = x;
    Vector<float> scale(1, factor), found(1, 0.0f);
    std::vector<ForeachItem> items;
    for (size_t k = 0; k < sizes.size(); k++) items.push_back({sizes[k], {x.data(k), nullptr, nullptr, nullptr}, 0});
    unscale_kernel(items, dtype_of<T>, scale.data(), found.data());
    ASSERT_EQ(found[0], std::isfinite(bad) ? 0.0f : 1.0f);
    for (size_t k = 0; k < sizes.size(); k++) {
      for (int64_t i = 0; i < sizes[k]; i++) {
        const double exact = before.at(k, i) * factor;
        if (!std::isfinite(exact)) continue;
        ASSERT_NEAR(x.at(k, i), exact, allowed<T>(exact, exact, 1)) << k << ", " << i;
      }
      ASSERT_EQ(x.at(k, sizes[k]), before.at(k, sizes[k]));
    }
  }
}

TEST(GradientScaler, UnscalesAndFindsWhatIsNotFinite) {
  on_each_isa([] {
    for (const float factor : {0.3f, 1.0f})
      for (const double bad : {0.0, double{INFINITY}, -double{INFINITY}, double{NAN}}) {
        expect_unscaled<float>(factor, bad);
        expect_unscaled<BFloat16>(factor, bad);
      }
  });
}

TEST(GradientScaler, BacksOffAndGrows) {
  on_each_isa([] {
    Vector<float> scale(1, 8.0f), found(1, 0.0f);
    Vector<int32_t> tracker(1, 0);
    const auto step = [&](float infinite) {
      found[0] = infinite;
      update_scale_kernel(scale.data(), tracker.data(), found.data(), 2.0, 0.5, 3);
      return std::pair<float, int32_t>(scale[0], tracker[0]);
    };
    using State = std::pair<float, int32_t>;
    EXPECT_EQ(step(0), State(8, 1));
    EXPECT_EQ(step(0), State(8, 2));
    EXPECT_EQ(step(0), State(16, 0));
    EXPECT_EQ(step(0), State(16, 1));
    EXPECT_EQ(step(1), State(8, 0));
    scale[0] = 3e38f, tracker[0] = 2;
    EXPECT_EQ(step(0), State(3e38f, 0));  // it would overflow
  });
}

// ---- Optimizers ----------------------------------------------------------------------------------------------------

struct Parameter {
  double param, grad, state[3];
};

void adam(Parameter& e, double grad, const OptimizerParams& p, double step) {
  const double w = p.decoupled_decay ? e.param * (1 - p.lr * p.weight_decay) : e.param;
  const double g = p.decoupled_decay ? grad : grad + p.weight_decay * w;
  e.state[0] = p.beta1 * e.state[0] + (1 - p.beta1) * g;
  e.state[1] = p.beta2 * e.state[1] + (1 - p.beta2) * g * g;
  if (p.amsgrad) e.state[2] = std::max(e.state[2], e.state[1]);
  const double mean = e.state[0] / (1 - std::pow(p.beta1, step));
  const double square = e.state[p.amsgrad ? 2 : 1] / (1 - std::pow(p.beta2, step));
  e.param = w - p.lr * mean / (std::sqrt(square) + p.eps);
}
void sgd(Parameter& e, double grad, const OptimizerParams& p, double) {
  double g = grad + p.weight_decay * e.param;
  if (p.momentum != 0) {
    e.state[0] = p.first_step ? g : p.momentum * e.state[0] + (1 - p.dampening) * g;
    g = p.nesterov ? g + p.momentum * e.state[0] : e.state[0];
  }
  e.param -= p.lr * g;
}
void adagrad(Parameter& e, double grad, const OptimizerParams& p, double step) {
  const double g = grad + p.weight_decay * e.param;
  e.state[0] += g * g;
  e.param -= p.lr / (1 + (step - 1) * p.lr_decay) * g / (std::sqrt(e.state[0]) + p.eps);
}

struct Rule {
  const char* name;
  const Kernel<void(const std::vector<OptimizerItem>&, DType, const OptimizerParams&)>& kernel;
  void (*formula)(Parameter&, double, const OptimizerParams&, double);
  int states;  // in use
  OptimizerParams p;
};

std::vector<Rule> rules() {
  const OptimizerParams common{.lr = 0.1, .weight_decay = 0.3, .eps = 1e-3, .beta1 = 0.9, .beta2 = 0.99};
  const auto with = [&](auto change) {
    OptimizerParams p = common;
    change(p);
    return p;
  };
  using P = OptimizerParams;
  return {
      {"adam", fused_adam_kernel, &adam, 2, common},
      {"adamw", fused_adam_kernel, &adam, 2, with([](P& p) { p.decoupled_decay = true; })},
      {"amsgrad", fused_adam_kernel, &adam, 3, with([](P& p) { p.amsgrad = true, p.maximize = true; })},
      {"short memory", fused_adam_kernel, &adam, 2, with([](P& p) { p.beta1 = 0.25; })},
      {"sgd", fused_sgd_kernel, &sgd, 0, common},
      {"momentum", fused_sgd_kernel, &sgd, 1, with([](P& p) { p.momentum = 0.8, p.dampening = 0.1; })},
      {"first step", fused_sgd_kernel, &sgd, 1, with([](P& p) { p.momentum = 0.8, p.first_step = true; })},
      {"nesterov", fused_sgd_kernel, &sgd, 1, with([](P& p) { p.momentum = 0.8, p.nesterov = p.maximize = true; })},
      {"adagrad", fused_adagrad_kernel, &adagrad, 1, with([](P& p) { p.lr_decay = 0.2; })},
  };
}

template <class T>
void expect_step(const Rule& rule, bool shifted, bool scaled, float found_inf) {
  const auto sizes = sizes_of_lists();
  std::vector<Tensors<T>> memory;  // parameter, gradient, states
  for (unsigned k = 0; k < 5; k++) memory.emplace_back(sizes, 100 * k, shifted);
  const auto before = memory;
  Vector<float> steps{3.0f, 40.0f}, grad_scale(1, 4.0f), found(1, found_inf);
  OptimizerParams p = rule.p;
  p.grad_scale = scaled ? grad_scale.data() : nullptr;
  p.found_inf = found_inf >= 0 ? found.data() : nullptr;
  std::vector<OptimizerItem> items;
  for (size_t k = 0; k < sizes.size(); k++) {
    OptimizerItem item{sizes[k], memory[0].data(k), memory[1].data(k), {}, &steps[k % 2]};
    for (int s = 0; s < rule.states; s++) item.state[s] = memory[static_cast<size_t>(2 + s)].data(k);
    items.push_back(item);
  }
  rule.kernel(items, dtype_of<T>, p);
  for (size_t k = 0; k < sizes.size(); k++)
    for (int64_t i = 0; i <= sizes[k]; i++) {
      Parameter e{before[0].at(k, i), before[1].at(k, i), {}};
      for (size_t s = 0; s < 3; s++) e.state[s] = before[2 + s].at(k, i);
      if (i < sizes[k] && found_inf != 1.0f) {
        if (scaled) e.grad /= 4;
        rule.formula(e, p.maximize ? -e.grad : e.grad, p, steps[k % 2]);
      }
      // All numbers are of a size of 2 to 5, and none is the difference of larger ones.
      const double results[] = {e.param, e.grad, e.state[0], e.state[1], e.state[2]};
      for (size_t t = 0; t < 5; t++)
        ASSERT_NEAR(memory[t].at(k, i), results[t], allowed<T>(results[t], 2 + std::abs(results[t]), 6))
            << rule.name << ", tensor " << k << ", " << i << ", operand " << t;
    }
}

TEST(Optimizer, StepsAreTheirFormulas) {
  on_each_isa([] {
    for (const Rule& rule : rules())
      for (const bool shifted : {false, true})
        for (const bool scaled : {false, true}) {
          expect_step<float>(rule, shifted, scaled, scaled ? 0.0f : -1.0f);
          expect_step<BFloat16>(rule, shifted, scaled, scaled ? 0.0f : -1.0f);
        }
  });
}

TEST(Optimizer, NothingHappensAfterAnOverflow) {
  on_each_isa([] {
    for (const Rule& rule : rules()) expect_step<float>(rule, false, true, 1.0f);
  });
}

}  // namespace
}  // namespace minitorch
