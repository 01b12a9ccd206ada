// Operands of kernels under test: numbers of any type, and what their rounding may cost.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "memory.h"

namespace minitorch {

template <class T>
double number(T x) {
  return static_cast<double>(static_cast<compute_t<T>>(x));
}
template <class T>
T stored(double x) {
  return static_cast<T>(static_cast<compute_t<T>>(x));
}

// Numbers of type T, uniform between the bounds.
template <class T>
Vector<T> random_of(int64_t n, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  Vector<T> v(static_cast<size_t>(n));
  for (T& x : v) x = stored<T>(uniform(random));
  return v;
}

// The largest relative error of one rounding to T.
template <class T>
constexpr double rounding() {
  if constexpr (std::is_same_v<T, double>) return 0x1p-53;
  if constexpr (std::is_same_v<T, Half>) return 0x1p-11;
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1p-8;
  return 0x1p-24;
}

// How far a result of type T may be from `value` when `steps` operations in the compute type worked on numbers of
// `size`, and the result was rounded to T.
template <class T>
double allowed(double value, double size, double steps) {
  return steps * rounding<compute_t<T>>() * size + rounding<T>() * std::abs(value) * 1.01;
}

// What terms add up to at each place, their sizes, to which rounding is in proportion, and how many there were.
struct TermSums {
  std::vector<double> value, size, terms;
  explicit TermSums(size_t places) : value(places), size(places), terms(places) {}

  void add(int64_t place, double term, double term_size) {
    const auto at = static_cast<size_t>(place);
    value[at] += term;
    size[at] += term_size;
    terms[at]++;
  }
  void add(int64_t place, double term) { add(place, term, std::abs(term)); }

  // `more`: operations on each sum besides its additions.
  template <class T>
  void expect(const Vector<T>& found, double more = 0) const {
    for (size_t i = 0; i < found.size(); i++)
      ASSERT_NEAR(number(found[i]), value[i], allowed<T>(value[i], size[i], terms[i] + more)) << i;
  }
};

}  // namespace minitorch
