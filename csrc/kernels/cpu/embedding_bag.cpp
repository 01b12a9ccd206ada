// Bags of embedding rows: forward, the backward of maxima and of per-sample weights. A bag belongs to one thread.
#include "kernels/embedding.h"

#include <algorithm>
#include <cstring>

#include "core/parallel.h"
#include "kernels/cpu/gemm_convert.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

inline constexpr int64_t kBlock = 1024;  // elements of a row summed at a time
inline constexpr int64_t kAhead = 4;     // rows that are fetched ahead

void check_indices(const int64_t* indices, int64_t count, int64_t rows) {
  uint64_t largest = 0;  // a negative index is a large one
  for (int64_t i = 0; i < count; i++) {
    const uint64_t index = static_cast<uint64_t>(indices[i]);
    largest = index > largest ? index : largest;
  }
  if (count == 0 || largest < static_cast<uint64_t>(rows)) return;
  for (int64_t i = 0; i < count; i++)
    if (indices[i] < 0 || indices[i] >= rows) throw IndexOutOfRange{indices[i], static_cast<int>(i), rows};
}

template <class T>
MT_INLINE const T* row_of(const EmbeddingBagArgs& a, int64_t position) {
  return reinterpret_cast<const T*>(a.weight) + a.indices[position] * a.weight_strides[0];
}

// kVectors vectors of columns, from j on, of the sum of positions [begin, end), held in registers. Rows are scattered
// over a table larger than the caches: each one read fetches its counterpart a few rows ahead. The rows of the next bag
// follow in `indices`.
template <class T, int kVectors>
MT_INLINE void sum_vectors(const EmbeddingBagArgs& a, int64_t begin, int64_t end, int64_t j, compute_t<T>* sum) {
  using C = compute_t<T>;
  gemm::Vector<C> total[kVectors] = {};
  for (int64_t i = begin; i < end; i++) {
    if (a.indices[i] == a.padding_idx) continue;
    const T* const row = row_of<T>(a, i) + j;
    const T* const ahead = row_of<T>(a, std::min(i + kAhead, a.count - 1)) + j;
    constexpr int64_t kBytes = kVectors * gemm::kLanes<C> * sizeof(T);
    for (int64_t line = 0; line < kBytes; line += 64) __builtin_prefetch(reinterpret_cast<const char*>(ahead) + line);
    const C factor =
        a.sample_weights != nullptr ? static_cast<C>(reinterpret_cast<const T*>(a.sample_weights)[i]) : C(1);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) total[v] += factor * gemm::load_widened(row + v * gemm::kLanes<C>);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; v++) gemm::store_vector(sum + v * gemm::kLanes<C>, total[v]);
}

// Columns [j, j + m) of the sum of positions [begin, end).
template <class T>
void sum_block(const EmbeddingBagArgs& a, int64_t begin, int64_t end, int64_t j, int64_t m,
               compute_t<T>* MT_RESTRICT sum) {
  using C = compute_t<T>;
  const int64_t stride = a.weight_strides[1];
  if (stride == 1) {
    constexpr int64_t kStep = gemm::kLanes<C>;
    int64_t k = 0;
    for (; k + 8 * kStep <= m; k += 8 * kStep) sum_vectors<T, 8>(a, begin, end, j + k, sum + k);
    for (; k + 4 * kStep <= m; k += 4 * kStep) sum_vectors<T, 4>(a, begin, end, j + k, sum + k);
    for (; k + kStep <= m; k += kStep) sum_vectors<T, 1>(a, begin, end, j + k, sum + k);
    j += k, m -= k, sum += k;
  }
  for (int64_t k = 0; k < m; k++) sum[k] = C(0);
  for (int64_t i = begin; i < end && m > 0; i++) {
    if (a.indices[i] == a.padding_idx) continue;
    const T* const row = row_of<T>(a, i) + j * stride;
    const C factor =
        a.sample_weights != nullptr ? static_cast<C>(reinterpret_cast<const T*>(a.sample_weights)[i]) : C(1);
    for (int64_t k = 0; k < m; k++) sum[k] += factor * static_cast<C>(row[k * stride]);
  }
}

template <class T>
void max_bag(const EmbeddingBagArgs& a, int64_t begin, int64_t end, T* out, int64_t* max_indices) {
  using C = compute_t<T>;
  bool found = false;
  for (int64_t i = begin; i < end; i++) {
    if (a.indices[i] == a.padding_idx) continue;
    const T* const row = row_of<T>(a, i);
    for (int64_t d = 0; d < a.dim; d++) {
      const T x = row[d * a.weight_strides[1]];
      if (found && !(static_cast<C>(x) > static_cast<C>(out[d]))) continue;
      out[d] = x;
      if (max_indices != nullptr) max_indices[d] = a.indices[i];
    }
    found = true;
  }
}

template <class T>
void bag_typed(const EmbeddingBagArgs& a) {
  using C = compute_t<T>;
  const int64_t per_bag = std::max<int64_t>(1, a.count / std::max<int64_t>(1, a.bags)) * std::max<int64_t>(1, a.dim);
  parallel_for(a.bags, grain_of(per_bag), [&](int64_t first_bag, int64_t last_bag) {
    for (int64_t b = first_bag; b < last_bag; b++) {
      const int64_t begin = a.offsets[b], end = b + 1 < a.bags ? a.offsets[b + 1] : a.end;
      int64_t size = 0;
      for (int64_t i = begin; i < end; i++) size += a.indices[i] != a.padding_idx;
      if (a.bag_sizes != nullptr) a.bag_sizes[b] = size;
      if (a.position_bag != nullptr)
        for (int64_t i = begin; i < end; i++) a.position_bag[i] = b;
      T* const out = reinterpret_cast<T*>(a.out) + b * a.dim;
      if (a.mode == BagMode::max) {
        int64_t* const max_indices = a.max_indices != nullptr ? a.max_indices + b * a.dim : nullptr;
        memset(out, 0, a.dim * sizeof(T));
        if (max_indices != nullptr) memset(max_indices, 0, a.dim * sizeof(int64_t));
        max_bag(a, begin, end, out, max_indices);
        continue;
      }
      const C divisor = a.mode == BagMode::mean && size > 1 ? static_cast<C>(size) : C(1);
      for (int64_t j = 0; j < a.dim; j += kBlock) {
        const int64_t m = std::min(kBlock, a.dim - j);
        C sum[kBlock];
        sum_block<T>(a, begin, end, j, m, sum);
        for (int64_t k = 0; k < m; k++) out[j + k] = static_cast<T>(sum[k] / divisor);
      }
    }
  });
}

// Bags follow one another: their starts ascend from 0 to at most `count`.
void check_offsets(const EmbeddingBagArgs& a) {
  int64_t before = 0;
  for (int64_t b = 0; b < a.bags; b++) {
    if (a.offsets[b] < before || a.offsets[b] > a.count) throw OffsetOutOfRange{a.offsets[b], b, before, a.count};
    before = a.offsets[b];
  }
  if (a.end < before || a.end > a.count) throw OffsetOutOfRange{a.end, a.bags, before, a.count};
}

void bag(const EmbeddingBagArgs& a) {
  check_offsets(a);
  check_indices(a.indices, a.count, a.rows);
  if (a.bags == 0) return;
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) { bag_typed<typename decltype(tag)::type>(a); }))
    missing_kernel("embedding_bag", name_of(a.dtype));
}

// Threads take columns: two bags may name the same row.
template <class T>
void max_backward_typed(const EmbeddingBagMaxBackwardArgs& a) {
  using C = compute_t<T>;
  const T* const grad = reinterpret_cast<const T*>(a.grad);
  T* const out = reinterpret_cast<T*>(a.out);
  parallel_for(a.dim, std::max<int64_t>(16, grain_of(a.bags)), [&](int64_t begin, int64_t end) {
    for (int64_t b = 0; b < a.bags; b++) {
      if (a.bag_sizes[b] == 0) continue;
      for (int64_t d = begin; d < end; d++) {
        const int64_t row = a.max_indices[b * a.dim + d];
        if (row < 0 || row >= a.rows) continue;
        T& sum = out[row * a.dim + d];
        sum = static_cast<T>(static_cast<C>(sum) + static_cast<C>(grad[b * a.dim + d]));
      }
    }
  });
}

void max_backward(const EmbeddingBagMaxBackwardArgs& a) {
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) { max_backward_typed<typename decltype(tag)::type>(a); }))
    missing_kernel("embedding_bag_max_backward", name_of(a.dtype));
}

template <class T>
void sample_weights_typed(const SampleWeightsBackwardArgs& a) {
  using C = compute_t<T>;
  constexpr int64_t kLanes = 16;
  parallel_for(a.count, grain_of(a.dim), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const T* const g = reinterpret_cast<const T*>(a.grad) + a.bags[i] * a.grad_strides[0];
      const T* const w = reinterpret_cast<const T*>(a.weight) + a.indices[i] * a.weight_strides[0];
      C total(0);
      if (a.indices[i] != a.padding_idx) {
        C lanes[kLanes] = {};
        int64_t d = 0;
        for (; d + kLanes <= a.dim; d += kLanes)
          for (int64_t k = 0; k < kLanes; k++)
            lanes[k] +=
                static_cast<C>(g[(d + k) * a.grad_strides[1]]) * static_cast<C>(w[(d + k) * a.weight_strides[1]]);
        for (; d < a.dim; d++)
          total += static_cast<C>(g[d * a.grad_strides[1]]) * static_cast<C>(w[d * a.weight_strides[1]]);
        for (int64_t k = 0; k < kLanes; k++) total += lanes[k];
      }
      reinterpret_cast<T*>(a.out)[i] = static_cast<T>(total);
    }
  });
}

void sample_weights_backward(const SampleWeightsBackwardArgs& a) {
  check_indices(a.indices, a.count, a.rows);
  check_indices(a.bags, a.count, a.grad_rows);
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) { sample_weights_typed<typename decltype(tag)::type>(a); }))
    missing_kernel("sample_weights_backward", name_of(a.dtype));
}

MT_REGISTER_KERNEL(embedding_bag_kernel, &bag);
MT_REGISTER_KERNEL(embedding_bag_max_backward_kernel, &max_backward);
MT_REGISTER_KERNEL(sample_weights_backward_kernel, &sample_weights_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
