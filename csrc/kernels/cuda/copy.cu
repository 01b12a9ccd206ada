// Copies, casts and fills of any layout on CUDA.
#include "kernels/cuda/launch.cuh"
#include "kernels/pointwise.h"
#include "kernels/shape.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct CopyArgs {
  int64_t numel;
  Space space;
  int64_t to_strides[kCudaDims], from_strides[kCudaDims];
  char* to;
  const char* from;  // null: the value is in host_value
  DType dtype;       // of `from`
  alignas(16) char host_value[16];
};

__device__ __forceinline__ void addresses(const CopyArgs& a, int64_t i, char*& to, const char*& from) {
  to = a.to;
  from = a.from == nullptr ? a.host_value : a.from;
  a.space.each(i, [&](int d, int64_t index) {
    to += index * a.to_strides[d];
    from += index * a.from_strides[d];
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) move_kernel(const __grid_constant__ CopyArgs a) {
  MT_GRID_LOOP(i, a.numel) {
    char* to;
    const char* from;
    addresses(a, i, to, from);
    *reinterpret_cast<T*>(to) = *reinterpret_cast<const T*>(from);
  }
}

template <class To>
__global__ void __launch_bounds__(kThreads) cast_kernel(const __grid_constant__ CopyArgs a) {
  MT_GRID_LOOP(i, a.numel) {
    char* to;
    const char* from;
    addresses(a, i, to, from);
    *reinterpret_cast<To*>(to) = load_any<To>(from, a.dtype);
  }
}

// One value everywhere in dense memory, 16 bytes a store.
__global__ void __launch_bounds__(kThreads) fill_kernel_dense(char* to, int64_t bytes, Bytes16 pattern) {
  MT_GRID_LOOP(i, bytes / 16) reinterpret_cast<Bytes16*>(to)[i] = pattern;
  if (blockIdx.x == 0 && threadIdx.x < bytes % 16) {
    const int64_t at = bytes / 16 * 16 + threadIdx.x;
    const uint64_t half = threadIdx.x < 8 ? pattern.low : pattern.high;
    to[at] = static_cast<char>(half >> (threadIdx.x % 8 * 8));
  }
}

CopyArgs copy_args(const PointwiseView& v) {
  CopyArgs a;
  a.numel = v.numel;
  a.space = Space(v.ndim, v.sizes, v.numel);
  for (int d = 0; d < v.ndim; d++) {
    a.to_strides[d] = v.strides[0][d];
    a.from_strides[d] = v.strides[1][d];
  }
  a.to = v.data[0];
  a.from = v.data[1];
  a.dtype = v.dtype[1];
  if (v.host_operands >> 1 & 1) {
    memcpy(a.host_value, v.data[1], size_of(v.dtype[1]));
    a.from = nullptr;
  }
  return a;
}

void move(const PointwiseView& v) {
  const CopyArgs a = copy_args(v);
  by_size(size_of(v.dtype[0]), [&](auto tag) {
    move_kernel<typename decltype(tag)::type><<<grid_for(v.numel), kThreads, 0, cuda::current_stream()>>>(a);
  });
}

void copy(const PointwiseView& v) {
  if (v.numel == 0) return;
  const auto size = static_cast<int64_t>(size_of(v.dtype[0]));
  const bool same = v.dtype[0] == v.dtype[1];
  const bool flat = v.ndim == 0 || (v.ndim == 1 && v.strides[0][0] == size && v.strides[1][0] == size);
  if (same && flat && v.host_operands == 0) {
    cuda::check(cudaMemcpyAsync(v.data[0], v.data[1], v.numel * size, cudaMemcpyDeviceToDevice, cuda::current_stream()),
                "copying memory");
    return;
  }
  if (same) {
    move(v);
  } else {
    const CopyArgs a = copy_args(v);
    switch (v.dtype[0]) {
#define MT_CASE(D, T) \
  case DType::D: cast_kernel<T><<<grid_for(v.numel), kThreads, 0, cuda::current_stream()>>>(a); break;
      MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
    }
  }
  cuda::check_launch("launching a copy");
}

void flip(const PointwiseView& v) {
  if (v.numel == 0) return;
  move(v);
  cuda::check_launch("launching a flip");
}

void fill(const PointwiseView& v, const Scalar& value) {
  if (v.numel == 0) return;
  alignas(16) char element[16] = {};
  switch (v.dtype[0]) {
#define MT_CASE(D, T)                                       \
  case DType::D: {                                          \
    const compute_t<T> computed = value.to<compute_t<T>>(); \
    const T x = convert<T>(computed);                       \
    memcpy(element, &x, sizeof(x));                         \
    break;                                                  \
  }
    MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
  }
  const auto size = static_cast<int64_t>(size_of(v.dtype[0]));
  const bool flat = v.ndim == 0 || (v.ndim == 1 && (v.strides[0][0] == size || v.sizes[0] == 1));
  if (flat && reinterpret_cast<uintptr_t>(v.data[0]) % 16 == 0) {
    Bytes16 pattern;
    for (size_t at = 0; at < 16; at += size) memcpy(reinterpret_cast<char*>(&pattern) + at, element, size);
    const int64_t bytes = v.numel * size;
    fill_kernel_dense<<<grid_for(bytes / 16), kThreads, 0, cuda::current_stream()>>>(v.data[0], bytes, pattern);
  } else {
    PointwiseView both = v;
    both.num_operands = 2;
    both.data[1] = element;
    both.dtype[1] = v.dtype[0];
    both.host_operands = 2;
    for (int d = 0; d < v.ndim; d++) both.strides[1][d] = 0;
    move(both);
  }
  cuda::check_launch("launching a fill");
}

MT_REGISTER_KERNEL(copy_kernel, &copy);
MT_REGISTER_KERNEL(fill_kernel, &fill);
MT_REGISTER_KERNEL(flip_kernel, &flip);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
