// Indexing on CUDA: reading and writing where index tensors point. A bad index is recorded for the next
// synchronisation; a read of it gives zero and a write is dropped.
#include "kernels/index.h"

#include "kernels/cuda/atomic.cuh"
#include "kernels/cuda/radix.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// N: the most index tensors. Few of them keep a launch's arguments short.
template <int N>
struct Args {
  int64_t numel;
  Space space;
  int num_indices;
  bool allow_negative;
  char *values, *self;
  int64_t values_strides[kCudaDims], self_strides[kCudaDims];
  const char* index[N];
  int64_t indexed_size[N], indexed_stride[N];
  int64_t index_strides[N][kCudaDims];
  cuda::Fault* fault;
  const char* what;
};

constexpr int kFew = 4;

template <int N>
Args<N> args_of(const IndexArgs& a) {
  Args<N> r{};
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
  r.what = a.name;
  return r;
}

// The addresses of point i. False for a bad index.
template <int N>
__device__ __forceinline__ bool locate(const Args<N>& a, int64_t i, char*& value, char*& target) {
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

template <class T, int N>
__global__ void __launch_bounds__(kThreads) read_kernel(const __grid_constant__ Args<N> a) {
  MT_GRID_LOOP(i, a.numel) {
    char *value, *source;
    const bool good = locate(a, i, value, source);
    *reinterpret_cast<T*>(value) = good ? *reinterpret_cast<const T*>(source) : T{};
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) assign_kernel(const __grid_constant__ Args<N> a) {
  MT_GRID_LOOP(i, a.numel) {
    char *value, *target;
    if (locate(a, i, value, target)) *reinterpret_cast<T*>(target) = *reinterpret_cast<const T*>(value);
  }
}

// old op x. Minimum and maximum of complex numbers do not exist.
template <class T>
__device__ __forceinline__ T combined(IndexWrite op, T old, T x) {
  using C = compute_t<T>;
  if (op == IndexWrite::assign) return x;
  const C a = convert<C>(old), b = convert<C>(x);
  if constexpr (std::is_same_v<T, bool>) {
    if (op == IndexWrite::add) return old || x;
    if (op == IndexWrite::multiply) return old && x;
  } else {
    if (op == IndexWrite::add) return convert<T>(static_cast<C>(a + b));
    if (op == IndexWrite::multiply) return convert<T>(static_cast<C>(a * b));
  }
  if constexpr (is_complex_v<T>) {
    return old;
  } else {
    if (a != a) return old;
    if (b != b) return x;
    return (op == IndexWrite::minimum ? b < a : b > a) ? x : old;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) update_kernel(const __grid_constant__ Args<kMaxIndices> a, IndexWrite op) {
  MT_GRID_LOOP(i, a.numel) {
    char *value, *target;
    if (!locate(a, i, value, target)) continue;
    const T x = *reinterpret_cast<const T*>(value);
    T* const p = reinterpret_cast<T*>(target);
    if (op == IndexWrite::add) {
      atomic_add(p, x);
    } else if constexpr (sizeof(T) <= 8) {
      atomic_update(p, [&](T old) { return combined(op, old, x); });
    }
  }
}

// ---- Writes in order: points are sorted by the address that they write to, and one thread does all writes to an
// address.

constexpr int kAddressBytes = 6;
constexpr uint64_t kNowhere = (uint64_t{1} << kAddressBytes * 8) - 1;

__global__ void __launch_bounds__(kThreads)
    find_addresses(const __grid_constant__ Args<kMaxIndices> a, uint64_t* addresses, int64_t* points) {
  MT_GRID_LOOP(i, a.numel) {
    char *value, *target;
    addresses[i] = locate(a, i, value, target) ? reinterpret_cast<uint64_t>(target) & kNowhere : kNowhere;
    points[i] = i;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) write_runs(const __grid_constant__ Args<kMaxIndices> a, IndexWrite op,
                                                       const uint64_t* addresses, const int64_t* points) {
  MT_GRID_LOOP(i, a.numel) {
    const uint64_t address = addresses[i];
    if (address == kNowhere || (i > 0 && addresses[i - 1] == address)) continue;
    T* const target = reinterpret_cast<T*>(address);
    T result = *target;
    for (int64_t k = i; k < a.numel && addresses[k] == address; k++) {
      const char* value = a.values;
      a.space.each(points[k], [&](int d, int64_t at) { value += at * a.values_strides[d]; });
      result = combined(op, result, *reinterpret_cast<const T*>(value));
    }
    *target = result;
  }
}

void write_in_order(const IndexArgs& a, IndexWrite op) {
  const auto args = args_of<kMaxIndices>(a);
  const cudaStream_t stream = cuda::current_stream();
  const Scratch memory(4 * a.numel * 8);
  auto *addresses = memory.get<uint64_t>(), *other_addresses = addresses + a.numel;
  auto *points = memory.get<int64_t>() + 2 * a.numel, *other_points = points + a.numel;
  find_addresses<<<grid_for(a.numel), kThreads, 0, stream>>>(args, addresses, points);
  radix::sort(addresses, points, other_addresses, other_points, a.numel, kAddressBytes);
  switch (a.dtype) {
#define MT_CASE(D, T) \
  case DType::D: write_runs<T><<<grid_for(a.numel), kThreads, 0, stream>>>(args, op, addresses, points); break;
    MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
  }
  cuda::check_launch("launching", a.name);
}

// Where neighbours along dimension 0 move together, as in rows of an embedding, pieces of up to 16 bytes can stand for
// elements. Returns their size.
template <int N>
int64_t widen(Args<N>& a, int64_t element) {
  if (a.space.ndim == 0 || a.values_strides[0] != element || a.self_strides[0] != element) return element;
  int64_t common = a.space.sizes[0] * element | static_cast<int64_t>(reinterpret_cast<uintptr_t>(a.values)) |
                   static_cast<int64_t>(reinterpret_cast<uintptr_t>(a.self));
  for (int d = 1; d < a.space.ndim; d++) common |= a.values_strides[d] | a.self_strides[d];
  for (int k = 0; k < a.num_indices; k++) {
    if (a.index_strides[k][0] != 0) return element;
    common |= a.indexed_stride[k];
  }
  const int64_t size = std::max(std::min<int64_t>(common & -common, 16), element);
  a.numel = a.numel * element / size;
  a.space.sizes[0] = a.space.sizes[0] * element / size;
  a.space = Space(a.space.ndim, a.space.sizes, a.numel);
  a.values_strides[0] = a.self_strides[0] = size;
  return size;
}

// Calls f(Args<N>, tag of an element or piece) for the smallest N that suffices.
template <class F>
void move(const IndexArgs& a, const F& f) {
  const auto with = [&](auto args) { by_size(widen(args, size_of(a.dtype)), [&](auto tag) { f(args, tag); }); };
  if (a.num_indices <= kFew) {
    with(args_of<kFew>(a));
  } else {
    with(args_of<kMaxIndices>(a));
  }
}

void read(const IndexArgs& a) {
  if (a.numel == 0) return;
  move(a, [&](const auto& args, auto tag) {
    read_kernel<typename decltype(tag)::type><<<grid_for(args.numel), kThreads, 0, cuda::current_stream()>>>(args);
  });
  cuda::check_launch("launching", a.name);
}

void write(const IndexArgs& a, IndexWrite op) {
  if (a.numel == 0) return;
  const bool too_wide = a.dtype == DType::C128 && op == IndexWrite::multiply;  // for an atomic operation
  if (a.ordered || too_wide) return write_in_order(a, op);
  const cudaStream_t stream = cuda::current_stream();
  if (op == IndexWrite::assign) {
    move(a, [&](const auto& args, auto tag) {
      assign_kernel<typename decltype(tag)::type><<<grid_for(args.numel), kThreads, 0, stream>>>(args);
    });
  } else {
    const auto args = args_of<kMaxIndices>(a);
    switch (a.dtype) {
#define MT_CASE(D, T) \
  case DType::D: update_kernel<T><<<grid_for(a.numel), kThreads, 0, stream>>>(args, op); break;
      MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
    }
  }
  cuda::check_launch("launching", a.name);
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
MT_REGISTER_KERNEL(unfold_backward_kernel, &unfold_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
