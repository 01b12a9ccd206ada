// What can be known of GPUs without initialising CUDA's driver. A child that is forked later may then still use them:
// the driver does not survive a fork.
#pragma once

namespace minitorch::cuda {

struct InstalledGpus {
  int count = 0;             // that this process may use; 0: the driver must be asked
  int major = 0, minor = 0;  // their compute capability
};

// By NVIDIA's management library, where nothing stands in the way of using what it finds and CUDA would count the same:
// GPUs of one capability without MIG, CUDA_VISIBLE_DEVICES unset or plain indices, a driver for `cuda_major`, and
// access to the device file that the driver manages memory by.
InstalledGpus installed_gpus(int cuda_major, const char* memory_file = "/dev/nvidia-uvm");

// Whether something in this process has initialised the driver.
bool driver_in_use() noexcept;

}  // namespace minitorch::cuda
