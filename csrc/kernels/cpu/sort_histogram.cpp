// CPU histograms. The bins of a block of points are found dimension by dimension, then the block is counted. Each
// thread has tables of its own, counts in integers and sums of weights in double, which are added up at the end.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/sort.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kBlock = 1024;
// Equal neighbours would wait for each other's count to reach memory; they go to four tables in turn.
constexpr int64_t kTables = 4, kMostTableBins = 2048;

template <class T>
MT_INLINE compute_t<T> rounded(compute_t<T> x) {
  return static_cast<compute_t<T>>(static_cast<T>(x));
}

// The edges and bins of one dimension.
template <class T>
struct Bins {
  const T* edges;
  int64_t count;

  // The bin of x, for equal bins; every step is rounded to T, as native's arithmetic on T is. Index is wide enough for
  // the count.
  template <class Index>
  MT_INLINE Index linear(compute_t<T> x, compute_t<T> low, compute_t<T> width, compute_t<T> n) const {
    const compute_t<T> position = rounded<T>(rounded<T>(rounded<T>(x - low) * n) / width);
    return static_cast<Index>(position);
  }
  MT_INLINE bool reached(int64_t edge, compute_t<T> x) const { return static_cast<compute_t<T>>(edges[edge]) <= x; }
  // The last edge that x reaches, beside edge `at`.
  MT_INLINE int64_t nearby(compute_t<T> x, int64_t at) const {
    const int64_t first = std::max<int64_t>(at - 1, 0), last = std::min(at + 1, count);
    int64_t reached_edges = first - 1;
    for (int64_t e = first; e <= last; e++) reached_edges += reached(e, x);
    return reached_edges;
  }
  MT_INLINE int64_t binary(compute_t<T> x) const {
    int64_t base = 0;
    for (int64_t length = count + 1; length > 1;) {
      const int64_t half = length / 2;
      base += reached(base + half, x) ? half : 0;
      length -= half;
    }
    return base;
  }
};

// bin[i] = bin[i] * bins + the bin of coordinate x[i * step], for n <= kBlock points; negative from the first dimension
// on that a point is outside of.
template <class T, class Index>
void add_dimension(const HistogramArgs& a, const Bins<T>& bins, const T* x, int64_t step, int64_t n, int64_t* bin) {
  using C = compute_t<T>;
  const C low = bins.edges[0], high = bins.edges[bins.count], width = rounded<T>(high - low);
  const C number = static_cast<C>(static_cast<T>(static_cast<C>(bins.count)));
  const Index last = static_cast<Index>(bins.count - 1);
  C value[kBlock];
  Index place[kBlock];
  if (step == 1)
    for (int64_t i = 0; i < n; i++) value[i] = static_cast<C>(x[i]);
  else
    for (int64_t i = 0; i < n; i++) value[i] = static_cast<C>(x[i * step]);
  if (a.search == BinSearch::binary) {
    for (int64_t i = 0; i < n; i++) place[i] = static_cast<Index>(bins.binary(value[i]));
  } else {
    for (int64_t i = 0; i < n; i++) {
      const bool inside = (value[i] >= low) & (value[i] <= high);
      place[i] = bins.template linear<Index>(inside ? value[i] : low, low, width, number);
    }
    if (a.search == BinSearch::nearby)
      for (int64_t i = 0; i < n; i++)
        place[i] = static_cast<Index>(bins.nearby(value[i], std::clamp<Index>(place[i], 0, last)));
  }
  for (int64_t i = 0; i < n; i++) {
    const bool inside = (value[i] >= low) & (value[i] <= high);
    const Index here = place[i] < 0 ? 0 : place[i] > last ? last : place[i];
    bin[i] = inside & (bin[i] >= 0) ? bin[i] * bins.count + here : -1;
  }
}

template <class T>
class Histogram {
 public:
  explicit Histogram(const HistogramArgs& a) : a_(a), size_(1) {
    for (int64_t d = 0; d < a.dims; d++) size_ *= a.bins[d];
  }

  void run() const {
    if (a_.weights != nullptr)
      sum<double>(1, [&](const int64_t* bin, int64_t begin, int64_t n, double* sums) {
        const T* const w = reinterpret_cast<const T*>(a_.weights) + begin;
        for (int64_t i = 0; i < n; i++)
          if (bin[i] >= 0) sums[bin[i]] += static_cast<double>(static_cast<compute_t<T>>(w[i]));
      });
    else
      // What is outside is counted in a bin of its own, before the others.
      sum<int64_t>(size_ <= kMostTableBins ? kTables : 1,
                   [this, tables = size_ <= kMostTableBins](const int64_t* bin, int64_t, int64_t n, int64_t* counts) {
                     const int64_t pitch = tables ? size_ + 1 : 0;
                     int64_t i = 0;
                     for (; i + kTables <= n; i += kTables)
                       for (int64_t k = 0; k < kTables; k++) counts[k * pitch + bin[i + k]]++;
                     for (; i < n; i++) counts[bin[i]]++;
                   });
  }

 private:
  // hist = the sum of `tables` tables of every thread, which add(bins of a block, its first point, n, tables) fills.
  template <class Sum, class Add>
  void sum(int64_t tables, const Add& add) const {
    const int64_t pitch = size_ + 1;
    // Tables take memory and time to add up.
    const int64_t parts = std::clamp<int64_t>(a_.n / (tables * size_ + 2048), 1, num_threads());
    Scratch<Sum, 8192> memory(parts * tables * pitch);
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; p++) {
        Sum* const part = memory.get() + p * tables * pitch;
        for (int64_t i = 0; i < tables * pitch; i++) part[i] = 0;
        int64_t bin[kBlock];
        const int64_t last = a_.n * (p + 1) / parts;
        for (int64_t i = a_.n * p / parts; i < last; i += kBlock) {
          const int64_t n = std::min(kBlock, last - i);
          find_bins(i, n, bin);
          add(bin, i, n, part + 1);
        }
      }
    });
    T* const hist = reinterpret_cast<T*>(a_.hist);
    for (int64_t b = 0; b < size_; b++) {
      Sum total = 0;
      for (int64_t t = 0; t < parts * tables; t++) total += memory[t * pitch + 1 + b];
      hist[b] = static_cast<T>(static_cast<compute_t<T>>(total));
    }
  }

  void find_bins(int64_t begin, int64_t n, int64_t* bin) const {
    for (int64_t i = 0; i < n; i++) bin[i] = 0;
    const T* const x = reinterpret_cast<const T*>(a_.points) + begin * a_.dims;
    for (int64_t d = 0; d < a_.dims; d++) {
      const Bins<T> bins{reinterpret_cast<const T*>(a_.edges[d]), a_.bins[d]};
      if (bins.count < int64_t{1} << 30)
        add_dimension<T, int32_t>(a_, bins, x + d, a_.dims, n, bin);
      else
        add_dimension<T, int64_t>(a_, bins, x + d, a_.dims, n, bin);
    }
  }

  const HistogramArgs& a_;
  int64_t size_;
};

void histogram(const HistogramArgs& a) {
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) { Histogram<typename decltype(tag)::type>(a).run(); }))
    missing_kernel(histogram_kernel.name(), name_of(a.dtype));
}

MT_REGISTER_KERNEL(histogram_kernel, &histogram);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
