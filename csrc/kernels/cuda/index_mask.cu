// Masks on CUDA: filling where one is set, and what moves the elements that it selects: nonzero, masked_select,
// masked_scatter. Elements are counted by chunks first, so each knows its rank.
#include "kernels/index.h"

#include "kernels/cuda/atomic.cuh"
#include "kernels/cuda/radix.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct MaskedFillArgs {
  int64_t numel;
  Space space;
  int64_t to_strides[kCudaDims], mask_strides[kCudaDims];
  char* to;
  const char* mask;
  alignas(16) char value[16];
  const char* element;  // the value, if not null
};

template <class T>
__global__ void __launch_bounds__(kThreads) masked_fill_elements(const __grid_constant__ MaskedFillArgs a) {
  const T value = *reinterpret_cast<const T*>(a.element != nullptr ? a.element : a.value);
  MT_GRID_LOOP(i, a.numel) {
    char* to = a.to;
    const char* mask = a.mask;
    a.space.each(i, [&](int d, int64_t at) {
      to += at * a.to_strides[d];
      mask += at * a.mask_strides[d];
    });
    if (*reinterpret_cast<const bool*>(mask)) *reinterpret_cast<T*>(to) = value;
  }
}

MaskedFillArgs masked_fill_args(const PointwiseView& v) {
  MaskedFillArgs a{};
  a.numel = v.numel;
  a.space = Space(v.ndim, v.sizes, v.numel);
  for (int d = 0; d < v.ndim; d++) {
    a.to_strides[d] = v.strides[0][d];
    a.mask_strides[d] = v.strides[1][d];
  }
  a.to = v.data[0];
  a.mask = v.data[1];
  return a;
}

void launch_masked_fill(const PointwiseView& v, const MaskedFillArgs& a) {
  by_size(size_of(v.dtype[0]), [&](auto tag) {
    masked_fill_elements<typename decltype(tag)::type><<<grid_for(v.numel), kThreads, 0, cuda::current_stream()>>>(a);
  });
  cuda::check_launch("launching a masked_fill_");
}

void masked_fill(const PointwiseView& v, const Scalar& value) {
  if (v.numel == 0) return;
  MaskedFillArgs a = masked_fill_args(v);
  switch (v.dtype[0]) {
#define MT_CASE(D, T)                                          \
  case DType::D: {                                             \
    const T x = convert<T>(value.template to<compute_t<T>>()); \
    memcpy(a.value, &x, sizeof(x));                            \
    break;                                                     \
  }
    MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
  }
  launch_masked_fill(v, a);
}

void masked_fill_with_element(const PointwiseView& v, const char* value) {
  if (v.numel == 0) return;
  MaskedFillArgs a = masked_fill_args(v);
  a.element = value;
  launch_masked_fill(v, a);
}

__device__ bool is_nonzero(const char* p, DType dtype) { return load_as<bool>(p, dtype); }

__global__ void report_zero(const char* element, DType dtype, cuda::Fault* fault, const char* message) {
  if (!is_nonzero(element, dtype)) cuda::report_fault(fault, message);
}

void expect_nonzero(const char* element, DType dtype, const char* message) {
  report_zero<<<1, 1, 0, cuda::current_stream()>>>(element, dtype, cuda::fault_record(), message);
  cuda::check_launch("launching an assertion");
}

struct MaskArgs {  // elements of operand 0 decide
  Joint<2> space;
  int64_t numel, chunk;
  const char* mask;
  DType dtype;
  int64_t size;
  char* data;  // operand 1
};

// A block a chunk.
__global__ void __launch_bounds__(1024) count_chunks(const __grid_constant__ MaskArgs a, int64_t* counts) {
  __shared__ int64_t shared[32];
  const int64_t begin = blockIdx.x * a.chunk, end = min(begin + a.chunk, a.numel);
  int64_t count = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    int64_t offset[2];
    a.space.offsets(i, offset);
    count += is_nonzero(a.mask + offset[0] * a.size, a.dtype);
  }
  count = block_reduce(count, shared, int64_t{0}, Sum());
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

// Calls f(rank among all nonzero elements, linear index, offset of operand 1) for the nonzero elements of a block's
// chunk.
template <class F>
__device__ void for_nonzero(const MaskArgs& a, const int64_t* before, const F& f) {
  __shared__ int warp_counts[32];
  const int64_t begin = blockIdx.x * a.chunk, end = min(begin + a.chunk, a.numel);
  int64_t rank = before[blockIdx.x];
  for (int64_t base = begin; base < end; base += blockDim.x) {
    const int64_t i = base + threadIdx.x;
    int64_t offset[2] = {0, 0};
    bool mine = false;
    if (i < end) {
      a.space.offsets(i, offset);
      mine = is_nonzero(a.mask + offset[0] * a.size, a.dtype);
    }
    const unsigned ballot = __ballot_sync(0xffffffffu, mine);
    __syncthreads();
    if (threadIdx.x % 32 == 0) warp_counts[threadIdx.x / 32] = __popc(ballot);
    __syncthreads();
    int64_t at = rank, total = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++) {
      if (w < threadIdx.x / 32) at += warp_counts[w];
      total += warp_counts[w];
    }
    if (mine) f(at + __popc(ballot & ((1u << threadIdx.x % 32) - 1)), i, offset[1]);
    rank += total;
  }
}

MaskArgs mask_args(const TensorView& mask, const NonzeroPlan& plan, const TensorView* other) {
  const TensorView& second = other ? *other : mask;
  return {Joint<2>(mask.ndim, mask.sizes, {mask.strides, second.strides}),
          mask.numel,
          plan.chunk,
          mask.data,
          mask.dtype,
          static_cast<int64_t>(size_of(mask.dtype)),
          second.data};
}

void nonzero_plan(const TensorView& input, NonzeroPlan& plan) {
  plan.chunks = 0;
  plan.chunk = 1;
  plan.before[0] = 0;
  if (input.numel == 0) return;
  plan.chunk = std::max<int64_t>(ceil_div(input.numel, NonzeroPlan::kMaxChunks), 1024);
  plan.chunks = static_cast<int>(ceil_div(input.numel, plan.chunk));
  const Scratch counts(plan.chunks * int64_t{8});
  const cudaStream_t stream = cuda::current_stream();
  count_chunks<<<plan.chunks, 1024, 0, stream>>>(mask_args(input, plan, nullptr), counts.get<int64_t>());
  cuda::check_launch("counting nonzero elements");
  int64_t host[NonzeroPlan::kMaxChunks];
  cuda::read_back(host, counts.get(), plan.chunks * int64_t{sizeof(int64_t)}, "reading the number of nonzero elements");
  for (int c = 0; c < plan.chunks; c++) plan.before[c + 1] = plan.before[c] + host[c];
}

// The plan's offsets in device memory.
class DevicePlan {
 public:
  explicit DevicePlan(const NonzeroPlan& plan) : memory_((plan.chunks + 1) * int64_t{8}) {
    cuda::check(cudaMemcpyAsync(memory_.get(), plan.before, (plan.chunks + 1) * sizeof(int64_t), cudaMemcpyHostToDevice,
                                cuda::current_stream()),
                "copying a plan to the device");
  }
  const int64_t* get() const { return memory_.get<int64_t>(); }

 private:
  Scratch memory_;
};

struct Coordinates {
  int ndim;
  int64_t sizes[kCudaDims];
};

__global__ void __launch_bounds__(1024)
    nonzero_rows(const __grid_constant__ MaskArgs a, const int64_t* before, const __grid_constant__ Coordinates shape,
                 int64_t* out, int64_t rows, int64_t row_stride, int64_t column_stride) {
  for_nonzero(a, before, [&](int64_t rank, int64_t i, int64_t) {
    if (rank >= rows) return;
    for (int d = shape.ndim - 1; d >= 0; d--) {
      out[rank * row_stride + d * column_stride] = i % shape.sizes[d];
      i /= shape.sizes[d];
    }
  });
}

void nonzero(const TensorView& input, const NonzeroPlan& plan, const TensorView& out) {
  if (plan.chunks == 0 || out.numel == 0) return;
  if (input.ndim > kCudaDims) throw std::runtime_error("minitorch: nonzero of more than 16 dimensions");
  Coordinates shape{input.ndim, {}};
  for (int d = 0; d < input.ndim; d++) shape.sizes[d] = input.sizes[d];
  const DevicePlan before(plan);
  nonzero_rows<<<plan.chunks, 1024, 0, cuda::current_stream()>>>(mask_args(input, plan, nullptr), before.get(), shape,
                                                                 out.ptr<int64_t>(), out.sizes[0], out.strides[0],
                                                                 out.strides[1]);
  cuda::check_launch("launching nonzero");
}

template <class T>
__global__ void __launch_bounds__(1024)
    select_elements(const __grid_constant__ MaskArgs a, const int64_t* before, T* out, int64_t stride) {
  const T* in = reinterpret_cast<const T*>(a.data);
  for_nonzero(a, before, [&](int64_t rank, int64_t, int64_t offset) { out[rank * stride] = in[offset]; });
}
template <class T>
__global__ void __launch_bounds__(1024)
    scatter_elements(const __grid_constant__ MaskArgs a, const int64_t* before, const T* source) {
  T* to = reinterpret_cast<T*>(a.data);
  for_nonzero(a, before, [&](int64_t rank, int64_t, int64_t offset) { to[offset] = source[rank]; });
}

void masked_select(const TensorView& input, const TensorView& mask, const NonzeroPlan& plan, const TensorView& out) {
  if (plan.chunks == 0 || out.numel == 0) return;
  const DevicePlan before(plan);
  by_size(size_of(input.dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    select_elements<T><<<plan.chunks, 1024, 0, cuda::current_stream()>>>(mask_args(mask, plan, &input), before.get(),
                                                                         out.ptr<T>(), out.strides[0]);
  });
  cuda::check_launch("launching masked_select");
}

void masked_scatter(const TensorView& self, const TensorView& mask, const NonzeroPlan& plan, const TensorView& source) {
  if (plan.chunks == 0) return;
  const DevicePlan before(plan);
  by_size(size_of(self.dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    scatter_elements<T>
        <<<plan.chunks, 1024, 0, cuda::current_stream()>>>(mask_args(mask, plan, &self), before.get(), source.ptr<T>());
  });
  cuda::check_launch("launching masked_scatter_");
}

MT_REGISTER_KERNEL(masked_fill_kernel, &masked_fill);
MT_REGISTER_KERNEL(masked_fill_with_element_kernel, &masked_fill_with_element);
MT_REGISTER_KERNEL(expect_nonzero_kernel, &expect_nonzero);
MT_REGISTER_KERNEL(nonzero_plan_kernel, &nonzero_plan);
MT_REGISTER_KERNEL(nonzero_kernel, &nonzero);
MT_REGISTER_KERNEL(masked_select_kernel, &masked_select);
MT_REGISTER_KERNEL(masked_scatter_kernel, &masked_scatter);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
