// Plane rotations of neighbouring columns, collected and applied later to many rows at once. The iterations that find
// eigenvalues and singular values produce them one by one; applied one by one each would pass through two whole
// columns of a matrix that does not fit in any near cache.
#pragma once
#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {

// Columns (lo, hi) = (j, j + 1) become (c lo + s hi, c hi - s lo). A run is a sequence over consecutive j, which rises
// or falls by one from each rotation to the next.
template <class T>
class Rotations {
  using R = real_t<T>;
  using V = gemm::Vector<R>;
  static constexpr int64_t kVectors = 4, kRows = kVectors * gemm::kLanes<R>;  // real rows of a strip
  static constexpr int64_t kCapacity = 1 << 15, kMaxRuns = 2048;

 public:
  // z may be empty: then nothing is collected. Its rows are adjacent.
  explicit Rotations(const Mat<T>& z)
      : z_(z), factors_(z.p == nullptr ? 0 : 2 * kCapacity), runs_(z.p == nullptr ? 0 : kMaxRuns) {}

  MT_INLINE bool active() const { return z_.p != nullptr; }
  // Starts a run of at most `most` rotations.
  void begin(int64_t first, bool rising, int64_t most) {
    if (!active()) return;
    if (used_ + most > kCapacity || count_ == kMaxRuns) flush();
    if (most > kCapacity) missing_kernel("rotations", "of matrices of this size");
    runs_[count_++] = {first, 0, used_, rising};
  }
  MT_INLINE void add(double c, double s) {
    if (!active()) return;
    factors_[2 * used_] = static_cast<R>(c), factors_[2 * used_ + 1] = static_cast<R>(s);
    used_++, runs_[count_ - 1].length++;
  }
  // A single rotation of any two columns, at once.
  void rotate(int64_t lo, int64_t hi, double c, double s) {
    if (!active()) return;
    flush();
    for (int64_t i = 0; i < z_.rows; i++) {
      const T x = z_(i, lo), y = z_(i, hi);
      z_(i, lo) = scaled(x, static_cast<R>(c)) + scaled(y, static_cast<R>(s));
      z_(i, hi) = scaled(y, static_cast<R>(c)) - scaled(x, static_cast<R>(s));
    }
  }
  void flush() {
    if (!active() || used_ == 0) {
      used_ = count_ = 0;
      return;
    }
    // The columns that take part.
    int64_t low = z_.cols, high = 0;
    for (int64_t i = 0; i < count_; i++) {
      const Run& r = runs_[i];
      if (r.length == 0) continue;
      const int64_t last = r.rising ? r.first + r.length - 1 : r.first - r.length + 1;
      low = std::min(low, std::min(r.first, last)), high = std::max(high, std::max(r.first, last) + 1);
    }
    const int64_t reals = z_.rows * (is_complex_v<T> ? 2 : 1), strips = (reals + kRows - 1) / kRows;
    const int64_t grain = std::max<int64_t>(1, 8192 / (used_ + 1));
    const int64_t pitch = z_.cs * (is_complex_v<T> ? 2 : 1);
    R* const base = reinterpret_cast<R*>(z_.p);
    parallel_for(strips, grain, [&](int64_t begin, int64_t end) {
      Scratch<R> memory((high - low + 1) * kRows);
      for (int64_t s = begin; s < end; s++) {
        const int64_t row = s * kRows, width = std::min(kRows, reals - row);
        for (int64_t j = low; j <= high; j++)
          for (int64_t i = 0; i < kRows; i++)
            memory[(j - low) * kRows + i] = i < width ? base[j * pitch + row + i] : R(0);
        for (int64_t r = 0; r < count_; r++) apply(runs_[r], memory.get() - low * kRows);
        for (int64_t j = low; j <= high; j++)
          for (int64_t i = 0; i < width; i++) base[j * pitch + row + i] = memory[(j - low) * kRows + i];
      }
    });
    used_ = count_ = 0;
  }

 private:
  struct Run {
    int64_t first, length, offset;
    bool rising;
  };

  MT_INLINE void apply(const Run& run, R* strip) const {
    if (run.length == 0) return;
    const R* f = factors_.get() + 2 * run.offset;
    V carry[kVectors];
    const auto at = [&](int64_t j, int64_t v) { return reinterpret_cast<V*>(strip + j * kRows) + v; };
    const int64_t start = run.rising ? run.first : run.first + 1, step = run.rising ? 1 : -1;
    for (int64_t v = 0; v < kVectors; v++) carry[v] = *at(start, v);
    int64_t j = start;
    for (int64_t i = 0; i < run.length; i++, j += step) {
      const R c = f[2 * i], s = run.rising ? f[2 * i + 1] : -f[2 * i + 1];
      for (int64_t v = 0; v < kVectors; v++) {
        // Rising: carry is lo; falling: it is hi, and the formulas are the same with -s.
        const V other = *at(j + step, v);
        *at(j, v) = c * carry[v] + s * other;
        carry[v] = c * other - s * carry[v];
      }
    }
    for (int64_t v = 0; v < kVectors; v++) *at(j, v) = carry[v];
  }

  Mat<T> z_;
  Scratch<R> factors_;
  Scratch<Run> runs_;
  int64_t used_ = 0, count_ = 0;
};

// A power of two that the matrix's type has and that brings its largest number near 1, or up from among the subnormal
// ones; NaN if some number is NaN, 0 if one is infinite.
template <class T>
MT_INLINE double scale_for(const Mat<T>& a) {
  double largest = 0;
  for (int64_t j = 0; j < a.cols; j++)
    for (int64_t i = 0; i < a.rows; i++) {
      const double s = static_cast<double>(size1(a(i, j)));
      if (!(s <= largest)) largest = s;
      if (s != s) return s;
    }
  if (largest == 0) return 1;
  if (!(largest <= std::numeric_limits<double>::max())) return 0;
  int exponent;
  std::frexp(largest, &exponent);
  return std::ldexp(1.0, std::min(-exponent, std::numeric_limits<real_t<T>>::max_exponent - 1));
}

}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
