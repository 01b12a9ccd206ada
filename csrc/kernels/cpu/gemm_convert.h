// Vector loads and stores that convert between a storage type and the type its products are computed in.
#pragma once
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <utility>

#include "kernels/cpu/gemm_core.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace gemm {

// kLanes<Element<S>> elements from p on, widened. Not for complex types.
template <class S>
MT_INLINE Vector<Element<S>> load_widened(const S* p) {
  using E = Element<S>;
  if constexpr (std::is_same_v<S, E>) {
    return load_vector(p);
  } else if constexpr (std::is_same_v<S, BFloat16>) {
    typedef uint16_t Narrow __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));
    const auto bits = __builtin_convertvector(*reinterpret_cast<const Narrow*>(p), Vector<uint32_t>) << 16;
    return reinterpret_cast<Vector<float>>(bits);
  } else if constexpr (std::is_same_v<S, Half>) {
#if defined(__AVX512F__)
    return reinterpret_cast<Vector<float>>(
        _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__F16C__)
    return reinterpret_cast<Vector<float>>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
    Vector<float> v;
    for (int i = 0; i < kLanes<float>; i++) v[i] = p[i];
    return v;
#endif
  } else {
    typedef S Narrow __attribute__((vector_size(kLanes<E> * sizeof(S)), aligned(sizeof(S)), may_alias));
    return __builtin_convertvector(*reinterpret_cast<const Narrow*>(p), Vector<E>);
  }
}

// Lanes [begin, end) hold p[lane], widened; the others are zero and p is not read there.
template <class S>
MT_INLINE Vector<Element<S>> load_lanes(const S* p, int begin, int end) {
  using E = Element<S>;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const uint32_t mask = ((1u << end) - 1u) & ~((1u << begin) - 1u);
  if constexpr (sizeof(S) == 8) {
    return reinterpret_cast<Vector<E>>(_mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), p));
  } else if constexpr (sizeof(S) == 4) {
    return reinterpret_cast<Vector<E>>(_mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), p));
  } else if constexpr (is_half_v<S>) {
    S lanes[kLanes<E>];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), p));
    return load_widened(lanes);
  }
#endif
  E lanes[kLanes<E>] = {};
  for (int i = begin; i < end; i++) lanes[i] = static_cast<E>(p[i]);
  return load_vector(lanes);
}

// p[i] = lane i for i < n.
template <class E>
MT_INLINE void store_lanes(E* p, Vector<E> v, int n) {
#if defined(__AVX512F__)
  if constexpr (sizeof(E) == 8)
    return _mm512_mask_storeu_epi64(p, static_cast<__mmask8>((1u << n) - 1u), reinterpret_cast<__m512i>(v));
  if constexpr (sizeof(E) == 4)
    return _mm512_mask_storeu_epi32(p, static_cast<__mmask16>((1u << n) - 1u), reinterpret_cast<__m512i>(v));
#endif
  memcpy(static_cast<void*>(p), &v, static_cast<size_t>(n) * sizeof(E));
}

// p[i] = lane i for i < n, narrowed. Not for complex types.
template <class S>
MT_INLINE void store_narrowed(S* p, Vector<Element<S>> v, int n) {
  using E = Element<S>;
  if constexpr (std::is_same_v<S, E>) {
    if (n == kLanes<E>) return store_vector(p, v);
    return store_lanes(p, v, n);
  } else {
    alignas(64) uint16_t lanes[kLanes<E>];
    if constexpr (std::is_same_v<S, BFloat16>) {
      // As core/half.h rounds: to nearest even, and every NaN to one.
      using Bits = Vector<uint32_t>;
      typedef uint16_t Narrow __attribute__((vector_size(kVectorBytes / 2)));
      const Bits u = reinterpret_cast<Bits>(v);
      const Bits rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
      const Bits bits = (u & 0x7fffffffu) > 0x7f800000u ? Bits{} + 0x7fc0u : rounded;
      const Narrow narrow = __builtin_convertvector(bits, Narrow);
      memcpy(lanes, &narrow, sizeof(narrow));
    } else {
#if defined(__AVX512F__)
      const __m256i bits = _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT);
      memcpy(lanes, &bits, sizeof(bits));
#elif defined(__F16C__)
      const __m128i bits = _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT);
      memcpy(lanes, &bits, sizeof(bits));
#else
      for (int i = 0; i < kLanes<E>; i++) lanes[i] = static_cast<S>(v[i]).bits;
#endif
    }
    if (n == kLanes<E>) {
      memcpy(static_cast<void*>(p), lanes, sizeof(lanes));
      return;
    }
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1u),
                             _mm256_load_si256(reinterpret_cast<const __m256i*>(lanes)));
#else
    memcpy(static_cast<void*>(p), lanes, static_cast<size_t>(n) * sizeof(S));
#endif
  }
}

// dst[i] = src[i] for i < n.
template <class S>
MT_INLINE void widen(const S* MT_RESTRICT src, Element<S>* MT_RESTRICT dst, int64_t n) {
  using E = Element<S>;
  if constexpr (std::is_same_v<S, E>) {
    memcpy(dst, src, static_cast<size_t>(n) * sizeof(S));
  } else {
    int64_t i = 0;
    for (; i + kLanes<E> <= n; i += kLanes<E>) store_vector(dst + i, load_widened(src + i));
    for (; i < n; i++) dst[i] = static_cast<E>(src[i]);
  }
}

template <class S>
MT_INLINE void narrow(const Element<S>* MT_RESTRICT src, S* MT_RESTRICT dst, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<S, Half>) {
    for (; i + 16 <= n; i += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i),
                          _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  if constexpr (std::is_same_v<S, Half>) {
    for (; i + 8 <= n; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < n; i++) dst[i] = static_cast<S>(src[i]);
}

}  // namespace gemm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
