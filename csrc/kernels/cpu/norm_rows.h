// What the normalisation kernels share: vectors of 64 bytes that the compiler maps to the instruction set at hand, sums
// whose error does not grow with the length, and rows that are converted on the way in and out when the tensor is
// stored in another dtype than the one computed in.
#pragma once
#include <cmath>
#include <cstring>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernel.h"
#include "core/parallel.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // 64-byte vectors never cross a call: everything here is inlined

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace norm {

template <class T>
struct VecOf;
template <>
struct VecOf<float> {
  typedef float type __attribute__((vector_size(64)));
};
template <>
struct VecOf<double> {
  typedef double type __attribute__((vector_size(64)));
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
inline constexpr int kLanes = 64 / sizeof(T);

// Loads and stores one V (a vector or a single element) at element i, at any alignment.
template <class V, class T>
MT_INLINE V at(const T* p, int64_t i) {
  V v;
  __builtin_memcpy(&v, p + i, sizeof(V));
  return v;
}
template <class T, class V>
MT_INLINE void put(T* p, int64_t i, V v) {
  __builtin_memcpy(p + i, &v, sizeof(V));
}

MT_INLINE float lane_sum(Vec<float> v) {
  const auto a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                 __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
  return (b[0] + b[2]) + (b[1] + b[3]);
}
MT_INLINE double lane_sum(Vec<double> v) {
  const auto a = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
  return (a[0] + a[2]) + (a[1] + a[3]);
}

// Runs f(Tag<V>, i) over [0, n) with V a vector, then V = T for the rest.
template <class T, class F>
MT_INLINE void map(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) f(Tag<Vec<T>>{}, i);
  for (; i < n; i++) f(Tag<T>{}, i);
}

// Adds K sums over [0, n) to `out`: f(Tag<V>, i, acc) adds the terms at i to acc[0..K). Lanes accumulate at most
// kChunk elements before they are folded into doubles, so the rounding error stays that of a short sum.
template <class T, int K, class F>
MT_INLINE void add_sums(int64_t n, double* out, const F& f) {
  using V = Vec<T>;
  constexpr int kUnroll = K == 1 ? 4 : 2;
  constexpr int64_t kChunk = 64 * kLanes<T>;
  int64_t i = 0;
  while (n - i >= kLanes<T>) {
    V acc[kUnroll][K] = {};
    const int64_t end = n - i < kChunk ? n : i + kChunk;
    for (; i + kUnroll * kLanes<T> <= end; i += kUnroll * kLanes<T>)
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; u++) f(Tag<V>{}, i + u * kLanes<T>, acc[u]);
    for (; i + kLanes<T> <= end; i += kLanes<T>) f(Tag<V>{}, i, acc[0]);
    for (int k = 0; k < K; k++) {
      for (int u = 1; u < kUnroll; u++) acc[0][k] += acc[u][k];
      out[k] += lane_sum(acc[0][k]);
    }
  }
  T tail[K] = {};
  for (; i < n; i++) f(Tag<T>{}, i, tail);
  for (int k = 0; k < K; k++) out[k] += tail[k];
}

// Rows of a tensor as T: the tensor's own memory when it is stored as T, else converted, at most `longest` at a time.
template <class T>
class Reader {
 public:
  Reader(const void* base, DType dtype, int64_t longest)
      : base_(static_cast<const char*>(base)),
        size_(static_cast<int64_t>(size_of(dtype))),
        load_(base == nullptr || dtype == dtype_of<T> ? nullptr : load_fn(dtype, dtype_of<T>)),
        buffer_(load_ == nullptr ? 0 : longest) {}
  MT_INLINE const T* row(int64_t offset, int64_t n) const {
    const char* p = base_ + offset * size_;
    if (load_ == nullptr) return reinterpret_cast<const T*>(p);
    load_(buffer_.get(), p, size_, n);
    return buffer_.get();
  }
  // Only where the tensor is not stored as T.
  MT_INLINE void convert_into(T* target, int64_t offset, int64_t n) const {
    load_(target, base_ + offset * size_, size_, n);
  }

 private:
  const char* base_;
  int64_t size_;
  LoadFn load_;
  Scratch<T> buffer_;
};

template <class T>
class Writer {
 public:
  Writer(void* base, DType dtype, int64_t longest)
      : base_(static_cast<char*>(base)),
        size_(static_cast<int64_t>(size_of(dtype))),
        store_(base == nullptr || dtype == dtype_of<T> ? nullptr : store_fn(dtype_of<T>, dtype)),
        buffer_(store_ == nullptr ? 0 : longest) {}
  MT_INLINE T* row(int64_t offset) const {
    return store_ == nullptr ? reinterpret_cast<T*>(base_ + offset * size_) : buffer_.get();
  }
  MT_INLINE void commit(int64_t offset, int64_t n) const {
    if (store_ != nullptr) store_(base_ + offset * size_, size_, buffer_.get(), n);
  }

 private:
  char* base_;
  int64_t size_;
  StoreFn store_;
  Scratch<T> buffer_;
};

// A whole vector of parameters as T; null stays null.
template <class T>
class Params {
 public:
  Params(const void* base, DType dtype, int64_t n)
      : reader_(base, dtype, n), data_(base == nullptr ? nullptr : reader_.row(0, n)) {}
  MT_INLINE const T* get() const { return data_; }

 private:
  Reader<T> reader_;
  const T* data_;
};

// A whole vector of results as T, stored by commit(); null stays null.
template <class T>
class Results {
 public:
  Results(void* base, DType dtype, int64_t n)
      : n_(n), writer_(base, dtype, n), data_(base == nullptr ? nullptr : writer_.row(0)) {}
  MT_INLINE T* get() const { return data_; }
  void commit() const {
    if (data_ != nullptr) writer_.commit(0, n_);
  }

 private:
  int64_t n_;
  Writer<T> writer_;
  T* data_;
};

// Column sums over rows [begin, end): f(row, acc) adds K rows of `cols` terms to acc (K * cols of T), which is folded
// into `total` (doubles) every kFold rows.
template <class T, int K, class F>
MT_INLINE void add_column_sums(int64_t begin, int64_t end, int64_t cols, double* total, T* acc, const F& f) {
  constexpr int64_t kFold = 64;
  for (int64_t r = begin; r < end;) {
    const int64_t stop = end - r < kFold ? end : r + kFold;
    std::memset(static_cast<void*>(acc), 0, static_cast<size_t>(K * cols) * sizeof(T));
    for (; r < stop; r++) f(r, acc);
    for (int64_t j = 0; j < K * cols; j++) total[j] += acc[j];
  }
}

// The same over the rows of one or two tensors of one dtype (`dy` may be null): f(x row, dy row, acc).
template <class T, int K, class F>
MT_INLINE void add_tensor_column_sums(const void* x, const void* dy, DType dtype, int64_t begin, int64_t end,
                                      int64_t cols, double* total, const F& f) {
  const Reader<T> xs(x, dtype, cols), dys(dy, dtype, cols);
  Scratch<T> acc(K * cols);
  add_column_sums<T, K>(begin, end, cols, total, acc.get(), [&](int64_t r, T* sums) {
    f(xs.row(r * cols, cols), dy == nullptr ? nullptr : dys.row(r * cols, cols), sums);
  });
}

// Splits [0, n) into `chunks` parts and calls f(chunk, begin, end) on them in parallel.
template <class F>
MT_INLINE void for_chunks(int64_t n, int64_t chunks, const F& f) {
  parallel_for(chunks, 1, [&](int64_t b, int64_t e) {
    for (int64_t k = b; k < e; k++) f(k, n * k / chunks, n * (k + 1) / chunks);
  });
}

// f(std::true_type or std::false_type) by value: makes a run-time flag a compile-time one.
template <class F>
MT_INLINE void with_flag(bool flag, const F& f) {
  if (flag) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

template <class T>
MT_INLINE T inverse_std(double variance, double eps) {
  return variance == 0 && eps == 0 ? T(0) : static_cast<T>(1 / std::sqrt(variance + eps));
}

// Calls f(Tag<float or double>), the type that tensors of this dtype compute in.
template <class F>
MT_INLINE void dispatch_compute(const char* name, DType dtype, const F& f) {
  if (!dispatch(compute_dtype(dtype), FloatTypes{}, f)) missing_kernel(name, name_of(dtype));
}

}  // namespace norm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
