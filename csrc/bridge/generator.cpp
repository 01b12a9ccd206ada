// On the CPU backend a generator is PyTorch's own mt19937 engine under our device, so that the same seed gives the same
// numbers as native CPU.
#include "bridge/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include "bridge/tensor.h"

namespace minitorch {
namespace {

class DeviceGenerator final : public at::CPUGeneratorImpl {
 public:
  explicit DeviceGenerator(uint64_t seed) : at::CPUGeneratorImpl(seed) {
    device_ = c10::Device(kDevice, 0);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

}  // namespace

const at::Generator& default_generator(c10::DeviceIndex) {
  static const at::Generator generator = at::make_generator<DeviceGenerator>(c10::default_rng_seed_val);
  return generator;
}

at::Generator new_generator(c10::DeviceIndex) { return at::make_generator<DeviceGenerator>(c10::default_rng_seed_val); }

}  // namespace minitorch
