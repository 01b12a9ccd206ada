// CTC on the CPU, one sample to a thread. A time step depends on the one before, but its states do not depend on each
// other: the forward and backward recurrences are loops over states that vectorise.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/scratch.h"
#include "kernels/ctc.h"
#include "kernels/functors/pointwise.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class T>
inline constexpr T kNone = -std::numeric_limits<T>::infinity();

// One sample's extended target: the class of each state, and which states may be reached from two states before.
template <class T>
class Sample {
 public:
  Sample(const CtcArgs& a, int64_t b, int32_t* classes, T* skips)
      : length(a.input_lengths[b]),
        labels(a.target_lengths[b]),
        states(2 * labels + 1),
        x(static_cast<const T*>(a.log_probs) + b * a.strides[1]),
        classes(classes),
        skips(skips),
        alpha(static_cast<T*>(a.log_alpha) + b * a.time * a.states) {
    const bool wide = a.label_dtype == DType::I64;
    for (int64_t s = 0; s < states; s++) {
      int64_t label = a.blank;
      if (s % 2 == 1) {
        const int64_t at = a.label_offsets[b] + s / 2 * a.label_stride;
        label = wide ? static_cast<const int64_t*>(a.labels)[at] : static_cast<const int32_t*>(a.labels)[at];
        if (label < 0 || label >= a.classes) {
          *a.failed = true;
          label = a.blank;
        }
      }
      classes[s] = static_cast<int32_t>(label);
      skips[s] = s >= 2 && classes[s] != classes[s - 2] ? T(0) : kNone<T>;
    }
  }
  int64_t length, labels, states;
  const T* x;
  int32_t* classes;
  T* skips;  // 0 or -inf, to be added to the log probability two states back
  T* alpha;
};

// log(exp(a) + exp(b) + exp(c)); -inf if all are.
template <class T>
MT_INLINE T log_sum(T a, T b, T c) {
  T most = a > b ? a : b;
  most = c > most ? c : most;
  most = most == kNone<T> ? T(0) : most;
  return math::log(math::exp(a - most) + math::exp(b - most) + math::exp(c - most)) + most;
}

// Room for one sample. Rows of states have two more before and after, which are -inf.
template <class T>
struct Room {
  Scratch<int32_t> classes;
  Scratch<T> skips, previous, current;
  explicit Room(int64_t states) : classes(states), skips(states + 2), previous(states + 4), current(states + 4) {}
  void clear(int64_t states) {
    for (int64_t s = 0; s < states + 4; s++) previous[s] = current[s] = kNone<T>;
  }
};

template <class T>
T forward(const CtcArgs& a, const Sample<T>& p, Room<T>& room) {
  for (int64_t s = 0; s < a.states && a.time > 0; s++) p.alpha[s] = kNone<T>;
  if (p.length == 0) return p.labels == 0 ? T(0) : -kNone<T>;
  room.clear(p.states);
  T *before = room.previous.get() + 2, *now = room.current.get() + 2;
  before[0] = p.x[a.blank * a.strides[2]];
  if (p.labels > 0) before[1] = p.x[p.classes[1] * a.strides[2]];
  for (int64_t s = 0; s < std::min<int64_t>(2, p.states); s++) p.alpha[s] = before[s];
  for (int64_t t = 1; t < p.length; t++) {
    const T* x = p.x + t * a.strides[0];
    T* row = p.alpha + t * a.states;
    for (int64_t s = 0; s < p.states; s++)
      now[s] = log_sum(before[s], before[s - 1], before[s - 2] + p.skips[s]) + x[p.classes[s] * a.strides[2]];
    for (int64_t s = 0; s < p.states; s++) row[s] = now[s];
    std::swap(before, now);
  }
  const T last = before[p.states - 1];
  return -(p.labels == 0 ? last : log_sum(last, before[p.states - 2], kNone<T>));
}

template <class T>
void backward(const CtcArgs& a, const Sample<T>& p, int64_t b, Room<T>& room, T* sums) {
  const int64_t step = a.batch * a.classes;
  T* dx = static_cast<T*>(a.dx) + b * a.classes;
  const auto zero_from = [&](int64_t first) {
    for (int64_t t = first; t < a.time; t++)
      for (int64_t c = 0; c < a.classes; c++) dx[t * step + c] = T(0);
  };
  const T nll = static_cast<const T*>(a.loss)[b];
  if (a.zero_infinity && nll == -kNone<T>) return zero_from(0);
  const T g = static_cast<const T*>(a.dloss)[b * a.dloss_stride];
  room.clear(p.states);
  T *after = room.previous.get() + 2, *now = room.current.get() + 2;
  for (int64_t t = p.length - 1; t >= 0; t--) {
    const T *x = p.x + t * a.strides[0], *alpha = p.alpha + t * a.states;
    if (t == p.length - 1) {
      now[p.states - 1] = x[a.blank * a.strides[2]];
      if (p.labels > 0) now[p.states - 2] = x[p.classes[p.states - 2] * a.strides[2]];
    } else {
      for (int64_t s = 0; s < p.states; s++) {
        const T skip = s + 2 < p.states ? p.skips[s + 2] : kNone<T>;
        now[s] = log_sum(after[s], after[s + 1], after[s + 2] + skip) + x[p.classes[s] * a.strides[2]];
      }
    }
    // Equation 16: the sum over the states of a class, in logarithms.
    for (int64_t c = 0; c < a.classes; c++) sums[c] = kNone<T>;
    for (int64_t s = p.states - 1; s >= 0; s--) {
      T& sum = sums[p.classes[s]];
      const T term = alpha[s] + now[s];
      sum = sum == kNone<T> ? term : log_sum(sum, term, kNone<T>);
    }
    for (int64_t c = 0; c < a.classes; c++) {
      const T log_prob = x[c * a.strides[2]];
      dx[t * step + c] = (math::exp(log_prob) - math::exp(sums[c] + nll - log_prob)) * g;
    }
    std::swap(after, now);
  }
  zero_from(p.length);
}

template <class F>
void for_samples(const char* name, const CtcArgs& a, const F& f) {
  const bool done = dispatch(a.dtype, FloatTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t work = a.time * (10 * a.states + a.classes);
    parallel_for(a.batch, grain_of(4 * work), [&](int64_t begin, int64_t end) {
      Room<T> room(a.states);
      Scratch<T> sums(a.classes);
      for (int64_t b = begin; b < end; b++) {
        const Sample<T> sample(a, b, room.classes.get(), room.skips.get());
        f(sample, b, room, sums.get());
      }
    });
  });
  if (!done) missing_kernel(name, name_of(a.dtype));
}

void ctc_loss(const CtcArgs& a) {
  for_samples("ctc_loss", a, [&](const auto& sample, int64_t b, auto& room, auto* sums) {
    using T = std::remove_pointer_t<decltype(sums)>;
    static_cast<T*>(a.loss)[b] = forward(a, sample, room);
  });
}
void ctc_loss_backward(const CtcArgs& a) {
  for_samples("ctc_loss_backward", a,
              [&](const auto& sample, int64_t b, auto& room, auto* sums) { backward(a, sample, b, room, sums); });
}

MT_REGISTER_KERNEL(ctc_loss_kernel, &ctc_loss);
MT_REGISTER_KERNEL(ctc_loss_backward_kernel, &ctc_loss_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
