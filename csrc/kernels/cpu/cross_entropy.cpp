// Cross-entropy a row at a time: a row of logits stays in cache for the passes over it.
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/scratch.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// T is the type of the arithmetic: float, or double for double logits.
template <class T>
class Rows {
 public:
  explicit Rows(const CrossEntropyArgs& a)
      : a_(a),
        weight_(a.weight ? a.classes : 0),
        stored_(a.dtype),
        load_(load_fn(a.dtype, dtype_of<T>)),
        store_(store_fn(dtype_of<T>, a.dtype)) {
    if (!a.weight) {
      weight_sum_ = static_cast<T>(a.classes);
      return;
    }
    load_(weight_.get(), a.weight, size(), a.classes);
    double sum = 0;
    for (int64_t c = 0; c < a.classes; c++) sum += weight_[c];
    weight_sum_ = static_cast<T>(sum);
  }

  void forward(LossReduction reduction, char* loss) const {
    const Scratch<T> losses(a_.rows);
    const Scratch<T> counted(a_.rows);
    for_each_row([&](int64_t i, const T* x) {
      const int64_t t = target(i);
      // NaN and a row of infinities come out as NaN, as the definition has it.
      const T largest = lane_max(x, a_.classes);
      const T lse = largest + std::log(sum_over(x, [&](T v, int64_t) { return exp_nonpositive<T>(v - largest); }));
      reinterpret_cast<T*>(a_.lse)[i] = lse;
      losses[i] = t < 0 ? T(0) : row_loss(x, t, lse);
      counted[i] = t < 0 ? T(0) : weight(t);
    });
    double total = 0, total_weight = 0;
    for (int64_t i = 0; i < a_.rows; i++) {
      total += losses[i];
      total_weight += counted[i];
    }
    *reinterpret_cast<T*>(a_.total_weight) = static_cast<T>(total_weight);
    if (reduction == LossReduction::none) return store_(loss, size(), losses.get(), a_.rows);
    const T result = static_cast<T>(reduction == LossReduction::mean ? total / total_weight : total);
    store_(loss, 0, &result, 1);
  }

  void backward(LossReduction reduction, const char* grad_loss, int64_t grad_stride, char* grad_logits) const {
    const T normaliser = reduction == LossReduction::mean ? *reinterpret_cast<const T*>(a_.total_weight) : T(1);
    const bool direct = stored_ == dtype_of<T>;
    const int64_t stride = reduction == LossReduction::none ? grad_stride * size() : 0;
    parallel_rows([&](int64_t begin, int64_t end) {
      const Scratch<T> in(direct ? 0 : a_.classes), out(direct ? 0 : a_.classes);
      for (int64_t i = begin; i < end; i++) {
        T g;
        load_(&g, grad_loss + i * stride, 0, 1);
        g = target(i) < 0 ? T(0) : g / normaliser;
        char* destination = grad_logits + i * a_.classes * size();
        T* y = direct ? reinterpret_cast<T*>(destination) : out.get();
        row_gradient(row(i, in.get()), i, g, y);
        if (!direct) store_(destination, size(), y, a_.classes);
      }
    });
  }

 private:
  int64_t size() const { return static_cast<int64_t>(size_of(stored_)); }
  T weight(int64_t c) const { return a_.weight ? weight_[c] : T(1); }

  // The target of a row; -1 when it is ignored.
  int64_t target(int64_t i) const {
    const int64_t t = a_.target[i * a_.target_stride];
    if (t == a_.ignore_index) return -1;
    if (t < 0 || t >= a_.classes) throw TargetOutOfRange{t};
    return t;
  }

  // The logits of a row in T; `buffer` is used when they are stored in another type.
  const T* row(int64_t i, T* buffer) const {
    const char* p = a_.logits + i * a_.logits_stride * size();
    if (stored_ == dtype_of<T>) return reinterpret_cast<const T*>(p);
    load_(buffer, p, size(), a_.classes);
    return buffer;
  }

  template <class F>
  void parallel_rows(const F& f) const {
    parallel_for(a_.rows, grain_of(8 * a_.classes), f);
  }
  template <class F>
  void for_each_row(const F& f) const {
    parallel_rows([&](int64_t begin, int64_t end) {
      const Scratch<T> buffer(stored_ == dtype_of<T> ? 0 : a_.classes);
      for (int64_t i = begin; i < end; i++) f(i, row(i, buffer.get()));
    });
  }

  // The sum of f(x_c, c) over a row: f fills a buffer in a loop that vectorises, and the lanes add it up.
  template <class F>
  T sum_over(const T* x, const F& f) const {
    constexpr int64_t kRun = 512;
    alignas(64) T terms[kRun];
    T sum = 0;
    for (int64_t c = 0; c < a_.classes; c += kRun) {
      const int64_t n = std::min(kRun, a_.classes - c);
      for (int64_t j = 0; j < n; j++) terms[j] = f(x[c + j], c + j);
      sum += lane_sum(terms, n);
    }
    return sum;
  }

  T row_loss(const T* x, int64_t t, T lse) const {
    const T hard = weight(t) * (lse - x[t]);
    if (a_.smoothing == 0) return hard;
    // Summed as differences from lse: the parts W lse and sum w x can be large and cancel.
    const T spread = a_.weight ? sum_over(x, [&](T v, int64_t c) { return weight_[c] * (lse - v); })
                               : sum_over(x, [&](T v, int64_t) { return lse - v; });
    return static_cast<T>(1 - a_.smoothing) * hard + static_cast<T>(a_.smoothing / a_.classes) * spread;
  }

  // y = g d loss / d x
  void row_gradient(const T* x, int64_t i, T g, T* y) const {
    const int64_t t = target(i), classes = a_.classes;
    if (t < 0) {
      for (int64_t c = 0; c < classes; c++) y[c] = 0;
      return;
    }
    const T lse = reinterpret_cast<const T*>(a_.lse)[i];
    const T hard = g * static_cast<T>(1 - a_.smoothing) * weight(t), soft = g * static_cast<T>(a_.smoothing / classes);
    const T scale = hard + soft * weight_sum_;
    if (a_.smoothing == 0) {
      for (int64_t c = 0; c < classes; c++) y[c] = scale * exp_nonpositive<T>(x[c] - lse);
    } else if (a_.weight) {
      for (int64_t c = 0; c < classes; c++) y[c] = scale * exp_nonpositive<T>(x[c] - lse) - soft * weight_[c];
    } else {
      for (int64_t c = 0; c < classes; c++) y[c] = scale * exp_nonpositive<T>(x[c] - lse) - soft;
    }
    y[t] -= hard;
  }

  const CrossEntropyArgs& a_;
  Scratch<T> weight_;
  T weight_sum_;
  DType stored_;
  LoadFn load_;
  StoreFn store_;
};

template <class F>
void with_type(DType dtype, const F& f) {
  if (!is_floating(dtype)) missing_kernel("cross_entropy", name_of(dtype));
  return dtype == DType::F64 ? f(Tag<double>{}) : f(Tag<float>{});
}

void cross_entropy(const CrossEntropyArgs& a, LossReduction reduction, char* loss) {
  with_type(a.dtype, [&](auto tag) { Rows<typename decltype(tag)::type>(a).forward(reduction, loss); });
}

void cross_entropy_backward(const CrossEntropyArgs& a, LossReduction reduction, const char* grad_loss,
                            int64_t grad_stride, char* grad_logits) {
  with_type(a.dtype, [&](auto tag) {
    Rows<typename decltype(tag)::type>(a).backward(reduction, grad_loss, grad_stride, grad_logits);
  });
}

MT_REGISTER_KERNEL(cross_entropy_kernel, &cross_entropy);
MT_REGISTER_KERNEL(cross_entropy_backward_kernel, &cross_entropy_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
