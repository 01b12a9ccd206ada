// Copies between memories that cannot see each other: host and GPU, and two GPUs.
#pragma once
#include <ATen/ATen.h>

namespace minitorch {

// `to` receives the elements of `from`, broadcast and converted. One of them, or both, is ours; their devices differ.
// Conversions and changes of layout happen on a device, and only dense memory crosses. Unless `non_blocking`, the call
// returns when the data has arrived in host memory, or may be overwritten there.
void copy_across(const at::Tensor& to, const at::Tensor& from, bool non_blocking);

// The bytes of the whole storage, in host memory, and back. Both wait for the device.
c10::Storage storage_to_host(const c10::Storage& storage);
void storage_from_host(const c10::Storage& storage, const c10::Storage& host);

}  // namespace minitorch
