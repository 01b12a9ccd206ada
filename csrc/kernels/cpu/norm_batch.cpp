// Batch norm on the CPU. Channels first: one channel at a time, so its planes are still in the cache for the second
// and third pass. Channels last: passes over rows of c elements with per-thread column sums.
#include "kernels/cpu/norm_rows.h"
#include "kernels/norm.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace norm;

// The per-channel side of a forward pass: parameters read, statistics kept, y = (x - mean) * scale + shift.
template <class T>
struct Channels {
  const BatchNormArgs& a;
  Params<T> weight, bias, old_mean, old_var;
  Results<T> running_mean, running_var, save_mean, save_invstd;

  explicit Channels(const BatchNormArgs& args)
      : a(args),
        weight(a.weight, a.param_dtype, a.c),
        bias(a.bias, a.param_dtype, a.c),
        old_mean(a.running_mean, a.param_dtype, a.c),
        old_var(a.running_var, a.param_dtype, a.c),
        running_mean(a.training ? a.running_mean : nullptr, a.param_dtype, a.c),
        running_var(a.training ? a.running_var : nullptr, a.param_dtype, a.c),
        save_mean(a.save_mean, a.param_dtype, a.c),
        save_invstd(a.save_invstd, a.param_dtype, a.c) {}

  struct Affine {
    T mean, scale, shift;
  };
  MT_INLINE Affine affine(int64_t c, T mean, T invstd) const {
    return {mean, weight.get() ? invstd * weight.get()[c] : invstd, bias.get() ? bias.get()[c] : T(0)};
  }
  MT_INLINE Affine from_running(int64_t c) const {
    return affine(c, old_mean.get()[c], inverse_std<T>(old_var.get()[c], a.eps));
  }
  // `squares`: the sum of (x - mean)^2 over the channel's elements.
  MT_INLINE Affine from_batch(int64_t c, T mean, double squares) const {
    const double count = static_cast<double>(a.n * a.spatial);
    const T invstd = inverse_std<T>(squares / count, a.eps);
    if (save_mean.get()) save_mean.get()[c] = mean;
    if (save_invstd.get()) save_invstd.get()[c] = a.save_variance ? static_cast<T>(squares / count) : invstd;
    if (running_mean.get())
      running_mean.get()[c] = static_cast<T>(a.momentum * mean + (1 - a.momentum) * old_mean.get()[c]);
    if (running_var.get())
      running_var.get()[c] = static_cast<T>(a.momentum * (squares / (count - 1)) + (1 - a.momentum) * old_var.get()[c]);
    return affine(c, mean, invstd);
  }
  void commit() const {
    running_mean.commit();
    running_var.commit();
    save_mean.commit();
    save_invstd.commit();
  }
};

template <class T>
MT_INLINE void normalise_row(T* y, const T* x, int64_t n, typename Channels<T>::Affine f) {
  map<T>(n, [&](auto tag, int64_t i) {
    using V = typename decltype(tag)::type;
    put<T, V>(y, i, (at<V>(x, i) - f.mean) * f.scale + f.shift);
  });
}

// Evaluation needs one pass, so it goes through memory in order.
template <class T>
void evaluate_planes(const BatchNormArgs& a) {
  const Channels<T> channels(a);
  const int64_t hw = a.spatial;
  Scratch<typename Channels<T>::Affine> affine(a.c);
  for (int64_t c = 0; c < a.c; c++) affine[c] = channels.from_running(c);
  parallel_for(a.n * a.c, grain_of(2 * hw), [&](int64_t begin, int64_t end) {
    const Reader<T> xs(a.x, a.dtype, hw);
    const Writer<T> ys(a.y, a.dtype, hw);
    for (int64_t plane = begin; plane < end; plane++) {
      normalise_row(ys.row(plane * hw), xs.row(plane * hw, hw), hw, affine[plane % a.c]);
      ys.commit(plane * hw, hw);
    }
  });
}

// The planes of one channel at a time. A channel stored in another dtype is converted once for all passes if it is
// small enough to stay in the second-level cache.
template <class T>
class ChannelReader {
 public:
  ChannelReader(const void* base, DType dtype, int64_t n, int64_t c, int64_t hw)
      : n_(n),
        hw_(hw),
        sample_(c * hw),
        cached_(dtype != dtype_of<T> && n * hw <= 32768),
        reader_(base, dtype, cached_ ? 0 : hw),
        buffer_(cached_ ? n * hw : 0) {}
  MT_INLINE void open(int64_t c) {
    channel_ = c * hw_;
    if (!cached_) return;
    for (int64_t n = 0; n < n_; n++) reader_.convert_into(buffer_.get() + n * hw_, n * sample_ + channel_, hw_);
  }
  MT_INLINE const T* plane(int64_t n) const {
    return cached_ ? buffer_.get() + n * hw_ : reader_.row(n * sample_ + channel_, hw_);
  }

 private:
  int64_t n_, hw_, sample_, channel_ = 0;
  bool cached_;
  Reader<T> reader_;
  Scratch<T> buffer_;
};

template <class T>
void train_planes(const BatchNormArgs& a) {
  const Channels<T> channels(a);
  const int64_t hw = a.spatial, sample = a.c * hw;
  parallel_for(a.c, grain_of(4 * a.n * hw), [&](int64_t begin, int64_t end) {
    ChannelReader<T> xs(a.x, a.dtype, a.n, a.c, hw);
    const Writer<T> ys(a.y, a.dtype, hw);
    for (int64_t c = begin; c < end; c++) {
      xs.open(c);
      double sum = 0, squares = 0;
      for (int64_t n = 0; n < a.n; n++) {
        const T* x = xs.plane(n);
        add_sums<T, 1>(hw, &sum,
                       [&](auto tag, int64_t i, auto* acc) { acc[0] += at<typename decltype(tag)::type>(x, i); });
      }
      const T mean = static_cast<T>(sum / static_cast<double>(a.n * hw));
      for (int64_t n = 0; n < a.n; n++) {
        const T* x = xs.plane(n);
        add_sums<T, 1>(hw, &squares, [&](auto tag, int64_t i, auto* acc) {
          const auto d = at<typename decltype(tag)::type>(x, i) - mean;
          acc[0] += d * d;
        });
      }
      const auto f = channels.from_batch(c, mean, squares);
      if (a.y == nullptr) continue;
      for (int64_t n = 0; n < a.n; n++) {
        const int64_t offset = n * sample + c * hw;
        normalise_row(ys.row(offset), xs.plane(n), hw, f);
        ys.commit(offset, hw);
      }
    }
  });
  channels.commit();
}

int64_t row_chunks(int64_t rows, int64_t cols) {
  return std::max<int64_t>(1, std::min<int64_t>(num_threads(), rows * cols / kGrainSize * 2));
}

// Sums over all rows of K terms per column, f(x row, dy row, acc), into K * cols doubles. `dy` may be null.
template <class T, int K, class F>
void all_column_sums(const void* x, const void* dy, DType dtype, int64_t rows, int64_t cols, double* totals,
                     const F& f) {
  const int64_t chunks = row_chunks(rows, cols), width = K * cols;
  Scratch<double> partial(chunks * width);
  partial.zero(chunks * width);
  for_chunks(rows, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    add_tensor_column_sums<T, K>(x, dy, dtype, begin, end, cols, partial.get() + chunk * width, f);
  });
  for (int64_t j = 0; j < width; j++) {
    double sum = 0;
    for (int64_t k = 0; k < chunks; k++) sum += partial.get()[k * width + j];
    totals[j] = sum;
  }
}

template <class T>
void forward_rows(const BatchNormArgs& a) {
  const Channels<T> channels(a);
  const int64_t rows = a.n * a.spatial, c = a.c;
  Scratch<T> means(c), scales(c), shifts(c);
  T *mean = means.get(), *scale = scales.get(), *shift = shifts.get();
  Scratch<double> totals(c);
  if (a.training) {
    all_column_sums<T, 1>(a.x, nullptr, a.dtype, rows, c, totals.get(), [c](const T* x, const T*, T* acc) {
      map<T>(c, [&](auto tag, int64_t i) {
        using V = typename decltype(tag)::type;
        put<T, V>(acc, i, at<V>(acc, i) + at<V>(x, i));
      });
    });
    for (int64_t i = 0; i < c; i++) mean[i] = static_cast<T>(totals.get()[i] / static_cast<double>(rows));
    all_column_sums<T, 1>(a.x, nullptr, a.dtype, rows, c, totals.get(), [c, mean](const T* x, const T*, T* acc) {
      map<T>(c, [&](auto tag, int64_t i) {
        using V = typename decltype(tag)::type;
        const V d = at<V>(x, i) - at<V>(mean, i);
        put<T, V>(acc, i, at<V>(acc, i) + d * d);
      });
    });
  }
  for (int64_t i = 0; i < c; i++) {
    const auto f = a.training ? channels.from_batch(i, mean[i], totals.get()[i]) : channels.from_running(i);
    mean[i] = f.mean;
    scale[i] = f.scale;
    shift[i] = f.shift;
  }
  channels.commit();
  if (a.y == nullptr) return;
  for_chunks(rows, row_chunks(rows, c), [&](int64_t, int64_t begin, int64_t end) {
    const Reader<T> xs(a.x, a.dtype, c);
    const Writer<T> ys(a.y, a.dtype, c);
    for (int64_t r = begin; r < end; r++) {
      const T* x = xs.row(r * c, c);
      T* y = ys.row(r * c);
      map<T>(c, [&](auto tag, int64_t i) {
        using V = typename decltype(tag)::type;
        put<T, V>(y, i, (at<V>(x, i) - at<V>(mean, i)) * at<V>(scale, i) + at<V>(shift, i));
      });
      ys.commit(r * c, c);
    }
  });
}

// The per-channel side of a backward pass. With d = sum of dy and p = sum of dy * (x - mean) over the m elements:
// dx = (dy - d / m - (x - mean) * p * invstd^2 / m) * invstd * weight in training, dy * invstd * weight otherwise;
// dweight = p * invstd, dbias = d.
template <class T>
struct Gradients {
  const BatchNormBackwardArgs& a;
  Params<T> weight, mean, stat;
  Results<T> dweight, dbias;

  explicit Gradients(const BatchNormBackwardArgs& args)
      : a(args),
        weight(a.weight, a.param_dtype, a.c),
        mean(a.mean, a.param_dtype, a.c),
        stat(a.stat, a.param_dtype, a.c),
        dweight(a.dweight, a.param_dtype, a.c),
        dbias(a.dbias, a.param_dtype, a.c) {}

  struct Terms {
    T mean, average, slope, scale;
  };
  MT_INLINE Terms channel(int64_t c, double sum, double dot) const {
    const double m = static_cast<double>(a.n * a.spatial);
    const T invstd = a.training ? stat.get()[c] : inverse_std<T>(stat.get()[c], a.eps);
    if (dweight.get()) dweight.get()[c] = static_cast<T>(dot * invstd);
    if (dbias.get()) dbias.get()[c] = static_cast<T>(sum);
    const T scale = weight.get() ? invstd * weight.get()[c] : invstd;
    if (!a.training) return {T(0), T(0), T(0), scale};
    return {mean.get()[c], static_cast<T>(sum / m), static_cast<T>(dot * invstd * invstd / m), scale};
  }
  void commit() const {
    dweight.commit();
    dbias.commit();
  }
};

template <class T>
void backward_planes(const BatchNormBackwardArgs& a) {
  const Gradients<T> gradients(a);
  const int64_t hw = a.spatial, sample = a.c * hw;
  parallel_for(a.c, grain_of(4 * a.n * hw), [&](int64_t begin, int64_t end) {
    ChannelReader<T> xs(a.x, a.dtype, a.n, a.c, hw), dys(a.dy, a.dtype, a.n, a.c, hw);
    const Writer<T> dxs(a.dx, a.dtype, hw);
    for (int64_t c = begin; c < end; c++) {
      const T mean = gradients.mean.get()[c];
      xs.open(c);
      dys.open(c);
      double s[2] = {};
      for (int64_t n = 0; n < a.n; n++) {
        const T *x = xs.plane(n), *dy = dys.plane(n);
        add_sums<T, 2>(hw, s, [&](auto tag, int64_t i, auto* acc) {
          using V = typename decltype(tag)::type;
          const V d = at<V>(dy, i);
          acc[0] += d;
          acc[1] += d * (at<V>(x, i) - mean);
        });
      }
      const auto t = gradients.channel(c, s[0], s[1]);
      if (a.dx == nullptr) continue;
      for (int64_t n = 0; n < a.n; n++) {
        const int64_t offset = n * sample + c * hw;
        const T* dy = dys.plane(n);
        T* dx = dxs.row(offset);
        if (a.training) {
          const T* x = xs.plane(n);
          map<T>(hw, [&](auto tag, int64_t i) {
            using V = typename decltype(tag)::type;
            put<T, V>(dx, i, (at<V>(dy, i) - t.average - (at<V>(x, i) - t.mean) * t.slope) * t.scale);
          });
        } else {
          map<T>(hw, [&](auto tag, int64_t i) {
            using V = typename decltype(tag)::type;
            put<T, V>(dx, i, at<V>(dy, i) * t.scale);
          });
        }
        dxs.commit(offset, hw);
      }
    }
  });
  gradients.commit();
}

template <class T>
void backward_rows(const BatchNormBackwardArgs& a) {
  const Gradients<T> gradients(a);
  const int64_t rows = a.n * a.spatial, c = a.c;
  Scratch<double> totals(2 * c);
  const T* centre = gradients.mean.get();
  all_column_sums<T, 2>(a.x, a.dy, a.dtype, rows, c, totals.get(), [c, centre](const T* x, const T* dy, T* acc) {
    map<T>(c, [&](auto tag, int64_t i) {
      using V = typename decltype(tag)::type;
      const V d = at<V>(dy, i);
      put<T, V>(acc, i, at<V>(acc, i) + d);
      put<T, V>(acc + c, i, at<V>(acc + c, i) + d * (at<V>(x, i) - at<V>(centre, i)));
    });
  });
  Scratch<T> terms(4 * c);
  T *mean = terms.get(), *average = mean + c, *slope = average + c, *scale = slope + c;
  for (int64_t i = 0; i < c; i++) {
    const auto t = gradients.channel(i, totals.get()[i], totals.get()[c + i]);
    mean[i] = t.mean;
    average[i] = t.average;
    slope[i] = t.slope;
    scale[i] = t.scale;
  }
  gradients.commit();
  if (a.dx == nullptr) return;
  for_chunks(rows, row_chunks(rows, c), [&](int64_t, int64_t begin, int64_t end) {
    const Reader<T> xs(a.x, a.dtype, c), dys(a.dy, a.dtype, c);
    const Writer<T> dxs(a.dx, a.dtype, c);
    for (int64_t r = begin; r < end; r++) {
      const T* dy = dys.row(r * c, c);
      T* dx = dxs.row(r * c);
      if (a.training) {
        const T* x = xs.row(r * c, c);
        map<T>(c, [&](auto tag, int64_t i) {
          using V = typename decltype(tag)::type;
          const V centred = at<V>(x, i) - at<V>(mean, i);
          put<T, V>(dx, i, (at<V>(dy, i) - at<V>(average, i) - centred * at<V>(slope, i)) * at<V>(scale, i));
        });
      } else {
        map<T>(c, [&](auto tag, int64_t i) {
          using V = typename decltype(tag)::type;
          put<T, V>(dx, i, at<V>(dy, i) * at<V>(scale, i));
        });
      }
      dxs.commit(r * c, c);
    }
  });
}

void batch_norm(const BatchNormArgs& a) {
  dispatch_compute("batch_norm", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (a.channels_last) return forward_rows<T>(a);
    a.training ? train_planes<T>(a) : evaluate_planes<T>(a);
  });
}
void batch_norm_backward(const BatchNormBackwardArgs& a) {
  dispatch_compute("batch_norm_backward", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    a.channels_last ? backward_rows<T>(a) : backward_planes<T>(a);
  });
}

MT_REGISTER_KERNEL(batch_norm_kernel, &batch_norm);
MT_REGISTER_KERNEL(batch_norm_backward_kernel, &batch_norm_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
