// Sequences. Types are native's: arange steps in double (in int64 for integers), linspace in the element type, rounding
// 16-bit floats after every operation, and in double for integers.
#include "kernels/factory.h"

#include <cmath>

#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using SequenceTypes = Types<float, double, Half, BFloat16, uint8_t, int8_t, int16_t, int32_t, int64_t>;
using ComplexSequenceTypes = Types<Complex<float>, Complex<double>>;

// The type that arange steps in.
template <class T>
using Position = std::conditional_t<is_floating_v<T>, std::conditional_t<is_half_v<T>, float, double>,
                                    std::conditional_t<std::is_integral_v<T>, int64_t, T>>;

template <class T>
void arange_typed(const SequenceArgs& a) {
  using P = Position<T>;
  const P first = a.first.to<P>(), step = a.step.to<P>();
  T* const out = reinterpret_cast<T*>(a.out);
  parallel_for(a.count, kGrainSize, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) out[i] = static_cast<T>(first + step * static_cast<P>(i));
  });
}

// Integers step in double, everything else in its own type.
template <class T>
using Step = std::conditional_t<std::is_integral_v<T>, double, T>;

template <class S>
MT_INLINE S rounded_product(S step, int64_t i) {
  if constexpr (is_half_v<S>) {
    return S(static_cast<float>(step) * static_cast<float>(S(static_cast<float>(i))));
  } else if constexpr (is_complex_v<S>) {
    return {step.re * static_cast<real_t<S>>(i), step.im * static_cast<real_t<S>>(i)};
  } else {
    return step * static_cast<S>(i);
  }
}

template <class T>
void linspace_typed(const SequenceArgs& a) {
  using S = Step<T>;
  const T first = a.first.to<T>(), last = a.last.to<T>();
  S step;
  if constexpr (is_complex_v<S>) {
    const S span = static_cast<S>(last) - static_cast<S>(first);
    const auto n = static_cast<real_t<S>>(a.count - 1);
    step = {span.re / n, span.im / n};
  } else {
    step = static_cast<S>(static_cast<S>(static_cast<S>(last) - static_cast<S>(first)) / static_cast<S>(a.count - 1));
  }
  const int64_t halfway = a.count / 2;
  T* const out = reinterpret_cast<T*>(a.out);
  parallel_for(a.count, kGrainSize, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < std::min(end, halfway); i++)
      out[i] = static_cast<T>(static_cast<S>(first) + rounded_product(step, i));
    for (int64_t i = std::max(begin, halfway); i < end; i++)
      out[i] = static_cast<T>(static_cast<S>(last) - rounded_product(step, a.count - 1 - i));
  });
}

// A product that no addition is fused with, as in native's build: 1 - 3 / 3 would come out as the rounding error of a
// third, and ten to the power of that, as an integer, as 0 instead of 1.
template <class S>
[[gnu::noinline]] S apart(S a, S b) {
  return a * b;
}

template <class T>
void logspace_typed(const SequenceArgs& a) {
  using S = std::conditional_t<std::is_same_v<compute_t<T>, double>, double, float>;
  const auto first = static_cast<S>(a.first.to<T>()), last = static_cast<S>(a.last.to<T>()),
             base = static_cast<S>(a.base);
  const S step = (last - first) / static_cast<S>(a.count - 1);
  const int64_t halfway = a.count / 2;
  T* const out = reinterpret_cast<T*>(a.out);
  parallel_for(a.count, kGrainSize / 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const bool from_front = std::is_integral_v<T> || i < halfway;
      const S moved = apart(step, static_cast<S>(from_front ? i : a.count - 1 - i));
      const S exponent = from_front ? first + moved : last - moved;
      out[i] = static_cast<T>(std::pow(base, exponent));
    }
  });
}

template <class R>
void logspace_complex(const SequenceArgs& a) {
  const auto first = a.first.to<Complex<R>>(), last = a.last.to<Complex<R>>();
  const R n = static_cast<R>(a.count - 1), log_base = static_cast<R>(std::log(a.base));
  const Complex<R> step{(last.re - first.re) / n, (last.im - first.im) / n};
  Complex<R>* const out = reinterpret_cast<Complex<R>*>(a.out);
  for (int64_t i = 0; i < a.count; i++) {
    const bool from_front = i < a.count / 2;
    const R k = static_cast<R>(from_front ? i : a.count - 1 - i);
    const R re = from_front ? first.re + step.re * k : last.re - step.re * k;
    const R im = from_front ? first.im + step.im * k : last.im - step.im * k;
    const R size = std::exp(re * log_base);
    out[i] = {size * std::cos(im * log_base), size * std::sin(im * log_base)};
  }
}

void arange(const SequenceArgs& a) {
  if (!dispatch(a.dtype, SequenceTypes{}, [&](auto tag) { arange_typed<typename decltype(tag)::type>(a); }))
    missing_kernel("arange", name_of(a.dtype));
}

void linspace(const SequenceArgs& a) {
  const auto run = [&](auto tag) { linspace_typed<typename decltype(tag)::type>(a); };
  if (!dispatch(a.dtype, SequenceTypes{}, run) && !dispatch(a.dtype, ComplexSequenceTypes{}, run))
    missing_kernel("linspace", name_of(a.dtype));
}

void logspace(const SequenceArgs& a) {
  if (a.dtype == DType::C64) return logspace_complex<float>(a);
  if (a.dtype == DType::C128) return logspace_complex<double>(a);
  if (!dispatch(a.dtype, SequenceTypes{}, [&](auto tag) { logspace_typed<typename decltype(tag)::type>(a); }))
    missing_kernel("logspace", name_of(a.dtype));
}

MT_REGISTER_KERNEL(arange_kernel, &arange);
MT_REGISTER_KERNEL(linspace_kernel, &linspace);
MT_REGISTER_KERNEL(logspace_kernel, &logspace);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
