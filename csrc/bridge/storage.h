// Our storage object. PyTorch's generic code makes it through the storage factory, our own through make_storage.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace minitorch {

struct Block;

// A c10 storage whose memory is a block of the caching allocator. Views share it by counting references. Memory may
// also have been adopted from elsewhere (an alias of a host tensor, a buffer of another library): then it has no block.
class Storage final : public c10::StorageImpl {
 public:
  using c10::StorageImpl::StorageImpl;

  // The block, which knows its size class, its stream and, with MINITORCH_POISON=1, the operator that made it.
  const Block* block() const;
  // The block behind a tensor; null when its memory was adopted from elsewhere or is empty.
  static const Block* block_of(const at::Tensor& tensor);
};

// Uninitialised, resizable storage on the current device.
c10::intrusive_ptr<c10::StorageImpl> make_storage(size_t bytes);

// Where device memory is host memory, a storage of one can stand on the memory of the other.
//
// The memory of `source` seen from `device`; keeps the source alive.
c10::Storage alias_storage(const c10::Storage& source, c10::Device device);
// Makes `storage` give up its memory for that of `lender`, which is at least as large. Contents are not copied.
void adopt(const c10::Storage& storage, const c10::Storage& lender);
// The storage whose memory `storage` stands on; an empty handle if that is its own.
c10::Storage lender_of(const c10::Storage& storage);

}  // namespace minitorch
