// Random number generators of the device.
#pragma once
#include <ATen/core/Generator.h>

namespace minitorch {

// The generator that torch.manual_seed seeds for `device` (-1: the current one).
const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);

}  // namespace minitorch
