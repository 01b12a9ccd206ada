// Fused optimizer steps, in native's order of operations. All operands of a block are read once and written once.
#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cpu/list_loop.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class T>
struct Adam {
  T step_size, root_correction, decay, shrink, beta1, beta2, one_minus_beta1, one_minus_beta2, eps;
  bool amsgrad;

  Adam(const OptimizerParams& p, double step)
      : step_size(static_cast<T>(p.lr / (1 - std::pow(p.beta1, step)))),
        root_correction(static_cast<T>(std::sqrt(1 - std::pow(p.beta2, step)))),
        decay(static_cast<T>(p.decoupled_decay ? 0 : p.weight_decay)),
        shrink(static_cast<T>(p.decoupled_decay ? 1 - p.lr * p.weight_decay : 1)),
        beta1(static_cast<T>(p.beta1)),
        beta2(static_cast<T>(p.beta2)),
        one_minus_beta1(static_cast<T>(1 - p.beta1)),
        one_minus_beta2(static_cast<T>(1 - p.beta2)),
        eps(static_cast<T>(p.eps)),
        amsgrad(p.amsgrad) {}

  template <bool use_max>
  void block(T* param, const T* grad, T* mean, T* square, T* largest, int64_t n) const {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
      const T w = param[i] * shrink, g = grad[i] + w * decay;
      const T m = one_minus_beta1 < T(0.5) ? mean[i] + one_minus_beta1 * (g - mean[i]) : g - (g - mean[i]) * beta1;
      const T v = beta2 * square[i] + one_minus_beta2 * g * g;
      mean[i] = m;
      square[i] = v;
      T denominator = v;
      if constexpr (use_max) {
        denominator = largest[i] > v ? largest[i] : v;
        largest[i] = denominator;
      }
      param[i] = w - step_size * (m / (std::sqrt(denominator) / root_correction + eps));
    }
  }
  void operator()(T* const* p, int64_t n) const {
    return amsgrad ? block<true>(p[0], p[1], p[2], p[3], p[4], n) : block<false>(p[0], p[1], p[2], p[3], p[4], n);
  }
};

template <class T>
struct Sgd {
  T lr, decay, momentum, one_minus_dampening;
  bool use_momentum, nesterov, first_step;

  Sgd(const OptimizerParams& p, double)
      : lr(static_cast<T>(p.lr)),
        decay(static_cast<T>(p.weight_decay)),
        momentum(static_cast<T>(p.momentum)),
        one_minus_dampening(static_cast<T>(1 - p.dampening)),
        use_momentum(p.momentum != 0),
        nesterov(p.nesterov),
        first_step(p.first_step) {}

  template <bool with_momentum>
  void block(T* param, const T* grad, T* buffer, int64_t n) const {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
      T g = grad[i] + param[i] * decay;
      if constexpr (with_momentum) {
        const T b = first_step ? g : buffer[i] * momentum + g * one_minus_dampening;
        buffer[i] = b;
        g = nesterov ? g + b * momentum : b;
      }
      param[i] -= lr * g;
    }
  }
  void operator()(T* const* p, int64_t n) const {
    return use_momentum ? block<true>(p[0], p[1], p[2], n) : block<false>(p[0], p[1], p[2], n);
  }
};

template <class T>
struct Adagrad {
  T rate, decay, eps;

  Adagrad(const OptimizerParams& p, double step)
      : rate(static_cast<T>(p.lr / (1 + (step - 1) * p.lr_decay))),
        decay(static_cast<T>(p.weight_decay)),
        eps(static_cast<T>(p.eps)) {}

  void operator()(T* const* p, int64_t n) const {
    T *param = p[0], *sum = p[2];
    const T* grad = p[1];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
      const T g = grad[i] + param[i] * decay, s = sum[i] + g * g;
      sum[i] = s;
      param[i] -= rate * (g / (std::sqrt(s) + eps));
    }
  }
};

template <template <class> class Rule, class T>
void run(const std::vector<OptimizerItem>& items, DType dtype, const OptimizerParams& p) {
  const T scale = p.grad_scale ? static_cast<T>(*p.grad_scale) : T(1);
  for_each_piece(items, [&](const OptimizerItem& item, int64_t begin, int64_t end) {
    const Rule<T> rule(p, item.step ? *item.step : 0);
    char* data[] = {item.param, item.grad, item.state[0], item.state[1], item.state[2]};
    const unsigned written = p.grad_scale ? 0b11111 : 0b11101;  // an unscaled gradient is kept, as native keeps it
    for_each_block<T, 5>(data, dtype, written, begin, end, [&](T* const* ptrs, int64_t n) {
      if (p.grad_scale)
        for (int64_t i = 0; i < n; i++) ptrs[1][i] /= scale;
      if (!p.maximize) return rule(ptrs, n);
      T negated[kBlock];
      for (int64_t i = 0; i < n; i += kBlock) {
        const int64_t m = std::min(kBlock, n - i);
        for (int64_t j = 0; j < m; j++) negated[j] = -ptrs[1][i + j];
        T* shifted[] = {ptrs[0] + i, negated, nullptr, nullptr, nullptr};
        for (int k = 2; k < 5; k++) shifted[k] = ptrs[k] ? ptrs[k] + i : nullptr;
        rule(shifted, m);
      }
    });
  });
}

template <template <class> class Rule>
void fused(const std::vector<OptimizerItem>& items, DType dtype, const OptimizerParams& p) {
  if (!is_floating(dtype)) missing_kernel("fused optimizer", name_of(dtype));
  if (p.found_inf && *p.found_inf == 1.0f) return;
  return dtype == DType::F64 ? run<Rule, double>(items, dtype, p) : run<Rule, float>(items, dtype, p);
}

MT_REGISTER_KERNEL(fused_adam_kernel, &fused<Adam>);
MT_REGISTER_KERNEL(fused_sgd_kernel, &fused<Sgd>);
MT_REGISTER_KERNEL(fused_adagrad_kernel, &fused<Adagrad>);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
