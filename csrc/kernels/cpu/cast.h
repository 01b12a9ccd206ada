// Strided conversion between any two dtypes, a block at a time: the staging step of every CPU kernel that computes in
// another type than it stores (16-bit floats, mixed dtypes).
#pragma once
#include <cstdint>

#include "core/convert.h"
#include "core/dtype.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// dst[i] (contiguous, dtype `to`) = src[i * stride bytes] (dtype `from`) for i < n.
using LoadFn = void (*)(void* dst, const void* src, int64_t stride, int64_t n);
// dst[i * stride bytes] (dtype `to`) = src[i] (contiguous, dtype `from`).
using StoreFn = void (*)(void* dst, int64_t stride, const void* src, int64_t n);

LoadFn load_fn(DType from, DType to);
StoreFn store_fn(DType from, DType to);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
