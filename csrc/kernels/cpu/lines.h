// The lines of a few equally sized tensors along one dimension: what scans and sorts work on. Lines that are neighbours
// in memory can be handed out as tiles, to be vectorised across.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/parallel.h"
#include "kernels/view.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

class Lines {
 public:
  static constexpr int kMaxTensors = 3;

  // `tensors` agree in all sizes but that of `dim`; the first decides which lines are neighbours. A 0-dim tensor is one
  // line of one element.
  Lines(const TensorView* const* tensors, int count, int dim) : count_(count) {
    const TensorView& t = *tensors[0];
    length_ = t.ndim > 0 ? t.sizes[dim] : 1;
    for (int k = 0; k < count; k++) {
      size_[k] = static_cast<int64_t>(size_of(tensors[k]->dtype));
      data_[k] = tensors[k]->data;
      step_[k] = t.ndim > 0 ? tensors[k]->strides[dim] * size_[k] : size_[k];
    }
    for (int d = t.ndim - 1; d >= 0; d--) {
      if (d == dim || t.sizes[d] == 1) continue;
      // The dimension with the smallest stride goes first, to be the one that tiles run along.
      int at = ndim_++;
      if (at > 0 && t.strides[d] < tensors[0]->strides[source_[0]] && t.strides[d] > 0) {
        move(at, 0);
        at = 0;
      }
      sizes_[at] = t.sizes[d];
      source_[at] = d;
      for (int k = 0; k < count; k++) strides_[k][at] = tensors[k]->strides[d] * size_[k];
      lines_ *= t.sizes[d];
    }
  }

  int64_t length() const { return length_; }
  int64_t count() const { return lines_; }
  int64_t step(int k) const { return step_[k]; }                         // bytes from element to element of a line
  int64_t pitch(int k) const { return ndim_ > 0 ? strides_[k][0] : 0; }  // bytes from line to line of a tile
  // True if memory runs across the lines rather than along them.
  bool across() const { return ndim_ > 0 && sizes_[0] >= 8 && strides_[0][0] > 0 && strides_[0][0] < step_[0]; }

  // Calls f(pointers, width) for tiles of at most `width` lines, in parallel; `cost` is that of one element.
  template <class F>
  void for_each(int64_t width, int64_t cost, const F& f) const {
    const int64_t run = ndim_ > 0 ? sizes_[0] : 1;
    width = std::min(width, run);
    const int64_t tiles = (run + width - 1) / width, total = lines_ / run * tiles;
    const int64_t work = std::max<int64_t>(length_ * width * cost, 1);
    parallel_for(total, grain_of(work), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++) {
        const int64_t first = t % tiles * width;
        int64_t rest = t / tiles;
        char* pointers[kMaxTensors];
        for (int k = 0; k < count_; k++) pointers[k] = data_[k] + (ndim_ > 0 ? first * strides_[k][0] : 0);
        for (int d = 1; d < ndim_; d++) {
          const int64_t i = rest % sizes_[d];
          rest /= sizes_[d];
          for (int k = 0; k < count_; k++) pointers[k] += i * strides_[k][d];
        }
        f(static_cast<char* const*>(pointers), std::min(width, run - first));
      }
    });
  }

 private:
  void move(int to, int from) {
    sizes_[to] = sizes_[from];
    source_[to] = source_[from];
    for (int k = 0; k < count_; k++) strides_[k][to] = strides_[k][from];
  }

  int count_, ndim_ = 0;
  int64_t length_, lines_ = 1;
  int64_t size_[kMaxTensors], step_[kMaxTensors];
  char* data_[kMaxTensors];
  int64_t sizes_[kMaxDims], strides_[kMaxTensors][kMaxDims];
  int source_[kMaxDims];
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
