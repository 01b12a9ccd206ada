// Dropout draws as bernoulli_ does (53 bits an element), so its mask is native's for the same seed.
#include "kernels/dropout.h"

#include <cmath>

#include "kernels/cpu/mt19937.h"
#include "kernels/cpu/pointwise_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// factors[i] = scale or 0 for the next n draws. The product with 0, not a select, keeps NaN and infinity as native
// does.
template <class T>
void draw_factors(Twister& t, T* factors, int64_t n, uint64_t threshold, T scale) {
  uint64_t w[kBlock];
  t.double_words(w, n);
  for (int64_t i = 0; i < n; i++) factors[i] = (w[i] & Twister::kMantissa) < threshold ? scale : T(0);
}

template <class T>
void run(Twister& t, const PointwiseView& v, double keep, T scale) {
  const auto threshold = static_cast<uint64_t>(std::ceil(keep * 0x1p53));
  const int in = v.num_operands - 1;
  const bool with_mask = v.num_operands == 3;
  const LoadFn load = load_fn(v.dtype[in], dtype_of<T>);
  const StoreFn store = store_fn(dtype_of<T>, v.dtype[0]);
  const auto stride = [&](int k) { return v.ndim > 0 ? v.strides[k][0] : int64_t{0}; };
  const auto is_direct = [&](int k) { return v.dtype[k] == dtype_of<T> && (v.ndim == 0 || stride(k) == sizeof(T)); };
  const bool direct = is_direct(0) && is_direct(in);
  for_each_row_in(v, 0, v.numel, [&](char* const* ptrs, int64_t n) {
    alignas(64) T factors[kBlock], values[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      draw_factors(t, factors, m, threshold, scale);
      if (direct) {
        const T* x = reinterpret_cast<const T*>(ptrs[in]) + i;
        T* y = reinterpret_cast<T*>(ptrs[0]) + i;
#pragma GCC ivdep
        for (int64_t j = 0; j < m; j++) y[j] = x[j] * factors[j];
      } else {
        load(values, ptrs[in] + i * stride(in), stride(in), m);
        for (int64_t j = 0; j < m; j++) values[j] *= factors[j];
        store(ptrs[0] + i * stride(0), stride(0), values, m);
      }
      if (with_mask)
        for (int64_t j = 0; j < m; j++) *reinterpret_cast<bool*>(ptrs[1] + (i + j) * stride(1)) = factors[j] != T(0);
    }
  });
}

void from_engine(Mt19937& engine, const PointwiseView& v, double keep, double scale) {
  Twister t(engine);
  if (v.dtype[0] == DType::F64) return run<double>(t, v, keep, scale);
  run<float>(t, v, keep, static_cast<float>(scale));
}

void dropout(RandomState& s, const PointwiseView& v, double keep, double scale, char* saved) {
  if (saved) memcpy(saved, &s.engine, sizeof(Mt19937));
  from_engine(s.engine, v, keep, scale);
}

void dropout_again(const char* saved, const PointwiseView& v, double keep, double scale) {
  Mt19937 engine;
  memcpy(&engine, saved, sizeof(engine));
  from_engine(engine, v, keep, scale);
}

MT_REGISTER_KERNEL(dropout_kernel, &dropout);
MT_REGISTER_KERNEL(dropout_again_kernel, &dropout_again);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
