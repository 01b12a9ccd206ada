// Checking indices, and reading through them.
#include "kernels/index.h"

#include <cstring>
#include <limits>

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

bool all_within(const char* p, int64_t stride, int64_t n, int64_t low, int64_t high) {
  int64_t smallest = std::numeric_limits<int64_t>::max(), largest = std::numeric_limits<int64_t>::min();
  const auto see = [&](int64_t i) {
    smallest = i < smallest ? i : smallest;
    largest = i > largest ? i : largest;
  };
  if (stride == sizeof(int64_t)) {
    const int64_t* index = reinterpret_cast<const int64_t*>(p);
    for (int64_t i = 0; i < n; i++) see(index[i]);
  } else {
    for (int64_t i = 0; i < n; i++) see(*reinterpret_cast<const int64_t*>(p + i * stride));
  }
  return smallest >= low && largest < high;
}

template <class T>
void read_row(char* out, int64_t out_stride, const char* in, int64_t in_stride, int64_t n) {
  constexpr int64_t size = sizeof(T);
  if (out_stride == size && in_stride == size) {
    memcpy(out, in, n * size);
  } else {
    for (int64_t i = 0; i < n; i++)
      *reinterpret_cast<T*>(out + i * out_stride) = *reinterpret_cast<const T*>(in + i * in_stride);
  }
}

template <class T>
void read_elements(char* out, int64_t out_stride, const char* in, const int64_t* offsets, int64_t n) {
  if (out_stride == sizeof(T)) {
    T* MT_RESTRICT o = reinterpret_cast<T*>(out);
    for (int64_t i = 0; i < n; i++) o[i] = *reinterpret_cast<const T*>(in + offsets[i]);
  } else {
    for (int64_t i = 0; i < n; i++)
      *reinterpret_cast<T*>(out + i * out_stride) = *reinterpret_cast<const T*>(in + offsets[i]);
  }
}

template <class T>
void read(const IndexArgs& a) {
  const int64_t out_stride = a.values_strides[0], in_stride = a.self_strides[0];
  if (rows_share_index(a)) {
    parallel_for(a.numel, kGrainSize, [&](int64_t begin, int64_t end) {
      walk_rows(a, begin, end, [&](const IndexRow& row, int64_t n) {
        read_row<T>(row.values, out_stride, row.self + row_offset(a, row), in_stride, n);
      });
    });
    return;
  }
  parallel_for(a.numel, kIndexGrain, [&](int64_t begin, int64_t end) {
    walk_rows(a, begin, end, [&](const IndexRow& row, int64_t n) {
      int64_t offsets[kIndexBlock];
      for (int64_t i = 0; i < n; i += kIndexBlock) {
        const int64_t m = std::min(kIndexBlock, n - i);
        row_offsets(a, row, i, m, offsets);
        if (in_stride != 0)
          for (int64_t j = 0; j < m; j++) offsets[j] += j * in_stride;
        read_elements<T>(row.values + i * out_stride, out_stride, row.self + i * in_stride, offsets, m);
      }
    });
  });
}

void index_read(const IndexArgs& a) {
  if (a.numel == 0) return;
  validate_indices(a);
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
