// Checking indices, and reading through them.
#include "kernels/index.h"

#include <cstring>
#include <memory>

#include "kernels/cpu/element_size.h"
#include "kernels/cpu/index_walk.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// The distinct elements of one index tensor: the dimensions along which it is broadcast are left out.
IndexArgs distinct_indices(const IndexArgs& a, int k) {
  IndexArgs one;
  one.num_indices = 0;
  one.dtype = DType::I64;
  one.values = const_cast<char*>(a.index[k]);
  one.self = nullptr;
  one.numel = 1;
  for (int d = 0; d < a.ndim; d++) {
    if (a.index_strides[k][d] == 0) continue;
    one.sizes[one.ndim] = a.sizes[d];
    one.values_strides[one.ndim] = a.index_strides[k][d];
    one.self_strides[one.ndim] = 0;
    one.numel *= a.sizes[d];
    one.ndim++;
  }
  simplify(one);
  return one;
}

template <class T>
MT_INLINE void read_row(char* out, int64_t out_stride, const char* in, int64_t in_stride, int64_t n) {
  constexpr int64_t size = sizeof(T);
  if (out_stride == size && in_stride == size) {
    copy_bytes(out, in, n * size);
  } else {
    for (int64_t i = 0; i < n; i++)
      *reinterpret_cast<T*>(out + i * out_stride) = *reinterpret_cast<const T*>(in + i * in_stride);
  }
}

template <class T>
void read_elements(char* out, int64_t out_stride, const char* in, int64_t in_stride, const RowIndices& at, int64_t n) {
  if (out_stride == sizeof(T) && in_stride == 0) {
    T* MT_RESTRICT o = reinterpret_cast<T*>(out);
    for (int64_t i = 0; i < n; i++) o[i] = *reinterpret_cast<const T*>(in + at.offset(i));
  } else {
    for (int64_t i = 0; i < n; i++)
      *reinterpret_cast<T*>(out + i * out_stride) = *reinterpret_cast<const T*>(in + i * in_stride + at.offset(i));
  }
}

// Every row has the same indices: they are turned into offsets once.
bool rows_repeat_indices(const IndexArgs& a) {
  for (int k = 0; k < a.num_indices; k++)
    for (int d = 1; d < a.ndim; d++)
      if (a.index_strides[k][d] != 0) return false;
  return a.ndim > 1;
}

template <class T>
void read(const IndexArgs& a) {
  const int64_t out_stride = a.values_strides[0], in_stride = a.self_strides[0];
  if ((a.ndim == 2 || a.ndim == 3) && a.num_indices == 1 && rows_share_index(a) && out_stride == sizeof(T) &&
      in_stride == sizeof(T)) {
    // Rows picked from a table, or from each of several: short ones should cost no more than their bytes.
    const int64_t bytes = a.sizes[0] * sizeof(T), inner = a.sizes[1], outer = a.ndim == 3 ? a.sizes[2] : 1;
    parallel_for(inner * outer, grain_of(a.sizes[0]), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin / inner, r = begin % inner; begin < end; o++, r = 0) {
        const int64_t last = std::min(inner, r + end - begin);
        const auto start = [&](const int64_t* strides) { return o == 0 ? 0 : o * strides[2]; };
        char* const out = a.values + start(a.values_strides);
        const char* const in = a.self + start(a.self_strides);
        const char* const index = a.index[0] + start(a.index_strides[0]);
        begin += last - r;
        for (; r < last; r++) {
          const int64_t row = load_index(index + r * a.index_strides[0][1], a.indexed_size[0]);
          copy_bytes(out + r * a.values_strides[1], in + r * a.self_strides[1] + row * a.indexed_stride[0], bytes);
        }
      }
    });
    return;
  }
  if (rows_share_index(a)) {
    parallel_for(a.numel, kGrainSize, [&](int64_t begin, int64_t end) {
      walk_rows(a, begin, end, [&](const IndexRow& row, int64_t n) {
        read_row<T>(row.values, out_stride, row.self + row_offset(a, row), in_stride, n);
      });
    });
    return;
  }
  if (rows_repeat_indices(a)) {
    const int64_t n = a.sizes[0];
    const std::unique_ptr<int64_t[]> offsets(new int64_t[n]);
    IndexRow row;
    for (int k = 0; k < a.num_indices; k++) row.index[k] = a.index[k];
    for (int64_t i = 0; i < n; i += kIndexBlock) {
      const int64_t m = std::min(kIndexBlock, n - i);
      const RowIndices at = row_indices(a, row, i, m, offsets.get() + i);
      for (int64_t j = 0; j < m; j++) offsets[i + j] = at.offset(j);
    }
    IndexArgs outer = a;  // one element for every row
    outer.sizes[0] = 1;
    outer.num_indices = 0;
    outer.numel = a.numel / n;
    parallel_for(outer.numel, std::max<int64_t>(1, kIndexGrain / n), [&](int64_t begin, int64_t end) {
      walk_rows(outer, begin, end, [&](const IndexRow& start, int64_t) {
        read_elements<T>(start.values, out_stride, start.self, in_stride, {offsets.get(), 0, 1}, n);
      });
    });
    return;
  }
  const bool check_here = checks_in_blocks(a);
  std::atomic<bool> bad{false};
  parallel_for(a.numel, kIndexGrain, [&](int64_t begin, int64_t end) {
    walk_rows(a, begin, end, [&](const IndexRow& row, int64_t n) {
      int64_t buffer[kIndexBlock];
      for (int64_t i = 0; i < n; i += kIndexBlock) {
        const int64_t m = std::min(kIndexBlock, n - i);
        if (check_here && !block_within(a, row, i, m)) {
          bad = true;
          return;
        }
        const RowIndices at = row_indices(a, row, i, m, buffer);
        read_elements<T>(row.values + i * out_stride, out_stride, row.self + i * in_stride, in_stride, at, m);
      }
    });
  });
  if (bad) validate_indices(a);
}

void index_read(const IndexArgs& a) {
  if (a.numel == 0) return;
  if (!checks_in_blocks(a) || rows_repeat_indices(a)) validate_indices(a);
  with_element_size(static_cast<int64_t>(size_of(a.dtype)), [&](auto tag) { read<typename decltype(tag)::type>(a); });
}

MT_REGISTER_KERNEL(index_read_kernel, &index_read);

}  // namespace

void validate_indices(const IndexArgs& a) {
  for (int k = 0; k < a.num_indices; k++) {
    const IndexArgs indices = distinct_indices(a, k);
    const int64_t stride = indices.values_strides[0];
    const int64_t low = a.allow_negative ? -a.indexed_size[k] : 0, high = a.indexed_size[k];
    std::atomic<bool> bad{false};
    parallel_for(indices.numel, kGrainSize, [&](int64_t begin, int64_t end) {
      walk_rows(indices, begin, end, [&](const IndexRow& row, int64_t n) {
        if (!all_within(row.values, stride, n, low, high)) bad = true;
      });
    });
    if (!bad) continue;
    walk_rows(indices, 0, indices.numel, [&](const IndexRow& row, int64_t n) {
      for (int64_t i = 0; i < n; i++) {
        const int64_t index = *reinterpret_cast<const int64_t*>(row.values + i * stride);
        if (index < low || index >= high) throw IndexOutOfRange{index, k, a.indexed_size[k]};
      }
    });
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
