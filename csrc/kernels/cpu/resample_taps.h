// The taps of all outputs along one axis, computed once a call, and their transpose for gradients.
#pragma once
#include "kernels/cpu/scratch.h"
#include "kernels/functors/resample.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace resample {

struct Transposed {};

// The matrix of one axis by rows: row i has the taps [start[i], start[i + 1]).
template <class C>
class Taps {
 public:
  // With `merged` an input appears once in a row; otherwise the taps beyond an edge repeat the edge.
  Taps(const ResampleArgs& a, const ResampleAxis& axis, bool merged = false)
      : rows(axis.out),
        columns(axis.in),
        start(rows + 1),
        index(rows * most_taps<C>(a, axis)),
        weight(rows * most_taps<C>(a, axis)) {
    start[0] = 0;
    for (int64_t i = 0; i < rows; i++) {
      int64_t n = fill_taps(a, axis, i, index.get() + start[i], weight.get() + start[i]);
      if (merged) n = merge_taps(index.get() + start[i], weight.get() + start[i], n);
      start[i + 1] = start[i] + n;
    }
  }
  Taps(const Taps& t, Transposed)
      : rows(t.columns), columns(t.rows), start(rows + 1), index(t.start[t.rows]), weight(t.start[t.rows]) {
    start.zero(rows + 1);
    const int64_t total = t.start[t.rows];
    for (int64_t k = 0; k < total; k++) start[t.index[k] + 1]++;
    for (int64_t i = 0; i < rows; i++) start[i + 1] += start[i];
    Scratch<int64_t> next(rows);
    for (int64_t i = 0; i < rows; i++) next[i] = start[i];
    for (int64_t o = 0; o < t.rows; o++)
      for (int64_t k = t.start[o]; k < t.start[o + 1]; k++) {
        const int64_t at = next[t.index[k]]++;
        index[at] = static_cast<int32_t>(o);
        weight[at] = t.weight[k];
      }
  }
  int64_t most() const {
    int64_t n = 0;
    for (int64_t i = 0; i < rows; i++) n = std::max(n, start[i + 1] - start[i]);
    return n;
  }

  int64_t rows, columns;
  Scratch<int64_t> start;
  Scratch<int32_t> index;
  Scratch<C> weight;
};

// The taps of the last axis as positions: row k * n + o of the table is tap k of output o, so that a loop over outputs
// gathers. Outputs with fewer taps read the element past the row, which is zero. `lanes` adjacent elements share taps.
template <class W>
struct GatherTable {
  int64_t n, width;
  Scratch<int32_t> index;
  Scratch<W> weight;
  template <class C, class F>
  GatherTable(const Taps<C>& t, int64_t lanes, const F& convert)
      : n(t.rows * lanes), width(t.most()), index(n * width), weight(n * width) {
    for (int64_t o = 0; o < t.rows; o++)
      for (int64_t k = 0; k < width; k++) {
        const int64_t tap = t.start[o] + k;
        const bool real = tap < t.start[o + 1];
        for (int64_t l = 0; l < lanes; l++) {
          const int64_t at = k * n + o * lanes + l;
          index[at] = static_cast<int32_t>(real ? t.index[tap] * lanes + l : t.columns * lanes);
          weight[at] = real ? convert(t.weight[tap]) : W(0);
        }
      }
  }
};

}  // namespace resample

// The kernels of dtypes and modes; resample.cpp chooses.
void resample_nearest(const ResampleArgs& a);
void resample_bytes(const ResampleArgs& a);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
