// CUDA side of the pointwise tables: the functors of the CPU, one element a thread. A strided reference version; it handles
// every layout through an index computed per element.
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "kernels/functors/pointwise.h"
#include "kernels/pointwise.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kMaxCudaDims = 16;  // after merging; kernel arguments are limited to 4 KiB
constexpr int kThreads = 256;

// The view without its unused tail, small enough to be passed by value.
struct UnaryArgs {
  int ndim;
  int64_t numel;
  int64_t sizes[kMaxCudaDims];
  int64_t strides[2][kMaxCudaDims];
  char* data[2];
};

template <class F, class T>
__global__ void unary_strided(UnaryArgs args, F f) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < args.numel; i += int64_t{kThreads} * gridDim.x) {
    int64_t rest = i, out = 0, in = 0;
    for (int d = 0; d < args.ndim; d++) {
      const int64_t index = rest % args.sizes[d];
      rest /= args.sizes[d];
      out += index * args.strides[0][d];
      in += index * args.strides[1][d];
    }
    *reinterpret_cast<T*>(args.data[0] + out) = f(*reinterpret_cast<const T*>(args.data[1] + in));
  }
}

template <class F, class T>
void launch(const PointwiseView& v, const PointwiseParams& params) {
  if (v.ndim > kMaxCudaDims) throw std::runtime_error("minitorch: more than 16 dimensions after merging");
  UnaryArgs args{v.ndim, v.numel, {}, {}, {v.data[0], v.data[1]}};
  for (int d = 0; d < v.ndim; d++) {
    args.sizes[d] = v.sizes[d];
    for (int k = 0; k < 2; k++) args.strides[k][d] = v.strides[k][d];
  }
  const int64_t blocks = (v.numel + kThreads - 1) / kThreads;
  unary_strided<F, T><<<static_cast<unsigned>(blocks < (1 << 20) ? blocks : (1 << 20)), kThreads>>>(
      args, functors::make_functor<F>(params));
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string("minitorch: launching a unary kernel failed: ") + cudaGetErrorString(error));
}

void pointwise(PointwiseOp op, const PointwiseView& v, const PointwiseParams& params) {
  if (v.dtype[0] != DType::F32 || v.dtype[1] != DType::F32) missing_kernel("pointwise", name_of(v.dtype[1]));
  switch (op) {
    case PointwiseOp::exp: return launch<functors::Exp<float>, float>(v, params);
    case PointwiseOp::neg: return launch<functors::Neg<float>, float>(v, params);
    default: missing_kernel("pointwise", "float32");
  }
}

MT_REGISTER_KERNEL(pointwise_kernel, &pointwise);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
