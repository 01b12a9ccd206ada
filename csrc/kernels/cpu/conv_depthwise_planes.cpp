// Depthwise filters of small odd height over planes with contiguous rows, straight from the source: masked loads stand
// for the padding, so nothing is staged, and a row that was loaded serves all outputs that it reaches.
#include "core/parallel.h"
#include "kernels/cpu/conv_core.h"
#include "kernels/cpu/gemm_convert.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {
namespace {

using gemm::scratch;
using gemm::Scratch;
using gemm::Vector;

constexpr int kTogether = 4;  // rows of output that are filtered together

template <class E>
struct Plane {
  const E* source;
  E* target;
  int64_t pitch, target_pitch;
  int64_t height, width, target_height, target_width;
  int64_t top;  // source row of the first tap of output row 0
  const Tap* columns;
  int64_t column_count;
};

// kTogether rows from y on of kVectors vectors from x on; weight[column][row].
template <class E, int kHeight, int kVectors>
MT_INLINE void filter_tile(const Plane<E>& p, const E* weight, E bias, int64_t y, int64_t x) {
  constexpr int kStep = kLanes<E>;
  Vector<E> acc[kTogether][kVectors];
  for (int i = 0; i < kTogether; i++)
    for (int v = 0; v < kVectors; v++) acc[i][v] = bias - Vector<E>{};
  for (int64_t t = 0; t < p.column_count; t++) {
    Vector<E> w[kHeight];
    for (int k = 0; k < kHeight; k++) w[k] = weight[t * kHeight + k] - Vector<E>{};
    const int64_t first = x + p.columns[t].offset;
    int begin[kVectors], end[kVectors];
    for (int v = 0; v < kVectors; v++) {
      const int64_t at = first + v * kStep;
      end[v] = static_cast<int>(max64(0, min64(kStep, p.width - at)));
      begin[v] = static_cast<int>(min64(end[v], max64(0, -at)));
    }
    const E* const from = p.source + (y + p.top) * p.pitch + first;
#pragma GCC unroll 16
    for (int r = 0; r < kTogether + kHeight - 1; r++) {
      if (y + p.top + r < 0 || y + p.top + r >= p.height) continue;
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++) {
        const Vector<E> row = gemm::load_lanes(from + r * p.pitch + v * kStep, begin[v], end[v]);
#pragma GCC unroll 8
        for (int k = 0; k < kHeight; k++)
          if (r - k >= 0 && r - k < kTogether) acc[r - k][v] += w[k] * row;
      }
    }
  }
  for (int i = 0; i < kTogether; i++)
    if (y + i < p.target_height)
      for (int v = 0; v < kVectors; v++)
        gemm::store_lanes(p.target + (y + i) * p.target_pitch + x + v * kStep, acc[i][v],
                          static_cast<int>(min64(kStep, p.target_width - x - v * kStep)));
}

template <class E, int kHeight>
void filter_plane(const Plane<E>& p, const E* weight, E bias, int64_t y0, int64_t y1) {
  constexpr int64_t kStep = kLanes<E>;
  for (int64_t y = y0; y < y1; y += kTogether) {
    int64_t x = 0;
    for (; x + kStep < p.target_width; x += 2 * kStep) filter_tile<E, kHeight, 2>(p, weight, bias, y, x);
    if (x < p.target_width) filter_tile<E, kHeight, 1>(p, weight, bias, y, x);
  }
}

int64_t lowest_row(const Gather& g) {
  int64_t low = g.taps[1][0].offset;
  for (const Tap& t : g.taps[1]) low = min64(low, t.offset);
  return low;
}

template <class E, int kHeight>
void filter_planes(const Gather& g) {
  const int64_t low = lowest_row(g), columns = g.taps[2].size(), planes = g.batch * g.groups;
  // Where there are fewer planes than threads, bands of rows.
  const int64_t bands = planes >= num_threads() ? 1 : ceil_div(num_threads(), planes);
  const int64_t band = ceil_div(ceil_div(g.count[1], bands), kTogether) * kTogether;
  const int64_t work = band * g.count[2] * kHeight * columns;
  parallel_for(planes * bands, grain_of(work), [&](int64_t begin, int64_t end) {
    E* const weight = scratch<E>(Scratch::packed_a, columns * kHeight);
    for (int64_t i = begin; i < end; i++) {
      const int64_t group = i / bands % g.groups, n = i / bands / g.groups, y0 = i % bands * band;
      Plane<E> p;
      p.source = reinterpret_cast<const E*>(g.source.data) + n * g.source.strides[0] + group * g.source.strides[1];
      p.pitch = g.source.strides[3], p.height = g.source_size[1], p.width = g.source_size[2];
      p.target_pitch = g.target.strides[3], p.target_height = g.count[1], p.target_width = g.count[2];
      p.top = low, p.columns = g.taps[2].begin(), p.column_count = columns;
      for (int64_t m = 0; m < g.rows; m++) {
        const int64_t channel = group * g.rows + m;
        const E* const from = reinterpret_cast<const E*>(g.weight.data) + group * g.weight_group + m * g.weight_row +
                              g.taps[0][0].index * g.weight_tap[0];
        for (int64_t t = 0; t < columns; t++)
          for (const Tap& h : g.taps[1])
            weight[t * kHeight + h.offset - low] =
                from[h.index * g.weight_tap[1] + g.taps[2][t].index * g.weight_tap[2]];
        const E bias = g.bias == nullptr ? E(0) : reinterpret_cast<const E*>(g.bias)[channel * g.bias_stride];
        p.target = reinterpret_cast<E*>(g.target.data) + n * g.target.strides[0] + channel * g.target.strides[1];
        filter_plane<E, kHeight>(p, weight, bias, y0, min64(y0 + band, g.count[1]));
      }
    }
  });
}

}  // namespace

bool filters_planes(const Gather& g) {
  const int64_t height = g.taps[1].size();
  if (gemm::kVectorBytes < 64 || (height != 3 && height != 5 && height != 7)) return false;  // no masked loads
  // Offsets that differ by one at a time, in either direction.
  const int64_t step = g.taps[1][1].offset - g.taps[1][0].offset;
  for (int64_t k = 1; k < height; k++)
    if (g.taps[1][k].offset - g.taps[1][k - 1].offset != step) return false;
  return (step == 1 || step == -1) && g.step[1] == 1 && g.step[2] == 1 && g.count[0] == 1 && g.source_size[0] == 1 &&
         g.taps[0].size() == 1 && g.taps[0][0].offset == 0 && g.source.strides[4] == 1 && g.target.strides[4] == 1;
}

template <class E>
void gather_planes(const Gather& g) {
  switch (g.taps[1].size()) {
    case 3: return filter_planes<E, 3>(g);
    case 5: return filter_planes<E, 5>(g);
    default: return filter_planes<E, 7>(g);
  }
}
template void gather_planes<float>(const Gather&);
template void gather_planes<double>(const Gather&);

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
