// List operators: the table's expression over blocks, vectorised by the compiler.
#include "kernels/foreach.h"

#include <atomic>
#include <cmath>

#include "kernels/cpu/list_loop.h"
#include "kernels/functors/loss_scale.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// The output and inputs of `op` over n elements. Outputs may be inputs, hence ivdep and no restrict.
template <class T>
void block(ForeachOp op, T* const* p, int64_t n, T s) {
  T* out = p[0];
  const T *pa = p[1], *pb = p[2], *pc = p[3];
  switch (op) {
#define MT_CASE(name, expression, inputs)                     \
  case ForeachOp::name:                                       \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {    \
      [[maybe_unused]] const T a = pa[i];                     \
      [[maybe_unused]] const T b = inputs > 1 ? pb[i] : T(0); \
      [[maybe_unused]] const T c = inputs > 2 ? pc[i] : T(0); \
      out[i] = expression;                                    \
    }                                                         \
    return;
    MT_FOREACH_OPS(MT_CASE)
#undef MT_CASE
  }
}

// An optimizer's step is a row of passes over lists that together are larger than the caches. Every other pass goes
// backwards: it begins with what the one before has touched last and left there.
constexpr int64_t kTurnBytes = 4 << 20;
bool goes_backwards(const std::vector<ForeachItem>& items, DType dtype) {
  int64_t total = 0;
  for (const ForeachItem& item : items) total += item.numel;
  static thread_local bool backwards = false;
  if (total * static_cast<int64_t>(size_of(dtype)) < kTurnBytes) return false;
  return backwards = !backwards;
}

template <class T>
void run(ForeachOp op, const std::vector<ForeachItem>& items, DType dtype, const char* device_scalar) {
  T common = 0;
  if (device_scalar) load_fn(dtype, dtype_of<T>)(&common, device_scalar, 0, 1);
  for_each_piece(
      items,
      [&](const ForeachItem& item, int64_t begin, int64_t end) {
        const T s = device_scalar ? common : static_cast<T>(item.s);
        for_each_block<T, 4>(item.data, dtype, 1, begin, end, [&](T* const* p, int64_t n) { block<T>(op, p, n, s); });
      },
      goes_backwards(items, dtype));
}

void foreach_op(ForeachOp op, const std::vector<ForeachItem>& items, DType dtype, const char* device_scalar) {
  if (!is_floating(dtype)) missing_kernel("foreach", name_of(dtype));
  return dtype == DType::F64 ? run<double>(op, items, dtype, device_scalar)
                             : run<float>(op, items, dtype, device_scalar);
}

// Norms accumulate lanes of T over a short block and the blocks in double.
template <class T>
double norm_block(const T* x, int64_t n, double order) {
  constexpr int64_t kRun = 4096;
  double total = 0;
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t m = std::min(kRun, n - i);
    T lanes[32] = {};
    const auto accumulate = [&](const auto& f) {
      int64_t j = 0;
      for (; j + 32 <= m; j += 32)
        for (int l = 0; l < 32; l++) lanes[l] = f(lanes[l], x[i + j + l]);
      for (; j < m; j++) lanes[0] = f(lanes[0], x[i + j]);
    };
    if (order == 2) {
      accumulate([](T sum, T v) { return sum + v * v; });
    } else if (order == 1) {
      accumulate([](T sum, T v) { return sum + std::abs(v); });
    } else {  // NaN must win
      accumulate([](T most, T v) {
        const T a = std::abs(v);
        return a > most || a != a ? a : most;
      });
    }
    for (const T lane : lanes) {
      const double v = lane;
      total = std::isinf(order) ? (v > total || v != v ? v : total) : total + v;
    }
  }
  return total;
}

template <class T>
void norms(const std::vector<ForeachItem>& items, DType dtype, double order) {
  const StoreFn store = store_fn(DType::F64, dtype);
  // Partial results of each piece, merged under a spin lock: there are few pieces.
  std::vector<double> totals(items.size(), 0.0);
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  for_each_piece(items, [&](const ForeachItem& item, int64_t begin, int64_t end) {
    double part = 0;
    char* data[] = {item.data[1]};
    for_each_block<T, 1>(data, dtype, 0, begin, end, [&](T* const* p, int64_t n) {
      const double v = norm_block<T>(p[0], n, order);
      part = std::isinf(order) ? (v > part || v != v ? v : part) : part + v;
    });
    double& total = totals[&item - items.data()];
    while (busy.test_and_set(std::memory_order_acquire)) {
    }
    total = std::isinf(order) ? (part > total || part != part ? part : total) : total + part;
    busy.clear(std::memory_order_release);
  });
  for (size_t i = 0; i < items.size(); i++) {
    const double result = order == 2 ? std::sqrt(totals[i]) : totals[i];
    store(items[i].data[0], 0, &result, 1);
  }
}

void foreach_norm(const std::vector<ForeachItem>& items, DType dtype, double order) {
  if (!is_floating(dtype)) missing_kernel("foreach_norm", name_of(dtype));
  return dtype == DType::F64 ? norms<double>(items, dtype, order) : norms<float>(items, dtype, order);
}

template <class T>
void unscale_items(const std::vector<ForeachItem>& items, DType dtype, const float* inv_scale, float* found_inf) {
  const T scale = static_cast<T>(*inv_scale);
  std::atomic<bool> found{false};
  for_each_piece(items, [&](const ForeachItem& item, int64_t begin, int64_t end) {
    char* data[] = {item.data[0]};
    for_each_block<T, 1>(data, dtype, 1, begin, end, [&](T* const* p, int64_t n) {
      T* x = p[0];
      int bad = 0;
      for (int64_t i = 0; i < n; i++) {
        bad |= !(std::abs(x[i]) <= std::numeric_limits<T>::max());
        x[i] = scale == T(1) ? x[i] : x[i] * scale;
      }
      if (bad) found.store(true, std::memory_order_relaxed);
    });
  });
  if (found) *found_inf = 1.0f;
}

void unscale(const std::vector<ForeachItem>& items, DType dtype, const float* inv_scale, float* found_inf) {
  if (!is_floating(dtype)) missing_kernel("_amp_foreach_non_finite_check_and_unscale_", name_of(dtype));
  return dtype == DType::F64 ? unscale_items<double>(items, dtype, inv_scale, found_inf)
                             : unscale_items<float>(items, dtype, inv_scale, found_inf);
}

void update_scale(float* scale, int32_t* growth_tracker, const float* found_inf, double growth, double backoff,
                  int64_t interval) {
  functors::next_loss_scale(scale, growth_tracker, *found_inf != 0, growth, backoff, interval);
}

MT_REGISTER_KERNEL(foreach_kernel, &foreach_op);
MT_REGISTER_KERNEL(foreach_norm_kernel, &foreach_norm);
MT_REGISTER_KERNEL(unscale_kernel, &unscale);
MT_REGISTER_KERNEL(update_scale_kernel, &update_scale);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
