// Conversion loops for every pair of dtypes, and the copy kernel on top of them.
#include "kernels/cpu/cast.h"

#include <array>
#include <cstring>

#include "kernels/cpu/pointwise_engine.h"
#include "kernels/pointwise.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// n contiguous conversions. Half needs its instructions by name: the scalar ones do not vectorise.
template <class To, class From>
MT_INLINE void convert_contiguous(To* MT_RESTRICT d, const From* MT_RESTRICT s, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<To, float> && std::is_same_v<From, Half>) {
    for (; i + 8 <= n; i += 8)
      _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s + i))));
  } else if constexpr (std::is_same_v<To, Half> && std::is_same_v<From, float>) {
    for (; i + 8 <= n; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(d + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < n; i++) d[i] = convert<To>(s[i]);
}

template <class To, class From>
void load(void* dst, const void* src, int64_t stride, int64_t n) {
  To* MT_RESTRICT d = static_cast<To*>(dst);
  if (stride == static_cast<int64_t>(sizeof(From))) {
    convert_contiguous(d, static_cast<const From*>(src), n);
  } else if (stride == 0) {
    const To value = convert<To>(*static_cast<const From*>(src));
    for (int64_t i = 0; i < n; i++) d[i] = value;
  } else {
    const char* s = static_cast<const char*>(src);
    for (int64_t i = 0; i < n; i++) d[i] = convert<To>(*reinterpret_cast<const From*>(s + i * stride));
  }
}

template <class To, class From>
void store(void* dst, int64_t stride, const void* src, int64_t n) {
  const From* MT_RESTRICT s = static_cast<const From*>(src);
  if (stride == static_cast<int64_t>(sizeof(To))) {
    convert_contiguous(static_cast<To*>(dst), s, n);
  } else {
    char* d = static_cast<char*>(dst);
    for (int64_t i = 0; i < n; i++) *reinterpret_cast<To*>(d + i * stride) = convert<To>(s[i]);
  }
}

template <class Fn>
using Table = std::array<std::array<Fn, kDTypeSlots>, kDTypeSlots>;

template <class To>
constexpr void fill_loads(Table<LoadFn>& t) {
#define MT_ENTRY(D, T) t[static_cast<int>(DType::D)][static_cast<int>(dtype_of<To>)] = &load<To, T>;
  MT_FOR_ALL_DTYPES(MT_ENTRY)
#undef MT_ENTRY
}
template <class To>
constexpr void fill_stores(Table<StoreFn>& t) {
#define MT_ENTRY(D, T) t[static_cast<int>(DType::D)][static_cast<int>(dtype_of<To>)] = &store<To, T>;
  MT_FOR_ALL_DTYPES(MT_ENTRY)
#undef MT_ENTRY
}

constexpr Table<LoadFn> make_loads() {
  Table<LoadFn> t{};
#define MT_ENTRY(D, T) fill_loads<T>(t);
  MT_FOR_ALL_DTYPES(MT_ENTRY)
#undef MT_ENTRY
  return t;
}
constexpr Table<StoreFn> make_stores() {
  Table<StoreFn> t{};
#define MT_ENTRY(D, T) fill_stores<T>(t);
  MT_FOR_ALL_DTYPES(MT_ENTRY)
#undef MT_ENTRY
  return t;
}

constexpr Table<LoadFn> kLoads = make_loads();
constexpr Table<StoreFn> kStores = make_stores();

}  // namespace

LoadFn load_fn(DType from, DType to) { return kLoads[static_cast<int>(from)][static_cast<int>(to)]; }
StoreFn store_fn(DType from, DType to) { return kStores[static_cast<int>(from)][static_cast<int>(to)]; }

namespace {

void copy(const PointwiseView& v) {
  const int64_t size = static_cast<int64_t>(size_of(v.dtype[0]));
  const bool same = v.dtype[0] == v.dtype[1];
  const LoadFn load = load_fn(v.dtype[1], v.dtype[0]);
  const StoreFn store = store_fn(v.dtype[0], v.dtype[0]);
  for_each_row(v, [&](char* const* ptrs, int64_t n) {
    const int64_t out_stride = v.strides[0][0], in_stride = v.strides[1][0];
    if (out_stride == size) {
      if (same && in_stride == size) {
        memmove(ptrs[0], ptrs[1], n * size);
      } else {
        load(ptrs[0], ptrs[1], in_stride, n);
      }
      return;
    }
    alignas(64) char buffer[kBlock * 16];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      load(buffer, ptrs[1] + i * in_stride, in_stride, m);
      store(ptrs[0] + i * out_stride, out_stride, buffer, m);
    }
  });
}

void fill(const PointwiseView& v, const Scalar& value) {
  alignas(16) char element[16];
  const bool known = dispatch(v.dtype[0], Types<uint8_t, int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t,
                                                float, double, Half, BFloat16, Complex<float>, Complex<double>, bool>{},
                              [&](auto tag) {
                                using T = typename decltype(tag)::type;
                                const T x = value.to<T>();
                                memcpy(element, &x, sizeof(x));
                              });
  if (!known) missing_kernel("fill", name_of(v.dtype[0]));
  const LoadFn load = load_fn(v.dtype[0], v.dtype[0]);
  const StoreFn store = store_fn(v.dtype[0], v.dtype[0]);
  const int64_t size = static_cast<int64_t>(size_of(v.dtype[0]));
  for_each_row(v, [&](char* const* ptrs, int64_t n) {
    if (v.strides[0][0] == size) {
      load(ptrs[0], element, 0, n);
      return;
    }
    alignas(64) char buffer[kBlock * 16];
    load(buffer, element, 0, std::min(kBlock, n));
    for (int64_t i = 0; i < n; i += kBlock)
      store(ptrs[0] + i * v.strides[0][0], v.strides[0][0], buffer, std::min(kBlock, n - i));
  });
}

MT_REGISTER_KERNEL(copy_kernel, &copy);
MT_REGISTER_KERNEL(fill_kernel, &fill);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
