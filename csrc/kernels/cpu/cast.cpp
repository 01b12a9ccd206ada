// Conversion loops for every pair of dtypes, and the copy kernel on top of them.
#include "kernels/cpu/cast.h"

#include <array>
#include <cstring>

#include "kernels/cpu/move_rows.h"
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/pointwise.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// convert(), with the unsigned integers that native CPU makes of negative numbers: they wrap, -2.5 becomes 2^32 - 2.
// The language leaves them open, and instructions of AVX-512 would make all of them the largest. Beyond the range,
// infinities and NaN too, it is as from compiled code without these instructions.
template <class To, class From>
MT_INLINE To convert_wrapped(From x) {
  if constexpr (!std::is_same_v<To, uint32_t> && !std::is_same_v<To, uint64_t>) {
    return convert<To>(x);
  } else if constexpr (is_complex_v<From>) {
    return convert_wrapped<To>(x.re);
  } else if constexpr (is_half_v<From>) {
    return convert_wrapped<To>(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<From>) {
    using Signed = std::make_signed_t<To>;
    constexpr From half_range = static_cast<From>(To(1) << (8 * sizeof(To) - 1));
    const bool high = x >= half_range;
    const To low_bits = static_cast<To>(static_cast<Signed>(high ? x - half_range : x));
    return high ? low_bits ^ (To(1) << (8 * sizeof(To) - 1)) : low_bits;
  } else {
    return convert<To>(x);
  }
}

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
  // GCC has no vector type for a load or a store of bool: both go as bytes.
  using Write = std::conditional_t<std::is_same_v<To, bool>, uint8_t, To>;
  Write* MT_RESTRICT to = reinterpret_cast<Write*>(d);
  if constexpr (std::is_same_v<From, bool>) {
    const uint8_t* MT_RESTRICT bytes = reinterpret_cast<const uint8_t*>(s);
    for (; i < n; i++) to[i] = convert<Write>(static_cast<uint8_t>(bytes[i] != 0));
  } else {
    for (; i < n; i++) to[i] = static_cast<Write>(convert_wrapped<To>(s[i]));
  }
}

template <class To, class From>
void load(void* dst, const void* src, int64_t stride, int64_t n) {
  To* MT_RESTRICT d = static_cast<To*>(dst);
  if (stride == static_cast<int64_t>(sizeof(From))) {
    convert_contiguous(d, static_cast<const From*>(src), n);
  } else if (stride == 0) {
    const To value = convert_wrapped<To>(*static_cast<const From*>(src));
    if constexpr (is_half_v<To>) {  // GCC has no vector type for a store of the class
      uint16_t* MT_RESTRICT bits = static_cast<uint16_t*>(dst);
      for (int64_t i = 0; i < n; i++) bits[i] = value.bits;
    } else {
      for (int64_t i = 0; i < n; i++) d[i] = value;
    }
  } else {
    const char* s = static_cast<const char*>(src);
    for (int64_t i = 0; i < n; i++) d[i] = convert_wrapped<To>(*reinterpret_cast<const From*>(s + i * stride));
  }
}

template <class To, class From>
void store(void* dst, int64_t stride, const void* src, int64_t n) {
  const From* MT_RESTRICT s = static_cast<const From*>(src);
  if (stride == static_cast<int64_t>(sizeof(To))) {
    convert_contiguous(static_cast<To*>(dst), s, n);
  } else {
    char* d = static_cast<char*>(dst);
    for (int64_t i = 0; i < n; i++) *reinterpret_cast<To*>(d + i * stride) = convert_wrapped<To>(s[i]);
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

// Copy between layouts that are transposes of each other: the output runs along dimension 0, the input along dimension
// k. Squares of one cache line a side are read by rows, turned around in L1 and written by rows, four squares to a
// block.
template <class T>
void transpose_copy(const PointwiseView& v, int k) {
  constexpr int64_t kSide = 64 / static_cast<int64_t>(sizeof(T)), kTile = 4 * kSide;
  const int64_t n = v.sizes[0], m = v.sizes[k], in_step = v.strides[1][0], out_step = v.strides[0][k];
  const int64_t across = (n + kTile - 1) / kTile, down = (m + kTile - 1) / kTile;
  const int64_t outer = v.numel / (n * m);
  parallel_for(outer * across * down, grain_of(kTile * kTile), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; task++) {
      const int64_t j0 = task % down * kTile, i0 = task / down % across * kTile;
      int64_t rest = task / (down * across);
      char* out = v.data[0];
      const char* in = v.data[1];
      for (int d = 1; d < v.ndim; d++) {
        if (d == k) continue;
        out += rest % v.sizes[d] * v.strides[0][d];
        in += rest % v.sizes[d] * v.strides[1][d];
        rest /= v.sizes[d];
      }
      for (int64_t j = j0; j < std::min(j0 + kTile, m); j += kSide) {
        for (int64_t i = i0; i < std::min(i0 + kTile, n); i += kSide) {
          const int64_t rows = std::min(kSide, n - i), columns = std::min(kSide, m - j);
          alignas(64) T square[kSide][kSide];
          const char* from = in + i * in_step + j * static_cast<int64_t>(sizeof(T));
          char* to = out + i * static_cast<int64_t>(sizeof(T)) + j * out_step;
          if (rows == kSide && columns == kSide) {
            for (int64_t r = 0; r < kSide; r++) memcpy(square[r], from + r * in_step, 64);
            for (int64_t c = 0; c < kSide; c++) {
              alignas(64) T line[kSide];
              for (int64_t r = 0; r < kSide; r++) line[r] = square[r][c];
              memcpy(to + c * out_step, line, 64);
            }
          } else {
            for (int64_t c = 0; c < columns; c++)
              for (int64_t r = 0; r < rows; r++)
                memcpy(to + c * out_step + r * sizeof(T), from + r * in_step + c * sizeof(T), sizeof(T));
          }
        }
      }
    }
  });
}

// The dimension along which the input is contiguous, if the copy is a transposition worth its own loop; else 0.
int transposed_dimension(const PointwiseView& v) {
  const int64_t size = static_cast<int64_t>(size_of(v.dtype[0]));
  if (v.dtype[0] != v.dtype[1] || v.ndim < 2 || v.strides[0][0] != size || v.strides[1][0] == size) return 0;
  for (int d = 1; d < v.ndim; d++)
    if (v.strides[1][d] == size && v.sizes[d] >= 8 && v.sizes[0] >= 8) return d;
  return 0;
}

void copy(const PointwiseView& v) {
  const int64_t size = static_cast<int64_t>(size_of(v.dtype[0]));
  if (v.numel == 0) return;
  if (const int k = transposed_dimension(v)) {
    switch (size) {
      case 1: return transpose_copy<uint8_t>(v, k);
      case 2: return transpose_copy<uint16_t>(v, k);
      case 4: return transpose_copy<uint32_t>(v, k);
      case 8: return transpose_copy<uint64_t>(v, k);
      case 16: return transpose_copy<Complex<double>>(v, k);
    }
  }
  const bool same = v.dtype[0] == v.dtype[1];
  if (same && v.ndim >= 2 && v.sizes[0] <= kShortRowElements && v.sizes[1] >= 4) {
    return for_each_group(v, v.sizes[1], [&](char* const* ptrs, int64_t rows) {
      move_rows({ptrs[0], v.strides[0][0], v.strides[0][1]}, {ptrs[1], v.strides[1][0], v.strides[1][1]}, v.sizes[0],
                rows, size);
    });
  }
  const bool stream = v.numel * size >= kStreamBytes && v.ndim == 1 && v.data[0] != v.data[1];
  const LoadFn load = load_fn(v.dtype[1], v.dtype[0]);
  const StoreFn store = store_fn(v.dtype[0], v.dtype[0]);
  for_each_row(v, [&](char* const* ptrs, int64_t n) {
    const int64_t out_stride = v.ndim > 0 ? v.strides[0][0] : size;
    const int64_t in_stride = v.ndim > 0 ? v.strides[1][0] : static_cast<int64_t>(size_of(v.dtype[1]));
    alignas(64) char buffer[kBlock * 16];
    if (out_stride == size && same && in_stride == size) {
      if (stream) {
        stream_copy(ptrs[0], ptrs[1], n * size);
        stream_fence();
      } else {
        memmove(ptrs[0], ptrs[1], n * size);
      }
    } else if (out_stride == size && !stream) {
      load(ptrs[0], ptrs[1], in_stride, n);
    } else {
      for (int64_t i = 0; i < n; i += kBlock) {
        const int64_t m = std::min(kBlock, n - i);
        load(buffer, ptrs[1] + i * in_stride, in_stride, m);
        if (stream && out_stride == size) {
          stream_copy(ptrs[0] + i * size, buffer, m * size);
        } else {
          store(ptrs[0] + i * out_stride, out_stride, buffer, m);
        }
      }
      stream_fence();
    }
  });
}

void fill(const PointwiseView& v, const Scalar& value) {
  alignas(16) char element[16];
  const bool known = dispatch(v.dtype[0],
                              Types<uint8_t, int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, float,
                                    double, Half, BFloat16, Complex<float>, Complex<double>, bool>{},
                              [&](auto tag) {
                                using T = typename decltype(tag)::type;
                                const T x = value.to<T>();
                                memcpy(element, &x, sizeof(x));
                              });
  if (!known) missing_kernel("fill", name_of(v.dtype[0]));
  const LoadFn load = load_fn(v.dtype[0], v.dtype[0]);
  const StoreFn store = store_fn(v.dtype[0], v.dtype[0]);
  const int64_t size = static_cast<int64_t>(size_of(v.dtype[0]));
  bool uniform = true;  // all bytes are equal, as in zeros
  for (int64_t i = 1; i < size; i++) uniform = uniform && element[i] == element[0];
  for_each_row(v, [&](char* const* ptrs, int64_t n) {
    if (v.ndim == 0 || v.strides[0][0] == size) {
      if (uniform)
        memset(ptrs[0], element[0], n * size);
      else
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
