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

}  // namespace minitorch
