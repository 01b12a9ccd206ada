// The caching allocator's fast path, its pools and its statistics; see caching_allocator.h for the scheme.
#include "runtime/caching_allocator.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/macros.h"
#include "runtime/errors.h"
#include "runtime/poison.h"
#include "runtime/pool.h"

namespace minitorch {

namespace {

constexpr size_t kMostQuickBytes = size_t{8} << 20;                // waiting in quick lists before they are merged
constexpr size_t kSmallestRemainder[2] = {kBlockAlignment, 4096};  // worth its own block, in the small and large pool
constexpr int kNearFits = 16;
constexpr int kAllFits = 1 << 30;

}  // namespace

CachingAllocator::CachingAllocator(Backend& backend, int device, Options options)
    : backend_(backend),
      device_(device),
      options_(options),
      by_stream_(!backend.synchronous() && options.kind == Kind::device),
      limit_(options.limit) {
  for (const bool large : {false, true}) default_pools_[large] = std::make_unique<Pool>(this, Stream{device, 0}, large);
}

CachingAllocator::~CachingAllocator() {
  for (const Pending& pending : pending_) backend_.destroy_event(pending.event);
  for (const auto& [base, segment] : segments_) {
    if (segment->range != nullptr) {
      backend_.system_decommit(device_, segment->base, segment->size);
      leave(segment->range);
    } else {
      system_free(segment->base, segment->size);
    }
    delete segment;
  }
}

Pool& CachingAllocator::pool_for(Stream stream, bool large) {
  if (!by_stream_ || stream.id == 0) return *default_pools_[large];
  std::unique_ptr<Pool>& pool = other_pools_[large][stream.id];
  if (pool == nullptr) pool = std::make_unique<Pool>(this, stream, large);
  return *pool;
}

Block* CachingAllocator::allocate(size_t bytes, Stream stream) {
  if (options_.poison) throw_if_memory_was_damaged();
  const size_t padded = bytes + (options_.poison ? 2 * kCanaryBytes : 0);
  if (padded < bytes || padded > (size_t{1} << 47)) throw_out_of_memory(bytes);
  const size_t size = round_block_size(padded);
  const std::shared_ptr<void> caller =
      MemoryTrace::instance().enabled() ? MemoryTrace::instance().gather(false) : nullptr;
  Block* block;
  {
    std::lock_guard guard(lock_);
    block = allocate_locked(size, bytes, stream, caller, false);
    stats_.num_alloc_retries += block == nullptr;
    if (block == nullptr && could_make_room(size)) {
      flush_quick_lists();
      while (block == nullptr && release_free_segments(1) > 0)
        block = allocate_locked(size, bytes, stream, caller, false);
    }
  }
  if (block == nullptr) {
    // The slow way out: everything that streams still use is waited for, and everything cached is given back.
    wait_for_events();
    empty_cache();
    std::lock_guard guard(lock_);
    block = allocate_locked(size, bytes, stream, caller, true);
    if (block == nullptr) {
      stats_.num_ooms++;
      trace(MemoryEvent::Action::oom, nullptr, bytes, pool_for(stream, size > kSmallLimit), caller);
    }
  }
  if (block == nullptr) throw_out_of_memory(bytes);
  if (options_.poison) arm_guards(block, stream);
  return block;
}

// Notes an event, if anybody wants to know.
void CachingAllocator::trace(MemoryEvent::Action action, const void* address, size_t size, const Pool& pool,
                             std::shared_ptr<void> caller) {
  MemoryTrace& events = MemoryTrace::instance();
  if (MT_LIKELY(!events.enabled()) || options_.kind != Kind::device) return;
  const bool failed = action == MemoryEvent::Action::oom;
  events.record({action, device_, reinterpret_cast<uintptr_t>(address), size, pool.stream.id, 0,
                 failed ? backend_.memory_info(device_).free : 0, std::move(caller)});
}

Block* CachingAllocator::allocate_locked(size_t size, size_t requested, Stream stream,
                                         const std::shared_ptr<void>& caller, bool last_try) {
  if (!pending_.empty()) process_events();
  const bool large = size > kSmallLimit;
  Pool& pool = pool_for(stream, large);
  Block* block = nullptr;
  if (size <= kQuickLimit) {
    Block*& quick = pool.quick[quick_class(size)];
    if (quick != nullptr) {
      block = quick;
      quick = block->next;
      quick_bytes_ -= size;
    }
  }
  const bool from_bins = block == nullptr;
  if (from_bins) {
    block = take_free(pool, size, kNearFits);
    if (block == nullptr && quick_bytes_ > 0) {
      flush_quick_lists();
      block = take_free(pool, size, kNearFits);
    }
    if (block == nullptr) block = take_free(pool, size, kAllFits);
    if (block == nullptr) {
      if (grow(pool, size, caller)) {
        block = take_free(pool, size, kAllFits);
      } else if (last_try && !large) {
        block = take_free(pool_for(stream, true), round_up(size, kSmallestRemainder[true]), kAllFits);
      }
      if (block == nullptr) return nullptr;
    }
  }
  count_held(block, requested);
  if (from_bins) bound_resident();
  if (MT_UNLIKELY(MemoryTrace::instance().enabled())) {
    MemoryTrace::instance().hold(block, caller);
    trace(MemoryEvent::Action::alloc, block->base, block->size, *block->pool, caller);
  }
  return block;
}

void CachingAllocator::count_held(Block* block, size_t requested) {
  const bool large = block->pool->large;
  block->state = Block::State::held;
  block->requested = requested;
  stats_.allocation.increase(large, 1);
  stats_.allocated_bytes.increase(large, static_cast<int64_t>(block->size));
  stats_.requested_bytes.increase(large, static_cast<int64_t>(requested));
}

void CachingAllocator::deallocate(Block* block) noexcept {
  if (options_.poison) check_guards(block);
  MemoryTrace& events = MemoryTrace::instance();
  const bool traced = events.enabled();
  const std::shared_ptr<void> caller = traced ? events.gather(true) : nullptr;
  std::lock_guard guard(lock_);
  Pool& pool = *block->pool;
  if (MT_UNLIKELY(traced)) {
    events.release(block);
    trace(MemoryEvent::Action::free_requested, block->base, block->size, pool, caller);
    if (block->uses == nullptr) trace(MemoryEvent::Action::free_completed, block->base, block->size, pool, caller);
  }
  stats_.allocation.decrease(pool.large, 1);
  stats_.allocated_bytes.decrease(pool.large, static_cast<int64_t>(block->size));
  stats_.requested_bytes.decrease(pool.large, static_cast<int64_t>(block->requested));
  if (__builtin_expect(block->uses != nullptr, 0)) {
    block->state = Block::State::pending;
    pending_blocks_.increase(pool.large, 1);
    pending_bytes_.increase(pool.large, static_cast<int64_t>(block->size));
    for (const int i : {int{PoolStat::kAll}, PoolStat::kSmall + pool.large}) {
      active_peak_[i] = std::max(active_peak_[i], stats_.allocation.stat[i].current + pending_blocks_.stat[i].current);
      active_bytes_peak_[i] =
          std::max(active_bytes_peak_[i], stats_.allocated_bytes.stat[i].current + pending_bytes_.stat[i].current);
    }
    try {
      for (const Stream stream : *block->uses) {
        Event* event = backend_.create_event(stream.device, false);
        backend_.record_event(event, stream);
        pending_.push_back({event, block, stream});
        pending_events_[block]++;
      }
    } catch (const std::exception&) {
      // The device is gone, after a fault or because the process ends: nobody knows when the streams are done with the
      // block, so it is never handed out again.
      pending_events_[block]++;
    }
    delete std::exchange(block->uses, nullptr);
  } else if (block->size <= kQuickLimit && !pool.large) {
    Block*& quick = pool.quick[quick_class(block->size)];
    block->state = Block::State::quick;
    block->next = quick;
    quick = block;
    quick_bytes_ += block->size;
    if (quick_bytes_ > kMostQuickBytes) flush_quick_lists();
  } else {
    put_free(block);
  }
}

void free_block(Block* block) noexcept { block->pool->owner->deallocate(block); }

Stream stream_of(const Block* block) { return block->pool->stream; }

void CachingAllocator::record_stream(Block* block, Stream stream) {
  // Pinned memory has no stream of its own: whatever device copies from or to it is waited for.
  if (backend_.synchronous() || (by_stream_ && stream == block->pool->stream)) return;
  std::lock_guard guard(lock_);
  if (block->uses == nullptr) block->uses = new std::vector<Stream>;
  if (std::find(block->uses->begin(), block->uses->end(), stream) == block->uses->end()) block->uses->push_back(stream);
}

// Reuses blocks whose other streams have passed their events. A stream passes its events in order, so behind one that
// is to come none of the same stream is asked for. Asking for an event throws when the device has a fault: what was not
// asked for yet stays.
void CachingAllocator::process_events() {
  size_t kept = 0, asked = 0;
  std::vector<Stream> behind;
  const auto drop_done = [&] { pending_.erase(pending_.begin() + kept, pending_.begin() + asked); };
  try {
    for (; asked < pending_.size(); asked++) {
      const Pending pending = pending_[asked];
      const bool waits = std::find(behind.begin(), behind.end(), pending.stream) != behind.end();
      if (waits || !backend_.query_event(pending.event)) {
        if (!waits) behind.push_back(pending.stream);
        pending_[kept++] = pending;
        continue;
      }
      backend_.destroy_event(pending.event);
      if (--pending_events_[pending.block] > 0) continue;
      pending_events_.erase(pending.block);
      const bool large = pending.block->pool->large;
      pending_blocks_.decrease(large, 1);
      pending_bytes_.decrease(large, static_cast<int64_t>(pending.block->size));
      trace(MemoryEvent::Action::free_completed, pending.block->base, pending.block->size, *pending.block->pool,
            nullptr);
      put_free(pending.block);
    }
  } catch (const std::exception&) {
    drop_done();
    throw;
  }
  drop_done();
}

// Of the streams that still use freed blocks, some may be another device's.
void CachingAllocator::wait_for_events() {
  std::vector<int> devices;
  {
    std::lock_guard guard(lock_);
    if (pending_.empty()) return;
    stats_.num_sync_all_streams++;
    for (const Pending& pending : pending_)
      if (std::find(devices.begin(), devices.end(), pending.event->device) == devices.end())
        devices.push_back(pending.event->device);
  }
  for (const int device : devices) backend_.synchronize_device(device);
}

// ---- Free blocks ----------------------------------------------------------------------------------------------------

Block* CachingAllocator::take_free(Pool& pool, size_t size, int most_steps) {
  Block* block = pool.bins.find(size, most_steps);
  return block == nullptr ? nullptr : carve(pool, block, size);
}

// Takes `block` out of the bins and cuts what is left over the size off its end.
Block* CachingAllocator::carve(Pool& pool, Block* block, size_t size) {
  remove_free(block);
  if (block->size - size >= kSmallestRemainder[pool.large]) {
    Block* rest = new_node();
    rest->base = block->base + size;
    rest->size = block->size - size;
    rest->pool = &pool;
    rest->segment = block->segment;
    // Which pages of a free block are there is not known; its front is the likelier part.
    rest->resident = block->resident - std::min(block->resident, size);
    block->resident -= rest->resident;
    rest->before = block;
    rest->after = block->after;
    if (rest->after) rest->after->before = rest;
    block->after = rest;
    block->size = size;
    insert_free(rest);
  }
  resident_ += block->size - block->resident;
  block->resident = block->size;
  return block;
}

// Merges a block with its free neighbours and files it.
void CachingAllocator::put_free(Block* block) {
  const auto absorb = [&](Block* left, Block* right) {
    left->size += right->size;
    left->resident += right->resident;
    left->after = right->after;
    if (left->after) left->after->before = left;
    delete_node(right);
    return left;
  };
  if (Block* left = block->before; left && left->state == Block::State::free) {
    remove_free(left);
    block = absorb(left, block);
  }
  if (Block* right = block->after; right && right->state == Block::State::free) {
    remove_free(right);
    block = absorb(block, right);
  }
  insert_free(block);
}

void CachingAllocator::insert_free(Block* block) {
  block->pool->bins.insert(block);
  if (block->whole_segment()) return;
  stats_.inactive_split.increase(block->pool->large, 1);
  stats_.inactive_split_bytes.increase(block->pool->large, static_cast<int64_t>(block->size));
}

void CachingAllocator::remove_free(Block* block) {
  block->pool->bins.remove(block);
  if (block->whole_segment()) return;
  stats_.inactive_split.decrease(block->pool->large, 1);
  stats_.inactive_split_bytes.decrease(block->pool->large, static_cast<int64_t>(block->size));
}

void CachingAllocator::flush_quick_lists() {
  const auto flush = [&](Pool& pool) {
    for (Block*& list : pool.quick)
      for (Block* block = std::exchange(list, nullptr); block != nullptr;) {
        Block* const following = block->next;
        put_free(block);
        block = following;
      }
  };
  flush(*default_pools_[false]);
  for (auto& [id, pool] : other_pools_[false]) flush(*pool);
  quick_bytes_ = 0;
}

Block* CachingAllocator::new_node() {
  if (spare_nodes_ == nullptr) {
    constexpr int kChunk = 256;
    node_chunks_.push_back(std::make_unique<Block[]>(kChunk));
    for (int i = kChunk - 1; i >= 0; i--) delete_node(&node_chunks_.back()[i]);
  }
  Block* node = spare_nodes_;
  spare_nodes_ = node->next;
  *node = Block{};
  return node;
}

void CachingAllocator::delete_node(Block* block) {
  block->next = spare_nodes_;
  spare_nodes_ = block;
}

}  // namespace minitorch
