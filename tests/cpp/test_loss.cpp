// Losses and their gradients against their definitions in double.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "views.h"
#include "kernels/loss.h"

namespace minitorch {
namespace {

constexpr LossReduction kReductions[] = {LossReduction::none, LossReduction::mean, LossReduction::sum};

// ---- Pointwise losses ----------------------------------------------------------------------------------------------

struct Pointwise {
  LossOp op;
  int inputs;
  double (*formula)(double x, double y, double g, double norm, double bound);
};
const Pointwise kPointwise[] = {
    {LossOp::mse_backward, 3, [](double x, double y, double g, double norm, double) { return norm * (x - y) * g; }},
    {LossOp::smooth_l1_backward, 3,
     [](double x, double y, double g, double norm, double beta) {
       const double d = x - y;
       return std::abs(d) < beta ? norm * g * d / beta : (d > 0 ? norm : -norm) * g;
     }},
    {LossOp::huber_backward, 3,
     [](double x, double y, double g, double norm, double delta) {
       const double d = x - y;
       return std::abs(d) < delta ? norm * g * d : (d > 0 ? norm : -norm) * g * delta;
     }},
    {LossOp::binary_cross_entropy, 2,
     [](double x, double y, double, double, double) {
       return -y * std::max(std::log(x), -100.0) - (1 - y) * std::max(std::log1p(-x), -100.0);
     }},
    {LossOp::binary_cross_entropy_backward, 3,
     [](double x, double y, double g, double, double) { return g * (x - y) / std::max((1 - x) * x, double{1e-12f}); }},
};

template <class T>
void expect_pointwise(const Pointwise& loss, int64_t n, int64_t step) {
  const double norm = 0.25, bound = 0.3;
  PointwiseParams params;
  params.s[0] = norm, params.s[1] = bound;
  auto x = random_of<T>(n * step, 1, 0, 1), y = random_of<T>(n * step, 2, 0, 1);
  const auto g = random_of<T>(n * step, 3);
  for (int64_t i = 0; i < n * step; i += 9) x[i] = stored<T>(i % 2);  // where a logarithm ends
  Vector<T> out(n * step + 1, stored<T>(7));
  PointwiseView v = pointwise_view({n}, 1,
                                   {{out.data(), dtype_of<T>, {step}},
                                    {x.data(), dtype_of<T>, {step}},
                                    {y.data(), dtype_of<T>, {step}},
                                    {const_cast<T*>(g.data()), dtype_of<T>, {step}}});
  v.num_operands = 1 + loss.inputs;
  loss_kernel(loss.op, v, params);
  for (int64_t i = 0; i < n * step; i++) {
    if (i % step != 0) {
      ASSERT_EQ(number(out[i]), 7);
      continue;
    }
    const double a = number(x[i]), b = number(y[i]), exact = loss.formula(a, b, number(g[i]), norm, bound);
    // The difference of two numbers below 1 and a few more roundings; a logarithm is good to a few units. Only beside
    // the bound do two branches meet, where they agree.
    ASSERT_NEAR(number(out[i]), exact, allowed<T>(exact, std::abs(exact), 8))
        << static_cast<int>(loss.op) << ", " << a << ", " << b;
  }
  ASSERT_EQ(number(out[n * step]), 7);
}

TEST(Loss, PointwiseOnesAreTheirFormulas) {
  on_each_isa([] {
    for (const Pointwise& loss : kPointwise)
      for (const int64_t n : {1, 15, 1030, 40003})
        for (const int64_t step : {1, 2}) {
          expect_pointwise<float>(loss, n, step);
          expect_pointwise<BFloat16>(loss, n, step);
          expect_pointwise<double>(loss, n, step);
        }
  });
}

template <class T>
void expect_offender() {
  constexpr int64_t kRows = 30, kColumns = 70, kPitch = 2 * kColumns + 1;
  const double bad[] = {-0.25, 1.25, NAN};
  for (int which = 0; which <= 3; which++)  // no bad operand, the first, the second, both
    for (const double value : bad)
      for (const int64_t at : {int64_t{0}, (kRows - 1) * kPitch + 2 * (kColumns - 1)}) {
        auto x = random_of<T>(kRows * kPitch, 1, 0, 1), y = random_of<T>(kRows * kPitch, 2, 0, 1);
        x[0] = y[0] = stored<T>(0), x[2] = y[2] = stored<T>(1);  // the ends belong to it
        x[1] = y[1] = stored<T>(-5);                             // in a gap
        if (which & 1) x[at] = stored<T>(value);
        if (which & 2) y[at] = stored<T>(value);
        int offender = -1;
        std::string found;
        try {
          unit_interval_kernel(pointwise_view({kColumns, kRows}, 1,
                                              {{nullptr, dtype_of<T>, {0, 0}},
                                               {x.data(), dtype_of<T>, {2, kPitch}},
                                               {y.data(), dtype_of<T>, {2, kPitch}}}),
                               &offender);
        } catch (const std::runtime_error& error) {  // of a GPU, which is waited for here
          found = error.what();
        }
        const int expected = which == 0 ? 0 : which == 2 ? 2 : 1;
        if (backend().host_accessible()) {
          ASSERT_EQ(offender, expected) << value;
          continue;
        }
        const std::string text =
            expected == 0 ? "" : std::string("all elements of ") + (expected == 1 ? "input" : "target") + " should be";
        ASSERT_EQ(found.substr(0, text.size()), text) << value;
        ASSERT_EQ(found.empty(), expected == 0) << found;
      }
}

TEST(Loss, NamesTheOperandOutsideTheUnitInterval) {
  on_each_isa([] {
    expect_offender<float>();
    expect_offender<Half>();
  });
}

// ---- Negative log likelihood ---------------------------------------------------------------------------------------

template <class T, class Target>
void expect_nll(int64_t n, int64_t classes, int64_t spatial, bool weighted, LossReduction reduction) {
  const int64_t count = n * spatial, ignored = classes / 2;
  const auto input = random_of<T>(n * classes * spatial, 1, -4, 0), weight = random_of<T>(classes, 2, 0.5, 2);
  const auto grad = random_of<T>(std::max<int64_t>(count, 1), 3, 0.5, 2);
  std::mt19937 random(4);
  Vector<Target> target(count);
  for (Target& t : target) t = static_cast<Target>(random() % static_cast<unsigned>(classes));
  if (count > 0) target[0] = static_cast<Target>(classes - 1);
  const bool none = reduction == LossReduction::none;
  Vector<T> output(none ? count : 1, stored<T>(7)), total(1, stored<T>(7));
  Vector<T> grad_input(input.size(), stored<T>(7));
  TargetError error;
  const NllArgs args{.dtype = dtype_of<T>,
                     .target_dtype = dtype_of<Target>,
                     .reduction = reduction,
                     .n = n,
                     .classes = classes,
                     .spatial = spatial,
                     .ignore_index = ignored,
                     .input = input.data(),
                     .target = target.data(),
                     .weight = weighted ? weight.data() : nullptr,
                     .output = output.data(),
                     .total_weight = total.data(),
                     .grad_output = grad.data(),
                     .grad_input = grad_input.data(),
                     .error = &error};
  nll_kernel(args);
  double sum = 0, weights = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t t = target[i], at = (i / spatial * classes + t) * spatial + i % spatial;
    const double w = t == ignored ? 0 : weighted ? number(weight[t]) : 1, loss = -number(input[at]) * w;
    sum += loss;
    weights += w;
    if (none) {
      ASSERT_NEAR(number(output[i]), loss, allowed<T>(loss, loss, 1)) << i;
    }
  }
  // Sums are made in double, so only the result is rounded: to the compute type, and to its own.
  if (!none) {
    const double exact = reduction == LossReduction::mean ? sum / weights : sum;
    if (count == 0 && reduction == LossReduction::mean) {
      ASSERT_TRUE(std::isnan(number(output[0])));
    } else {
      ASSERT_NEAR(number(output[0]), exact, allowed<T>(exact, std::abs(exact), 2));
    }
  }
  ASSERT_NEAR(number(total[0]), none ? 0 : weights, allowed<T>(weights, weights, 2));
  nll_backward_kernel(args);
  for (int64_t at = 0; at < n * classes * spatial; at++) {
    const int64_t i = at / (classes * spatial) * spatial + at % spatial, c = at / spatial % classes;
    double exact = 0;
    if (c == target[i] && c != ignored) {
      exact = -number(grad[none ? i : 0]) * (weighted ? number(weight[c]) : 1);
      if (reduction == LossReduction::mean) exact /= number(total[0]);
    }
    ASSERT_NEAR(number(grad_input[at]), exact, allowed<T>(exact, std::abs(exact), 2)) << at;
  }
  ASSERT_FALSE(error.found);
}

TEST(Nll, IsItsDefinition) {
  on_each_isa([] {
    const std::vector<std::vector<int64_t>> shapes{{5, 3, 1}, {5000, 7, 1}, {3, 200, 1}, {4, 6, 350}, {0, 3, 1}};
    for (const auto& s : shapes)
      for (const bool weighted : {false, true})
        for (const LossReduction reduction : kReductions) {
          expect_nll<float, int64_t>(s[0], s[1], s[2], weighted, reduction);
          expect_nll<BFloat16, uint8_t>(s[0], s[1], s[2], weighted, reduction);
        }
  });
}

TEST(Nll, NamesTheFirstBadTarget) {
  MT_CPU_ONLY();
  Vector<float> input(5000 * 3), output(1), total(1);
  Vector<int64_t> target(5000, 1);
  target[10] = -100, target[4000] = 3, target[4500] = -7;
  TargetError error;
  nll_kernel({.dtype = DType::F32,
              .target_dtype = DType::I64,
              .reduction = LossReduction::sum,
              .n = 5000,
              .classes = 3,
              .spatial = 1,
              .ignore_index = -100,
              .input = input.data(),
              .target = target.data(),
              .weight = nullptr,
              .output = output.data(),
              .total_weight = total.data(),
              .grad_output = nullptr,
              .grad_input = nullptr,
              .error = &error});
  EXPECT_TRUE(error.found);
  EXPECT_EQ(error.target, 3);
}

// ---- Margin losses -------------------------------------------------------------------------------------------------

struct MarginCase {
  int64_t n, classes;
};
// Fewer classes than a block of a GPU has threads, and more; more rows than a block sums at once.
const MarginCase kMargins[] = {{1, 1}, {3, 5}, {7, 300}, {1100, 9}};

// Multiples of 1/64, so that margins are exact and it is plain which of them are above 0.
template <class T>
Vector<T> scores(int64_t n) {
  auto x = random_of<T>(n, 1, 0, 2);
  for (T& value : x) value = std::round(value * 64) / 64;
  return x;
}

using Sums = std::vector<long double>;

// Checks a loss per row and its gradient per element, for every reduction.
template <class T>
void expect_margin(MarginArgs args, const Sums& losses, const Sums& slopes,
                   const Kernel<void(const MarginArgs&)>& forward, const Kernel<void(const MarginArgs&)>& backward) {
  const auto grad = random_of<T>(args.n, 9, 0.5, 2);
  TargetError error;
  args.error = &error;
  args.grad_output = grad.data();
  const double classes = static_cast<double>(args.classes);
  for (const LossReduction reduction : kReductions) {
    const bool none = reduction == LossReduction::none, mean = reduction == LossReduction::mean;
    Vector<T> output(none ? args.n : 1, stored<T>(7)), grad_input(args.n * args.classes, stored<T>(7));
    args.reduction = reduction;
    args.output = output.data();
    args.grad_input = grad_input.data();
    forward(args);
    backward(args);
    long double sum = 0;
    for (const long double loss : losses) sum += loss;
    if (mean) sum /= static_cast<long double>(args.n);
    // The target's slope is a sum over the classes; of the squares', each term is at most 6 times the weight.
    const double largest = 12;
    for (int64_t r = 0; r < static_cast<int64_t>(output.size()); r++) {
      const auto exact = static_cast<double>(none ? losses[static_cast<size_t>(r)] : sum);
      // The kernel sums in double, which shows where its type is double; all terms are positive.
      const double of_sum = rounding<double>() * static_cast<double>(args.classes * args.classes + args.n);
      ASSERT_NEAR(number(output[r]), exact, allowed<T>(exact, exact, 8) + of_sum * exact) << r;
    }
    for (int64_t at = 0; at < args.n * args.classes; at++) {
      const double g = number(grad[none ? at / args.classes : 0]) / (mean ? static_cast<double>(args.n) : 1);
      const double exact = g * static_cast<double>(slopes[static_cast<size_t>(at)]);
      ASSERT_NEAR(number(grad_input[at]), exact, allowed<T>(exact, g * largest, classes + 4)) << at;
    }
  }
  ASSERT_FALSE(error.found);
}

template <class T>
void expect_multi_margin(const MarginCase& s, int p, bool weighted) {
  const auto x = scores<T>(s.n * s.classes), weight = random_of<T>(s.classes, 2, 0.5, 2);
  const double margin = 0.75;
  Vector<int64_t> target(s.n);
  Sums losses(static_cast<size_t>(s.n)), slopes(x.size());
  for (int64_t r = 0; r < s.n; r++) {
    const int64_t t = target[r] = (r * 7 + 3) % s.classes;
    const double w = (weighted ? number(weight[t]) : 1) / static_cast<double>(s.classes);
    for (int64_t i = 0; i < s.classes; i++) {
      const double z = margin - number(x[r * s.classes + t]) + number(x[r * s.classes + i]);
      if (i == t || z <= 0) continue;
      losses[static_cast<size_t>(r)] += w * std::pow(z, p);
      const double slope = w * (p == 1 ? 1 : 2 * z);
      slopes[static_cast<size_t>(r * s.classes + i)] += slope;
      slopes[static_cast<size_t>(r * s.classes + t)] -= slope;
    }
  }
  expect_margin<T>({.dtype = dtype_of<T>,
                    .n = s.n,
                    .classes = s.classes,
                    .p = p,
                    .margin = margin,
                    .input = x.data(),
                    .target = target.data(),
                    .weight = weighted ? weight.data() : nullptr},
                   losses, slopes, multi_margin_kernel, multi_margin_backward_kernel);
}

TEST(Margin, OfOneTarget) {
  on_each_isa([] {
    for (const MarginCase& s : kMargins)
      for (const int p : {1, 2})
        for (const bool weighted : {false, true}) {
          expect_multi_margin<float>(s, p, weighted);
          expect_multi_margin<double>(s, p, weighted);
        }
  });
}

template <class T>
void expect_multilabel_margin(const MarginCase& s) {
  const auto x = scores<T>(s.n * s.classes);
  Vector<int64_t> target(s.n * s.classes, -1);
  Sums losses(static_cast<size_t>(s.n)), slopes(x.size());
  Vector<T> is_target(x.size(), stored<T>(7));
  std::vector<bool> marked(x.size());
  for (int64_t r = 0; r < s.n; r++) {
    // From no target to all classes; after the first -1 come others that do not count.
    const int64_t first = r * s.classes, count = std::min<int64_t>(r % 8 == 7 ? s.classes : r % 8, s.classes);
    for (int64_t k = 0; k < count; k++) target[first + k] = (r + k) % s.classes;
    if (count + 1 < s.classes) target[first + count + 1] = 0;
    for (int64_t k = 0; k < count; k++) marked[static_cast<size_t>(first + target[first + k])] = true;
    for (int64_t k = 0; k < count; k++)
      for (int64_t i = 0; i < s.classes; i++) {
        const int64_t t = target[first + k];
        const double z = 1 - number(x[first + t]) + number(x[first + i]);
        if (marked[static_cast<size_t>(first + i)] || z <= 0) continue;
        losses[static_cast<size_t>(r)] += z / static_cast<double>(s.classes);
        slopes[static_cast<size_t>(first + i)] += 1 / static_cast<double>(s.classes);
        slopes[static_cast<size_t>(first + t)] -= 1 / static_cast<double>(s.classes);
      }
  }
  expect_margin<T>({.dtype = dtype_of<T>,
                    .n = s.n,
                    .classes = s.classes,
                    .p = 1,
                    .margin = 1,
                    .input = x.data(),
                    .target = target.data(),
                    .is_target = is_target.data()},
                   losses, slopes, multilabel_margin_kernel, multilabel_margin_backward_kernel);
  for (size_t i = 0; i < marked.size(); i++) ASSERT_EQ(number(is_target[i]), marked[i] ? 1 : 0) << i;
}

TEST(Margin, OfManyTargets) {
  on_each_isa([] {
    for (const MarginCase& s : kMargins) {
      expect_multilabel_margin<float>(s);
      expect_multilabel_margin<double>(s);
    }
  });
}

}  // namespace
}  // namespace minitorch
