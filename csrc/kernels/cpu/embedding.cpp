// The gradient of an embedding table, and renormalisation of its rows.
//
// The gradient goes through the table once: the positions of each row are chained into a list beforehand, so every row
// is summed in registers or L1 and written a single time, zeros included. Rows are independent, so threads share them
// out and the order of a sum never depends on their number.
#include "kernels/embedding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/parallel.h"
#include "kernels/cpu/scratch.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

inline constexpr int64_t kBlock = 512;  // elements of a row summed at a time

// first[r] is the first position with index r and next[i] the one after position i; -1 ends a list.
struct RowLists {
  Scratch<int32_t> first, next;

  explicit RowLists(const EmbeddingBackwardArgs& a) : first(a.rows), next(a.count) {
    memset(first.get(), 0xff, a.rows * sizeof(int32_t));
    for (int64_t i = a.count - 1; i >= 0; i--) {
      const int64_t row = a.indices[i], source = a.source != nullptr ? a.source[i] : i;
      if (row == a.padding_idx || row < 0 || row >= a.rows || source < 0 || source >= a.grad_rows) continue;
      next[i] = first[row];
      first[row] = static_cast<int32_t>(i);
    }
  }
};

template <class T>
void backward_typed(const EmbeddingBackwardArgs& a) {
  using C = compute_t<T>;
  const RowLists lists(a);
  const T* const grad = reinterpret_cast<const T*>(a.grad);
  const T* const sample_weights = reinterpret_cast<const T*>(a.sample_weights);
  const bool weighted = a.sample_weights != nullptr || a.bag_sizes != nullptr;
  parallel_for(a.rows, grain_of(a.dim), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      T* const out = reinterpret_cast<T*>(a.out) + r * a.dim;
      if (lists.first[r] < 0) {
        memset(out, 0, a.dim * sizeof(T));
        continue;
      }
      int64_t occurrences = 0;
      if (a.scale_by_frequency)
        for (int32_t i = lists.first[r]; i >= 0; i = lists.next[i]) occurrences++;
      const C scale = a.scale_by_frequency ? C(1) / static_cast<C>(occurrences) : C(1);
      for (int64_t j = 0; j < a.dim; j += kBlock) {
        const int64_t m = std::min(kBlock, a.dim - j);
        C sum[kBlock];
        for (int64_t k = 0; k < m; k++) sum[k] = C(0);
        for (int32_t i = lists.first[r]; i >= 0; i = lists.next[i]) {
          const int64_t source = a.source != nullptr ? a.source[i] : i;
          const T* MT_RESTRICT g = grad + source * a.grad_stride + j;
          if (!weighted) {
            for (int64_t k = 0; k < m; k++) sum[k] += static_cast<C>(g[k]);
            continue;
          }
          C factor = sample_weights != nullptr ? static_cast<C>(sample_weights[i]) : C(1);
          if (a.bag_sizes != nullptr) factor /= static_cast<C>(a.bag_sizes[source]);
          for (int64_t k = 0; k < m; k++) sum[k] += factor * static_cast<C>(g[k]);
        }
        for (int64_t k = 0; k < m; k++) out[j + k] = static_cast<T>(sum[k] * scale);
      }
    }
  });
}

void backward(const EmbeddingBackwardArgs& a) {
  if (a.rows * a.dim == 0) return;
  if (a.count >= std::numeric_limits<int32_t>::max()) missing_kernel("embedding_backward", "for 2^31 indices or more");
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) { backward_typed<typename decltype(tag)::type>(a); }))
    missing_kernel("embedding_backward", name_of(a.dtype));
}

template <class C, class T>
C row_norm(const T* row, int64_t stride, int64_t n, double p) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    const double x = std::abs(static_cast<double>(static_cast<C>(row[i * stride])));
    if (p == 2) {
      sum += x * x;
    } else if (p == 1) {
      sum += x;
    } else if (std::isinf(p)) {
      sum = p > 0 ? (x > sum || x != x ? x : sum) : (i == 0 || x < sum || x != x ? x : sum);
    } else if (p == 0) {
      sum += x != 0;
    } else {
      sum += std::pow(x, p);
    }
  }
  if (p == 2) return static_cast<C>(std::sqrt(sum));
  if (p == 1 || p == 0 || std::isinf(p)) return static_cast<C>(sum);
  return static_cast<C>(std::pow(sum, 1 / p));
}

template <class T>
void renorm_typed(const EmbeddingRenormArgs& a) {
  using C = compute_t<T>;
  const int64_t rows = a.weight.sizes[0], dim = a.weight.sizes[1], stride = a.weight.strides[1];
  const Scratch<bool, 4096> done(rows);
  done.zero(rows);
  for (int64_t i = 0; i < a.count; i++) {
    if (done[a.indices[i]]) continue;
    done[a.indices[i]] = true;
    T* const row = a.weight.ptr<T>() + a.indices[i] * a.weight.strides[0];
    const C norm = row_norm<C>(row, stride, dim, a.p);
    if (!(static_cast<double>(norm) > a.max_norm)) continue;
    const C scale = static_cast<C>(a.max_norm / (static_cast<double>(norm) + 1e-7));
    for (int64_t d = 0; d < dim; d++) row[d * stride] = static_cast<T>(static_cast<C>(row[d * stride]) * scale);
  }
}

void renorm(const EmbeddingRenormArgs& a) {
  const int64_t rows = a.weight.sizes[0];
  for (int64_t i = 0; i < a.count; i++)
    if (a.indices[i] < 0 || a.indices[i] >= rows) throw IndexOutOfRange{a.indices[i], static_cast<int>(i), rows};
  if (!dispatch(a.weight.dtype, FloatingTypes{}, [&](auto tag) { renorm_typed<typename decltype(tag)::type>(a); }))
    missing_kernel("embedding_renorm", name_of(a.weight.dtype));
}

MT_REGISTER_KERNEL(embedding_backward_kernel, &backward);
MT_REGISTER_KERNEL(embedding_renorm_kernel, &renorm);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
