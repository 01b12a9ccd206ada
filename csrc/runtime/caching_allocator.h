// The caching allocator: keeps memory that was freed and hands it out again, so that a training step neither calls the
// system nor faults pages. One instance a device, and one for pinned host memory.
//
// A request goes
//   1. to the quick list of its exact size (up to 32 KiB): a pop, and a push when it is freed;
//   2. to the free blocks of its pool (free_bins.h), splitting one that is larger;
//   3. to the system for a new segment, after merging what waits in the quick lists;
//   4. if there is none, or the limit is reached: segments without a held block go back to the system one by one, the
//      largest first, until there is; then what streams still use is waited for and everything cached goes back;
//   5. if small, to the free blocks among the large ones, where it returns when it is freed;
//   6. and then it fails with OutOfMemory, which leaves the allocator as it was.
// Pools belong to a stream (one pair for all streams on a synchronous backend), because memory freed by the host may
// still be in use by the device: only the stream that used it is sure to be past that. record_stream tells of other
// streams; the block is then reused when events recorded on those have passed.
//
// Where pages can be given back (the CPU), free memory that has pages is bounded: all memory with pages stays below the
// most that client code ever held at once, plus a sixteenth and 8 MiB. Without this a process whose sizes vary would
// keep a multiple of what it needs.
//
// Everything is under one lock that is held for some ten nanoseconds on the fast path. Waits for events are made
// without it; taking memory from the system and giving it back happen under it, since they change the lists.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/free_bins.h"
#include "runtime/memory_trace.h"
#include "runtime/memory_stats.h"
#include "runtime/spin_lock.h"

namespace minitorch {

struct BlockInfo {
  uintptr_t address;
  size_t size, requested;  // requested: 0 unless held
  enum class State : uint8_t { inactive, held, pending } state;
  std::shared_ptr<void> caller;  // see memory_trace.h
};
struct SegmentInfo {
  uintptr_t address;
  size_t size;
  Stream stream;
  bool large, expandable;
  std::vector<BlockInfo> blocks;
};

class CachingAllocator {
 public:
  enum class Kind { device, pinned_host };
  static constexpr size_t kWholeDevice = SIZE_MAX - 1;  // a limit: all that the device has
  struct Options {
    Kind kind = Kind::device;
    size_t limit = SIZE_MAX;  // bytes that may be taken from the system
    bool poison = false;      // see poison.h
    bool expandable = false;  // segments that grow and shrink, where the backend has them
  };
  CachingAllocator(Backend& backend, int device, Options options);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;

  // Memory for work on `stream`. bytes > 0. Throws OutOfMemory, or std::runtime_error when damage was found.
  Block* allocate(size_t bytes, Stream stream);
  void deallocate(Block* block) noexcept;
  // `block` is used by `stream`, besides the one it was allocated for: it may be reused only after that work.
  void record_stream(Block* block, Stream stream);

  void empty_cache();
  // Limits the bytes taken from the system from now on. What is held stays.
  void set_limit(size_t bytes);
  size_t limit() const;

  MemoryStats stats();
  void reset_peak_stats();
  void reset_accumulated_stats();
  // All memory taken from the system, in the order of addresses, cut as it is now.
  std::vector<SegmentInfo> snapshot();
  // True if ptr lies in memory of this allocator.
  bool owns(const void* ptr);

  int device() const { return device_; }
  bool poison() const { return options_.poison; }

  // Around fork: the child must find the lock free and the lists whole.
  void lock_for_fork() { lock_.lock(); }
  void unlock_after_fork() { lock_.unlock(); }

 private:
  struct Pending {
    Event* event;
    Block* block;
    Stream stream;  // that the event was recorded on
  };

  Pool& pool_for(Stream stream, bool large);
  Block* allocate_locked(size_t size, size_t requested, Stream stream, const std::shared_ptr<void>& caller,
                         bool last_try);
  void count_held(Block* block, size_t requested);
  Block* take_free(Pool& pool, size_t size, int most_steps);
  Block* carve(Pool& pool, Block* block, size_t size);
  bool grow(Pool& pool, size_t size, const std::shared_ptr<void>& caller);
  bool expand(Pool& pool, size_t size, const std::shared_ptr<void>& caller);
  Segment* end_of(const AddressRange& range);
  size_t shrink(Block* block);
  Segment* add_segment(void* base, size_t size, Block* first, AddressRange* range, bool large);
  void drop_segment(Segment* segment, Pool& pool);
  void leave(AddressRange* range);
  void put_free(Block* block);
  void flush_quick_lists();
  size_t release_free_segments(size_t enough = SIZE_MAX);
  bool could_make_room(size_t size) const;
  void release_segment(Block* block);
  void bound_resident();
  void process_events();
  void wait_for_events();
  void insert_free(Block* block);
  void remove_free(Block* block);
  Block* new_node();
  void delete_node(Block* block);
  void arm_guards(Block* block, Stream stream);
  void check_guards(Block* block) noexcept;
  [[noreturn]] void throw_out_of_memory(size_t bytes);
  void trace(MemoryEvent::Action action, const void* address, size_t size, const Pool& pool,
             std::shared_ptr<void> caller);
  void* system_allocate(size_t bytes);
  void system_free(void* ptr, size_t bytes);

  Backend& backend_;
  const int device_;
  const Options options_;
  const bool by_stream_;  // pools differ by stream
  SpinLock lock_;
  mutable std::atomic<size_t> limit_;  // kWholeDevice until it is asked for: a GPU does not tell before it is used

  std::unique_ptr<Pool> default_pools_[2];  // of stream 0: small, large
  std::unordered_map<int64_t, std::unique_ptr<Pool>> other_pools_[2];
  std::map<uintptr_t, Segment*> segments_;
  std::vector<Pending> pending_;
  std::unordered_map<Block*, int> pending_events_;  // events that a block still waits for
  Block* spare_nodes_ = nullptr;
  std::vector<std::unique_ptr<Block[]>> node_chunks_;

  size_t quick_bytes_ = 0;     // waiting in quick lists
  size_t resident_ = 0;        // upper bound of bytes with physical pages
  size_t most_held_ = 0;       // peak of allocated bytes, never reset
  size_t resident_floor_ = 0;  // giving pages back is not tried again below this
  MemoryStats stats_;
  // Active memory is what is held plus what waits for events; only the latter is counted on its own.
  PoolStat pending_blocks_, pending_bytes_;
  int64_t active_peak_[PoolStat::kPools] = {}, active_bytes_peak_[PoolStat::kPools] = {};
};

// Gives a block back to the allocator that made it.
void free_block(Block* block) noexcept;

// The stream that a block was made for, and that reuses it.
Stream stream_of(const Block* block);

}  // namespace minitorch
