// Multi-class and multi-label margin losses on the CPU.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/scratch.h"
#include "kernels/loss.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

bool report(const MarginArgs& a, int64_t target) {
  __atomic_store_n(&a.error->target, target, __ATOMIC_RELAXED);
  __atomic_store_n(&a.error->found, true, __ATOMIC_RELAXED);
  return false;
}

int64_t grain(const MarginArgs& a) { return grain_of(4 * a.classes); }

// Stores the losses of the rows, or their sum or mean.
template <class T>
void reduce(const MarginArgs& a, const double* losses) {
  T* output = static_cast<T*>(a.output);
  if (a.reduction == LossReduction::none) {
    for (int64_t r = 0; r < a.n; r++) output[r] = static_cast<T>(losses[r]);
    return;
  }
  double sum = 0;
  for (int64_t r = 0; r < a.n; r++) sum += losses[r];
  *output = static_cast<T>(a.reduction == LossReduction::mean ? sum / static_cast<double>(a.n) : sum);
}

// The factor of row r's gradient.
template <class T>
T row_gradient(const MarginArgs& a, int64_t r) {
  const T* g = static_cast<const T*>(a.grad_output);
  const double elements = static_cast<double>(a.reduction == LossReduction::mean ? a.n * a.classes : a.classes);
  return static_cast<T>(g[a.reduction == LossReduction::none ? r : 0] / elements);
}

template <class T>
void multi_margin(const MarginArgs& a) {
  const auto* target = static_cast<const int64_t*>(a.target);
  const T* weight = static_cast<const T*>(a.weight);
  const T margin = static_cast<T>(a.margin);
  Scratch<double> losses(a.n);
  parallel_for(a.n, grain(a), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const int64_t t = target[r];
      losses[r] = 0;
      if (t < 0 || t >= a.classes) {
        report(a, t);
        continue;
      }
      const T* x = static_cast<const T*>(a.input) + r * a.classes;
      double sum = 0;
      for (int64_t i = 0; i < a.classes; i++) {
        const T z = margin - x[t] + x[i];
        if (i != t && z > 0) sum += a.p == 1 ? z : z * z;
      }
      losses[r] = sum * (weight ? weight[t] : T(1)) / static_cast<double>(a.classes);
    }
  });
  reduce<T>(a, losses.get());
}

template <class T>
void multi_margin_backward(const MarginArgs& a) {
  const auto* target = static_cast<const int64_t*>(a.target);
  const T* weight = static_cast<const T*>(a.weight);
  const T margin = static_cast<T>(a.margin);
  parallel_for(a.n, grain(a), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const int64_t t = target[r];
      if (t < 0 || t >= a.classes) {
        report(a, t);
        continue;
      }
      const T* x = static_cast<const T*>(a.input) + r * a.classes;
      T* dx = static_cast<T*>(a.grad_input) + r * a.classes;
      const T g = row_gradient<T>(a, r) * (weight ? weight[t] : T(1));
      T of_target = 0;
      for (int64_t i = 0; i < a.classes; i++) {
        const T z = margin - x[t] + x[i];
        dx[i] = i != t && z > 0 ? (a.p == 1 ? g : 2 * g * z) : T(0);
        of_target -= dx[i];
      }
      dx[t] = of_target;
    }
  });
}

// The number of targets of a row, or -1 after reporting one out of range.
int64_t count_targets(const MarginArgs& a, const int64_t* target) {
  int64_t count = a.classes;
  for (int64_t i = 0; i < a.classes; i++) {
    if (target[i] < -1 || target[i] >= a.classes) {
      report(a, target[i]);
      return -1;
    }
    if (target[i] == -1) count = std::min(count, i);
  }
  return count;
}

template <class T>
void multilabel_margin(const MarginArgs& a) {
  Scratch<double> losses(a.n);
  parallel_for(a.n, grain(a), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const auto* target = static_cast<const int64_t*>(a.target) + r * a.classes;
      const T* x = static_cast<const T*>(a.input) + r * a.classes;
      T* is_target = static_cast<T*>(a.is_target) + r * a.classes;
      const int64_t count = count_targets(a, target);
      for (int64_t i = 0; i < a.classes; i++) is_target[i] = T(0);
      for (int64_t k = 0; k < count; k++) is_target[target[k]] = T(1);
      double sum = 0;
      for (int64_t k = 0; k < count; k++)
        for (int64_t i = 0; i < a.classes; i++) {
          const T z = 1 - x[target[k]] + x[i];
          sum += is_target[i] == T(0) && z > 0 ? z : T(0);
        }
      losses[r] = sum / static_cast<double>(a.classes);
    }
  });
  reduce<T>(a, losses.get());
}

template <class T>
void multilabel_margin_backward(const MarginArgs& a) {
  parallel_for(a.n, grain(a), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const auto* target = static_cast<const int64_t*>(a.target) + r * a.classes;
      const T* x = static_cast<const T*>(a.input) + r * a.classes;
      const T* is_target = static_cast<const T*>(a.is_target) + r * a.classes;
      T* dx = static_cast<T*>(a.grad_input) + r * a.classes;
      for (int64_t i = 0; i < a.classes; i++) dx[i] = T(0);
      const T g = row_gradient<T>(a, r);
      const int64_t count = count_targets(a, target);
      for (int64_t k = 0; k < count; k++)
        for (int64_t i = 0; i < a.classes; i++) {
          if (is_target[i] != T(0) || !(1 - x[target[k]] + x[i] > 0)) continue;
          dx[target[k]] -= g;
          dx[i] += g;
        }
    }
  });
}

#define MT_MARGIN(kernel, function)                                                                     \
  void run_##function(const MarginArgs& a) {                                                            \
    if (!dispatch(a.dtype, FloatTypes{}, [&](auto tag) { function<typename decltype(tag)::type>(a); })) \
      missing_kernel(#function, name_of(a.dtype));                                                      \
  }                                                                                                     \
  MT_REGISTER_KERNEL(kernel, &run_##function);
MT_MARGIN(multi_margin_kernel, multi_margin)
MT_MARGIN(multi_margin_backward_kernel, multi_margin_backward)
MT_MARGIN(multilabel_margin_kernel, multilabel_margin)
MT_MARGIN(multilabel_margin_backward_kernel, multilabel_margin_backward)
#undef MT_MARGIN

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
