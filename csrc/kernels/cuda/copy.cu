// Copies, casts and fills of any layout on CUDA.
#include <cstring>

#include "kernels/cuda/pointwise_engine.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct alignas(16) Bytes16 {
  uint64_t low, high;
};

template <class T>
__global__ void __launch_bounds__(kThreads) move_kernel(const __grid_constant__ OperandArgs<2> a) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < a.numel; i += int64_t{kThreads} * gridDim.x) {
    int64_t offset[2];
    offsets(a, i, offset);
    const char* p = a.data[1] == nullptr ? a.host_value[1] : a.data[1] + offset[1];
    *reinterpret_cast<T*>(a.data[0] + offset[0]) = *reinterpret_cast<const T*>(p);
  }
}

template <class To>
__global__ void __launch_bounds__(kThreads) cast_kernel(const __grid_constant__ OperandArgs<2> a) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < a.numel; i += int64_t{kThreads} * gridDim.x) {
    int64_t offset[2];
    offsets(a, i, offset);
    const char* p = a.data[1] == nullptr ? a.host_value[1] : a.data[1] + offset[1];
    *reinterpret_cast<To*>(a.data[0] + offset[0]) = load_as<To>(p, a.dtype[1]);
  }
}

unsigned blocks_for(int64_t numel) {
  return static_cast<unsigned>(
      std::min<int64_t>((numel + kThreads - 1) / kThreads, int64_t{cuda::multiprocessors()} * 32));
}

template <class F>
void by_size(size_t size, F&& f) {
  switch (size) {
    case 1: return f(Tag<uint8_t>{});
    case 2: return f(Tag<uint16_t>{});
    case 4: return f(Tag<uint32_t>{});
    case 8: return f(Tag<uint64_t>{});
    default: return f(Tag<Bytes16>{});
  }
}

void copy(const PointwiseView& v) {
  if (v.numel == 0) return;
  const int64_t size = static_cast<int64_t>(size_of(v.dtype[0]));
  const bool same = v.dtype[0] == v.dtype[1];
  const cudaStream_t stream = cuda::current_stream();
  const bool flat = v.ndim == 0 || (v.ndim == 1 && v.strides[0][0] == size && v.strides[1][0] == size);
  if (same && flat && v.host_operands == 0) {
    cuda::check(cudaMemcpyAsync(v.data[0], v.data[1], v.numel * size, cudaMemcpyDeviceToDevice, stream),
                "copying memory");
    return;
  }
  const auto a = operand_args<2>(v);
  const unsigned blocks = blocks_for(v.numel);
  if (same) {
    by_size(size, [&](auto tag) { move_kernel<typename decltype(tag)::type><<<blocks, kThreads, 0, stream>>>(a); });
  } else {
    switch (v.dtype[0]) {
#define MT_CASE(D, T) \
  case DType::D: cast_kernel<T><<<blocks, kThreads, 0, stream>>>(a); break;
      MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
    }
  }
  cuda::check_launch("launching a copy");
}

// A fill is a copy from one value in host memory.
void fill(const PointwiseView& v, const Scalar& value) {
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
  PointwiseView both = v;
  both.num_operands = 2;
  both.data[1] = element;
  both.dtype[1] = v.dtype[0];
  both.host_operands = 2;
  for (int d = 0; d < v.ndim; d++) both.strides[1][d] = 0;
  copy(both);
}

MT_REGISTER_KERNEL(copy_kernel, &copy);
MT_REGISTER_KERNEL(fill_kernel, &fill);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
