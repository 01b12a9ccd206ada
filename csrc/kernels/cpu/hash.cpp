// The exclusive-or hash on the CPU: one result in chunks that are joined at the end, many results in parallel.
#include "kernels/hash.h"

#include <cstring>

#include "kernels/cpu/pointwise_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// The elements of a view [begin, end) into their outputs, or all into *total if there is one.
void hash_range(const PointwiseView& v, int64_t begin, int64_t end, uint64_t* total) {
  const bool floating = is_floating(v.dtype[1]);
  const LoadFn load = load_fn(v.dtype[1], floating ? DType::F64 : DType::I64);
  const int64_t out_stride = v.ndim > 0 ? v.strides[0][0] : 0, in_stride = v.ndim > 0 ? v.strides[1][0] : 0;
  for_each_row_in(v, begin, end, [&](char* const* ptrs, int64_t n) {
    alignas(64) uint64_t bits[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      load(bits, ptrs[1] + i * in_stride, in_stride, m);
      if (out_stride == 0) {
        uint64_t all = 0;
        for (int64_t j = 0; j < m; j++) all ^= bits[j];
        *(total != nullptr ? total : reinterpret_cast<uint64_t*>(ptrs[0])) ^= all;
      } else {
        for (int64_t j = 0; j < m; j++) *reinterpret_cast<uint64_t*>(ptrs[0] + (i + j) * out_stride) ^= bits[j];
      }
    }
  });
}

// Every output to zero: the elements at the start of the reduced dimensions.
void clear(PointwiseView v) {
  v.numel = 1;
  for (int d = 0; d < v.ndim; d++) {
    if (v.strides[0][d] == 0) v.sizes[d] = 1;
    v.numel *= v.sizes[d];
  }
  const int64_t stride = v.ndim > 0 ? v.strides[0][0] : 0;
  for_each_row_in(v, 0, v.numel, [&](char* const* ptrs, int64_t n) {
    for (int64_t i = 0; i < n; i++) *reinterpret_cast<uint64_t*>(ptrs[0] + i * stride) = 0;
  });
}

void xor_hash(const PointwiseView& v) {
  if (v.dtype[0] != DType::U64) missing_kernel("xor_hash", name_of(v.dtype[0]));
  clear(v);
  int split = -1;  // the outermost dimension that the outputs extend along
  for (int d = 0; d < v.ndim; d++)
    if (v.strides[0][d] != 0 && v.sizes[d] > 1) split = d;
  if (split < 0) {
    std::atomic<uint64_t> result{0};
    parallel_for(v.numel, kGrainSize, [&](int64_t begin, int64_t end) {
      uint64_t total = 0;
      hash_range(v, begin, end, &total);
      result.fetch_xor(total);
    });
    *reinterpret_cast<uint64_t*>(v.data[0]) = result.load();
    return;
  }
  const int64_t slice = v.numel / v.sizes[split];
  parallel_for(v.sizes[split], grain_of(slice), [&](int64_t begin, int64_t end) {
    PointwiseView part = v;
    for (int k = 0; k < 2; k++) part.data[k] += begin * v.strides[k][split];
    part.sizes[split] = end - begin;
    part.numel = slice * (end - begin);
    hash_range(part, 0, part.numel, nullptr);
  });
}

MT_REGISTER_KERNEL(xor_hash_kernel, &xor_hash);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
