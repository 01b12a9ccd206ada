// What a functor is: scalar mathematics for host and device, plain and branch free, so that the CPU compiler vectorises
// the loop around it and CUDA runs one element a lane.
//
// A functor is a class template over its compute type with `operator()`; the types of its arguments and result are the
// types of the operands. One with scalar arguments has a constructor from PointwiseParams. Two more members are
// optional:
//   static bool exceptional(T x, ...)   and   T exceptional_value(T x, ...)
// for functions whose vectorised form covers less than the whole range (huge arguments of sin): a block that has an
// exceptional element is computed by the second, element by element.
//   static constexpr bool divides        integers: a zero among the divisors (operand 2) is an error
//   static constexpr bool wide_scalar    16-bit floats: a scalar as operand 2 is not rounded to 16 bits first
#pragma once
#include <type_traits>

#include "core/dtype.h"
#include "kernels/view.h"

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

// What a functor with two outputs returns.
template <class A, class B = A>
struct Two {
  A first;
  B second;
};

template <class F>
MT_HD F make_functor(const PointwiseParams& params) {
  if constexpr (std::is_constructible_v<F, const PointwiseParams&>) {
    return F(params);
  } else {
    return F{};
  }
}

// Integer arithmetic wraps around, as PyTorch's does; in C++ that is the unsigned types' privilege.
template <class T>
using wrapping_t = std::conditional_t<sizeof(T) < 8, uint32_t, uint64_t>;
template <class T>
inline constexpr bool wraps_v = std::is_integral_v<T> && !std::is_same_v<T, bool>;

#define MT_ARITHMETIC(function, symbol)                                                          \
  template <class T>                                                                             \
  MT_HD T function(T a, T b) {                                                                   \
    if constexpr (wraps_v<T>) {                                                                  \
      return static_cast<T>(static_cast<wrapping_t<T>>(a) symbol static_cast<wrapping_t<T>>(b)); \
    } else {                                                                                     \
      return static_cast<T>(a symbol b);                                                         \
    }                                                                                            \
  }
MT_ARITHMETIC(plus, +)
MT_ARITHMETIC(minus, -)
MT_ARITHMETIC(times, *)
#undef MT_ARITHMETIC

// MT_UNARY_FUNCTOR(Name, expression in x), MT_BINARY_FUNCTOR(Name, expression in a and b): T -> T.
#define MT_UNARY_FUNCTOR(Name, ...)                       \
  template <class T>                                      \
  struct Name {                                           \
    MT_HD T operator()(T x) const { return __VA_ARGS__; } \
  };
#define MT_BINARY_FUNCTOR(Name, ...)                           \
  template <class T>                                           \
  struct Name {                                                \
    MT_HD T operator()(T a, T b) const { return __VA_ARGS__; } \
  };
#define MT_PREDICATE(Name, ...)                              \
  template <class T>                                         \
  struct Name {                                              \
    MT_HD bool operator()(T x) const { return __VA_ARGS__; } \
  };
#define MT_COMPARISON(Name, ...)                                  \
  template <class T>                                              \
  struct Name {                                                   \
    MT_HD bool operator()(T a, T b) const { return __VA_ARGS__; } \
  };

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
