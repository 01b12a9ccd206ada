// Random operands for kernels under test.
#pragma once
#include <random>

#include "memory.h"

namespace minitorch {

inline Vector<double> random_values(int64_t n, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  Vector<double> v(n);
  for (double& x : v) x = uniform(random);
  return v;
}

}  // namespace minitorch
