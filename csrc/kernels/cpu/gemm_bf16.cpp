// Products of bfloat16 in pairs (AVX512_BF16): twice the rate of float, with float sums. The instruction is newer than
// AVX-512 itself, so these functions alone are compiled for it and used only where cpuid reports it.
#include <cstring>
#include <utility>

#include "kernels/cpu/gemm_convert.h"
#include "kernels/cpu/gemm_skinny.h"

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace gemm {

#if defined(__AVX512BW__)

bool has_pair_products() {
  static const bool has = __builtin_cpu_supports("avx512bf16");
  return has;
}

namespace {

// The instruction rounds as core/half.h does, but for subnormal numbers, which it takes for zero, and NaNs.
__attribute__((target("avx512bf16"), always_inline)) inline void store_rounded(BFloat16* to, __m512 x) {
  constexpr int kNan = 0x81, kSubnormal = 0x20;
  if (MT_UNLIKELY(_mm512_fpclass_ps_mask(x, kNan | kSubnormal) != 0))
    store_narrowed(to, reinterpret_cast<Vector<float>>(x), kLanes<float>);
  else
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(x));
}

template <int kTileRows, int kTileVectors>
__attribute__((target("avx512bf16"))) void micro_pairs(int64_t k, const float* a, const float* b, int64_t ldb,
                                                       const PairSums& to) {
  __m512 acc[kTileRows][kTileVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; v++) acc[r][v] = _mm512_setzero_ps();
  for (; k > 0; k--) {
    __m512bh bv[kTileVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; v++) bv[v] = (__m512bh)_mm512_loadu_ps(b + v * kLanes<float>);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; r++) {
      const __m512bh av = (__m512bh)_mm512_set1_ps(a[r]);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; v++) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], av, bv[v]);
    }
    a += kTileRows;
    b += ldb;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; v++) {
      float* const sums = to.sums + r * to.row + v * kLanes<float>;
      const __m512 sum = to.add ? _mm512_add_ps(acc[r][v], _mm512_loadu_ps(sums)) : acc[r][v];
      if (to.narrow != nullptr)
        store_rounded(to.narrow + r * to.narrow_row + v * kLanes<float>, sum);
      else
        _mm512_storeu_ps(sums, sum);
    }
}

// Two rows of B are interleaved in registers. That is done within 128 bits, so `low` and `high` take turns in holding
// four columns. B's rows are far apart: what the next panel needs of them is asked for while this one is multiplied.
template <int kRowsHere>
__attribute__((target("avx512bf16"))) void micro_pair_rows(int64_t k, const float* a, const BFloat16* b, int64_t ldb,
                                                           uint32_t mask, float* sums, bool add) {
  __m512 low[kRowsHere], high[kRowsHere];
#pragma GCC unroll 16
  for (int r = 0; r < kRowsHere; r++) low[r] = high[r] = _mm512_setzero_ps();
  const auto step = [&](__m512i even, __m512i odd) __attribute__((target("avx512bf16"), always_inline)) {
    const __m512bh left = (__m512bh)_mm512_unpacklo_epi16(even, odd),
                   right = (__m512bh)_mm512_unpackhi_epi16(even, odd);
#pragma GCC unroll 16
    for (int r = 0; r < kRowsHere; r++) {
      const __m512bh both = (__m512bh)_mm512_set1_ps(a[r]);
      low[r] = _mm512_dpbf16_ps(low[r], both, left);
      high[r] = _mm512_dpbf16_ps(high[r], both, right);
    }
    a += kRowsHere;
  };
  for (; k >= 2; k -= 2, b += 2 * ldb) {
    _mm_prefetch(reinterpret_cast<const char*>(b + 32), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(b + ldb + 32), _MM_HINT_T0);
    step(_mm512_maskz_loadu_epi16(mask, b), _mm512_maskz_loadu_epi16(mask, b + ldb));
  }
  if (k == 1) step(_mm512_maskz_loadu_epi16(mask, b), _mm512_setzero_si512());
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
#pragma GCC unroll 16
  for (int r = 0; r < kRowsHere; r++, sums += kColumns<float>) {
    __m512 left = _mm512_permutex2var_ps(low[r], first, high[r]),
           right = _mm512_permutex2var_ps(low[r], second, high[r]);
    if (add)
      left = _mm512_add_ps(left, _mm512_loadu_ps(sums)), right = _mm512_add_ps(right, _mm512_loadu_ps(sums + 16));
    _mm512_storeu_ps(sums, left);
    _mm512_storeu_ps(sums + 16, right);
  }
}

template <int kHeight, int kWidth>
__attribute__((target("avx512bf16"))) void dot_pairs(const BFloat16* a, int64_t lda, const BFloat16* b, int64_t ldb,
                                                     int64_t k, float* tile) {
  constexpr int kChains = kHeight * kWidth <= 4 ? 2 : 1;
  constexpr int64_t kStep = 32;
  __m512 acc[kChains][kHeight][kWidth] = {};
  const auto step = [&](int chain, int64_t at, __mmask32 mask) __attribute__((target("avx512bf16"), always_inline)) {
    __m512bh av[kHeight];
#pragma GCC unroll 4
    for (int r = 0; r < kHeight; r++) av[r] = (__m512bh)_mm512_maskz_loadu_epi16(mask, a + r * lda + at);
#pragma GCC unroll 4
    for (int c = 0; c < kWidth; c++) {
      const __m512bh bv = (__m512bh)_mm512_maskz_loadu_epi16(mask, b + c * ldb + at);
#pragma GCC unroll 4
      for (int r = 0; r < kHeight; r++) acc[chain][r][c] = _mm512_dpbf16_ps(acc[chain][r][c], av[r], bv);
    }
  };
  int64_t i = 0;
  for (; i + kChains * kStep <= k; i += kChains * kStep)
#pragma GCC unroll 2
    for (int chain = 0; chain < kChains; chain++) step(chain, i + chain * kStep, ~__mmask32{0});
  for (; i + kStep <= k; i += kStep) step(0, i, ~__mmask32{0});
  if (i < k) step(0, i, (__mmask32{1} << (k - i)) - 1);
  Vector<float> all[kHeight][kWidth];
#pragma GCC unroll 4
  for (int r = 0; r < kHeight; r++)
#pragma GCC unroll 4
    for (int c = 0; c < kWidth; c++) {
      __m512 sum = acc[0][r][c];
      if constexpr (kChains > 1) sum = _mm512_add_ps(sum, acc[1][r][c]);
      all[r][c] = reinterpret_cast<Vector<float>>(sum);
    }
  sum_block<float, kHeight, kWidth>(all, [&](int r, int c, float sum) { tile[r * kColumns<float> + c] = sum; });
}

template <int... kIndex>
PairRows lookup_rows(int rows, std::integer_sequence<int, kIndex...>) {
  static constexpr PairRows table[kMaxRows] = {&micro_pair_rows<kIndex + 1>...};
  return table[rows - 1];
}

template <int... kIndex>
PairKernel lookup(int rows, int vectors, std::integer_sequence<int, kIndex...>) {
  static constexpr PairKernel table[kMaxRows][kVectors] = {
      {&micro_pairs<kIndex + 1, 1>, &micro_pairs<kIndex + 1, 2>}...};
  return table[rows - 1][vectors - 1];
}

}  // namespace

PairKernel pair_kernel(int rows, int vectors) {
  return lookup(rows, vectors, std::make_integer_sequence<int, kMaxRows>{});
}
PairRows pair_rows(int rows) { return lookup_rows(rows, std::make_integer_sequence<int, kMaxRows>{}); }
PairDots pair_dots(int rows, int columns) {
  static constexpr PairDots table[4][2] = {{&dot_pairs<1, 1>, &dot_pairs<1, 4>},
                                           {&dot_pairs<2, 1>, &dot_pairs<2, 4>},
                                           {&dot_pairs<3, 1>, &dot_pairs<3, 4>},
                                           {&dot_pairs<4, 1>, &dot_pairs<4, 4>}};
  return table[rows - 1][columns == 4];
}

#else

bool has_pair_products() { return false; }
PairKernel pair_kernel(int, int) { return nullptr; }
PairRows pair_rows(int) { return nullptr; }
PairDots pair_dots(int, int) { return nullptr; }

#endif

void pack_pairs(const BFloat16* src, int64_t stride_p, int64_t stride_k, int width, int padded, int64_t k, float* dst) {
  const int64_t pairs = k / 2;
  const auto put = [](float* to, uint32_t low, uint32_t high) {
    const uint32_t pair = low | high << 16;
    memcpy(to, &pair, sizeof(pair));
  };
  if (stride_k == 1 && stride_p % 2 == 0 && reinterpret_cast<uintptr_t>(src) % 4 == 0) {
    // A pair is one 32-bit element already.
    pack_panel<uint32_t>(reinterpret_cast<const uint32_t*>(src), stride_p / 2, 1, width, padded, pairs, false,
                         reinterpret_cast<uint32_t*>(dst));
  } else {
    for (int64_t t = 0; t < pairs; t++) {
      const BFloat16 *even = src + 2 * t * stride_k, *odd = even + stride_k;
      float* to = dst + t * padded;
      int p = 0;
      if (stride_p == 1) {
        typedef uint16_t Narrow __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));
        using Wide = Vector<uint32_t>;
        for (; p + kLanes<float> <= width; p += kLanes<float>) {
          const Wide low = __builtin_convertvector(*reinterpret_cast<const Narrow*>(even + p), Wide);
          const Wide high = __builtin_convertvector(*reinterpret_cast<const Narrow*>(odd + p), Wide);
          store_vector(reinterpret_cast<uint32_t*>(to + p), low | high << 16);
        }
#if defined(__AVX512BW__)
        if (p < padded) {
          const auto mask = static_cast<__mmask16>(p < width ? (1u << (width - p)) - 1u : 0u);
          // Masked with all ones: GCC warns of the undefined vector within the plain conversion and shift.
          const __m512i low = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_maskz_loadu_epi16(mask, even + p));
          const __m512i high = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_maskz_loadu_epi16(mask, odd + p));
          _mm512_mask_storeu_epi32(to + p, static_cast<__mmask16>((1u << (padded - p)) - 1u),
                                   _mm512_or_si512(low, _mm512_maskz_slli_epi32(0xffff, high, 16)));
          continue;
        }
#endif
      }
      for (; p < width; p++) put(to + p, even[p * stride_p].bits, odd[p * stride_p].bits);
      for (; p < padded; p++) put(to + p, 0, 0);
    }
  }
  if (k % 2 == 1) {
    const BFloat16* last = src + (k - 1) * stride_k;
    float* to = dst + pairs * padded;
    for (int p = 0; p < padded; p++) put(to + p, p < width ? last[p * stride_p].bits : 0, 0);
  }
}

}  // namespace gemm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
