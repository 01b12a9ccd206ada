// Resampling uint8 images on the CPU in integers, bit for bit as native has it: weights in 16-bit fixed point, rows
// first, each pass rounded to bytes. An axis that keeps its size is left alone.
#include <cstring>

#include "kernels/cpu/resample_taps.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace resample;

// As many fraction bits as keep the largest weight of the axis within 16 bits.
int precision_of(const Taps<double>& t) {
  double largest = 0;
  for (int64_t k = 0; k < t.start[t.rows]; k++) largest = std::max(largest, t.weight[k]);
  int bits = 0;
  while (bits < 22 && static_cast<int>(0.5 + largest * (1 << (bits + 1))) < (1 << 15)) bits++;
  return bits;
}
MT_INLINE int32_t fixed_point(double w, int bits) {
  return static_cast<int16_t>(w * (1 << bits) + (w < 0 ? -0.5 : 0.5));
}
MT_INLINE uint8_t to_byte(int32_t sum, int bits) {
  const int32_t v = sum >> bits;
  return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v);
}

// The taps of an output are adjacent pixels, so one load of four bytes serves as many taps as fit in: position k * n +
// o of `weight` is tap k of output o, `first` the byte where its taps begin. Outputs with fewer taps have zero weights.
struct ByteTable {
  int64_t lanes, n, taps_per_load, width;
  int bits;
  Scratch<int32_t> first, weight;
  ByteTable(const Taps<double>& t, int64_t lanes)
      : lanes(lanes),
        n(t.rows * lanes),
        taps_per_load(std::min(t.most(), 1 + 3 / lanes)),
        width((t.most() + taps_per_load - 1) / taps_per_load * taps_per_load),
        bits(precision_of(t)),
        first(n),
        weight(n * width) {
    weight.zero(n * width);
    for (int64_t o = 0; o < t.rows; o++)
      for (int64_t l = 0; l < lanes; l++) {
        const int64_t at = o * lanes + l, begin = t.start[o], count = t.start[o + 1] - begin;
        first[at] = static_cast<int32_t>(count > 0 ? t.index[begin] * lanes + l : 0);
        for (int64_t k = 0; k < count; k++) weight[k * n + at] = fixed_point(t.weight[begin + k], bits);
      }
  }
  int64_t padding() const { return width * lanes + 4; }  // bytes that loads may reach beyond a row
};

MT_INLINE uint32_t four_bytes(const uint8_t* p) {
  typedef uint32_t Unaligned __attribute__((aligned(1), may_alias));
  return *reinterpret_cast<const Unaligned*>(p);
}

// One load's worth of taps. `sum` holds the taps before unless `begins`; the result goes to y if `ends`.
template <int G, bool begins, bool ends>
MT_INLINE void add_taps(const ByteTable& t, const uint8_t* row, int64_t k, int32_t* MT_RESTRICT sum,
                        uint8_t* MT_RESTRICT y) {
  const int32_t *first = t.first.get(), *w = t.weight.get() + k * t.n;
  const int shift = static_cast<int>(8 * t.lanes), bits = t.bits;
  const int64_t n = t.n;
  row += k * t.lanes;
  for (int64_t i = 0; i < n; i++) {
    const uint32_t pixels = four_bytes(row + first[i]);
    int32_t s = begins ? 1 << (bits - 1) : sum[i];
    for (int g = 0; g < G; g++) s += w[g * n + i] * static_cast<int32_t>((pixels >> (shift * g)) & 255);
    if (ends) {
      y[i] = to_byte(s, bits);
    } else {
      sum[i] = s;
    }
  }
}
template <int G>
void one_row(const ByteTable& t, const uint8_t* row, int32_t* sum, uint8_t* y) {
  if (t.width == G) return add_taps<G, true, true>(t, row, 0, sum, y);
  add_taps<G, true, false>(t, row, 0, sum, y);
  int64_t k = G;
  for (; k + G < t.width; k += G) add_taps<G, false, false>(t, row, k, sum, y);
  add_taps<G, false, true>(t, row, k, sum, y);
}

void along_rows(const uint8_t* x, uint8_t* y, int64_t rows, const Taps<double>& taps, int64_t lanes) {
  const ByteTable t(taps, lanes);
  const int64_t in = taps.columns * lanes, out = t.n;
  parallel_for(rows, grain_of(2 * (in + out * t.width)), [&](int64_t begin, int64_t end) {
    Scratch<uint8_t> copy(in + t.padding());
    Scratch<int32_t> sums(out);
    uint8_t* row = copy.get();
    copy.zero(in + t.padding());
    for (int64_t r = begin; r < end; r++) {
      std::memcpy(row, x + r * in, static_cast<size_t>(in));
      switch (t.taps_per_load) {
        case 1: one_row<1>(t, row, sums.get(), y + r * out); break;
        case 2: one_row<2>(t, row, sums.get(), y + r * out); break;
        case 3: one_row<3>(t, row, sums.get(), y + r * out); break;
        default: one_row<4>(t, row, sums.get(), y + r * out);
      }
    }
  });
}

// Weighs up to four rows at once, as add_taps does.
template <int G, bool begins, bool ends>
MT_INLINE void add_rows(const uint8_t* const* rows, const int32_t* w, int bits, int64_t n, int32_t* MT_RESTRICT sum,
                        uint8_t* MT_RESTRICT y) {
  for (int64_t i = 0; i < n; i++) {
    int32_t s = begins ? 1 << (bits - 1) : sum[i];
    for (int g = 0; g < G; g++) s += w[g] * rows[g][i];
    if (ends) {
      y[i] = to_byte(s, bits);
    } else {
      sum[i] = s;
    }
  }
}

void along_columns(const uint8_t* x, uint8_t* y, int64_t images, const Taps<double>& taps, int64_t width) {
  const int bits = precision_of(taps);
  parallel_for(images * taps.rows, grain_of(2 * width), [&](int64_t begin, int64_t end) {
    Scratch<int32_t> sums(width);
    for (int64_t r = begin; r < end; r++) {
      const int64_t o = r % taps.rows, first = taps.start[o], last = taps.start[o + 1];
      const uint8_t* image = x + r / taps.rows * taps.columns * width;
      uint8_t* out = y + r * width;
      for (int64_t k = first; k < last || k == first; k += 4) {
        // Beyond the last tap any row does, with a weight of zero.
        const uint8_t* rows[4];
        int32_t w[4];
        for (int g = 0; g < 4; g++) {
          const bool real = k + g < last;
          rows[g] = image + (real ? taps.index[k + g] * width : 0);
          w[g] = real ? fixed_point(taps.weight[k + g], bits) : 0;
        }
        const bool begins = k == first, ends = k + 4 >= last;
        if (begins && last - first <= 2) {
          add_rows<2, true, true>(rows, w, bits, width, sums.get(), out);
        } else if (begins && ends) {
          add_rows<4, true, true>(rows, w, bits, width, sums.get(), out);
        } else if (begins) {
          add_rows<4, true, false>(rows, w, bits, width, sums.get(), out);
        } else if (ends) {
          add_rows<4, false, true>(rows, w, bits, width, sums.get(), out);
        } else {
          add_rows<4, false, false>(rows, w, bits, width, sums.get(), out);
        }
      }
    }
  });
}

}  // namespace

void resample_bytes(const ResampleArgs& a) {
  const ResampleAxis &height = a.axis[1], &width = a.axis[2];
  const int64_t lanes = a.channels_last ? a.c : 1, images = a.channels_last ? a.n : a.n * a.c;
  const auto* x = static_cast<const uint8_t*>(a.x);
  auto* y = static_cast<uint8_t*>(a.y);
  const bool wide = width.in != width.out, high = height.in != height.out;
  if (!wide && !high) {
    std::memcpy(y, x, static_cast<size_t>(images * height.in * width.in * lanes));
    return;
  }
  Scratch<uint8_t> between(wide && high ? images * height.in * width.out * lanes : 0);
  if (wide) {
    uint8_t* target = high ? between.get() : y;
    along_rows(x, target, images * height.in, Taps<double>(a, width, /*merged=*/true), lanes);
    x = target;
  }
  if (high) along_columns(x, y, images, Taps<double>(a, height, /*merged=*/true), width.out * lanes);
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
