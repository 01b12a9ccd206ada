// Random numbers. On the CPU they come from a Mersenne twister, draw for draw the sequence that native CPU takes from
// the same seed, so a kernel that fills memory is serial over its elements in TensorIterator's order.
#pragma once
#include <optional>

#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// MT19937 (M. Matsumoto, T. Nishimura, "Mersenne Twister", ACM TOMACS 1998), with native's counters: `left` - 1 words
// of `state` from `next` on have not been used yet.
struct Mt19937 {
  static constexpr int kWords = 624;
  uint32_t state[kWords];
  int32_t left;
  uint32_t next;
};

// What a generator holds. Box-Muller makes two normals at a time; the one not asked for waits here.
struct RandomState {
  uint64_t seed;
  Mt19937 engine;
  std::optional<float> next_float_normal;
  std::optional<double> next_double_normal;
  uint64_t philox_offset = 0;  // on CUDA, where `seed` and this are the whole state: a multiple of 4
};

// Takes `count` words a thread from a CUDA generator's stream; returns where they begin.
inline uint64_t advance(RandomState& state, uint64_t count) {
  const uint64_t offset = state.philox_offset;
  state.philox_offset += (count + 3) / 4 * 4;
  return offset;
}

void seed_engine(Mt19937& engine, uint64_t seed);

enum class Distribution : uint8_t {
  uniform,         // [a, b)
  normal,          // mean a, standard deviation b, from pairs of doubles
  log_normal,      // exp of the above
  cauchy,          // median a, scale b
  exponential,     // rate a
  geometric,       // success probability a
  bernoulli,       // probability a of a one
  integers,        // [0, largest value of the dtype], or as far as a float counts exactly
  integers_range,  // [base, base + range)
  integers_full,   // all of int64
};

struct DistributionParams {
  double a = 0, b = 0;
  uint64_t range = 0;
  int64_t base = 0;
};

// Fills the only operand of the view.
extern Kernel<void(RandomState&, Distribution, const PointwiseView&, const DistributionParams&)> distribution_kernel;

// n >= 16 contiguous elements, normal by Box-Muller on sixteen uniforms at a time.
extern Kernel<void(RandomState&, char* data, DType, int64_t n, double mean, double std)> normal_fill_kernel;

// Operand 0 becomes 1 with the probability that operand 1 holds.
extern Kernel<void(RandomState&, const PointwiseView&)> bernoulli_tensor_kernel;

// Operand 0 is drawn from the distribution whose parameters are the other operands, all of the output's dtype.
enum class Sampler : uint8_t {
  poisson,   // rate
  gamma,     // concentration; scale 1. On the CPU the output may be double beside parameters of another dtype
  binomial,  // number of trials, probability
};
extern Kernel<void(RandomState&, Sampler, const PointwiseView&)> sampler_kernel;

// noise[i] is uniform on [lower, upper) where x[i] <= 0 and 1 elsewhere; y = x * noise. All contiguous; y may be x.
struct RandomReluArgs {
  DType dtype;
  int64_t n;
  double lower, upper;
  const void* x;
  void* noise;
  void* y;
};
extern Kernel<void(RandomState&, const RandomReluArgs&)> random_relu_kernel;

// A random permutation of 0 .. n-1 into a 1-d tensor.
extern Kernel<void(RandomState&, const TensorView&)> randperm_kernel;

// `samples` categories with replacement from each row of weights: result (rows, samples) int64, weights (rows,
// categories).
extern Kernel<void(RandomState&, const TensorView& result, const TensorView& weights)> multinomial_kernel;

}  // namespace minitorch
