// Indexing on CUDA: reading and writing where index tensors point. A bad index is recorded for the next
// synchronisation; a read of it gives zero and a write is dropped.
#include "kernels/index.h"

#include "kernels/cuda/atomic.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kCudaIndices = 16;

struct Args {
  int64_t numel;
  Space space;
  int num_indices;
  bool allow_negative;
  char *values, *self;
  int64_t values_strides[kCudaDims], self_strides[kCudaDims];
  const char* index[kCudaIndices];
  int64_t indexed_size[kCudaIndices], indexed_stride[kCudaIndices];
  int64_t index_strides[kCudaIndices][kCudaDims];
  cuda::Fault* fault;
  const char* what;
};

Args args_of(const IndexArgs& a, const char* what) {
  if (a.num_indices > kCudaIndices)
    throw std::runtime_error("minitorch: indexing with more than 16 tensors is not implemented on the cuda backend");
  Args r{};
  r.numel = a.numel;
  r.space = Space(a.ndim, a.sizes, a.numel);
  r.num_indices = a.num_indices;
  r.allow_negative = a.allow_negative;
  r.values = a.values;
  r.self = a.self;
  for (int d = 0; d < a.ndim; d++) {
    r.values_strides[d] = a.values_strides[d];
    r.self_strides[d] = a.self_strides[d];
    for (int k = 0; k < a.num_indices; k++) r.index_strides[k][d] = a.index_strides[k][d];
  }
  for (int k = 0; k < a.num_indices; k++) {
    r.index[k] = a.index[k];
    r.indexed_size[k] = a.indexed_size[k];
    r.indexed_stride[k] = a.indexed_stride[k];
  }
  r.fault = cuda::fault_record();
  r.what = what;
  return r;
}

// The addresses of point i. False for a bad index.
__device__ __forceinline__ bool locate(const Args& a, int64_t i, char*& value, char*& target) {
  value = a.values;
  target = a.self;
  a.space.each(i, [&](int d, int64_t at) {
    value += at * a.values_strides[d];
    target += at * a.self_strides[d];
  });
  bool good = true;
  for (int k = 0; k < a.num_indices; k++) {
    const char* p = a.index[k];
    a.space.each(i, [&](int d, int64_t at) { p += at * a.index_strides[k][d]; });
    int64_t index = *reinterpret_cast<const int64_t*>(p);
    const int64_t size = a.indexed_size[k];
    if (index >= size || index < (a.allow_negative ? -size : 0)) {
      cuda::report_fault(a.fault, a.what, index, size);
      good = false;
      continue;
    }
    if (index < 0) index += size;
    target += index * a.indexed_stride[k];
  }
  return good;
}

template <class T>
__global__ void __launch_bounds__(kThreads) read_kernel(const __grid_constant__ Args a) {
  MT_GRID_LOOP(i, a.numel) {
    char *value, *source;
    const bool good = locate(a, i, value, source);
    *reinterpret_cast<T*>(value) = good ? *reinterpret_cast<const T*>(source) : T{};
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) assign_kernel(const __grid_constant__ Args a) {
  MT_GRID_LOOP(i, a.numel) {
    char *value, *target;
    if (locate(a, i, value, target)) *reinterpret_cast<T*>(target) = *reinterpret_cast<const T*>(value);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) update_kernel(const __grid_constant__ Args a, IndexWrite op) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, a.numel) {
    char *value, *target;
    if (!locate(a, i, value, target)) continue;
    const T x = *reinterpret_cast<const T*>(value);
    T* const p = reinterpret_cast<T*>(target);
    if (op == IndexWrite::add) {
      atomic_add(p, x);
      continue;
    }
    if constexpr (sizeof(T) <= 8) {
      atomic_update(p, [&](T old) {
        const C b = convert<C>(x), c = convert<C>(old);
        if (op == IndexWrite::multiply) {
          if constexpr (std::is_same_v<T, bool>) {
            return static_cast<bool>(old && x);
          } else {
            return convert<T>(static_cast<C>(c * b));
          }
        }
        if constexpr (is_complex_v<T>) {
          return old;
        } else {
          if (c != c) return old;
          if (b != b) return x;
          return (op == IndexWrite::minimum ? b < c : b > c) ? x : old;
        }
      });
    }
  }
}

void read(const IndexArgs& a) {
  if (a.numel == 0) return;
  const Args args = args_of(a, "index");
  by_size(size_of(a.dtype), [&](auto tag) {
    read_kernel<typename decltype(tag)::type><<<grid_for(a.numel), kThreads, 0, cuda::current_stream()>>>(args);
  });
  cuda::check_launch("launching an index");
}

void write(const IndexArgs& a, IndexWrite op) {
  if (a.numel == 0) return;
  const Args args = args_of(a, "index_put_");
  const cudaStream_t stream = cuda::current_stream();
  if (op == IndexWrite::assign) {
    by_size(size_of(a.dtype), [&](auto tag) {
      assign_kernel<typename decltype(tag)::type><<<grid_for(a.numel), kThreads, 0, stream>>>(args);
    });
  } else {
    if (a.dtype == DType::C128 && op != IndexWrite::add) missing_kernel("index_write", name_of(a.dtype));
    switch (a.dtype) {
#define MT_CASE(D, T) \
  case DType::D: update_kernel<T><<<grid_for(a.numel), kThreads, 0, stream>>>(args, op); break;
      MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
    }
  }
  cuda::check_launch("launching an index_put_");
}

// ---- Masks ---------------------------------------------------------------------------------------------------------

struct MaskedFillArgs {
  int64_t numel;
  Space space;
  int64_t to_strides[kCudaDims], mask_strides[kCudaDims];
  char* to;
  const char* mask;
  alignas(16) char value[16];
};

template <class T>
__global__ void __launch_bounds__(kThreads) masked_fill_elements(const __grid_constant__ MaskedFillArgs a) {
  MT_GRID_LOOP(i, a.numel) {
    char* to = a.to;
    const char* mask = a.mask;
    a.space.each(i, [&](int d, int64_t at) {
      to += at * a.to_strides[d];
      mask += at * a.mask_strides[d];
    });
    if (*reinterpret_cast<const bool*>(mask)) *reinterpret_cast<T*>(to) = *reinterpret_cast<const T*>(a.value);
  }
}

void masked_fill(const PointwiseView& v, const Scalar& value) {
  if (v.numel == 0) return;
  MaskedFillArgs a{};
  a.numel = v.numel;
  a.space = Space(v.ndim, v.sizes, v.numel);
  for (int d = 0; d < v.ndim; d++) {
    a.to_strides[d] = v.strides[0][d];
    a.mask_strides[d] = v.strides[1][d];
  }
  a.to = v.data[0];
  a.mask = v.data[1];
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
  by_size(size_of(v.dtype[0]), [&](auto tag) {
    masked_fill_elements<typename decltype(tag)::type><<<grid_for(v.numel), kThreads, 0, cuda::current_stream()>>>(a);
  });
  cuda::check_launch("launching a masked_fill_");
}

__device__ bool is_nonzero(const char* p, DType dtype) { return load_as<bool>(p, dtype); }

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
  cuda::check(cudaMemcpyAsync(host, counts.get(), plan.chunks * sizeof(int64_t), cudaMemcpyDeviceToHost, stream),
              "reading the number of nonzero elements");
  cuda::check(cudaStreamSynchronize(stream), "counting nonzero elements");
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

// ---- Unfold --------------------------------------------------------------------------------------------------------

struct UnfoldArgs {
  int64_t numel, length, inner, size, step, folds;
  int ndim, dim;
  int64_t sizes[kCudaDims], grad_strides[kCudaDims + 1];
  const char* grad;
  char* out;
};

// Each element of `out` gathers the folds that cover it.
template <class T>
__global__ void __launch_bounds__(kThreads) unfold_gather(const __grid_constant__ UnfoldArgs a) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, a.numel) {
    int64_t rest = i, offset = 0, position = 0;
    for (int d = a.ndim - 1; d >= 0; d--) {
      const int64_t at = rest % a.sizes[d];
      rest /= a.sizes[d];
      if (d == a.dim) {
        position = at;
      } else {
        offset += at * a.grad_strides[d];
      }
    }
    const int64_t first = position < a.size ? 0 : (position - a.size) / a.step + 1;
    C sum = C(0);
    for (int64_t f = first; f < a.folds && f * a.step <= position; f++)
      sum = sum + convert<C>(reinterpret_cast<const T*>(
                      a.grad)[offset + f * a.grad_strides[a.dim] + (position - f * a.step) * a.grad_strides[a.ndim]]);
    reinterpret_cast<T*>(a.out)[i] = convert<T>(sum);
  }
}

void unfold_backward(const UnfoldBackwardArgs& u) {
  if (u.out.numel == 0) return;
  if (u.out.ndim > kCudaDims) throw std::runtime_error("minitorch: unfold of more than 16 dimensions");
  UnfoldArgs a{};
  a.numel = u.out.numel;
  a.ndim = u.out.ndim;
  a.dim = u.dim;
  a.size = u.size;
  a.step = u.step;
  a.folds = u.grad.sizes[u.dim];
  for (int d = 0; d < a.ndim; d++) a.sizes[d] = u.out.sizes[d];
  for (int d = 0; d <= a.ndim; d++) a.grad_strides[d] = u.grad.strides[d];
  a.grad = u.grad.data;
  a.out = u.out.data;
  using All =
      Types<float, double, Half, BFloat16, Complex<float>, Complex<double>, uint8_t, int8_t, int16_t, int32_t, int64_t>;
  if (!dispatch(u.out.dtype, All{}, [&](auto tag) {
        unfold_gather<typename decltype(tag)::type><<<grid_for(a.numel), kThreads, 0, cuda::current_stream()>>>(a);
      }))
    missing_kernel("unfold_backward", name_of(u.out.dtype));
  cuda::check_launch("launching the gradient of unfold");
}

MT_REGISTER_KERNEL(index_read_kernel, &read);
MT_REGISTER_KERNEL(index_write_kernel, &write);
MT_REGISTER_KERNEL(masked_fill_kernel, &masked_fill);
MT_REGISTER_KERNEL(nonzero_plan_kernel, &nonzero_plan);
MT_REGISTER_KERNEL(nonzero_kernel, &nonzero);
MT_REGISTER_KERNEL(masked_select_kernel, &masked_select);
MT_REGISTER_KERNEL(masked_scatter_kernel, &masked_scatter);
MT_REGISTER_KERNEL(unfold_backward_kernel, &unfold_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
