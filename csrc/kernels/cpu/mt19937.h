// Drawing from the Mersenne twister many words at a time: both the recurrence and the tempering vectorise.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/random.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

class Twister {
 public:
  explicit Twister(Mt19937& engine) : e_(engine) {}

  // out[i] = the next word, for i < n.
  void words(uint32_t* out, int64_t n) {
    while (n > 0) {
      if (e_.left == 1) regenerate();
      const int64_t k = std::min<int64_t>(n, e_.left - 1);
      const uint32_t* s = e_.state + e_.next;
      for (int64_t i = 0; i < k; i++) out[i] = temper(s[i]);
      e_.next += static_cast<uint32_t>(k);
      e_.left -= static_cast<int32_t>(k);
      out += k;
      n -= k;
    }
  }

  // out[i] = the next two words, the first as the high half.
  void double_words(uint64_t* out, int64_t n) {
    uint32_t w[2 * kChunk];
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t m = std::min(kChunk, n - i);
      words(w, 2 * m);
      for (int64_t j = 0; j < m; j++) out[i + j] = static_cast<uint64_t>(w[2 * j]) << 32 | w[2 * j + 1];
    }
  }

  uint32_t word() {
    if (e_.left == 1) regenerate();
    e_.left--;
    return temper(e_.state[e_.next++]);
  }
  uint64_t double_word() {
    const uint64_t high = word();
    return high << 32 | word();
  }
  // 53 bits in [0, 1).
  double uniform() { return static_cast<double>(double_word() & kMantissa) * 0x1p-53; }

  static constexpr uint64_t kMantissa = (uint64_t{1} << 53) - 1;

 private:
  static constexpr int64_t kChunk = 256;

  static uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }
  static uint32_t twist(uint32_t u, uint32_t v) {
    return (((u & 0x80000000u) | (v & 0x7fffffffu)) >> 1) ^ ((0u - (v & 1u)) & 0x9908b0dfu);
  }
  void regenerate() {
    constexpr int n = Mt19937::kWords, m = 397;
    uint32_t* s = e_.state;
    for (int j = 0; j < n - m; j++) s[j] = s[j + m] ^ twist(s[j], s[j + 1]);
    for (int j = n - m; j < n - 1; j++) s[j] = s[j + m - n] ^ twist(s[j], s[j + 1]);
    s[n - 1] = s[m - 1] ^ twist(s[n - 1], s[0]);
    e_.left = n + 1;
    e_.next = 0;
  }

  Mt19937& e_;
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
