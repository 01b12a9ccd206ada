// CTC on CUDA, a block a sample: time steps follow one another, the states of a step are the block's threads. All sums
// are made in a fixed order.
#include <limits>
#include <vector>

#include "kernels/ctc.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/functors/math.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kMostThreads = 512;

// What the host knows about the samples and what is prepared from the labels, in device memory.
struct Samples {
  const int64_t *label_offsets, *input_lengths, *target_lengths;
  int32_t* classes;  // [batch, states]: of each state
  int32_t* next;     // [batch, states]: the next state of the same label, 0 if there is none
  bool* repeated;    // [batch, states]: whether an earlier state has the same label
};

template <class T>
__device__ __forceinline__ T none() {
  return -std::numeric_limits<T>::infinity();
}

// log(exp(a) + exp(b) + exp(c)); -inf if all are.
template <class T>
__device__ __forceinline__ T log_sum(T a, T b, T c = none<T>()) {
  T most = a > b ? a : b;
  most = c > most ? c : most;
  most = most == none<T>() ? T(0) : most;
  return math::log(math::exp(a - most) + math::exp(b - most) + math::exp(c - most)) + most;
}

__global__ void __launch_bounds__(kThreads)
    find_classes(const __grid_constant__ CtcArgs a, const __grid_constant__ Samples samples, cuda::Fault* fault,
                 const char* what) {
  MT_GRID_LOOP(i, a.batch * a.states) {
    const int64_t b = i / a.states, s = i - b * a.states;
    int64_t label = a.blank;
    if (s % 2 == 1 && s / 2 < samples.target_lengths[b]) {
      const int64_t at = samples.label_offsets[b] + s / 2 * a.label_stride;
      label = a.label_dtype == DType::I64 ? static_cast<const int64_t*>(a.labels)[at]
                                          : static_cast<const int32_t*>(a.labels)[at];
      if (label < 0 || label >= a.classes) {
        cuda::report_fault(fault, what, label, a.classes);
        label = a.blank;
      }
    }
    samples.classes[i] = static_cast<int32_t>(label);
  }
}

// Links the states of each label. The blank's need no links: a block sums over them.
__global__ void __launch_bounds__(kThreads)
    link_labels(const __grid_constant__ CtcArgs a, const __grid_constant__ Samples samples) {
  MT_GRID_LOOP(i, a.batch * a.states) {
    const int64_t b = i / a.states, s = i - b * a.states, states = 2 * samples.target_lengths[b] + 1;
    const int32_t* const classes = samples.classes + b * a.states;
    int64_t next = 0;
    bool repeated = false;
    if (s % 2 == 1 && s < states && classes[s] != a.blank) {
      next = s + 2;
      while (next < states && classes[next] != classes[s]) next += 2;
      next = next < states ? next : 0;
      for (int64_t r = s - 2; r > 0 && !repeated; r -= 2) repeated = classes[r] == classes[s];
    }
    samples.next[i] = static_cast<int32_t>(next);
    samples.repeated[i] = repeated;
  }
}

template <class T>
struct Sample {
  int64_t length, labels, states;
  const T* x;
  const int32_t* classes;
  T* alpha;
  __device__ Sample(const CtcArgs& a, const Samples& samples, int64_t b)
      : length(samples.input_lengths[b]),
        labels(samples.target_lengths[b]),
        states(2 * labels + 1),
        x(static_cast<const T*>(a.log_probs) + b * a.strides[1]),
        classes(samples.classes + b * a.states),
        alpha(static_cast<T*>(a.log_alpha) + b * a.time * a.states) {}
  // Whether state s may be reached from s - 2.
  __device__ __forceinline__ bool skips(int64_t s) const { return s >= 2 && classes[s] != classes[s - 2]; }
};

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    forward(const __grid_constant__ CtcArgs a, const __grid_constant__ Samples samples) {
  const int64_t b = blockIdx.x;
  const Sample<T> p(a, samples, b);
  T* const loss = static_cast<T*>(a.loss) + b;
  if (p.length == 0) {
    for (int64_t s = threadIdx.x; s < a.states && a.time > 0; s += blockDim.x) p.alpha[s] = none<T>();
    if (threadIdx.x == 0) *loss = p.labels == 0 ? T(0) : std::numeric_limits<T>::infinity();
    return;
  }
  for (int64_t s = threadIdx.x; s < a.states; s += blockDim.x)
    p.alpha[s] = s < 2 && s < p.states ? p.x[p.classes[s] * a.strides[2]] : none<T>();
  for (int64_t t = 1; t < p.length; t++) {
    __syncthreads();
    const T *x = p.x + t * a.strides[0], *before = p.alpha + (t - 1) * a.states;
    T* const now = p.alpha + t * a.states;
    for (int64_t s = threadIdx.x; s < p.states; s += blockDim.x)
      now[s] = log_sum(before[s], s >= 1 ? before[s - 1] : none<T>(), p.skips(s) ? before[s - 2] : none<T>()) +
               x[p.classes[s] * a.strides[2]];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const T* const last = p.alpha + (p.length - 1) * a.states + p.states - 1;
    *loss = -(p.labels == 0 ? last[0] : log_sum(last[0], last[-1]));
  }
}

// beta: [batch, 2, states], two time steps in turn.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    backward(const __grid_constant__ CtcArgs a, const __grid_constant__ Samples samples, T* beta) {
  __shared__ T shared[32];
  const int64_t b = blockIdx.x, step = a.batch * a.classes;
  const Sample<T> p(a, samples, b);
  const int32_t* const next = samples.next + b * a.states;
  const bool* const repeated = samples.repeated + b * a.states;
  T* const dx = static_cast<T*>(a.dx) + b * a.classes;
  const T nll = static_cast<const T*>(a.loss)[b], g = static_cast<const T*>(a.dloss)[b * a.dloss_stride];
  const bool impossible = a.zero_infinity && nll == std::numeric_limits<T>::infinity();
  for (int64_t t = impossible ? 0 : p.length; t < a.time; t++)
    for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x) dx[t * step + c] = T(0);
  if (impossible) return;
  beta += b * 2 * a.states;
  for (int64_t t = p.length - 1; t >= 0; t--) {
    const T *const x = p.x + t * a.strides[0], *const alpha = p.alpha + t * a.states;
    T *const now = beta + t % 2 * a.states, *const after = beta + (t + 1) % 2 * a.states;
    T* const row = dx + t * step;
    for (int64_t s = threadIdx.x; s < p.states; s += blockDim.x) {
      const T log_prob = x[p.classes[s] * a.strides[2]];
      if (t == p.length - 1) {
        now[s] = s + 2 >= p.states ? log_prob : none<T>();
      } else {
        const bool skip = s + 2 < p.states && p.skips(s + 2);
        now[s] =
            log_sum(after[s], s + 1 < p.states ? after[s + 1] : none<T>(), skip ? after[s + 2] : none<T>()) + log_prob;
      }
    }
    for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x) row[c] = none<T>();
    __syncthreads();
    // Equation 16: the sum over the states of a class, in logarithms, goes where the class's gradient will be.
    T blank = none<T>();
    for (int64_t s = threadIdx.x; s < p.states; s += blockDim.x) {
      if (p.classes[s] == a.blank) {
        blank = log_sum(blank, alpha[s] + now[s]);
      } else if (!repeated[s]) {
        T sum = alpha[s] + now[s];
        for (int64_t r = next[s]; r > 0; r = next[r]) sum = log_sum(sum, alpha[r] + now[r]);
        row[p.classes[s]] = sum;
      }
    }
    blank = block_reduce(blank, shared, none<T>(), [](T u, T v) { return log_sum(u, v); });
    if (threadIdx.x == 0) row[a.blank] = blank;
    __syncthreads();
    for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x) {
      const T log_prob = x[c * a.strides[2]];
      row[c] = (math::exp(log_prob) - math::exp(row[c] + nll - log_prob)) * g;
    }
  }
}

// The samples' facts on the device, and the labels prepared.
class Preparation {
 public:
  Preparation(const CtcArgs& a, bool links)
      : memory_(3 * a.batch * static_cast<int64_t>(sizeof(int64_t)) + a.batch * a.states * (2 * 4 + 1)) {
    const cudaStream_t stream = cuda::current_stream();
    std::vector<int64_t> facts(3 * a.batch);
    std::copy_n(a.label_offsets, a.batch, facts.begin());
    std::copy_n(a.input_lengths, a.batch, facts.begin() + a.batch);
    std::copy_n(a.target_lengths, a.batch, facts.begin() + 2 * a.batch);
    auto* const device = memory_.get<int64_t>();
    // From pageable memory: the call returns when the values have been taken.
    cuda::check(cudaMemcpyAsync(device, facts.data(), facts.size() * sizeof(int64_t), cudaMemcpyHostToDevice, stream),
                "copying lengths");
    auto* const classes = reinterpret_cast<int32_t*>(device + 3 * a.batch);
    int32_t* const next = classes + a.batch * a.states;
    samples = {device,
               device + a.batch,
               device + 2 * a.batch,
               classes,
               next,
               reinterpret_cast<bool*>(next + a.batch * a.states)};
    const unsigned blocks = grid_for(a.batch * a.states);
    find_classes<<<blocks, kThreads, 0, stream>>>(a, samples, cuda::fault_record(), "ctc_loss");
    if (links) link_labels<<<blocks, kThreads, 0, stream>>>(a, samples);
  }
  Samples samples;

 private:
  Scratch memory_;
};

int threads_for(int64_t items) {
  return static_cast<int>(std::clamp<int64_t>(ceil_div(items, 32) * 32, 64, kMostThreads));
}

void ctc_loss(const CtcArgs& a) {
  if (a.batch == 0) return;
  const Preparation prepared(a, false);
  if (!dispatch(a.dtype, FloatTypes{}, [&](auto tag) {
        forward<typename decltype(tag)::type>
            <<<static_cast<unsigned>(a.batch), threads_for(a.states), 0, cuda::current_stream()>>>(a, prepared.samples);
      }))
    missing_kernel("ctc_loss", name_of(a.dtype));
  cuda::check_launch("launching a CTC loss");
}

void ctc_loss_backward(const CtcArgs& a) {
  if (a.batch == 0) return;
  const Preparation prepared(a, true);
  const Scratch beta(2 * a.batch * a.states * static_cast<int64_t>(size_of(a.dtype)));
  if (!dispatch(a.dtype, FloatTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        backward<T><<<static_cast<unsigned>(a.batch), threads_for(std::max(a.states, a.classes / 4)), 0,
                      cuda::current_stream()>>>(a, prepared.samples, beta.get<T>());
      }))
    missing_kernel("ctc_loss_backward", name_of(a.dtype));
  cuda::check_launch("launching the gradient of a CTC loss");
}

MT_REGISTER_KERNEL(ctc_loss_kernel, &ctc_loss);
MT_REGISTER_KERNEL(ctc_loss_backward_kernel, &ctc_loss_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
