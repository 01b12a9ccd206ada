// See transfer.h.
#include "bridge/transfer.h"

#include <c10/core/DeviceGuard.h>

#include "bridge/pinned.h"
#include "bridge/tensor.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

// Both have the same sizes, strides and dtype, and no gaps: then their memory is one run of equal bytes.
bool same_run(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense();
}

// The same for two contiguous tensors, whose strides along dimensions of one element do not matter.
bool runs_match(const at::Tensor& a, const at::Tensor& b) {
  return same_run(a, b) ||
         (a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.is_contiguous() && b.is_contiguous());
}

at::Tensor device_stage(const at::Tensor& like, at::ScalarType dtype) { return empty(like.sizes(), dtype); }

// torch.cuda's allocator of pinned memory, if that is where a host tensor comes from: `pin_memory=True` of factories
// asks it where torch has CUDA.
at::HostAllocator* allocator_of_cuda(const at::DataPtr& data) {
  if (!at::hasCUDA()) return nullptr;
  at::HostAllocator* const allocator = at::getHostAllocator(at::kCUDA);
  static const c10::DeleterFnPtr deleter = allocator->allocate(0).get_deleter();
  return data.get_deleter() == deleter ? allocator : nullptr;
}

// Pinned memory may be read and written by the device after the call: its allocator must not hand it out before that,
// and is told so. False for other memory: pinned memory may also come by way of NumPy or DLPack, and then nobody could
// tell when it is free.
bool kept_until_done(const at::Tensor& host, Stream stream) {
  const at::DataPtr& data = host.storage().data_ptr();
  const auto recorded = [&](at::HostAllocator* allocator, c10::DeviceType type, int64_t id) {
    const c10::Device device(type, static_cast<c10::DeviceIndex>(stream.device));
    return allocator->record_event(data.get(), data.get_context(), c10::Stream(c10::Stream::UNSAFE, device, id));
  };
  if (pinned_host_allocator()->is_simple_data_ptr(data)) return recorded(pinned_host_allocator(), kDevice, stream.id);
  if (backend().synchronous()) return false;
  // To torch.cuda our streams are external ones, whose numbers are their handles.
  at::HostAllocator* const theirs = allocator_of_cuda(data);
  return theirs != nullptr &&
         recorded(theirs, at::kCUDA, reinterpret_cast<c10::StreamId>(backend().stream_handle(stream)));
}

void finish(const at::Tensor& host, Stream stream, bool non_blocking) {
  if (!non_blocking || !kept_until_done(host, stream)) backend().synchronize_stream(stream);
}

void upload(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const c10::DeviceGuard guard(to.device());
  const Stream stream = backend().current_stream(to.device().index());
  const at::Tensor expanded = from.expand(to.sizes());
  if (runs_match(to, expanded)) {
    backend().copy_bytes(to.mutable_data_ptr(), expanded.const_data_ptr(), to.nbytes(), stream);
    finish(from, stream, non_blocking);
    return;
  }
  // What is smaller crosses: the elements before they are broadcast, in the dtype that they have.
  const at::Tensor host = from.contiguous();
  const at::Tensor stage = device_stage(host, host.scalar_type());
  backend().copy_bytes(stage.mutable_data_ptr(), host.const_data_ptr(), host.nbytes(), stream);
  finish(host, stream, non_blocking);
  to.copy_(stage);
}

void download(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const c10::DeviceGuard guard(from.device());
  const Stream stream = backend().current_stream(from.device().index());
  at::Tensor source = from;
  if (source.scalar_type() != to.scalar_type() || !source.is_non_overlapping_and_dense()) {
    source = device_stage(from, to.scalar_type());
    source.copy_(from);
  }
  if (runs_match(to, source)) {
    backend().copy_bytes(to.mutable_data_ptr(), source.const_data_ptr(), to.nbytes(), stream);
    finish(to, stream, non_blocking);
    return;
  }
  const at::Tensor host = at::empty_strided(source.sizes(), source.strides(), to.options());
  backend().copy_bytes(host.mutable_data_ptr(), source.const_data_ptr(), host.nbytes(), stream);
  backend().synchronize_stream(stream);
  to.copy_(host);
}

// The stream of the target waits for the source's, and the other way round afterwards, as native's copies do.
void wait_for(Stream waiting, Stream other) {
  Event* event = backend().create_event(other.device, false);
  backend().record_event(event, other);
  backend().wait_event(event, waiting);
  backend().destroy_event(event);
}

void between_devices(const at::Tensor& to, const at::Tensor& from) {
  at::Tensor source = from;
  {
    const c10::DeviceGuard guard(from.device());
    if (from.scalar_type() != to.scalar_type() || !from.is_non_overlapping_and_dense()) {
      source = device_stage(from, to.scalar_type());
      source.copy_(from);
    }
  }
  const c10::DeviceGuard guard(to.device());
  const Stream there = backend().current_stream(from.device().index()),
               here = backend().current_stream(to.device().index());
  const at::Tensor target =
      runs_match(to, source) ? to : empty_strided(source.sizes(), source.strides(), to.scalar_type());
  wait_for(here, there);
  backend().copy_between(target.mutable_data_ptr(), source.const_data_ptr(), there.device, source.nbytes(), here);
  wait_for(there, here);
  if (!target.is_same(to)) to.copy_(target);
}

}  // namespace

void copy_across(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) return;
  check_allocated(to);
  check_allocated(from);
  if (from.is_cpu()) {
    upload(to, from, non_blocking);
  } else if (to.is_cpu()) {
    const at::Tensor expanded = from.expand(to.sizes());
    download(to, expanded.is_non_overlapping_and_dense() ? expanded : from, non_blocking);
  } else if (from.device().type() == kDevice && to.device().type() == kDevice) {
    between_devices(to, from);
  } else {
    // Another accelerator of PyTorch's: by way of the host.
    to.copy_(from.cpu());
  }
}

c10::Storage storage_to_host(const c10::Storage& storage) {
  const at::Tensor host = at::empty({static_cast<int64_t>(storage.nbytes())}, at::kByte);
  if (storage.nbytes() > 0)
    backend().copy_to_host(host.mutable_data_ptr(), storage.data(), storage.nbytes(),
                           backend().current_stream(storage.device().index()));
  return host.storage();
}

void storage_from_host(const c10::Storage& storage, const c10::Storage& host) {
  const Stream stream = backend().current_stream(storage.device().index());
  const size_t bytes = std::min(storage.nbytes(), host.nbytes());
  if (bytes > 0) backend().copy_bytes(storage.mutable_data(), host.data(), bytes, stream);
  backend().synchronize_stream(stream);
}

}  // namespace minitorch
