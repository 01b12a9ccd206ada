// Operators on masks: finding the nonzero elements, compacting and scattering by them, filling.
#include "kernels/index.h"

#include <cstring>
#include <stdexcept>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/element_size.h"
#include "kernels/cpu/index_walk.h"
#include "kernels/cpu/pointwise_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// A tensor and its mask walked together in row-major order: `values` is the tensor, `self` the mask.
IndexArgs row_major(const TensorView& tensor, const TensorView& mask) {
  IndexArgs a;
  a.dtype = tensor.dtype;
  a.numel = mask.numel;
  a.values = tensor.data;
  a.self = mask.data;
  const int64_t tensor_size = static_cast<int64_t>(size_of(tensor.dtype));
  const int64_t mask_size = static_cast<int64_t>(size_of(mask.dtype));
  for (int d = mask.ndim - 1; d >= 0; d--) {
    const int64_t size = mask.sizes[d], ts = tensor.strides[d] * tensor_size, ms = mask.strides[d] * mask_size;
    if (size == 1) continue;
    const int last = a.ndim - 1;
    if (last >= 0 && ts == a.values_strides[last] * a.sizes[last] && ms == a.self_strides[last] * a.sizes[last]) {
      a.sizes[last] *= size;
      continue;
    }
    a.sizes[a.ndim] = size;
    a.values_strides[a.ndim] = ts;
    a.self_strides[a.ndim] = ms;
    a.ndim++;
  }
  if (a.ndim == 0) {
    a.ndim = 1;
    a.sizes[0] = 1;
    a.values_strides[0] = a.self_strides[0] = 0;
  }
  return a;
}

// Calls f(chunk, values, flags, first, n) for the blocks of every chunk in parallel: `flags` are the mask's elements
// [first, first + n) as bools, `values` is where the tensor's begin. Blocks of one chunk come in order.
template <class F>
void for_each_block(const IndexArgs& a, DType mask_dtype, const NonzeroPlan& plan, const F& f) {
  const LoadFn load = load_fn(mask_dtype, DType::Bool);
  parallel_for(plan.chunks, 1, [&](int64_t first_chunk, int64_t last_chunk) {
    for (int64_t c = first_chunk; c < last_chunk; c++) {
      int64_t at = c * plan.chunk;
      walk_rows(a, at, std::min(a.numel, at + plan.chunk), [&](const IndexRow& row, int64_t n) {
        alignas(64) bool flags[kIndexBlock];
        for (int64_t i = 0; i < n; i += kIndexBlock) {
          const int64_t m = std::min(kIndexBlock, n - i);
          load(flags, row.self + i * a.self_strides[0], a.self_strides[0], m);
          f(c, row.values + i * a.values_strides[0], static_cast<const bool*>(flags), at + i, m);
        }
        at += n;
      });
    }
  });
}

MT_INLINE int64_t count_true(const bool* flags, int64_t n) {
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(flags);
  uint32_t count = 0;
  for (int64_t i = 0; i < n; i++) count += bytes[i];
  return count;
}

void nonzero_plan(const TensorView& input, NonzeroPlan& plan) {
  plan.chunk = std::max<int64_t>(kGrainSize, (input.numel + NonzeroPlan::kMaxChunks - 1) / NonzeroPlan::kMaxChunks);
  plan.chunks = static_cast<int>((input.numel + plan.chunk - 1) / plan.chunk);
  for (int c = 0; c <= plan.chunks; c++) plan.before[c] = 0;
  if (input.numel == 0) return;
  for_each_block(
      row_major(input, input), input.dtype, plan,
      [&](int64_t c, char*, const bool* flags, int64_t, int64_t n) { plan.before[c + 1] += count_true(flags, n); });
  for (int c = 0; c < plan.chunks; c++) plan.before[c + 1] += plan.before[c];
}

// Writes coordinates of rising flat positions: only the last coordinate changes within a row.
class CoordinateWriter {
 public:
  CoordinateWriter(const TensorView& shape, const TensorView& out) : shape_(shape), out_(out) {
    last_size_ = shape.ndim > 0 ? shape.sizes[shape.ndim - 1] : 1;
  }

  MT_INLINE void write(int64_t row, int64_t position) {
    int64_t* o = out_.ptr<int64_t>() + row * out_.strides[0];
    if (position - row_start_ >= last_size_ || row_start_ < 0) locate(position);
    const int last = shape_.ndim - 1;
    for (int d = 0; d < last; d++) o[d * out_.strides[1]] = coordinates_[d];
    if (last >= 0) o[last * out_.strides[1]] = position - row_start_;
  }

 private:
  MT_INLINE void locate(int64_t position) {
    int64_t rest = position / last_size_;
    row_start_ = rest * last_size_;
    for (int d = shape_.ndim - 2; d >= 0; d--) {
      coordinates_[d] = rest % shape_.sizes[d];
      rest /= shape_.sizes[d];
    }
  }

  const TensorView& shape_;
  const TensorView& out_;
  int64_t last_size_;
  int64_t row_start_ = -1;
  int64_t coordinates_[kMaxDims];
};

void nonzero(const TensorView& input, const NonzeroPlan& plan, const TensorView& out) {
  const int64_t rows = out.sizes[0];
  if (input.numel == 0 || rows == 0) return;
  int64_t next[NonzeroPlan::kMaxChunks];
  for (int c = 0; c < plan.chunks; c++) next[c] = plan.before[c];
  for_each_block(row_major(input, input), input.dtype, plan,
                 [&](int64_t c, char*, const bool* flags, int64_t first, int64_t n) {
                   int32_t found[kIndexBlock];
                   int64_t count = 0;
                   for (int64_t i = 0; i < n; i++) {
                     found[count] = static_cast<int32_t>(i);
                     count += flags[i];
                   }
                   count = std::min(count, rows - next[c]);
                   CoordinateWriter writer(input, out);
                   for (int64_t i = 0; i < count; i++) writer.write(next[c] + i, first + found[i]);
                   next[c] += std::max<int64_t>(count, 0);
                 });
}

template <class T>
void select_typed(const IndexArgs& a, DType mask_dtype, const NonzeroPlan& plan, const TensorView& out) {
  int64_t next[NonzeroPlan::kMaxChunks];
  for (int c = 0; c < plan.chunks; c++) next[c] = plan.before[c];
  const int64_t in_stride = a.values_strides[0], out_stride = out.strides[0];
  for_each_block(a, mask_dtype, plan, [&](int64_t c, char* values, const bool* flags, int64_t, int64_t n) {
    T kept[kIndexBlock];
    int64_t count = 0;
    if (in_stride == sizeof(T)) {
      const T* MT_RESTRICT in = reinterpret_cast<const T*>(values);
      for (int64_t i = 0; i < n; i++) {
        kept[count] = in[i];
        count += flags[i];
      }
    } else {
      for (int64_t i = 0; i < n; i++) {
        kept[count] = *reinterpret_cast<const T*>(values + i * in_stride);
        count += flags[i];
      }
    }
    T* o = out.ptr<T>() + next[c] * out_stride;
    if (out_stride == 1) {
      if (count > 0) memcpy(o, kept, count * sizeof(T));
    } else {
      for (int64_t i = 0; i < count; i++) o[i * out_stride] = kept[i];
    }
    next[c] += count;
  });
}

template <class T>
void scatter_typed(const IndexArgs& a, DType mask_dtype, const NonzeroPlan& plan, const TensorView& source) {
  int64_t next[NonzeroPlan::kMaxChunks];
  for (int c = 0; c < plan.chunks; c++) next[c] = plan.before[c];
  const int64_t stride = a.values_strides[0];
  for_each_block(a, mask_dtype, plan, [&](int64_t c, char* values, const bool* flags, int64_t, int64_t n) {
    const T* in = source.ptr<T>() + next[c];
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
      if (flags[i]) *reinterpret_cast<T*>(values + i * stride) = in[count++];
    next[c] += count;
  });
}

void masked_select(const TensorView& input, const TensorView& mask, const NonzeroPlan& plan, const TensorView& out) {
  if (mask.numel == 0) return;
  with_element_size(static_cast<int64_t>(size_of(input.dtype)), [&](auto tag) {
    select_typed<typename decltype(tag)::type>(row_major(input, mask), mask.dtype, plan, out);
  });
}

void masked_scatter(const TensorView& self, const TensorView& mask, const NonzeroPlan& plan, const TensorView& source) {
  if (mask.numel == 0) return;
  with_element_size(static_cast<int64_t>(size_of(self.dtype)), [&](auto tag) {
    scatter_typed<typename decltype(tag)::type>(row_major(self, mask), mask.dtype, plan, source);
  });
}

template <class T>
void fill_typed(const PointwiseView& v, T value) {
  for_each_row(v, [&](char* const* ptrs, int64_t n) {
    const int64_t stride = v.strides[0][0], mask_stride = v.strides[1][0];
    if (stride == sizeof(T) && mask_stride == 1) {
      T* MT_RESTRICT out = reinterpret_cast<T*>(ptrs[0]);
      const uint8_t* MT_RESTRICT mask = reinterpret_cast<const uint8_t*>(ptrs[1]);
      if constexpr (std::is_integral_v<T>) {
        // As arithmetic on bits: of a conditional GCC makes a conditional store, and no vector code.
        for (int64_t i = 0; i < n; i++) {
          const T chosen = static_cast<T>(T(0) - static_cast<T>(mask[i] != 0));
          out[i] = static_cast<T>(out[i] ^ ((out[i] ^ value) & chosen));
        }
      } else {
        for (int64_t i = 0; i < n; i++) out[i] = mask[i] ? value : out[i];
      }
    } else {
      for (int64_t i = 0; i < n; i++)
        if (ptrs[1][i * mask_stride]) *reinterpret_cast<T*>(ptrs[0] + i * stride) = value;
    }
  });
}

template <class Bits, class T>
void fill_as(const PointwiseView& v, T value) {
  fill_typed(v, detail::bit_cast<Bits>(value));
}

void masked_fill(const PointwiseView& v, const Scalar& value) {
  if (v.numel == 0) return;
  const bool known = dispatch(v.dtype[0],
                              Types<uint8_t, int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, float,
                                    double, Half, BFloat16, Complex<float>, Complex<double>, Complex<Half>, bool>{},
                              [&](auto tag) {
                                using T = typename decltype(tag)::type;
                                const T x = value.to<T>();
                                with_element_size(static_cast<int64_t>(sizeof(T)), [&](auto bits) {
                                  using Bits = typename decltype(bits)::type;
                                  if constexpr (sizeof(Bits) == sizeof(T)) fill_as<Bits>(v, x);
                                });
                              });
  if (!known) missing_kernel("masked_fill", name_of(v.dtype[0]));
}

void masked_fill_with_element(const PointwiseView& v, const char* value) {
  with_element_size(static_cast<int64_t>(size_of(v.dtype[0])), [&](auto bits) {
    typename decltype(bits)::type x;
    std::memcpy(&x, value, sizeof(x));
    fill_typed(v, x);
  });
}

void expect_nonzero(const char* element, DType dtype, const char* message) {
  bool set = false;
  load_fn(dtype, DType::Bool)(&set, element, 0, 1);
  if (!set) throw std::runtime_error(message);
}

MT_REGISTER_KERNEL(nonzero_plan_kernel, &nonzero_plan);
MT_REGISTER_KERNEL(nonzero_kernel, &nonzero);
MT_REGISTER_KERNEL(masked_select_kernel, &masked_select);
MT_REGISTER_KERNEL(masked_scatter_kernel, &masked_scatter);
MT_REGISTER_KERNEL(masked_fill_kernel, &masked_fill);
MT_REGISTER_KERNEL(masked_fill_with_element_kernel, &masked_fill_with_element);
MT_REGISTER_KERNEL(expect_nonzero_kernel, &expect_nonzero);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
