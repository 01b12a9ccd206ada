// Group norm on the CPU. Channels first: one (sample, group) at a time, plane by plane. Channels last: one sample at a
// time, with sums per channel that are then folded into groups.
#include "kernels/cpu/norm_rows.h"
#include "kernels/norm.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace norm;

int64_t task_grain(int64_t elements) { return grain_of(4 * elements); }

template <class T>
void forward_planes(const GroupNormArgs& a) {
  const int64_t depth = a.c / a.groups, hw = a.spatial, tasks = a.n * a.groups;
  const double count = static_cast<double>(depth * hw);
  const Params<T> weight(a.weight, a.param_dtype, a.c), bias(a.bias, a.param_dtype, a.c);
  const Results<T> means(a.mean, a.stat_dtype, tasks), rstds(a.rstd, a.stat_dtype, tasks);
  parallel_for(tasks, task_grain(depth * hw), [&](int64_t begin, int64_t end) {
    const Reader<T> xs(a.x, a.dtype, hw);
    const Writer<T> ys(a.y, a.dtype, hw);
    for (int64_t task = begin; task < end; task++) {
      const int64_t first = task * depth;  // the group's first plane
      double sum = 0, squares = 0;
      for (int64_t p = first; p < first + depth; p++) {
        const T* x = xs.row(p * hw, hw);
        add_sums<T, 1>(hw, &sum,
                       [&](auto tag, int64_t i, auto* acc) { acc[0] += at<typename decltype(tag)::type>(x, i); });
      }
      const T mean = static_cast<T>(sum / count);
      for (int64_t p = first; p < first + depth; p++) {
        const T* x = xs.row(p * hw, hw);
        add_sums<T, 1>(hw, &squares, [&](auto tag, int64_t i, auto* acc) {
          const auto d = at<typename decltype(tag)::type>(x, i) - mean;
          acc[0] += d * d;
        });
      }
      const T rstd = static_cast<T>(1 / std::sqrt(squares / count + a.eps));
      means.get()[task] = mean;
      rstds.get()[task] = rstd;
      for (int64_t p = first; p < first + depth; p++) {
        const int64_t c = p % a.c;
        const T scale = weight.get() ? rstd * weight.get()[c] : rstd, shift = bias.get() ? bias.get()[c] : T(0);
        const T* x = xs.row(p * hw, hw);
        T* y = ys.row(p * hw);
        map<T>(hw, [&](auto tag, int64_t i) {
          using V = typename decltype(tag)::type;
          put<T, V>(y, i, (at<V>(x, i) - mean) * scale + shift);
        });
        ys.commit(p * hw, hw);
      }
    }
  });
  means.commit();
  rstds.commit();
}

template <class T>
void forward_rows(const GroupNormArgs& a) {
  const int64_t depth = a.c / a.groups, hw = a.spatial, c = a.c, tasks = a.n * a.groups;
  const double count = static_cast<double>(depth * hw);
  const Params<T> weight(a.weight, a.param_dtype, c), bias(a.bias, a.param_dtype, c);
  const Results<T> means(a.mean, a.stat_dtype, tasks), rstds(a.rstd, a.stat_dtype, tasks);
  parallel_for(a.n, task_grain(c * hw), [&](int64_t begin, int64_t end) {
    const Reader<T> xs(a.x, a.dtype, c);
    const Writer<T> ys(a.y, a.dtype, c);
    Scratch<double> totals(c);
    Scratch<T> terms(3 * c);
    T *mean = terms.get(), *scale = mean + c, *shift = scale + c;
    // The mean over each group of the per-channel totals.
    const auto fold = [&](int64_t g) {
      double sum = 0;
      for (int64_t i = g * depth; i < (g + 1) * depth; i++) sum += totals.get()[i];
      return sum / count;
    };
    for (int64_t n = begin; n < end; n++) {
      const int64_t first = n * hw, last = first + hw;
      totals.zero(c);
      add_tensor_column_sums<T, 1>(a.x, nullptr, a.dtype, first, last, c, totals.get(),
                                   [c](const T* x, const T*, T* acc) {
                                     map<T>(c, [&](auto tag, int64_t i) {
                                       using V = typename decltype(tag)::type;
                                       put<T, V>(acc, i, at<V>(acc, i) + at<V>(x, i));
                                     });
                                   });
      for (int64_t g = 0; g < a.groups; g++) {
        const T m = static_cast<T>(fold(g));
        means.get()[n * a.groups + g] = m;
        for (int64_t i = g * depth; i < (g + 1) * depth; i++) mean[i] = m;
      }
      totals.zero(c);
      add_tensor_column_sums<T, 1>(a.x, nullptr, a.dtype, first, last, c, totals.get(),
                                   [c, mean](const T* x, const T*, T* acc) {
                                     map<T>(c, [&](auto tag, int64_t i) {
                                       using V = typename decltype(tag)::type;
                                       const V d = at<V>(x, i) - at<V>(mean, i);
                                       put<T, V>(acc, i, at<V>(acc, i) + d * d);
                                     });
                                   });
      for (int64_t g = 0; g < a.groups; g++) {
        const T rstd = static_cast<T>(1 / std::sqrt(fold(g) + a.eps));
        rstds.get()[n * a.groups + g] = rstd;
        for (int64_t i = g * depth; i < (g + 1) * depth; i++) {
          scale[i] = weight.get() ? rstd * weight.get()[i] : rstd;
          shift[i] = bias.get() ? bias.get()[i] : T(0);
        }
      }
      for (int64_t r = first; r < last; r++) {
        const T* x = xs.row(r * c, c);
        T* y = ys.row(r * c);
        map<T>(c, [&](auto tag, int64_t i) {
          using V = typename decltype(tag)::type;
          put<T, V>(y, i, (at<V>(x, i) - at<V>(mean, i)) * at<V>(scale, i) + at<V>(shift, i));
        });
        ys.commit(r * c, c);
      }
    }
  });
  means.commit();
  rstds.commit();
}

// One group's gradient: with a_c and b_c the sums over channel c of dy and of dy * xhat, and m the group's elements,
// dx = rstd * (dy * weight - mean_g - xhat * slope_g), mean_g = sum(weight_c a_c) / m, slope_g = sum(weight_c b_c) / m.
struct GroupTerms {
  double average, slope;
};
template <class T>
MT_INLINE GroupTerms group_terms(const double* a, const double* b, const T* weight, int64_t depth, double count) {
  GroupTerms t{0, 0};
  for (int64_t i = 0; i < depth; i++) {
    const double w = weight ? weight[i] : 1;
    t.average += w * a[i];
    t.slope += w * b[i];
  }
  return {t.average / count, t.slope / count};
}

template <class T>
void backward_planes(const GroupNormBackwardArgs& a, const T* weight, const T* means, const T* rstds, double* sums) {
  const int64_t depth = a.c / a.groups, hw = a.spatial, tasks = a.n * a.groups, planes = a.n * a.c;
  parallel_for(tasks, task_grain(depth * hw), [&](int64_t begin, int64_t end) {
    const Reader<T> xs(a.x, a.dtype, hw), dys(a.dy, a.dtype, hw);
    const Writer<T> dxs(a.dx, a.dtype, hw);
    for (int64_t task = begin; task < end; task++) {
      const int64_t first = task * depth;
      const T mean = means[task], rstd = rstds[task];
      for (int64_t p = first; p < first + depth; p++) {
        const T *x = xs.row(p * hw, hw), *dy = dys.row(p * hw, hw);
        double s[2] = {};
        add_sums<T, 2>(hw, s, [&](auto tag, int64_t i, auto* acc) {
          using V = typename decltype(tag)::type;
          const V d = at<V>(dy, i);
          acc[0] += d;
          acc[1] += d * (at<V>(x, i) - mean);
        });
        sums[p] = s[0];
        sums[planes + p] = s[1] * rstd;
      }
      if (a.dx == nullptr) continue;
      const GroupTerms t = group_terms(sums + first, sums + planes + first, weight ? weight + first % a.c : nullptr,
                                       depth, static_cast<double>(depth * hw));
      const T average = static_cast<T>(t.average * rstd), slope = static_cast<T>(t.slope * rstd * rstd);
      for (int64_t p = first; p < first + depth; p++) {
        const T scale = weight ? rstd * weight[p % a.c] : rstd;
        const T *x = xs.row(p * hw, hw), *dy = dys.row(p * hw, hw);
        T* dx = dxs.row(p * hw);
        map<T>(hw, [&](auto tag, int64_t i) {
          using V = typename decltype(tag)::type;
          put<T, V>(dx, i, at<V>(dy, i) * scale - average - (at<V>(x, i) - mean) * slope);
        });
        dxs.commit(p * hw, hw);
      }
    }
  });
}

template <class T>
void backward_rows(const GroupNormBackwardArgs& a, const T* weight, const T* means, const T* rstds, double* sums) {
  const int64_t depth = a.c / a.groups, hw = a.spatial, c = a.c, planes = a.n * c;
  parallel_for(a.n, task_grain(c * hw), [&](int64_t begin, int64_t end) {
    const Reader<T> xs(a.x, a.dtype, c), dys(a.dy, a.dtype, c);
    const Writer<T> dxs(a.dx, a.dtype, c);
    Scratch<double> totals(2 * c);
    Scratch<T> terms(4 * c);
    T *mean = terms.get(), *scale = mean + c, *average = scale + c, *slope = average + c;
    for (int64_t n = begin; n < end; n++) {
      const int64_t first = n * hw, last = first + hw;
      for (int64_t i = 0; i < c; i++) mean[i] = means[n * a.groups + i / depth];
      totals.zero(2 * c);
      add_tensor_column_sums<T, 2>(a.x, a.dy, a.dtype, first, last, c, totals.get(),
                                   [c, mean](const T* x, const T* dy, T* acc) {
                                     map<T>(c, [&](auto tag, int64_t i) {
                                       using V = typename decltype(tag)::type;
                                       const V d = at<V>(dy, i);
                                       put<T, V>(acc, i, at<V>(acc, i) + d);
                                       put<T, V>(acc + c, i, at<V>(acc + c, i) + d * (at<V>(x, i) - at<V>(mean, i)));
                                     });
                                   });
      double *a_sums = sums + n * c, *b_sums = sums + planes + n * c;
      for (int64_t i = 0; i < c; i++) {
        a_sums[i] = totals.get()[i];
        b_sums[i] = totals.get()[c + i] * rstds[n * a.groups + i / depth];
      }
      if (a.dx == nullptr) continue;
      for (int64_t g = 0; g < a.groups; g++) {
        const T rstd = rstds[n * a.groups + g];
        const GroupTerms t = group_terms(a_sums + g * depth, b_sums + g * depth, weight ? weight + g * depth : nullptr,
                                         depth, static_cast<double>(depth * hw));
        for (int64_t i = g * depth; i < (g + 1) * depth; i++) {
          scale[i] = weight ? rstd * weight[i] : rstd;
          average[i] = static_cast<T>(t.average * rstd);
          slope[i] = static_cast<T>(t.slope * rstd * rstd);
        }
      }
      for (int64_t r = first; r < last; r++) {
        const T *x = xs.row(r * c, c), *dy = dys.row(r * c, c);
        T* dx = dxs.row(r * c);
        map<T>(c, [&](auto tag, int64_t i) {
          using V = typename decltype(tag)::type;
          put<T, V>(
              dx, i,
              at<V>(dy, i) * at<V>(scale, i) - at<V>(average, i) - (at<V>(x, i) - at<V>(mean, i)) * at<V>(slope, i));
        });
        dxs.commit(r * c, c);
      }
    }
  });
}

template <class T>
void backward(const GroupNormBackwardArgs& a) {
  const Params<T> weight(a.weight, a.param_dtype, a.c);
  const Params<T> means(a.mean, a.stat_dtype, a.n * a.groups), rstds(a.rstd, a.stat_dtype, a.n * a.groups);
  const Results<T> dweight(a.dweight, a.param_dtype, a.c), dbias(a.dbias, a.param_dtype, a.c);
  const int64_t planes = a.n * a.c;
  Scratch<double> sums(2 * planes);
  if (a.channels_last) {
    backward_rows<T>(a, weight.get(), means.get(), rstds.get(), sums.get());
  } else {
    backward_planes<T>(a, weight.get(), means.get(), rstds.get(), sums.get());
  }
  for (int64_t c = 0; c < a.c; c++) {
    double dw = 0, db = 0;
    for (int64_t p = c; p < planes; p += a.c) {
      db += sums.get()[p];
      dw += sums.get()[planes + p];
    }
    if (dweight.get()) dweight.get()[c] = static_cast<T>(dw);
    if (dbias.get()) dbias.get()[c] = static_cast<T>(db);
  }
  dweight.commit();
  dbias.commit();
}

void group_norm(const GroupNormArgs& a) {
  dispatch_compute("group_norm", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    a.channels_last ? forward_rows<T>(a) : forward_planes<T>(a);
  });
}
void group_norm_backward(const GroupNormBackwardArgs& a) {
  dispatch_compute("group_norm_backward", a.dtype, [&](auto tag) { backward<typename decltype(tag)::type>(a); });
}

MT_REGISTER_KERNEL(group_norm_kernel, &group_norm);
MT_REGISTER_KERNEL(group_norm_backward_kernel, &group_norm_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
