// Concatenation, triangles of matrices and repeat_interleave.
#include "kernels/shape.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/element_size.h"
#include "kernels/cpu/move_rows.h"
#include "kernels/cpu/pointwise_engine.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

inline constexpr int64_t kBytesGrain = 128 << 10;  // bytes worth a thread
inline constexpr int64_t kRowBlockBytes = 16 << 10;
inline constexpr int64_t kShortBytes = 256;  // up to which a call of memcpy takes longer than the copy

// Copies `rows` rows of `bytes` bytes; rows of one element are copied without a call each.
void copy_rows(char* out, int64_t out_stride, const char* in, int64_t in_stride, int64_t bytes, int64_t rows) {
  const bool one_element = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
  if (one_element && rows > 1) {
    with_element_size(bytes, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t r = 0; r < rows; r++) memcpy(out + r * out_stride, in + r * in_stride, sizeof(T));
    });
    return;
  }
  if (bytes <= kShortBytes) {
    for (int64_t r = 0; r < rows; r++) copy_short(out + r * out_stride, in + r * in_stride, bytes);
    return;
  }
  for (int64_t r = 0; r < rows; r++) memcpy(out + r * out_stride, in + r * in_stride, bytes);
}

template <class T>
void flip_typed(const PointwiseView& v) {
  constexpr int64_t size = sizeof(T);
  for_each_row(v, [&](char* const* ptrs, int64_t n) {
    const int64_t out_stride = v.strides[0][0], in_stride = v.strides[1][0];
    const T* MT_RESTRICT in = reinterpret_cast<const T*>(ptrs[1]);
    if (in_stride == size && out_stride == size) {
      memcpy(ptrs[0], ptrs[1], n * size);
    } else if (in_stride == size && out_stride == -size) {
      T* MT_RESTRICT out = reinterpret_cast<T*>(ptrs[0]) - (n - 1);
      for (int64_t i = 0; i < n; i++) out[i] = in[n - 1 - i];
    } else {
      for (int64_t i = 0; i < n; i++)
        *reinterpret_cast<T*>(ptrs[0] + i * out_stride) = *reinterpret_cast<const T*>(ptrs[1] + i * in_stride);
    }
  });
}

void flip(const PointwiseView& v) {
  if (v.numel == 0) return;
  with_element_size(static_cast<int64_t>(size_of(v.dtype[0])),
                    [&](auto tag) { flip_typed<typename decltype(tag)::type>(v); });
}

void cat(const CatArgs& a) {
  int64_t row_bytes = 0;
  for (int64_t i = 0; i < a.count; i++) row_bytes += a.inputs[i].row_bytes;
  if (row_bytes == 0 || a.rows == 0) return;
  if (a.rows < num_threads() && row_bytes > kBytesGrain) {
    // Few long rows: threads share a row.
    for (int64_t r = 0; r < a.rows; r++) {
      parallel_for(row_bytes, kBytesGrain, [&](int64_t begin, int64_t end) {
        int64_t at = 0;
        for (int64_t i = 0; i < a.count && at < end; i++) {
          const CatInput& input = a.inputs[i];
          const int64_t from = std::max(begin, at), to = std::min(end, at + input.row_bytes);
          if (from < to)
            memcpy(a.out + r * a.out_row_stride + from, input.data + r * input.row_stride + (from - at), to - from);
          at += input.row_bytes;
        }
      });
    }
    return;
  }
  const int64_t block = std::max<int64_t>(1, kRowBlockBytes / row_bytes);
  parallel_for(a.rows, std::max<int64_t>(1, kBytesGrain / row_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r += block) {
      const int64_t rows = std::min(block, end - r);
      char* out = a.out + r * a.out_row_stride;
      for (int64_t i = 0; i < a.count; i++) {
        const CatInput& input = a.inputs[i];
        copy_rows(out, a.out_row_stride, input.data + r * input.row_stride, input.row_stride, input.row_bytes, rows);
        out += input.row_bytes;
      }
    }
  });
}

template <class T>
void triangle_typed(const TriangleArgs& a) {
  const TensorView &in = a.in, &out = a.out;
  const int64_t rows = in.sizes[in.ndim - 2], columns = in.sizes[in.ndim - 1];
  const int64_t in_step = in.strides[in.ndim - 1], out_step = out.strides[out.ndim - 1];
  const bool in_place = in.data == out.data;
  parallel_for(in.numel / columns, grain_of(columns), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const int64_t i = r % rows;
      int64_t rest = r / rows, in_offset = i * in.strides[in.ndim - 2], out_offset = i * out.strides[out.ndim - 2];
      for (int d = in.ndim - 3; d >= 0; d--) {
        const int64_t coordinate = rest % in.sizes[d];
        rest /= in.sizes[d];
        in_offset += coordinate * in.strides[d];
        out_offset += coordinate * out.strides[d];
      }
      const T* const x = in.ptr<T>() + in_offset;
      T* const y = out.ptr<T>() + out_offset;
      // Columns [first, last) are kept.
      const int64_t first = a.upper ? std::clamp<int64_t>(i + a.k, 0, columns) : 0;
      const int64_t last = a.upper ? columns : std::clamp<int64_t>(i + a.k + 1, 0, columns);
      const auto clear = [&](int64_t from, int64_t to) {
        if (out_step == 1)
          memset(static_cast<void*>(y + from), 0, (to - from) * sizeof(T));
        else
          for (int64_t j = from; j < to; j++) y[j * out_step] = T{};
      };
      clear(0, first);
      if (in_step == 1 && out_step == 1) {
        if (!in_place) memcpy(y + first, x + first, (last - first) * sizeof(T));
      } else if (!in_place) {
        for (int64_t j = first; j < last; j++) y[j * out_step] = x[j * in_step];
      }
      clear(last, columns);
    }
  });
}

void triangle(const TriangleArgs& a) {
  if (a.in.numel == 0) return;
  with_element_size(static_cast<int64_t>(size_of(a.in.dtype)),
                    [&](auto tag) { triangle_typed<typename decltype(tag)::type>(a); });
}

void triangle_indices(const TriangleIndexArgs& a) {
  const TriangleElements elements(a);
  int64_t* rows = reinterpret_cast<int64_t*>(a.out);
  int64_t* columns = rows + a.count;
  parallel_for(a.count, 8192, [&](int64_t begin, int64_t end) {
    // The rows follow each other without gaps: an element is looked up once a row.
    for (int64_t i = begin; i < end;) {
      const auto [row, column] = elements[i];
      const int64_t last = a.upper ? a.columns : std::min(a.columns, row + a.k + 1);
      for (int64_t j = column; j < last && i < end; j++, i++) {
        rows[i] = row;
        columns[i] = j;
      }
    }
  });
}

template <class T>
void repeat_typed(const RepeatArgs& a) {
  const T* repeats = static_cast<const T*>(a.repeats);
  T* out = static_cast<T*>(a.out);
  parallel_for(a.count, 2048, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
      for (int64_t j = a.ends[i] - repeats[i]; j < a.ends[i]; j++) out[j] = static_cast<T>(i);
  });
}

void repeat_interleave(const RepeatArgs& a) {
  a.dtype == DType::I32 ? repeat_typed<int32_t>(a) : repeat_typed<int64_t>(a);
}

MT_REGISTER_KERNEL(flip_kernel, &flip);
MT_REGISTER_KERNEL(cat_kernel, &cat);
MT_REGISTER_KERNEL(triangle_kernel, &triangle);
MT_REGISTER_KERNEL(triangle_indices_kernel, &triangle_indices);
MT_REGISTER_KERNEL(repeat_interleave_kernel, &repeat_interleave);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
