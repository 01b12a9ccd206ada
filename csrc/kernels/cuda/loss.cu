// Negative log likelihood on CUDA, and the check of binary cross-entropy. Sums over rows are made in double in a fixed
// order: by blocks of rows, and over the blocks. A bad target is recorded for the next synchronisation and its row
// counts for nothing.
#include "kernels/loss.h"

#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct Pair {
  double a, b;
};
struct AddPairs {
  __device__ __forceinline__ Pair operator()(Pair x, Pair y) const { return {x.a + y.a, x.b + y.b}; }
};

// ---- Negative log likelihood ---------------------------------------------------------------------------------------

// The class of row i, or -1 if it is ignored or wrong.
__device__ __forceinline__ int64_t target_of(const NllArgs& a, int64_t i, cuda::Fault* fault, const char* what) {
  const int64_t t =
      a.target_dtype == DType::U8 ? static_cast<const uint8_t*>(a.target)[i] : static_cast<const int64_t*>(a.target)[i];
  if (t == a.ignore_index) return -1;
  if (t >= 0 && t < a.classes) return t;
  cuda::report_fault(fault, what, t, a.classes);
  return -1;
}
__device__ __forceinline__ int64_t element_of(const NllArgs& a, int64_t i, int64_t t) {
  return (i / a.spatial * a.classes + t) * a.spatial + i % a.spatial;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    nll_rows(const __grid_constant__ NllArgs a, cuda::Fault* fault, const char* what) {
  using C = compute_t<T>;
  const T *input = static_cast<const T*>(a.input), *weight = static_cast<const T*>(a.weight);
  MT_GRID_LOOP(i, a.n * a.spatial) {
    const int64_t t = target_of(a, i, fault, what);
    const C loss = t < 0 ? C(0) : -convert<C>(input[element_of(a, i, t)]) * (weight ? convert<C>(weight[t]) : C(1));
    static_cast<T*>(a.output)[i] = convert<T>(loss);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) *static_cast<T*>(a.total_weight) = convert<T>(C(0));  // of no rows too
}

constexpr int kSumThreads = 1024;

template <class T>
__device__ __forceinline__ void write_total(const NllArgs& a, Pair sums) {
  using C = compute_t<T>;
  const double result = a.reduction == LossReduction::mean ? sums.a / sums.b : sums.a;
  *static_cast<T*>(a.output) = convert<T>(static_cast<C>(result));
  *static_cast<T*>(a.total_weight) = convert<T>(static_cast<C>(sums.b));
}

// One block writes the result, several their parts of it.
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    nll_sums(const __grid_constant__ NllArgs a, Pair* parts, cuda::Fault* fault, const char* what) {
  using C = compute_t<T>;
  __shared__ Pair shared[32];
  const T *input = static_cast<const T*>(a.input), *weight = static_cast<const T*>(a.weight);
  Pair sums{0, 0};
  MT_GRID_LOOP(i, a.n * a.spatial) {
    const int64_t t = target_of(a, i, fault, what);
    if (t < 0) continue;
    const double w = weight ? convert<C>(weight[t]) : C(1);
    sums.a -= static_cast<double>(convert<C>(input[element_of(a, i, t)])) * w;
    sums.b += w;
  }
  sums = block_reduce(sums, shared, Pair{0, 0}, AddPairs());
  if (threadIdx.x != 0) return;
  if (gridDim.x > 1) {
    parts[blockIdx.x] = sums;
  } else {
    write_total<T>(a, sums);
  }
}

template <class T>
__global__ void __launch_bounds__(kSumThreads)
    nll_total(const __grid_constant__ NllArgs a, const Pair* parts, int count) {
  __shared__ Pair shared[32];
  const auto part = static_cast<int>(threadIdx.x);
  const Pair sums = block_reduce(part < count ? parts[part] : Pair{0, 0}, shared, Pair{0, 0}, AddPairs());
  if (part == 0) write_total<T>(a, sums);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    nll_gradient(const __grid_constant__ NllArgs a, cuda::Fault* fault, const char* what) {
  using C = compute_t<T>;
  const T *weight = static_cast<const T*>(a.weight), *grad = static_cast<const T*>(a.grad_output);
  const C total = convert<C>(*static_cast<const T*>(a.total_weight));
  MT_GRID_LOOP(at, a.n * a.classes * a.spatial) {
    const int64_t s = at % a.spatial, c = at / a.spatial % a.classes, i = at / (a.spatial * a.classes) * a.spatial + s;
    const int64_t t = target_of(a, i, fault, what);
    C g = 0;
    if (t == c) {
      g = -convert<C>(grad[a.reduction == LossReduction::none ? i : 0]) * (weight ? convert<C>(weight[t]) : C(1));
      if (a.reduction == LossReduction::mean) g /= total;
    }
    static_cast<T*>(a.grad_input)[at] = convert<T>(g);
  }
}

template <class F>
void by_float(const char* name, DType dtype, const F& f) {
  if (!dispatch(dtype, FloatingTypes{}, f)) missing_kernel(name, name_of(dtype));
}

void nll(const NllArgs& a) {
  by_float("nll_loss", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const cudaStream_t stream = cuda::current_stream();
    if (a.reduction == LossReduction::none) {
      nll_rows<T><<<grid_for(a.n * a.spatial), kThreads, 0, stream>>>(a, cuda::fault_record(), "nll_loss target");
    } else {
      // A thread has four rows before there is a second block.
      const auto blocks = static_cast<int>(std::clamp<int64_t>(ceil_div(a.n * a.spatial, 4 * kSumThreads), 1,
                                                               std::min(2 * cuda::multiprocessors(), kSumThreads)));
      const Scratch parts(blocks > 1 ? blocks * static_cast<int64_t>(sizeof(Pair)) : 0);
      nll_sums<T><<<blocks, kSumThreads, 0, stream>>>(a, parts.get<Pair>(), cuda::fault_record(), "nll_loss target");
      if (blocks > 1) nll_total<T><<<1, kSumThreads, 0, stream>>>(a, parts.get<Pair>(), blocks);
    }
  });
  cuda::check_launch("launching nll_loss");
}

void nll_backward(const NllArgs& a) {
  if (a.n * a.classes * a.spatial == 0) return;
  by_float("nll_loss_backward", a.dtype, [&](auto tag) {
    nll_gradient<typename decltype(tag)::type>
        <<<grid_for(a.n * a.classes * a.spatial), kThreads, 0, cuda::current_stream()>>>(a, cuda::fault_record(),
                                                                                         "nll_loss target");
  });
  cuda::check_launch("launching the gradient of nll_loss");
}

// ---- Binary cross-entropy's check ----------------------------------------------------------------------------------

struct UnitArgs {
  int64_t numel;
  Space space;
  int64_t strides[kCudaDims];
  const char* data;
  DType dtype;
};

__global__ void __launch_bounds__(kThreads)
    find_outside(const __grid_constant__ UnitArgs a, cuda::Fault* fault, const char* what) {
  MT_GRID_LOOP(i, a.numel) {
    int64_t offset = 0;
    a.space.each(i, [&](int d, int64_t at) { offset += at * a.strides[d]; });
    const double x = load_as<double>(a.data + offset, a.dtype);
    if (!(x >= 0 && x <= 1)) cuda::report_fault(fault, what);
  }
}

void unit_interval(const PointwiseView& v, int* offender) {
  *offender = 0;
  if (v.numel == 0) return;
  for (int k = v.num_outputs; k < v.num_operands; k++) {
    UnitArgs a{v.numel, Space(v.ndim, v.sizes, v.numel), {}, v.data[k], v.dtype[k]};
    for (int d = 0; d < v.ndim; d++) a.strides[d] = v.strides[k][d];
    find_outside<<<grid_for(v.numel), kThreads, 0, cuda::current_stream()>>>(
        a, cuda::fault_record(),
        k == 1 ? "all elements of input should be between 0 and 1"
               : "all elements of target should be between 0 and 1");
  }
  cuda::check_launch("checking probabilities");
}

MT_REGISTER_KERNEL(nll_kernel, &nll);
MT_REGISTER_KERNEL(nll_backward_kernel, &nll_backward);
MT_REGISTER_KERNEL(unit_interval_kernel, &unit_interval);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
