// Gradients of batch norm, and group norm with its gradients, against the formulas in double, in both layouts.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "kernels/norm.h"

namespace minitorch {
namespace {

// Sums are long: in double they would be no better than what they judge.
using Doubles = std::vector<long double>;

// Sizes of [n, c, spatial]. A GPU reads whole packs where rows have them; others are short, long, or begin anywhere.
struct ChannelShape {
  int64_t n, c, spatial, groups;
};
const ChannelShape kShapes[] = {{1, 1, 1, 1},    {3, 21, 37, 7}, {2, 64, 64, 8},  {3, 8, 1024, 2}, {40, 32, 1, 32},
                                {90, 16, 4, 16}, {2, 33, 7, 3},  {2, 6, 2500, 6}, {6, 16, 8, 1},   {9, 264, 5, 33}};

// Element s of channel c of sample n.
struct Layout {
  ChannelShape shape;
  bool last;
  size_t operator()(int64_t n, int64_t c, int64_t s) const {
    return static_cast<size_t>(last ? (n * shape.spatial + s) * shape.c + c : (n * shape.c + c) * shape.spatial + s);
  }
  int64_t numel() const { return shape.n * shape.c * shape.spatial; }
  template <class F>
  void each(const F& f) const {
    for (int64_t n = 0; n < shape.n; n++)
      for (int64_t c = 0; c < shape.c; c++)
        for (int64_t s = 0; s < shape.spatial; s++) f(n, c, (*this)(n, c, s));
  }
};

// Operations whose roundings show in a sum: lanes are added up within short runs and the runs in double.
constexpr double kSumSteps = 32;

// Sums of dy and dy * xhat over the elements that share a parameter, and the sizes of their terms.
struct Sums {
  Doubles dy, product, dy_size, product_size;
  explicit Sums(int64_t n) : dy(static_cast<size_t>(n)), product(dy), dy_size(dy), product_size(dy) {}
  void add(size_t at, double g, double xhat, double xhat_size) {
    dy[at] += g;
    dy_size[at] += std::abs(g);
    product[at] += g * xhat;
    product_size[at] += std::abs(g) * xhat_size;
  }
  template <class P>
  void expect(const Vector<P>& dweight, const Vector<P>& dbias) const {
    for (size_t c = 0; c < dy.size(); c++) {
      ASSERT_NEAR(number(dweight[c]), product[c], allowed<P>(product[c], product_size[c], kSumSteps)) << c;
      ASSERT_NEAR(number(dbias[c]), dy[c], allowed<P>(dy[c], dy_size[c], kSumSteps)) << c;
    }
  }
};

// Calls the kernel for all gradients, and for each kind alone, with null for those that are not wanted: what is wanted
// is the same.
template <class Args, class T, class P, class F>
void expect_wanted(const Kernel<void(const Args&)>& kernel, const Args& all, Vector<T>& dx, Vector<P>& dweight,
                   Vector<P>& dbias, const Sums& sums, const F& expect_dx) {
  kernel(all);
  sums.expect(dweight, dbias);
  expect_dx();
  const auto call = [&](bool input, bool weight, bool bias) {
    Args some = all;
    if (!input) some.dx = nullptr;
    if (!weight) some.dweight = nullptr;
    if (!bias) some.dbias = nullptr;
    kernel(some);
  };
  std::fill(dx.begin(), dx.end(), stored<T>(7));
  call(true, false, false);
  expect_dx();
  for (const bool weight : {true, false}) {
    Vector<P>& wanted = weight ? dweight : dbias;
    std::fill(wanted.begin(), wanted.end(), stored<P>(7));
    call(false, weight, !weight);
    sums.expect(dweight, dbias);
  }
}

// ---- Batch norm ----------------------------------------------------------------------------------------------------

template <class T, class P>
void expect_batch_gradient(const Layout& at, bool training, bool weighted) {
  const ChannelShape& s = at.shape;
  const auto x = random_of<T>(at.numel(), 1, 0, 2), dy = random_of<T>(at.numel(), 2);
  const auto weight = random_of<P>(s.c, 3, 0.5, 2), mean = random_of<P>(s.c, 4, 0.5, 1.5);
  const auto stat = random_of<P>(s.c, 5, 0.5, 2);
  const double eps = 0.01, count = static_cast<double>(s.n * s.spatial);
  Vector<T> dx(x.size(), stored<T>(7));
  Vector<P> dweight(s.c, stored<P>(7)), dbias(s.c, stored<P>(7));
  const BatchNormBackwardArgs a{.dtype = dtype_of<T>,
                                .param_dtype = dtype_of<P>,
                                .channels_last = at.last,
                                .training = training,
                                .n = s.n,
                                .c = s.c,
                                .spatial = s.spatial,
                                .eps = eps,
                                .dy = dy.data(),
                                .x = x.data(),
                                .weight = weighted ? weight.data() : nullptr,
                                .mean = mean.data(),
                                .stat = stat.data(),
                                .dx = dx.data(),
                                .dweight = dweight.data(),
                                .dbias = dbias.data()};

  Sums sums(s.c);
  const auto invstd = [&](int64_t c) { return training ? number(stat[c]) : 1 / std::sqrt(number(stat[c]) + eps); };
  const auto xhat = [&](int64_t c, size_t i) { return (number(x[i]) - number(mean[c])) * invstd(c); };
  const auto xhat_size = [&](int64_t c, size_t i) { return (number(x[i]) + number(mean[c])) * invstd(c); };
  at.each([&](int64_t, int64_t c, size_t i) {
    sums.add(static_cast<size_t>(c), number(dy[i]), xhat(c, i), xhat_size(c, i));
  });
  const auto expect_dx = [&] {
    at.each([&](int64_t, int64_t channel, size_t i) {
      const auto c = static_cast<size_t>(channel);
      const double scale = invstd(channel) * (weighted ? number(weight[c]) : 1), share = training ? 1 / count : 0;
      const double exact = (number(dy[i]) - share * (sums.dy[c] + xhat(channel, i) * sums.product[c])) * scale;
      const double size =
          (std::abs(number(dy[i])) + share * (sums.dy_size[c] + xhat_size(channel, i) * sums.product_size[c])) * scale;
      ASSERT_NEAR(number(dx[i]), exact, allowed<T>(exact, size, 12)) << i;
    });
  };
  expect_wanted(batch_norm_backward_kernel, a, dx, dweight, dbias, sums, expect_dx);
}

TEST(NormChannels, BatchNormGradientIsItsFormula) {
  on_each_isa([] {
    for (const ChannelShape& s : kShapes)
      for (const bool last : {false, true})
        for (const bool training : {false, true}) {
          SCOPED_TRACE(testing::Message() << s.n << " x " << s.c << " x " << s.spatial << ", last " << last);
          expect_batch_gradient<float, float>({s, last}, training, true);
          expect_batch_gradient<BFloat16, float>({s, last}, training, false);
          expect_batch_gradient<BFloat16, BFloat16>({s, last}, training, true);
          if (!short_tests()) expect_batch_gradient<double, double>({s, last}, training, true);
        }
  });
}

// ---- Group norm ----------------------------------------------------------------------------------------------------

template <class T, class P>
void expect_group_norm(const Layout& at, bool weighted, double centre) {
  const ChannelShape& s = at.shape;
  const int64_t width = s.c / s.groups, groups = s.n * s.groups;
  const auto x = random_of<T>(at.numel(), 1, centre - 1, centre + 1);
  const auto weight = random_of<P>(s.c, 2), bias = random_of<P>(s.c, 3);
  Vector<T> y(x.size(), stored<T>(7));
  using S = compute_t<P>;  // of the statistics
  Vector<S> mean(groups, S(7)), rstd(groups, S(7));
  const double eps = 0.01, count = static_cast<double>(width * s.spatial);
  group_norm_kernel({.dtype = dtype_of<T>,
                     .param_dtype = dtype_of<P>,
                     .stat_dtype = dtype_of<S>,
                     .channels_last = at.last,
                     .n = s.n,
                     .c = s.c,
                     .spatial = s.spatial,
                     .groups = s.groups,
                     .eps = eps,
                     .x = x.data(),
                     .weight = weighted ? weight.data() : nullptr,
                     .bias = weighted ? bias.data() : nullptr,
                     .y = y.data(),
                     .mean = mean.data(),
                     .rstd = rstd.data()});
  const auto group_of = [&](int64_t n, int64_t c) { return static_cast<size_t>(n * s.groups + c / width); };
  Doubles sum(static_cast<size_t>(groups)), squares(sum);
  at.each([&](int64_t n, int64_t c, size_t i) { sum[group_of(n, c)] += number(x[i]) / count; });
  at.each([&](int64_t n, int64_t c, size_t i) {
    squares[group_of(n, c)] += std::pow(number(x[i]) - sum[group_of(n, c)], 2) / count;
  });
  const double largest = std::abs(centre) + 1;
  for (size_t g = 0; g < sum.size(); g++) {
    const double exact = 1 / std::sqrt(squares[g] + eps);
    ASSERT_NEAR(mean[g], sum[g], 4 * rounding<S>() * largest) << g;
    // Each deviation is wrong by a rounding of the mean.
    const double of_mean = rounding<S>() * largest * exact;
    ASSERT_NEAR(rstd[g], exact, exact * (kSumSteps * rounding<S>() + 4 * of_mean)) << g;
  }
  at.each([&](int64_t n, int64_t c, size_t i) {
    const size_t g = group_of(n, c);
    const double w = weighted ? number(weight[c]) : 1, b = weighted ? number(bias[c]) : 0;
    const double exact = (number(x[i]) - sum[g]) / std::sqrt(squares[g] + eps) * w + b;
    const double size = (std::abs(number(x[i])) + std::abs(sum[g])) / std::sqrt(squares[g] + eps) * std::abs(w);
    ASSERT_NEAR(number(y[i]), exact, allowed<T>(exact, size + std::abs(b), kSumSteps)) << i;
  });
}

TEST(NormChannels, GroupNormIsItsFormula) {
  on_each_isa([] {
    for (const ChannelShape& s : kShapes)
      for (const bool last : {false, true}) {
        SCOPED_TRACE(testing::Message() << s.n << " x " << s.c << " x " << s.spatial << ", last " << last);
        for (const bool weighted : {false, true}) {
          expect_group_norm<float, float>({s, last}, weighted, 3);
          expect_group_norm<BFloat16, BFloat16>({s, last}, weighted, 0.5);
        }
        expect_group_norm<float, float>({s, last}, true, 1000);  // deviations are small beside the mean
        expect_group_norm<Half, float>({s, last}, true, 0.5);
        expect_group_norm<double, double>({s, last}, true, 3);
      }
  });
}

template <class T, class P>
void expect_group_gradient(const Layout& at, bool weighted) {
  const ChannelShape& s = at.shape;
  const int64_t width = s.c / s.groups, groups = s.n * s.groups;
  using S = compute_t<P>;
  const auto x = random_of<T>(at.numel(), 1, 0, 2), dy = random_of<T>(at.numel(), 2);
  const auto weight = random_of<P>(s.c, 3, 0.5, 2);
  const auto mean = random_of<S>(groups, 4, 0.5, 1.5), rstd = random_of<S>(groups, 5, 0.5, 2);
  const double count = static_cast<double>(width * s.spatial);
  Vector<T> dx(x.size(), stored<T>(7));
  Vector<P> dweight(s.c, stored<P>(7)), dbias(s.c, stored<P>(7));
  const GroupNormBackwardArgs a{.dtype = dtype_of<T>,
                                .param_dtype = dtype_of<P>,
                                .stat_dtype = dtype_of<S>,
                                .channels_last = at.last,
                                .n = s.n,
                                .c = s.c,
                                .spatial = s.spatial,
                                .groups = s.groups,
                                .dy = dy.data(),
                                .x = x.data(),
                                .weight = weighted ? weight.data() : nullptr,
                                .mean = mean.data(),
                                .rstd = rstd.data(),
                                .dx = dx.data(),
                                .dweight = dweight.data(),
                                .dbias = dbias.data()};

  // Per channel for the parameters; per group, of the weighted gradient, for the input.
  Sums channels(s.c), of_groups(groups);
  const auto group_of = [&](int64_t n, int64_t c) { return static_cast<size_t>(n * s.groups + c / width); };
  const auto xhat = [&](size_t g, size_t i) { return (number(x[i]) - mean[g]) * number(rstd[g]); };
  const auto xhat_size = [&](size_t g, size_t i) { return (number(x[i]) + mean[g]) * number(rstd[g]); };
  const auto weight_of = [&](int64_t c) { return weighted ? number(weight[c]) : 1; };
  at.each([&](int64_t n, int64_t c, size_t i) {
    const size_t g = group_of(n, c);
    channels.add(static_cast<size_t>(c), number(dy[i]), xhat(g, i), xhat_size(g, i));
    of_groups.add(g, number(dy[i]) * weight_of(c), xhat(g, i), xhat_size(g, i));
  });
  const auto expect_dx = [&] {
    at.each([&](int64_t n, int64_t c, size_t i) {
      const size_t g = group_of(n, c);
      const double term = number(dy[i]) * weight_of(c);
      const double exact = (term - (of_groups.dy[g] + xhat(g, i) * of_groups.product[g]) / count) * number(rstd[g]);
      const double size =
          (std::abs(term) + (of_groups.dy_size[g] + xhat_size(g, i) * of_groups.product_size[g]) / count) *
          number(rstd[g]);
      ASSERT_NEAR(number(dx[i]), exact, allowed<T>(exact, size, 12)) << i;
    });
  };
  expect_wanted(group_norm_backward_kernel, a, dx, dweight, dbias, channels, expect_dx);
}

TEST(NormChannels, GroupNormGradientIsItsFormula) {
  on_each_isa([] {
    for (const ChannelShape& s : kShapes)
      for (const bool last : {false, true}) {
        SCOPED_TRACE(testing::Message() << s.n << " x " << s.c << " x " << s.spatial << ", last " << last);
        for (const bool weighted : {false, true}) {
          expect_group_gradient<float, float>({s, last}, weighted);
          expect_group_gradient<BFloat16, BFloat16>({s, last}, weighted);
        }
        expect_group_gradient<double, double>({s, last}, true);
      }
  });
}

}  // namespace
}  // namespace minitorch
