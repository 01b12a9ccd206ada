// See storage.h.
#include "bridge/storage.h"

#include "bridge/allocator.h"
#include "bridge/tensor.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

c10::intrusive_ptr<c10::StorageImpl> create(c10::StorageImpl::use_byte_size_t, c10::SymInt bytes, c10::DataPtr data,
                                            c10::Allocator* allocator, bool resizable) {
  // Callers without memory of their own pass an empty pointer and expect the factory to allocate.
  if (data == nullptr) data = allocator->allocate(bytes.expect_int());
  return c10::make_intrusive<Storage>(c10::StorageImpl::use_byte_size_t(), std::move(bytes), std::move(data), allocator,
                                      resizable);
}

const bool registered = (c10::SetStorageImplCreate(kDevice, &create), true);

using Lender = c10::intrusive_ptr<c10::StorageImpl>;
void release(void* lender) { delete static_cast<Lender*>(lender); }

c10::DataPtr borrow(const c10::Storage& lender, c10::Device device) {
  return {lender.mutable_data(), new Lender(lender.getWeakStorageImpl().lock()), &release, device};
}

}  // namespace

const Block* Storage::block() const { return minitorch::block_of(data_ptr()); }

const Block* Storage::block_of(const at::Tensor& tensor) {
  const auto* storage = dynamic_cast<const Storage*>(tensor.storage().unsafeGetStorageImpl());
  return storage == nullptr ? nullptr : storage->block();
}

c10::intrusive_ptr<c10::StorageImpl> make_storage(size_t bytes) {
  return c10::make_intrusive<Storage>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
                                      allocate_data(backend().current_device(), bytes), device_allocator(),
                                      /*resizable=*/true);
}

c10::Storage alias_storage(const c10::Storage& source, c10::Device device) {
  const auto bytes = static_cast<int64_t>(source.nbytes());
  if (device.type() == kDevice)
    return c10::Storage(create({}, bytes, borrow(source, device), device_allocator(), /*resizable=*/true));
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, borrow(source, device), c10::GetAllocator(device.type()),
                      /*resizable=*/true);
}

void adopt(const c10::Storage& storage, const c10::Storage& lender) {
  TORCH_CHECK(backend().host_accessible() && lender.nbytes() >= storage.nbytes(), "minitorch: a storage of ",
              storage.nbytes(), " bytes cannot stand on one of ", lender.nbytes());
  storage.set_data_ptr_noswap(borrow(lender, storage.device()));
}

c10::Storage lender_of(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() != &release) return {};
  c10::Storage lender(*static_cast<Lender*>(data.get_context()));
  return lender.data() == data.get() && lender.nbytes() >= storage.nbytes() ? lender : c10::Storage();
}

}  // namespace minitorch
