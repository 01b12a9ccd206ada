// Resampling floating-point images on the CPU. For each output row the input rows it draws on are blended into one,
// which is contiguous work; then the outputs gather from that row, which lies in the cache. Gradients run the same
// loops over the transposed taps, so no two threads write to one element.
#include "kernels/cpu/resample_taps.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace resample;

constexpr int kGroup = 4;  // rows blended in one pass

template <bool first, int K, class C, class T>
MT_INLINE void blend_some(C* MT_RESTRICT row, const T* const* x, const C* w, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    C sum = first ? C(0) : row[i];
    for (int k = 0; k < K; k++) sum = (first && k == 0 ? C(0) : sum) + w[k] * static_cast<C>(x[k][i]);
    row[i] = sum;
  }
}
template <bool first, class C, class T>
void blend_group(C* row, const T* const* x, const C* w, int count, int64_t n) {
  switch (count) {
    case 1: return blend_some<first, 1>(row, x, w, n);
    case 2: return blend_some<first, 2>(row, x, w, n);
    case 3: return blend_some<first, 3>(row, x, w, n);
    default: return blend_some<first, 4>(row, x, w, n);
  }
}

// row = sum of weighted rows, handed over one at a time.
template <class C, class T>
class Blend {
 public:
  MT_INLINE Blend(C* row, int64_t n) : row_(row), n_(n) {}
  MT_INLINE void add(const T* x, C w) {
    x_[count_] = x;
    w_[count_++] = w;
    if (count_ == kGroup) flush();
  }
  MT_INLINE void finish() {
    if (count_ > 0) flush();
    if (first_)
      for (int64_t i = 0; i < n_; i++) row_[i] = C(0);
  }

 private:
  MT_INLINE void flush() {
    if (first_) {
      blend_group<true>(row_, x_, w_, count_, n_);
    } else {
      blend_group<false>(row_, x_, w_, count_, n_);
    }
    first_ = false;
    count_ = 0;
  }
  C* row_;
  int64_t n_;
  const T* x_[kGroup];
  C w_[kGroup];
  int count_ = 0;
  bool first_ = true;
};

template <bool first, int K, class C>
MT_INLINE void gather_some(C* MT_RESTRICT y, const C* MT_RESTRICT row, const int32_t* index, const C* w, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    C sum = first ? C(0) : y[i];
    for (int k = 0; k < K; k++) sum = (first && k == 0 ? C(0) : sum) + w[k * n + i] * row[index[k * n + i]];
    y[i] = sum;
  }
}
template <class C>
void gather(C* y, const C* row, const GatherTable<C>& t) {
  const int64_t n = t.n;
  const int32_t* index = t.index.get();
  const C* w = t.weight.get();
  switch (t.width) {
    case 0:
      for (int64_t i = 0; i < n; i++) y[i] = C(0);
      return;
    case 1: return gather_some<true, 1>(y, row, index, w, n);
    case 2: return gather_some<true, 2>(y, row, index, w, n);
    case 3: return gather_some<true, 3>(y, row, index, w, n);
    default: gather_some<true, 4>(y, row, index, w, n);
  }
  int64_t k = 4;
  for (; k + 4 <= t.width; k += 4) gather_some<false, 4>(y, row, index + k * n, w + k * n, n);
  for (; k < t.width; k++) gather_some<false, 1>(y, row, index + k * n, w + k * n, n);
}

// Fewer adjacent elements than this are spelled out in a gather table.
constexpr int64_t kFewLanes = 16;

template <class T, class C>
void resample_rows(const ResampleArgs& a, const Taps<C>& depth, const Taps<C>& height, const Taps<C>& width) {
  const int64_t lanes = a.channels_last ? a.c : 1, images = a.channels_last ? a.n : a.n * a.c;
  const int64_t in = width.columns * lanes, out = width.rows * lanes, image_in = depth.columns * height.columns * in;
  // A row whose taps differ much in number (a scale that does not fit the sizes) would make a table of mostly padding.
  const bool padded = width.most() * width.rows > 8 * width.start[width.rows] + 4096;
  const bool tabled = lanes < kFewLanes && !padded;
  const Taps<C>* const tabled_taps = &width;
  struct Tables {
    const GatherTable<C>* t;
    ~Tables() { delete t; }
  } tables{tabled ? new GatherTable<C>(*tabled_taps, lanes, [](C w) { return w; }) : nullptr};

  const int64_t rows = depth.rows * height.rows;
  const int64_t work = in * (depth.most() * height.most()) + out * width.most();
  parallel_for(images * rows, grain_of(2 * work), [&](int64_t begin, int64_t end) {
    Scratch<C> row(in + 1), result(std::is_same_v<T, C> ? 0 : out);
    row[in] = C(0);
    for (int64_t r = begin; r < end; r++) {
      const int64_t od = r % rows / height.rows, oh = r % height.rows;
      const T* x = static_cast<const T*>(a.x) + r / rows * image_in;
      Blend<C, T> blend(row.get(), in);
      for (int64_t d = depth.start[od]; d < depth.start[od + 1]; d++)
        for (int64_t h = height.start[oh]; h < height.start[oh + 1]; h++)
          blend.add(x + (depth.index[d] * height.columns + height.index[h]) * in, depth.weight[d] * height.weight[h]);
      blend.finish();
      T* y = static_cast<T*>(a.y) + r * out;
      C* target;
      if constexpr (std::is_same_v<T, C>) {
        target = y;
      } else {
        target = result.get();
      }
      if (tabled) {
        gather(target, row.get(), *tables.t);
      } else {
        for (int64_t o = 0; o < width.rows; o++) {
          Blend<C, C> pixel(target + o * lanes, lanes);
          for (int64_t k = width.start[o]; k < width.start[o + 1]; k++)
            pixel.add(row.get() + width.index[k] * lanes, width.weight[k]);
          pixel.finish();
        }
      }
      if constexpr (!std::is_same_v<T, C>)
        for (int64_t i = 0; i < out; i++) y[i] = static_cast<T>(target[i]);
    }
  });
}

template <class T>
void resample_floats(const ResampleArgs& a) {
  using C = compute_t<T>;
  const Taps<C> depth(a, a.axis[0]), height(a, a.axis[1]), width(a, a.axis[2]);
  if (!a.backward) return resample_rows<T, C>(a, depth, height, width);
  resample_rows<T, C>(a, Taps<C>(depth, Transposed{}), Taps<C>(height, Transposed{}), Taps<C>(width, Transposed{}));
}

void resample(const ResampleArgs& a) {
  const bool nearest = a.mode == ResampleMode::nearest || a.mode == ResampleMode::nearest_exact;
  if (nearest && !a.backward) return resample_nearest(a);
  if (a.dtype == DType::U8 && !a.backward) return resample_bytes(a);
  const bool done =
      dispatch(a.dtype, FloatingTypes{}, [&](auto tag) { resample_floats<typename decltype(tag)::type>(a); });
  if (!done) missing_kernel("resample", name_of(a.dtype));
}

MT_REGISTER_KERNEL(resample_kernel, &resample);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
