// Distances against their definition, and their gradients against finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/distance.h"
#include "values.h"

namespace minitorch {
namespace {

constexpr double kNorms[] = {0, 0.7, 1, 1.5, 2, 3, std::numeric_limits<double>::infinity()};

double distance(const double* a, const double* b, int64_t m, double p) {
  double sum = 0;
  for (int64_t k = 0; k < m; k++) {
    const double d = std::fabs(a[k] - b[k]);
    if (p == 0) {
      sum += d != 0;
    } else if (std::isinf(p)) {
      sum = std::max(sum, d);
    } else {
      sum += std::pow(d, p);
    }
  }
  return p == 0 || std::isinf(p) ? sum : std::pow(sum, 1 / p);
}

TEST(Distance, BetweenTheRowsOfTwoMatrices) {
  for (const double p : kNorms)
    for (const int64_t m : {1, 5, 16, 37}) {
      const int64_t batch = 2, r1 = 19, r2 = 33;
      const Vector<double> x1 = random_of<double>(batch * r1 * m, 1), x2 = random_of<double>(batch * r2 * m, 2);
      Vector<double> y(batch * r1 * r2);
      DistanceArgs a{DType::F64, batch, r1, r2, m, p, x1.data(), x2.data(), y.data(), nullptr, nullptr};
      cdist_kernel(a);
      for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < r1; i++)
          for (int64_t j = 0; j < r2; j++)
            ASSERT_NEAR(y[(b * r1 + i) * r2 + j], distance(&x1[(b * r1 + i) * m], &x2[(b * r2 + j) * m], m, p), 1e-11)
                << p << " " << m;
    }
}

TEST(Distance, BetweenAllPairsOfRows) {
  for (const double p : kNorms) {
    const int64_t n = 35, m = 18;
    const Vector<double> x = random_of<double>(n * m, 3);
    Vector<double> y(n * (n - 1) / 2);
    pdist_kernel({DType::F64, 1, n, n, m, p, x.data(), nullptr, y.data(), nullptr, nullptr});
    int64_t pair = 0;
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = i + 1; j < n; j++, pair++)
        ASSERT_NEAR(y[pair], distance(&x[i * m], &x[j * m], m, p), 1e-11) << p;
  }
}

TEST(Distance, GradientsAreSlopes) {
  const int64_t n = 6, r2 = 4, m = 5;
  for (const double p : kNorms) {
    Vector<double> x = random_of<double>(n * m, 4), x2 = random_of<double>(r2 * m, 5), g = random_of<double>(n * r2, 6),
                   pairs = random_of<double>(15, 7);
    Vector<double> y(n * r2), z(15), dx(n * m), dz(n * m);
    DistanceArgs two{DType::F64, 1, n, r2, m, p, x.data(), x2.data(), y.data(), g.data(), dx.data()};
    DistanceArgs one{DType::F64, 1, n, n, m, p, x.data(), nullptr, z.data(), pairs.data(), dz.data()};
    cdist_kernel(two);
    cdist_backward_kernel(two);
    pdist_kernel(one);
    pdist_backward_kernel(one);
    const auto weighted = [&](const DistanceArgs& a, const Vector<double>& out, const Vector<double>& weight) {
      a.x2 != nullptr ? cdist_kernel(a) : pdist_kernel(a);
      double sum = 0;
      for (size_t i = 0; i < out.size(); i++) sum += out[i] * weight[i];
      return sum;
    };
    for (int64_t i = 0; i < n * m; i += short_tests() ? 7 : 1) {
      const double x0 = x[i], h = 1e-6;
      x[i] = x0 + h;
      const double up = weighted(two, y, g), up1 = weighted(one, z, pairs);
      x[i] = x0 - h;
      const double down = weighted(two, y, g), down1 = weighted(one, z, pairs);
      x[i] = x0;
      EXPECT_NEAR(dx[i], (up - down) / (2 * h), 1e-5) << p;
      EXPECT_NEAR(dz[i], (up1 - down1) / (2 * h), 1e-5) << p;
    }
  }
}

}  // namespace
}  // namespace minitorch
