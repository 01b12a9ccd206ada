// Distributions over the Mersenne twister. Each is native's formula, with the same number of draws in the same order
// and the same rounding: multiplications and additions that native's build contracts are fused here in so many words.
#include "kernels/random.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/cpu/mt19937.h"
#include "kernels/cpu/pointwise_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr double kPi = 3.141592653589793238463;

// Walks the view in order and hands out runs of elements; `produce(buffer, n)` writes contiguous values of type T,
// which are converted and stored. Serial, because the sequence is.
template <class T, class F>
void fill_serial(const PointwiseView& v, const F& produce) {
  alignas(64) T buffer[kBlock];
  const StoreFn store = store_fn(dtype_of<T>, v.dtype[0]);
  const bool direct = v.dtype[0] == dtype_of<T> && (v.ndim == 0 || v.strides[0][0] == sizeof(T));
  for_each_row_in(v, 0, v.numel, [&](char* const* ptrs, int64_t n) {
    if (direct) return produce(reinterpret_cast<T*>(ptrs[0]), n);
    const int64_t stride = v.ndim > 0 ? v.strides[0][0] : 0;
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      produce(buffer, m);
      store(ptrs[0] + i * stride, stride, buffer, m);
    }
  });
}

// One double at a time.
template <class F>
void fill_doubles(const PointwiseView& v, const F& next) {
  fill_serial<double>(v, [&](double* out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = next();
  });
}

double next_normal(RandomState& s, Twister& t, double mean, double std) {
  double value;
  if (s.next_double_normal) {
    value = *s.next_double_normal;
    s.next_double_normal.reset();
  } else {
    const double u1 = t.uniform(), u2 = t.uniform();
    const double r = std::sqrt(-2.0 * std::log1p(-u2)), theta = 2.0 * kPi * u1;
    s.next_double_normal = r * std::sin(theta);
    value = r * std::cos(theta);
  }
  return std::fma(value, std, mean);
}

void fill_uniform_float(Twister& t, const PointwiseView& v, float from, float to) {
  const bool half = is_half(v.dtype[0]);
  const float width = to - from;
  // A value that the 16-bit type rounds up to the excluded bound becomes the lower one.
  const bool bf16 = v.dtype[0] == DType::BF16;
  const auto round = [&](float x) { return bf16 ? float(BFloat16(x)) : half ? float(Half(x)) : x; };
  const float bound = round(to), lowest = round(from);
  fill_serial<float>(v, [&](float* out, int64_t n) {
    uint32_t w[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      t.words(w, m);
      for (int64_t j = 0; j < m; j++)
        out[i + j] = __builtin_fmaf(static_cast<float>(static_cast<int32_t>(w[j] & 0xffffff)) * 0x1p-24f, width, from);
      if (half) {
        for (int64_t j = 0; j < m; j++) out[i + j] = round(out[i + j]) == bound ? lowest : out[i + j];
      } else {
        for (int64_t j = 0; j < m; j++) out[i + j] = out[i + j] == to ? from : out[i + j];
      }
    }
  });
}

void fill_uniform_double(Twister& t, const PointwiseView& v, double from, double to) {
  fill_serial<double>(v, [&](double* out, int64_t n) {
    uint64_t w[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      t.double_words(w, m);
      for (int64_t j = 0; j < m; j++) {
        const double x = __builtin_fma(static_cast<double>(static_cast<int64_t>(w[j] & Twister::kMantissa)) * 0x1p-53,
                                       to - from, from);
        out[i + j] = x == to ? from : x;
      }
    }
  });
}

// val * 2^-53 < p, decided on the integers: scaling by a power of two is exact.
uint64_t bernoulli_threshold(double p) { return static_cast<uint64_t>(std::ceil(p * 0x1p53)); }

void fill_bernoulli(Twister& t, const PointwiseView& v, double p) {
  const uint64_t threshold = bernoulli_threshold(p);
  fill_serial<uint8_t>(v, [&](uint8_t* out, int64_t n) {
    uint64_t w[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      t.double_words(w, m);
      for (int64_t j = 0; j < m; j++) out[i + j] = (w[j] & Twister::kMantissa) < threshold;
    }
  });
}

template <class F>
void fill_integers(const PointwiseView& v, const F& next) {
  fill_serial<int64_t>(v, [&](int64_t* out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = static_cast<int64_t>(next());
  });
}

// One past the largest value of `integers`.
uint64_t integers_end(DType d) {
  switch (d) {
    case DType::U8: return uint64_t{1} << 8;
    case DType::I8: return uint64_t{1} << 7;
    case DType::I16: return uint64_t{1} << 15;
    case DType::I32: return uint64_t{1} << 31;
    case DType::I64: return uint64_t{1} << 63;
    case DType::F16: return (uint64_t{1} << 11) + 1;
    case DType::BF16: return (uint64_t{1} << 8) + 1;
    case DType::F32: return (uint64_t{1} << 24) + 1;
    case DType::F64: return (uint64_t{1} << 53) + 1;
    case DType::Bool: return 2;
    default: missing_kernel("random", name_of(d));
  }
}

void fill_integers_range(Twister& t, const PointwiseView& v, uint64_t range, int64_t base) {
  const auto ubase = static_cast<uint64_t>(base);
  if (range >= uint64_t{1} << 28) return fill_integers(v, [&] { return t.double_word() % range + ubase; });
  const auto range32 = static_cast<uint32_t>(range);
  fill_serial<int64_t>(v, [&](int64_t* out, int64_t n) {
    uint32_t w[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      t.words(w, m);
      for (int64_t j = 0; j < m; j++) out[i + j] = static_cast<int64_t>(w[j] % range32 + ubase);
    }
  });
}

void distribution(RandomState& s, Distribution d, const PointwiseView& v, const DistributionParams& p) {
  Twister t(s.engine);
  switch (d) {
    case Distribution::uniform:
      return v.dtype[0] == DType::F64 ? fill_uniform_double(t, v, p.a, p.b)
                                      : fill_uniform_float(t, v, static_cast<float>(p.a), static_cast<float>(p.b));
    case Distribution::normal: return fill_doubles(v, [&] { return next_normal(s, t, p.a, p.b); });
    case Distribution::log_normal: return fill_doubles(v, [&] { return std::exp(next_normal(s, t, p.a, p.b)); });
    case Distribution::cauchy:
      return fill_doubles(v, [&] { return std::fma(p.b, std::tan(kPi * (t.uniform() - 0.5)), p.a); });
    case Distribution::exponential: {
      const double scale = -1.0 / p.a;
      return fill_doubles(v, [&] { return scale * std::log1p(-t.uniform()); });
    }
    case Distribution::geometric: {
      const double log_failure = std::log1p(-p.a);
      return fill_doubles(v, [&] { return std::ceil(std::log(t.uniform()) / log_failure); });
    }
    case Distribution::bernoulli: return fill_bernoulli(t, v, p.a);
    case Distribution::integers: {
      const uint64_t end = integers_end(v.dtype[0]);
      if (v.dtype[0] == DType::I64 || v.dtype[0] == DType::F64)
        return fill_integers(v, [&] { return t.double_word() % end; });
      return fill_integers(v, [&] { return t.word() % end; });
    }
    case Distribution::integers_range: return fill_integers_range(t, v, p.range, p.base);
    case Distribution::integers_full: return fill_integers(v, [&] { return t.double_word(); });
  }
}

// The p of each element decides on its own draw: 53 bits for double probabilities, 24 bits otherwise.
void bernoulli_tensor(RandomState& s, const PointwiseView& v) {
  Twister t(s.engine);
  const bool wide = v.dtype[1] == DType::F64;
  const LoadFn load = load_fn(v.dtype[1], DType::F64);
  const StoreFn store = store_fn(DType::Bool, v.dtype[0]);
  for_each_row_in(v, 0, v.numel, [&](char* const* ptrs, int64_t n) {
    const int64_t out_stride = v.ndim > 0 ? v.strides[0][0] : 0, p_stride = v.ndim > 0 ? v.strides[1][0] : 0;
    double p[kBlock];
    bool out[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      load(p, ptrs[1] + i * p_stride, p_stride, m);
      for (int64_t j = 0; j < m; j++) {
        if (!(p[j] >= 0 && p[j] <= 1))
          throw std::runtime_error(
              "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be improved?  If "
              "so, please report an enhancement request to PyTorch.)");
        out[j] = (wide ? t.uniform() : (t.word() & 0xffffff) * 0x1p-24) < p[j];
      }
      store(ptrs[0] + i * out_stride, out_stride, out, m);
    }
  });
}

void randperm(RandomState& s, const TensorView& r) {
  Twister t(s.engine);
  const int64_t n = r.numel, stride = r.strides[0];
  // Elements are moved as bytes of their size; the identity permutation is written in the tensor's own dtype.
  const auto shuffle = [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* p = r.ptr<T>();
    if (n < static_cast<int64_t>(std::numeric_limits<uint32_t>::max() / 20)) {
      for (int64_t i = 0; i < n; i++) p[i * stride] = convert<T>(i);
      for (int64_t i = 0; i + 1 < n; i++) {
        const int64_t z = t.word() % static_cast<uint32_t>(n - i);
        std::swap(p[i * stride], p[(z + i) * stride]);
      }
    } else {
      for (int64_t i = 0; i < n; i++) {
        const auto z = static_cast<int64_t>(t.double_word() % static_cast<uint64_t>(i + 1));
        p[i * stride] = convert<T>(i);
        p[i * stride] = p[z * stride];
        p[z * stride] = convert<T>(i);
      }
    }
  };
  using All = Types<uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, Half, BFloat16>;
  if (!dispatch(r.dtype, All{}, shuffle)) missing_kernel("randperm", name_of(r.dtype));
}

template <class T>
void multinomial_rows(Twister& t, const TensorView& result, const TensorView& weights) {
  using Sum = compute_t<T>;
  const int64_t rows = result.sizes[0], samples = result.sizes[1], categories = weights.sizes[1];
  Sum* cumulative = new Sum[categories];
  struct Free {
    Sum* p;
    ~Free() { delete[] p; }
  } free{cumulative};
  for (int64_t i = 0; i < rows; i++) {
    const T* w = weights.ptr<T>() + i * weights.strides[0];
    int64_t* out = result.ptr<int64_t>() + i * result.strides[0];
    Sum sum = 0;
    for (int64_t j = 0; j < categories; j++) {
      const Sum value = w[j * weights.strides[1]];
      if (!(value >= 0))
        throw std::runtime_error("invalid multinomial distribution (encountering probability entry < 0)");
      if (!std::isfinite(value))
        throw std::runtime_error("invalid multinomial distribution (encountering probability entry = infinity or NaN)");
      sum += value;
      cumulative[j] = sum;
    }
    if (!(sum > 0)) throw std::runtime_error("invalid multinomial distribution (sum of probabilities <= 0)");
    for (int64_t j = 0; j < categories; j++) cumulative[j] /= sum;
    cumulative[categories - 1] = 1;
    for (int64_t k = 0; k < samples; k++) {
      const double u = t.uniform();
      int64_t left = 0, right = categories;
      while (right - left > 0) {
        const int64_t mid = left + (right - left) / 2;
        if (cumulative[mid] < u) {
          left = mid + 1;
        } else {
          right = mid;
        }
      }
      out[k * result.strides[1]] = left;
    }
  }
}

void multinomial(RandomState& s, const TensorView& result, const TensorView& weights) {
  Twister t(s.engine);
  const bool done = dispatch(weights.dtype, FloatingTypes{},
                             [&](auto tag) { multinomial_rows<typename decltype(tag)::type>(t, result, weights); });
  if (!done) missing_kernel("multinomial", name_of(weights.dtype));
}

MT_REGISTER_KERNEL(distribution_kernel, &distribution);
MT_REGISTER_KERNEL(bernoulli_tensor_kernel, &bernoulli_tensor);
MT_REGISTER_KERNEL(randperm_kernel, &randperm);
MT_REGISTER_KERNEL(multinomial_kernel, &multinomial);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
