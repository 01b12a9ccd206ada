// Devices, streams and events for PyTorch's generic code: device guards, the autograd engine, torch.Stream,
// torch.Event.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "bridge/allocator.h"
#include "bridge/engine.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

c10::Device device(int index) { return c10::Device(kDevice, static_cast<c10::DeviceIndex>(index)); }
Stream stream(const c10::Stream& s) { return {s.device_index(), s.id()}; }
c10::Stream stream(Stream s) { return c10::Stream(c10::Stream::UNSAFE, device(s.device), s.id); }
Event* event(void* e) { return static_cast<Event*>(e); }
int index_of(c10::Device d) {
  if (d.index() < 0) return backend().current_device();
  check_device(d.index());
  return d.index();
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device previous = getDevice();
    if (d.index() >= 0 && d != previous) backend().set_device(d.index());
    return previous;
  }
  c10::Device getDevice() const override { return device(backend().current_device()); }
  void setDevice(c10::Device d) const override {
    if (d.index() >= 0) backend().set_device(d.index());
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.index() < 0 || d.index() >= backend().device_count()) return;
    try {
      backend().set_device(d.index());
    } catch (const std::exception&) {
      // Guards come here while an error unwinds the stack: that is the error to report.
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(devices_are_hidden() ? 0 : backend().device_count());
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& types = capability.capability_data.supported_scalar_types;
    types.has_Byte = types.has_Char = types.has_Short = types.has_Int = types.has_Long = 1;
    types.has_UInt16 = types.has_UInt32 = types.has_UInt64 = types.has_Bool = 1;
    types.has_Half = types.has_BFloat16 = types.has_Float = types.has_Double = 1;
    types.has_ComplexHalf = types.has_ComplexFloat = types.has_ComplexDouble = 1;
    return capability;
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override { minitorch::synchronize(index); }

  c10::Stream getStream(c10::Device d) const override { return stream(backend().current_stream(index_of(d))); }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream(Stream{index_of(d), 0}); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool high_priority) const override {
    return stream(backend().pooled_stream(index_of(d), high_priority));
  }
  c10::Stream getNewStream(c10::Device d, int priority) const override {
    return stream(backend().pooled_stream(index_of(d), priority < 0));
  }
  c10::Stream exchangeStream(c10::Stream s) const override { return stream(backend().exchange_stream(stream(s))); }
  bool queryStream(const c10::Stream& s) const override { return backend().query_stream(stream(s)); }
  void synchronizeStream(const c10::Stream& s) const override { backend().synchronize_stream(stream(s)); }

  void record(void** e, const c10::Stream& s, const c10::DeviceIndex index, const c10::EventFlag flag) const override {
    TORCH_CHECK(index == -1 || index == s.device_index(), "Event device index ", index,
                " does not match recording stream's device index ", s.device_index(), ".");
    if (*e == nullptr) *e = backend().create_event(s.device_index(), flag == c10::EventFlag::BACKEND_DEFAULT);
    backend().record_event(event(*e), stream(s));
  }
  void block(void* e, const c10::Stream& s) const override {
    if (e) backend().wait_event(event(e), stream(s));
  }
  bool queryEvent(void* e) const override { return e == nullptr || backend().query_event(event(e)); }
  void synchronizeEvent(void* e) const override {
    if (e) backend().synchronize_event(event(e));
  }
  void destroyEvent(void* e, const c10::DeviceIndex) const noexcept override {
    if (e) backend().destroy_event(event(e));
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
    return backend().elapsed_ms(event(start), event(end));
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& s) const override {
    device_allocator()->recordStream(data, s);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

void OperatorGuard::enter(int device) {
  const int current = backend().current_device();
  if (device == current) return;
  backend().set_device(device);
  previous_ = current;
}

void OperatorGuard::leave() const noexcept { Guard().uncheckedSetDevice(device(previous_)); }

}  // namespace minitorch
