// See allocator.h.
#include "bridge/allocator.h"

#include "bridge/tensor.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = backend().current_device();
    void* data = minitorch::allocate(device, bytes);
    return {data, data, &minitorch::deallocate, c10::Device(kDevice, static_cast<c10::DeviceIndex>(device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &minitorch::deallocate; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
};

DeviceAllocator allocator;
REGISTER_ALLOCATOR(kDevice, &allocator)

}  // namespace

c10::DeviceAllocator* device_allocator() { return &allocator; }

}  // namespace minitorch
