// Device and stream switching for PyTorch's generic code (device guards, the autograd engine, torch.Stream).
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "bridge/tensor.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Device device(int index) { return c10::Device(kDevice, static_cast<c10::DeviceIndex>(index)); }

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
    if (d.index() >= 0 && d.index() < backend().device_count()) backend().set_device(d.index());
  }
  c10::Stream getStream(c10::Device d) const override {
    const int index = d.index() < 0 ? backend().current_device() : d.index();
    return c10::Stream(c10::Stream::UNSAFE, device(index), backend().current_stream(index).id);
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const Stream previous = backend().exchange_stream({s.device_index(), s.id()});
    return c10::Stream(c10::Stream::UNSAFE, device(previous.device), previous.id);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(backend().device_count());
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& s) const override {
    backend().synchronize_stream({s.device_index(), s.id()});
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override { backend().synchronize_device(index); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace
}  // namespace minitorch
