// The gap of two buffers: integer and float maxima side by side. The magnitudes of floats, read as integers, are in the
// order of the values, infinity after them and NaN last, so that integer maxima find the largest and lose no NaN.
#include "kernels/gap.h"

#include <cstring>
#include <mutex>

#include "core/parallel.h"
#include "kernels/cpu/cast.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kStretch = 512;  // elements of a 16-bit type that are widened at a time

// Maxima so far: of the difference of the bits (Step), and of the magnitudes' bits (Bits).
template <class Step, class Bits>
struct Maxima {
  Step above = 0, below = 0;
  Bits span = 0, scale = 0;

  MT_INLINE void join(const Maxima& other) {
    above = std::max(above, other.above);
    below = std::min(below, other.below);
    span = std::max(span, other.span);
    scale = std::max(scale, other.scale);
  }
};

template <class Float>
using SignedBits = std::conditional_t<sizeof(Float) == 8, int64_t, int32_t>;

template <class To, class From>
MT_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// Values as T; the bits that steps are counted in come from Step, the stored type's width.
template <class T, class Step>
MT_INLINE void widest(const Step* x, const Step* y, const T* a, const T* b, int64_t n,
                      Maxima<Step, SignedBits<T>>& found) {
  using Bits = SignedBits<T>;
  using Unsigned = std::make_unsigned_t<Step>;
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();
  Step above = 0, below = 0;
  Bits span = 0, scale = 0;
  for (int64_t i = 0; i < n; i++) {
    const Step step =
        static_cast<Step>(static_cast<Unsigned>(static_cast<Unsigned>(x[i]) - static_cast<Unsigned>(y[i])));
    above = std::max(above, step);
    below = std::min(below, step);
    span = std::max(span, static_cast<Bits>(bits_as<Bits>(a[i] - b[i]) & kMagnitude));
    scale = std::max(scale, static_cast<Bits>(bits_as<Bits>(b[i]) & kMagnitude));
  }
  found.join({above, below, span, scale});
}

template <class T>
void wide_range(const T* a, const T* b, int64_t n, Maxima<SignedBits<T>, SignedBits<T>>& found) {
  using Step = SignedBits<T>;
  widest<T, Step>(reinterpret_cast<const Step*>(a), reinterpret_cast<const Step*>(b), a, b, n, found);
}

void half_range(LoadFn load, const int16_t* a, const int16_t* b, int64_t n, Maxima<int16_t, int32_t>& found) {
  alignas(64) float x[kStretch], y[kStretch];
  for (int64_t i = 0; i < n; i += kStretch) {
    const int64_t m = std::min(kStretch, n - i);
    load(x, a + i, 2, m);
    load(y, b + i, 2, m);
    widest<float, int16_t>(a + i, b + i, x, y, m, found);
  }
}

template <class Step, class T, class Range>
void measure(const GapArgs& args, const Range& range) {
  std::mutex joining;
  Maxima<Step, SignedBits<T>> all;
  parallel_for(args.n, kGrainSize, [&](int64_t begin, int64_t end) {
    Maxima<Step, SignedBits<T>> mine;
    range(begin, end - begin, mine);
    const std::lock_guard lock(joining);
    all.join(mine);
  });
  const double above = static_cast<double>(all.above), below = -static_cast<double>(all.below);
  *args.gap = {std::max(above, below), bits_as<T>(all.span), bits_as<T>(all.scale)};
}

template <class T>
void measure_wide(const GapArgs& args) {
  const T *a = static_cast<const T*>(args.a), *b = static_cast<const T*>(args.b);
  measure<SignedBits<T>, T>(
      args, [&](int64_t begin, int64_t n, auto& found) { wide_range<T>(a + begin, b + begin, n, found); });
}

void gap(const GapArgs& args) {
  switch (args.dtype) {
    case DType::F32: return measure_wide<float>(args);
    case DType::F64: return measure_wide<double>(args);
    case DType::F16:
    case DType::BF16: {
      const LoadFn load = load_fn(args.dtype, DType::F32);
      const int16_t *a = static_cast<const int16_t*>(args.a), *b = static_cast<const int16_t*>(args.b);
      return measure<int16_t, float>(
          args, [&](int64_t begin, int64_t n, auto& found) { half_range(load, a + begin, b + begin, n, found); });
    }
    default: missing_kernel("gap", name_of(args.dtype));
  }
}

MT_REGISTER_KERNEL(gap_kernel, &gap);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
