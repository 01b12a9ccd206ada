// Answers PyTorch's generic questions about the device.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "bridge/allocator.h"
#include "bridge/generator.h"
#include "bridge/pinned.h"
#include "bridge/tensor.h"
#include "runtime/backend.h"
#include "runtime/device_memory.h"

namespace minitorch {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return backend().device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return device >= 0 && device < backend().device_count();
  }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(backend().device_count()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { backend().set_device(device); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(backend().current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto previous = getCurrentDevice();
    backend().set_device(device);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device); }

  c10::Device getDeviceFromPtr(void* data) const override {
    for (int d = 0; d < backend().device_count(); d++)
      if (caching_allocator(d).owns(data)) return c10::Device(kDevice, static_cast<c10::DeviceIndex>(d));
    TORCH_CHECK(backend().host_accessible(), "The pointer does not belong to a minitorch device");
    return c10::Device(kDevice, static_cast<c10::DeviceIndex>(backend().current_device()));
  }
  bool isPinnedPtr(const void* data) const override {
    return pinned_allocator().owns(data) || backend().host_pinned(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_host_allocator(); }

  // storage.resize_ keeps what both sizes have.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    TORCH_CHECK(static_cast<int64_t>(bytes) >= 0, "minitorch: a storage has no negative number of bytes, got ",
                static_cast<int64_t>(bytes));
    at::DataPtr fresh = allocate_data(index_of(storage), bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) backend().copy_bytes(fresh.get(), storage.data(), kept, backend().current_stream(index_of(storage)));
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.set_nbytes(bytes);
  }

 private:
  static int index_of(const c10::Storage& storage) {
    return storage.device().index() < 0 ? backend().current_device() : storage.device().index();
  }
};

Hooks hooks;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

}  // namespace
}  // namespace minitorch
