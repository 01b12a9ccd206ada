// Negative log likelihood on the CPU. Sums are kept in double, one partial sum a chunk, so they do not depend on
// timing.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/scratch.h"
#include "kernels/loss.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kGrain = 2048;  // targets; each is a cache miss or two

MT_INLINE bool valid_target(const NllArgs& a, int64_t t) {
  if (MT_LIKELY(t >= 0 && t < a.classes)) return true;
  __atomic_store_n(&a.error->found, true, __ATOMIC_RELAXED);
  return false;
}

// Threads meet bad targets in any order; the error names the first.
template <class Target>
void name_first_bad_target(const NllArgs& a) {
  if (!a.error->found) return;
  const Target* target = static_cast<const Target*>(a.target);
  const auto bad = [&](int64_t t) { return t != a.ignore_index && (t < 0 || t >= a.classes); };
  a.error->target = static_cast<int64_t>(*std::find_if(target, target + a.n * a.spatial, bad));
}

// f(i, offset of the target's element in [n, classes, spatial], class) for the targets [begin, end) that count;
// `ignored(i)` for the others.
template <class Target, class F, class G>
MT_INLINE void for_targets(const NllArgs& a, int64_t begin, int64_t end, const F& f, const G& ignored) {
  const Target* target = static_cast<const Target*>(a.target);
  for (int64_t i = begin; i < end; i++) {
    const int64_t t = static_cast<int64_t>(target[i]);
    if (t == a.ignore_index) {
      ignored(i);
    } else if (valid_target(a, t)) {
      f(i, a.spatial == 1 ? i * a.classes + t : (i / a.spatial * a.classes + t) * a.spatial + i % a.spatial, t);
    }
  }
}

template <class T, class Target>
void forward(const NllArgs& a) {
  using C = compute_t<T>;
  const int64_t count = a.n * a.spatial;
  const T* input = static_cast<const T*>(a.input);
  const T* weight = static_cast<const T*>(a.weight);
  const auto weight_of = [&](int64_t t) { return weight == nullptr ? C(1) : static_cast<C>(weight[t]); };
  T* output = static_cast<T*>(a.output);
  T* total_weight = static_cast<T*>(a.total_weight);
  if (a.reduction == LossReduction::none) {
    parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      for_targets<Target>(
          a, begin, end,
          [&](int64_t i, int64_t at, int64_t t) {
            output[i] = static_cast<T>(static_cast<C>(-static_cast<C>(input[at]) * weight_of(t)));
          },
          [&](int64_t i) { output[i] = static_cast<T>(C(0)); });
    });
    *total_weight = static_cast<T>(C(0));
    return;
  }
  const int64_t chunks = (count + kGrain - 1) / kGrain;
  Scratch<double> sums(2 * chunks);
  sums.zero(2 * chunks);
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; k++) {
      double loss = 0, weights = 0;
      for_targets<Target>(
          a, k * kGrain, std::min(count, (k + 1) * kGrain),
          [&](int64_t, int64_t at, int64_t t) {
            const double w = weight_of(t);
            loss -= static_cast<C>(input[at]) * w;
            weights += w;
          },
          [](int64_t) {});
      sums[2 * k] = loss;
      sums[2 * k + 1] = weights;
    }
  });
  double loss = 0, weights = 0;
  for (int64_t k = 0; k < chunks; k++) {
    loss += sums[2 * k];
    weights += sums[2 * k + 1];
  }
  if (a.reduction == LossReduction::mean) loss /= weights;
  *output = static_cast<T>(static_cast<C>(loss));
  *total_weight = static_cast<T>(static_cast<C>(weights));
}

template <class T, class Target>
void backward(const NllArgs& a) {
  using C = compute_t<T>;
  const int64_t count = a.n * a.spatial, sample = a.classes * a.spatial;
  T* grad_input = static_cast<T*>(a.grad_input);
  const T* grad = static_cast<const T*>(a.grad_output);
  const T* weight = static_cast<const T*>(a.weight);
  const auto weight_of = [&](int64_t t) { return weight == nullptr ? C(1) : static_cast<C>(weight[t]); };
  const bool reduced = a.reduction != LossReduction::none;
  C shared(0);
  if (reduced && count > 0) {
    shared = -static_cast<C>(grad[0]);
    if (a.reduction == LossReduction::mean) shared /= static_cast<C>(*static_cast<const T*>(a.total_weight));
  }
  parallel_for(a.n, grain_of(sample), [&](int64_t begin, int64_t end) {
    std::memset(static_cast<void*>(grad_input + begin * sample), 0,
                static_cast<size_t>((end - begin) * sample) * sizeof(T));
    for_targets<Target>(
        a, begin * a.spatial, end * a.spatial,
        [&](int64_t i, int64_t at, int64_t t) {
          grad_input[at] = static_cast<T>(static_cast<C>((reduced ? shared : -static_cast<C>(grad[i])) * weight_of(t)));
        },
        [](int64_t) {});
  });
}

template <class F>
void dispatch_nll(const char* name, const NllArgs& a, const F& f) {
  const bool known = dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
    if (a.target_dtype == DType::U8) {
      f(tag, Tag<uint8_t>{});
      name_first_bad_target<uint8_t>(a);
    } else {
      f(tag, Tag<int64_t>{});
      name_first_bad_target<int64_t>(a);
    }
  });
  if (!known) missing_kernel(name, name_of(a.dtype));
}

void nll(const NllArgs& a) {
  dispatch_nll("nll", a, [&](auto t, auto u) { forward<typename decltype(t)::type, typename decltype(u)::type>(a); });
}
void nll_backward(const NllArgs& a) {
  dispatch_nll("nll_backward", a,
               [&](auto t, auto u) { backward<typename decltype(t)::type, typename decltype(u)::type>(a); });
}

MT_REGISTER_KERNEL(nll_kernel, &nll);
MT_REGISTER_KERNEL(nll_backward_kernel, &nll_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
