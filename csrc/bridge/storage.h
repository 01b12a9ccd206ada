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

}  // namespace minitorch
