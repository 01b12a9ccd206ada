// Box-Muller on sixteen uniforms at a time, as native does for sixteen and more contiguous elements.
//
// For float, native evaluates log, sine and cosine with the polynomials of Cephes (S. Moshier) in an AVX2 version whose
// multiplications and additions the compiler fused. The same polynomials and the same fusing, written for one element,
// give the same bits here on every instruction set.
#include <cmath>

#include "kernels/cpu/mt19937.h"
#include "kernels/random.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr double kPi = 3.141592653589793238463;
constexpr int kGroup = 16, kPairs = 256;  // uniforms to a group; pairs to a block in L1

MT_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MT_INLINE uint32_t bits(float f) { return detail::bit_cast<uint32_t>(f); }
MT_INLINE float from_bits(uint32_t u) { return detail::bit_cast<float>(u); }

// Cephes logf for normal x > 0: x = m 2^e with m in [sqrt(1/2), sqrt(2)), a degree-9 polynomial in m - 1.
MT_INLINE float log_positive(float x) {
  float e = static_cast<float>(static_cast<int32_t>(bits(x) >> 23) - 127) + 1.0f;
  const float m = from_bits((bits(x) & 0x807fffffu) | 0x3f000000u);
  const bool low = m < 0.707106781186547524f;
  const float f = (m - 1.0f) + (low ? m : 0.0f);
  e = e - (low ? 1.0f : 0.0f);
  const float z = f * f;
  float y = 7.0376836292e-2f;
  y = fused(y, f, -1.1514610310e-1f);
  y = fused(y, f, 1.1676998740e-1f);
  y = fused(y, f, -1.2420140846e-1f);
  y = fused(y, f, 1.4249322787e-1f);
  y = fused(y, f, -1.6668057665e-1f);
  y = fused(y, f, 2.0000714765e-1f);
  y = fused(y, f, -2.4999993993e-1f);
  y = fused(y, f, 3.3333331174e-1f);
  y = y * f;
  y = fused(y, z, e * -2.12194440e-4f);
  y = fused(-z, 0.5f, y);
  return fused(e, 0.693359375f, f + y);
}

// Cephes sinf and cosf for x >= 0: reduce by multiples of pi/4, then one of two polynomials.
MT_INLINE void sincos_positive(float x, float& sine, float& cosine) {
  const int32_t octant = (static_cast<int32_t>(x * 1.27323954473516f) + 1) & ~1;
  const float k = static_cast<float>(octant);
  x = fused(k, -0.78515625f, x);
  x = fused(k, -2.4187564849853515625e-4f, x);
  x = fused(k, -3.77489497744594108e-8f, x);
  const float z = x * x;
  float c = 2.443315711809948e-5f;
  c = fused(c, z, -1.388731625493765e-3f);
  c = fused(c, z, 4.166664568298827e-2f);
  c = fused(c * z, z, -(z * 0.5f)) + 1.0f;
  float s = -1.9515295891e-4f;
  s = fused(s, z, 8.3321608736e-3f);
  s = fused(s, z, -1.6666654611e-1f);
  s = fused(s * z, x, x);
  const bool swap = (octant & 2) != 0;
  const uint32_t sine_sign = static_cast<uint32_t>(octant & 4) << 29;
  const uint32_t cosine_sign = static_cast<uint32_t>(~(octant - 2) & 4) << 29;
  sine = from_bits(bits(swap ? c : s) ^ sine_sign);
  cosine = from_bits(bits(swap ? s : c) ^ cosine_sign);
}

// Each group of 16 uniforms holds 8 radii, then 8 angles.
void box_muller(float* data, int64_t n, float mean, float std) {
  alignas(64) float radius[kPairs], angle[kPairs];
  for (int64_t begin = 0; begin < n; begin += 2 * kPairs) {
    const int64_t groups = std::min<int64_t>(2 * kPairs, n - begin) / kGroup;
    float* p = data + begin;
    for (int64_t g = 0; g < groups; g++)
      for (int j = 0; j < 8; j++) {
        radius[g * 8 + j] = p[g * kGroup + j];
        angle[g * 8 + j] = p[g * kGroup + 8 + j];
      }
    for (int64_t i = 0; i < groups * 8; i++) {
      const float r = std::sqrt(-2.0f * log_positive(1.0f - radius[i]));
      float s, c;
      sincos_positive(static_cast<float>(2.0 * kPi) * angle[i], s, c);
      radius[i] = fused(r * c, std, mean);
      angle[i] = fused(r * s, std, mean);
    }
    for (int64_t g = 0; g < groups; g++)
      for (int j = 0; j < 8; j++) {
        p[g * kGroup + j] = radius[g * 8 + j];
        p[g * kGroup + 8 + j] = angle[g * 8 + j];
      }
  }
}

void box_muller(double* data, int64_t n, double mean, double std) {
  for (int64_t begin = 0; begin < n; begin += kGroup)
    for (int j = 0; j < 8; j++) {
      double& first = data[begin + j];
      double& second = data[begin + 8 + j];
      const double radius = std::sqrt(-2 * std::log(1 - first)), theta = 2.0 * kPi * second;
      first = std::fma(radius * std::cos(theta), std, mean);
      second = std::fma(radius * std::sin(theta), std, mean);
    }
}

void uniforms(Twister& t, float* out, int64_t n) {
  uint32_t w[2 * kPairs];
  for (int64_t i = 0; i < n; i += 2 * kPairs) {
    const int64_t m = std::min<int64_t>(2 * kPairs, n - i);
    t.words(w, m);
    for (int64_t j = 0; j < m; j++) out[i + j] = static_cast<float>(static_cast<int32_t>(w[j] & 0xffffff)) * 0x1p-24f;
  }
}
void uniforms(Twister& t, double* out, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = t.uniform();
}

// The last group is drawn again when n is no multiple of 16: it overlaps the one before.
template <class T>
void fill(Twister& t, T* data, int64_t n, double mean, double std) {
  const int64_t whole = n / kGroup * kGroup;
  for (int64_t i = 0; i < n; i += 2 * kPairs) {
    uniforms(t, data + i, std::min<int64_t>(2 * kPairs, n - i));
    if (i < whole)
      box_muller(data + i, std::min<int64_t>(2 * kPairs, whole - i), static_cast<T>(mean), static_cast<T>(std));
  }
  if (n != whole) {
    T* last = data + n - kGroup;
    uniforms(t, last, kGroup);
    box_muller(last, kGroup, static_cast<T>(mean), static_cast<T>(std));
  }
}

template <class T>
void fill_half(Twister& t, T* data, int64_t n, double mean, double std) {
  float buffer[2 * kPairs];
  const auto block = [&](T* out, int64_t m) {
    uniforms(t, buffer, m);
    box_muller(buffer, m, static_cast<float>(mean), static_cast<float>(std));
    for (int64_t j = 0; j < m; j++) out[j] = T(buffer[j]);
  };
  const int64_t whole = n / kGroup * kGroup;
  for (int64_t i = 0; i < whole; i += 2 * kPairs) block(data + i, std::min<int64_t>(2 * kPairs, whole - i));
  if (n != whole) block(data + n - kGroup, kGroup);
}

void normal_fill(RandomState& s, char* data, DType dtype, int64_t n, double mean, double std) {
  Twister t(s.engine);
  const bool done = dispatch(dtype, FloatingTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_half_v<T>) {
      fill_half(t, reinterpret_cast<T*>(data), n, mean, std);
    } else {
      fill(t, reinterpret_cast<T*>(data), n, mean, std);
    }
  });
  if (!done) missing_kernel("normal_", name_of(dtype));
}

MT_REGISTER_KERNEL(normal_fill_kernel, &normal_fill);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
