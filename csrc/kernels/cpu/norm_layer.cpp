// Layer norm and RMS norm on the CPU: a row stays in the first-level cache for both passes over it.
#include "kernels/cpu/norm_rows.h"
#include "kernels/norm.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace norm;

int64_t row_grain(int64_t cols) { return grain_of(4 * cols); }

template <class T>
void forward(const LayerNormArgs& a) {
  const int64_t n = a.cols;
  const Params<T> weight(a.weight, a.param_dtype, n), bias(a.bias, a.param_dtype, n);
  const Results<T> means(a.mean, a.stat_dtype, a.rows), rstds(a.rstd, a.stat_dtype, a.rows);
  with_flag(a.weight != nullptr, [&](auto has_weight) {
    with_flag(a.bias != nullptr, [&](auto has_bias) {
      parallel_for(a.rows, row_grain(n), [&](int64_t begin, int64_t end) {
        const Reader<T> xs(a.x, a.dtype, n);
        const Writer<T> ys(a.y, a.dtype, n);
        const T *w = weight.get(), *b = bias.get();
        for (int64_t r = begin; r < end; r++) {
          const T* x = xs.row(r * n, n);
          T mean = 0;
          if (a.centered) {
            double sum = 0;
            add_sums<T, 1>(n, &sum,
                           [&](auto tag, int64_t i, auto* acc) { acc[0] += at<typename decltype(tag)::type>(x, i); });
            mean = static_cast<T>(sum / n);
            means.get()[r] = mean;
          }
          double squares = 0;
          add_sums<T, 1>(n, &squares, [&](auto tag, int64_t i, auto* acc) {
            const auto d = at<typename decltype(tag)::type>(x, i) - mean;
            acc[0] += d * d;
          });
          const T rstd = static_cast<T>(1 / std::sqrt(squares / n + a.eps));
          rstds.get()[r] = rstd;
          T* y = ys.row(r * n);
          map<T>(n, [&](auto tag, int64_t i) {
            using V = typename decltype(tag)::type;
            V v = (at<V>(x, i) - mean) * rstd;
            if constexpr (has_weight) v *= at<V>(w, i);
            if constexpr (has_bias) v += at<V>(b, i);
            put(y, i, v);
          });
          ys.commit(r * n, n);
        }
      });
    });
  });
  means.commit();
  rstds.commit();
}

// With g = dy * weight and xhat the normalised row: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), where the
// mean(g) term belongs to the centring; dweight = sum over rows of dy * xhat, dbias = sum over rows of dy.
template <class T>
void backward(const LayerNormBackwardArgs& a) {
  const int64_t n = a.cols, rows = a.rows;
  const Params<T> weight(a.weight, a.param_dtype, n);
  const Params<T> means(a.mean, a.stat_dtype, rows), rstds(a.rstd, a.stat_dtype, rows);
  const bool params = a.dweight != nullptr || a.dbias != nullptr;
  const int64_t chunks =
      std::max<int64_t>(1, std::min<int64_t>(num_threads(), (rows + row_grain(n) - 1) / row_grain(n)));
  Scratch<double> totals(params ? chunks * 2 * n : 0);
  if (params) totals.zero(chunks * 2 * n);

  with_flag(a.weight != nullptr, [&](auto has_weight) {
    with_flag(params, [&](auto has_params) {
      for_chunks(rows, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
        const Reader<T> xs(a.x, a.dtype, n), dys(a.dy, a.dtype, n);
        const Writer<T> dxs(a.dx, a.dtype, n);
        const T* w = weight.get();
        Scratch<T> acc(has_params ? 2 * n : 0);
        const auto one_row = [&](int64_t r, T* column) {
          const T *x = xs.row(r * n, n), *dy = dys.row(r * n, n);
          const T mean = a.centered ? means.get()[r] : T(0), rstd = rstds.get()[r];
          T *dw = column, *db = column + n;
          double s[2] = {};
          add_sums<T, 2>(n, s, [&](auto tag, int64_t i, auto* sum) {
            using V = typename decltype(tag)::type;
            const V d = at<V>(dy, i), xhat = (at<V>(x, i) - mean) * rstd;
            if constexpr (has_params) {
              put<T, V>(dw, i, at<V>(dw, i) + d * xhat);
              put<T, V>(db, i, at<V>(db, i) + d);
            }
            V g = d;
            if constexpr (has_weight) g *= at<V>(w, i);
            sum[0] += g;
            sum[1] += g * xhat;
          });
          if (a.dx == nullptr) return;
          const T c0 = a.centered ? static_cast<T>(s[0] / n) : T(0), c1 = static_cast<T>(s[1] / n);
          T* dx = dxs.row(r * n);
          if (a.centered && n == 1) {  // its own mean: a fused multiply-add would leave the product's rounding
            dx[0] = (c0 - c0) * rstd;
            dxs.commit(r, 1);
            return;
          }
          map<T>(n, [&](auto tag, int64_t i) {
            using V = typename decltype(tag)::type;
            V g = at<V>(dy, i);
            if constexpr (has_weight) g *= at<V>(w, i);
            const V xhat = (at<V>(x, i) - mean) * rstd;
            put<T, V>(dx, i, (g - c0 - xhat * c1) * rstd);
          });
          dxs.commit(r * n, n);
        };
        if constexpr (has_params) {
          add_column_sums<T, 2>(begin, end, n, totals.get() + chunk * 2 * n, acc.get(), one_row);
        } else {
          for (int64_t r = begin; r < end; r++) one_row(r, nullptr);
        }
      });
    });
  });
  if (!params) return;
  const Results<T> dweight(a.dweight, a.param_dtype, n), dbias(a.dbias, a.param_dtype, n);
  for (int64_t i = 0; i < n; i++) {
    double dw = 0, db = 0;
    for (int64_t k = 0; k < chunks; k++) {
      dw += totals.get()[k * 2 * n + i];
      db += totals.get()[k * 2 * n + n + i];
    }
    if (a.dweight != nullptr) dweight.get()[i] = static_cast<T>(dw);
    if (a.dbias != nullptr) dbias.get()[i] = static_cast<T>(db);
  }
  dweight.commit();
  dbias.commit();
}

void layer_norm(const LayerNormArgs& a) {
  dispatch_compute("layer_norm", a.dtype, [&](auto tag) { forward<typename decltype(tag)::type>(a); });
}
void layer_norm_backward(const LayerNormBackwardArgs& a) {
  dispatch_compute("layer_norm_backward", a.dtype, [&](auto tag) { backward<typename decltype(tag)::type>(a); });
}

MT_REGISTER_KERNEL(layer_norm_kernel, &layer_norm);
MT_REGISTER_KERNEL(layer_norm_backward_kernel, &layer_norm_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
