// Writing through indices: assignment by element size, accumulation by element type.
//
// Threads get disjoint sets of addresses, so the order of the writes to one address, and with it the result, is the
// same for any number of threads: either slices along a dimension that is not indexed, or ranges of the values of one
// index.
#include "kernels/index.h"

#include <cstring>
#include <limits>
#include <memory>

#include "kernels/cpu/element_size.h"
#include "kernels/cpu/index_walk.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// dst[i * dst_stride] op= src[i * src_stride]
using RowFn = void (*)(char* dst, int64_t dst_stride, const char* src, int64_t src_stride, int64_t n);
// *(dst + i * dst_stride + at.offset(i)) op= src[i * src_stride], for i = keep[0..n) when keep is given, else i < n
using ElementsFn = void (*)(char* dst, int64_t dst_stride, const RowIndices& at, const char* src, int64_t src_stride,
                            const int32_t* keep, int64_t n);
struct Writer {
  RowFn row = nullptr;
  ElementsFn elements = nullptr;
};

struct Assign {
  template <class T>
  MT_HD T operator()(T, T value) const {
    return value;
  }
};
// T here is the compute type. Integers wrap; unsigned arithmetic keeps that defined.
struct AddTo {
  template <class T>
  MT_HD T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
struct MultiplyBy {
  template <class T>
  MT_HD T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
struct MinimumWith {
  template <class T>
  MT_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a != a ? a : (b != b || b < a) ? b : a;
    } else {
      return b < a ? b : a;
    }
  }
};
struct MaximumWith {
  template <class T>
  MT_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a != a ? a : (b != b || b > a) ? b : a;
    } else {
      return b > a ? b : a;
    }
  }
};

template <class Op, class T>
MT_INLINE T apply(T a, T b) {
  if constexpr (std::is_same_v<Op, Assign>) {
    return b;
  } else {
    using C = compute_t<T>;
    return static_cast<T>(Op{}(static_cast<C>(a), static_cast<C>(b)));
  }
}

template <class Op, class T>
void write_row(char* dst, int64_t dst_stride, const char* src, int64_t src_stride, int64_t n) {
  constexpr int64_t size = sizeof(T);
  if (dst_stride == size && src_stride == size) {
    if constexpr (std::is_same_v<Op, Assign>) {
      copy_bytes(dst, src, n * size);
    } else {
      T* MT_RESTRICT d = reinterpret_cast<T*>(dst);
      const T* MT_RESTRICT s = reinterpret_cast<const T*>(src);
      for (int64_t i = 0; i < n; i++) d[i] = apply<Op>(d[i], s[i]);
    }
  } else {
    for (int64_t i = 0; i < n; i++) {
      T* d = reinterpret_cast<T*>(dst + i * dst_stride);
      *d = apply<Op>(*d, *reinterpret_cast<const T*>(src + i * src_stride));
    }
  }
}

template <class Op, class T>
void write_elements(char* dst, int64_t dst_stride, const RowIndices& at, const char* src, int64_t src_stride,
                    const int32_t* keep, int64_t n) {
  const RowIndices where = at;  // a copy: the writes cannot change it
  const auto write = [&](int64_t i) {
    T* d = reinterpret_cast<T*>(dst + i * dst_stride + where.offset(i));
    *d = apply<Op>(*d, *reinterpret_cast<const T*>(src + i * src_stride));
  };
  if (keep == nullptr) {
    for (int64_t i = 0; i < n; i++) write(i);
  } else {
    for (int64_t j = 0; j < n; j++) write(keep[j]);
  }
}

template <class Op, class T>
Writer writer() {
  return {&write_row<Op, T>, &write_elements<Op, T>};
}

Writer assigner(DType dtype) {
  Writer found;
  with_element_size(static_cast<int64_t>(size_of(dtype)),
                    [&](auto tag) { found = writer<Assign, typename decltype(tag)::type>(); });
  return found;
}

using RealTypes = Types<float, double, Half, BFloat16, uint8_t, int8_t, int16_t, int32_t, int64_t, bool>;
using UnsignedTypes = Types<uint16_t, uint32_t, uint64_t>;
using AllComplexTypes = Types<Complex<float>, Complex<double>, Complex<Half>>;

template <class Op, class... Lists>
Writer accumulator(DType dtype, Lists... lists) {
  Writer found;
  (dispatch(dtype, lists, [&](auto tag) { found = writer<Op, typename decltype(tag)::type>(); }), ...);
  return found;
}

Writer find_writer(IndexWrite op, DType dtype) {
  switch (op) {
    case IndexWrite::assign: return assigner(dtype);
    case IndexWrite::add: return accumulator<AddTo>(dtype, RealTypes{}, UnsignedTypes{}, AllComplexTypes{});
    case IndexWrite::multiply: return accumulator<MultiplyBy>(dtype, RealTypes{}, AllComplexTypes{});
    case IndexWrite::minimum: return accumulator<MinimumWith>(dtype, RealTypes{});
    case IndexWrite::maximum: return accumulator<MaximumWith>(dtype, RealTypes{});
  }
  return {};
}

// Only the points whose index number `which` lies in [low, high) are written.
struct IndexRange {
  int which = -1;  // no restriction
  int64_t low = 0, high = 0;
  MT_INLINE bool holds(int64_t i) const { return i >= low && i < high; }
};

void write_rows(const IndexArgs& a, const Writer& writer, const IndexRange& range) {
  const int64_t src_stride = a.values_strides[0], dst_stride = a.self_strides[0];
  walk_rows(a, 0, a.numel, [&](const IndexRow& row, int64_t n) {
    if (range.which >= 0 && !range.holds(load_index(row.index[range.which], a.indexed_size[range.which]))) return;
    writer.row(row.self + row_offset(a, row), dst_stride, row.values, src_stride, n);
  });
}

// The dimension that the indices of a single index tensor run along, or -1 if there are several or none.
int index_dimension(const IndexArgs& a) {
  int found = -1;
  for (int d = 0; d < a.ndim; d++) {
    if (a.num_indices != 1 || a.index_strides[0][d] == 0) continue;
    if (found >= 0) return -1;
    found = d;
  }
  return found;
}

// The n elements at p, moved to the buffer unless they are contiguous already.
template <class T>
MT_INLINE const T* contiguous(const char* p, int64_t stride, int64_t n, T* buffer) {
  if (stride == sizeof(T)) return reinterpret_cast<const T*>(p);
  for (int64_t i = 0; i < n; i++) buffer[i] = *reinterpret_cast<const T*>(p + i * stride);
  return buffer;
}

// Adds rows of 16-bit floats so that every address is rounded once: rows are grouped by where they go and summed in
// float. `along` is the dimension of the indices, an outer one.
template <class T>
void add_grouped_rows(const IndexArgs& a, const IndexRange& range, int along) {
  const int64_t count = a.sizes[along], targets = a.indexed_size[0], step = a.index_strides[0][along];
  // One list a target, in the order of the rows; -1 ends a list.
  const std::unique_ptr<int32_t[]> first(new int32_t[targets]), next(new int32_t[count]);
  std::fill(first.get(), first.get() + targets, -1);
  for (int64_t i = count - 1; i >= 0; i--) {
    const int64_t target = load_index(a.index[0] + i * step, targets);
    if (range.which >= 0 && !range.holds(target)) continue;
    next[i] = first[target];
    first[target] = static_cast<int32_t>(i);
  }
  const int64_t n = a.sizes[0], src_stride = a.values_strides[0], dst_stride = a.self_strides[0];
  IndexArgs outer = a;  // what remains when rows and indices are taken out
  outer.num_indices = 0;
  outer.sizes[0] = outer.sizes[along] = 1;
  outer.numel = a.numel / n / count;
  walk_rows(outer, 0, outer.numel, [&](const IndexRow& row, int64_t) {
    float sum[kIndexBlock];
    T gathered[kIndexBlock];
    for (int64_t target = 0; target < targets; target++) {
      if (first[target] < 0) continue;
      for (int64_t j = 0; j < n; j += kIndexBlock) {
        const int64_t m = std::min(kIndexBlock, n - j);
        char* const dst = row.self + target * a.indexed_stride[0] + j * dst_stride;
        const T* const start = contiguous<T>(dst, dst_stride, m, gathered);
        for (int64_t k = 0; k < m; k++) sum[k] = start[k];
        for (int32_t i = first[target]; i >= 0; i = next[i]) {
          const T* const src =
              contiguous<T>(row.values + i * a.values_strides[along] + j * src_stride, src_stride, m, gathered);
          for (int64_t k = 0; k < m; k++) sum[k] += static_cast<float>(src[k]);
        }
        if (dst_stride == sizeof(T)) {
          T* const d = reinterpret_cast<T*>(dst);
          for (int64_t k = 0; k < m; k++) d[k] = T(sum[k]);
        } else {
          for (int64_t k = 0; k < m; k++) *reinterpret_cast<T*>(dst + k * dst_stride) = T(sum[k]);
        }
      }
    }
  });
}

// False if indices are checked here and one is out of range; what comes after it may not be written.
bool write_points(const IndexArgs& a, const Writer& writer, const IndexRange& range) {
  const int64_t src_stride = a.values_strides[0], dst_stride = a.self_strides[0];
  const bool check_here = checks_in_blocks(a);
  bool good = true;
  walk_rows(a, 0, a.numel, [&](const IndexRow& row, int64_t n) {
    int64_t buffer[kIndexBlock];
    int32_t keep[kIndexBlock];
    for (int64_t i = 0; i < n; i += kIndexBlock) {
      const int64_t m = std::min(kIndexBlock, n - i);
      if (check_here && !block_within(a, row, i, m)) {
        good = false;
        return;
      }
      const RowIndices at = row_indices(a, row, i, m, buffer);
      char* const dst = row.self + i * dst_stride;
      const char* const src = row.values + i * src_stride;
      if (range.which < 0) {
        writer.elements(dst, dst_stride, at, src, src_stride, nullptr, m);
        continue;
      }
      const int64_t step = a.index_strides[range.which][0], size = a.indexed_size[range.which];
      const char* p = row.index[range.which] + i * step;
      int64_t kept = 0;
      for (int64_t j = 0; j < m; j++) {
        keep[kept] = static_cast<int32_t>(j);
        kept += range.holds(load_index(p + j * step, size));
      }
      writer.elements(dst, dst_stride, at, src, src_stride, keep, kept);
    }
  });
  return good;
}

// The dimension to cut into slices for `threads` threads, or -1: the longest one that is not indexed, the innermost
// only if its slices are whole cache lines long.
int slice_dimension(const IndexArgs& a, int threads) {
  int best = -1;
  for (int d = 1; d < a.ndim; d++)
    if (a.self_strides[d] != 0 && a.sizes[d] >= threads && (best < 0 || a.sizes[d] > a.sizes[best])) best = d;
  if (best < 0 && a.self_strides[0] != 0 && a.sizes[0] >= 64 * threads) best = 0;
  return best;
}

// Calls write(part, range) so that no two threads write to one address.
template <class F>
void for_disjoint_parts(const IndexArgs& a, const F& write) {
  const int threads = a.numel < 2 * kIndexGrain ? 1 : num_threads();
  if (threads == 1) return write(a, {});
  const int slice = slice_dimension(a, threads);
  if (slice >= 0) {
    parallel_for(threads, 1, [&](int64_t first, int64_t last) {
      const int64_t size = a.sizes[slice], begin = size * first / threads, end = size * last / threads;
      IndexArgs part = a;
      part.sizes[slice] = end - begin;
      part.numel = a.numel / size * (end - begin);
      part.values += begin * a.values_strides[slice];
      part.self += begin * a.self_strides[slice];
      for (int k = 0; k < a.num_indices; k++) part.index[k] += begin * a.index_strides[k][slice];
      write(part, {});
    });
    return;
  }
  if (a.num_indices == 0) return write(a, {});
  int which = 0;
  for (int k = 1; k < a.num_indices; k++)
    if (a.indexed_size[k] > a.indexed_size[which]) which = k;
  parallel_for(threads, 1, [&](int64_t first, int64_t last) {
    const int64_t size = a.indexed_size[which];
    write(a, {which, size * first / threads, size * last / threads});
  });
}

void index_write(const IndexArgs& a, IndexWrite op) {
  if (a.numel == 0) return;
  const Writer writer = find_writer(op, a.dtype);
  if (writer.row == nullptr) missing_kernel("index_write", name_of(a.dtype));
  if (!checks_in_blocks(a)) validate_indices(a);
  std::atomic<bool> bad{false};
  const auto write = [&](const IndexArgs& part, const IndexRange& range) {
    const int along = op == IndexWrite::add && is_half(a.dtype) && rows_share_index(part) ? index_dimension(part) : -1;
    if (along > 0 && part.sizes[along] < std::numeric_limits<int32_t>::max()) {
      return a.dtype == DType::F16 ? add_grouped_rows<Half>(part, range, along)
                                   : add_grouped_rows<BFloat16>(part, range, along);
    }
    if (rows_share_index(part))
      write_rows(part, writer, range);
    else if (!write_points(part, writer, range))
      bad = true;
  };
  for_disjoint_parts(a, write);
  if (bad) validate_indices(a);
}

MT_REGISTER_KERNEL(index_write_kernel, &index_write);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
