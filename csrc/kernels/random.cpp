// The random kernel objects and the seeding of the engine.
#include "kernels/random.h"

namespace minitorch {
constinit Kernel<void(RandomState&, Distribution, const PointwiseView&, const DistributionParams&)> distribution_kernel{
    "distribution"};
constinit Kernel<void(RandomState&, char*, DType, int64_t, double, double)> normal_fill_kernel{"normal_fill"};
constinit Kernel<void(RandomState&, const PointwiseView&)> bernoulli_tensor_kernel{"bernoulli_tensor"};
constinit Kernel<void(RandomState&, Sampler, const PointwiseView&)> sampler_kernel{"sampler"};
constinit Kernel<void(RandomState&, const RandomReluArgs&)> random_relu_kernel{"random_relu"};
constinit Kernel<void(RandomState&, const TensorView&)> randperm_kernel{"randperm"};
constinit Kernel<void(RandomState&, const TensorView&, const TensorView&)> multinomial_kernel{"multinomial"};

void seed_engine(Mt19937& engine, uint64_t seed) {
  engine.state[0] = static_cast<uint32_t>(seed);
  for (uint32_t j = 1; j < Mt19937::kWords; j++) {
    const uint32_t previous = engine.state[j - 1];
    engine.state[j] = 1812433253u * (previous ^ (previous >> 30)) + j;
  }
  engine.left = 1;
  engine.next = 0;
}

}  // namespace minitorch
