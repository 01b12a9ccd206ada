// Sequences on CUDA, with the types of the CPU's (see there).
#include "kernels/factory.h"

#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using SequenceTypes = Types<float, double, Half, BFloat16, uint8_t, int8_t, int16_t, int32_t, int64_t>;

// The type that arange steps in.
template <class T>
using Position = std::conditional_t<is_floating_v<T>, std::conditional_t<is_half_v<T>, float, double>,
                                    std::conditional_t<std::is_integral_v<T>, int64_t, T>>;

// a * b, rounded before it is added to anything, as on the CPU.
template <class T>
__device__ __forceinline__ T rounded_product(T a, T b) {
  if constexpr (std::is_same_v<T, float>) {
    return __fmul_rn(a, b);
  } else if constexpr (std::is_same_v<T, double>) {
    return __dmul_rn(a, b);
  } else {
    return a * b;
  }
}

template <class T, class P>
__global__ void __launch_bounds__(kThreads) arange_elements(T* out, int64_t count, P first, P step) {
  MT_GRID_LOOP(i, count) out[i] = convert<T>(static_cast<P>(first + rounded_product(step, static_cast<P>(i))));
}

// Integers step in double, everything else in its own type, which 16-bit floats round to after every operation.
template <class T>
using Step = std::conditional_t<std::is_integral_v<T>, double, T>;

template <class T, class S>
__global__ void __launch_bounds__(kThreads) linspace_elements(T* out, int64_t count, T first, T last, S step) {
  using C = compute_t<S>;
  MT_GRID_LOOP(i, count) {
    const bool front = i < count / 2;
    const int64_t k = front ? i : count - 1 - i;
    S moved;
    if constexpr (is_complex_v<S>) {
      const auto n = static_cast<real_t<S>>(k);
      moved = S(rounded_product(step.re, n), rounded_product(step.im, n));
    } else {
      moved = convert<S>(rounded_product(convert<C>(step), convert<C>(convert<S>(static_cast<C>(k)))));
    }
    const C from = convert<C>(front ? first : last), by = convert<C>(moved);
    out[i] = convert<T>(static_cast<C>(front ? from + by : from - by));
  }
}

template <class T, class S>
__global__ void __launch_bounds__(kThreads) logspace_elements(T* out, int64_t count, S first, S last, S step, S base) {
  MT_GRID_LOOP(i, count) {
    const bool front = std::is_integral_v<T> || i < count / 2;
    const S moved = rounded_product(step, static_cast<S>(front ? i : count - 1 - i));
    out[i] = convert<T>(::pow(base, front ? first + moved : last - moved));
  }
}

template <class R>
__global__ void __launch_bounds__(kThreads)
    logspace_complex(Complex<R>* out, int64_t count, Complex<R> first, Complex<R> last, Complex<R> step, R log_base) {
  MT_GRID_LOOP(i, count) {
    const bool front = i < count / 2;
    const R k = static_cast<R>(front ? i : count - 1 - i);
    const Complex<R> moved(rounded_product(step.re, k), rounded_product(step.im, k));
    const R re = front ? first.re + moved.re : last.re - moved.re,
            im = front ? first.im + moved.im : last.im - moved.im;
    const R size = ::exp(re * log_base);
    out[i] = {size * ::cos(im * log_base), size * ::sin(im * log_base)};
  }
}

void arange(const SequenceArgs& a) {
  if (a.count == 0) return;
  if (!dispatch(a.dtype, SequenceTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using P = Position<T>;
        arange_elements<<<grid_for(a.count), kThreads, 0, cuda::current_stream()>>>(
            reinterpret_cast<T*>(a.out), a.count, a.first.to<P>(), a.step.to<P>());
      }))
    missing_kernel("arange", name_of(a.dtype));
  cuda::check_launch("launching arange");
}

void linspace(const SequenceArgs& a) {
  if (a.count == 0) return;
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = Step<T>;
    using C = compute_t<S>;
    const T first = a.first.to<T>(), last = a.last.to<T>();
    S step;
    if constexpr (is_complex_v<S>) {
      const auto n = static_cast<real_t<S>>(a.count - 1);
      step = {(last.re - first.re) / n, (last.im - first.im) / n};
    } else {
      const S span = convert<S>(static_cast<C>(convert<C>(last) - convert<C>(first)));
      step = convert<S>(static_cast<C>(convert<C>(span) / convert<C>(convert<S>(static_cast<C>(a.count - 1)))));
    }
    linspace_elements<<<grid_for(a.count), kThreads, 0, cuda::current_stream()>>>(reinterpret_cast<T*>(a.out), a.count,
                                                                                  first, last, step);
  };
  if (!dispatch(a.dtype, SequenceTypes{}, run) && !dispatch(a.dtype, ComplexTypes{}, run))
    missing_kernel("linspace", name_of(a.dtype));
  cuda::check_launch("launching linspace");
}

template <class R>
void logspace_complex_values(const SequenceArgs& a) {
  const auto first = a.first.to<Complex<R>>(), last = a.last.to<Complex<R>>();
  const R n = static_cast<R>(a.count - 1);
  logspace_complex<<<grid_for(a.count), kThreads, 0, cuda::current_stream()>>>(
      reinterpret_cast<Complex<R>*>(a.out), a.count, first, last,
      Complex<R>((last.re - first.re) / n, (last.im - first.im) / n), static_cast<R>(std::log(a.base)));
}

void logspace(const SequenceArgs& a) {
  if (a.count == 0) return;
  if (a.dtype == DType::C64) {
    logspace_complex_values<float>(a);
  } else if (a.dtype == DType::C128) {
    logspace_complex_values<double>(a);
  } else if (!dispatch(a.dtype, SequenceTypes{}, [&](auto tag) {
               using T = typename decltype(tag)::type;
               using S = std::conditional_t<std::is_same_v<compute_t<T>, double>, double, float>;
               const auto first = static_cast<S>(a.first.to<T>()), last = static_cast<S>(a.last.to<T>());
               logspace_elements<<<grid_for(a.count), kThreads, 0, cuda::current_stream()>>>(
                   reinterpret_cast<T*>(a.out), a.count, first, last, (last - first) / static_cast<S>(a.count - 1),
                   static_cast<S>(a.base));
             })) {
    missing_kernel("logspace", name_of(a.dtype));
  }
  cuda::check_launch("launching logspace");
}

MT_REGISTER_KERNEL(arange_kernel, &arange);
MT_REGISTER_KERNEL(linspace_kernel, &linspace);
MT_REGISTER_KERNEL(logspace_kernel, &logspace);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
