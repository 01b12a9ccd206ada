// Random number generators of the device.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include "kernels/random.h"

namespace minitorch {

// On the CPU backend: native CPU's engine and state format under our device, so that the same seed gives the same
// numbers. `mutex_` must be held while `state` is used.
class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(c10::DeviceIndex device, uint64_t seed = c10::default_rng_seed_val);

  static c10::DeviceType device_type();
  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return state.seed; }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& bytes) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  RandomState state;

 private:
  DeviceGenerator* clone_impl() const override;
};

// The generator that torch.manual_seed seeds for `device` (-1: the current one).
const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);

// The generator an operator should draw from: the one passed, which must be ours, or the default one.
DeviceGenerator* generator_or_default(const std::optional<at::Generator>& generator);

}  // namespace minitorch
