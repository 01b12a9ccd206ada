// The caching allocator's dealings with the system: segments that it takes, that grow, and that it gives back.
#include <algorithm>
#include <iterator>
#include <mutex>

#include "runtime/caching_allocator.h"
#include "runtime/pool.h"

namespace minitorch {

namespace {

constexpr size_t kSmallestGrowth[2] = {size_t{2} << 20, size_t{16} << 20};
constexpr size_t kLargestGrowth = size_t{32} << 20;
constexpr size_t kResidentSlack = size_t{8} << 20;
constexpr size_t kSmallestDecommit = size_t{4} << 20;  // holds a whole huge page at any alignment

}  // namespace

Segment* CachingAllocator::add_segment(void* base, size_t size, Block* first, AddressRange* range, bool large) {
  auto* const segment = new Segment{static_cast<char*>(base), size, device_, first, range};
  segments_.emplace(reinterpret_cast<uintptr_t>(base), segment);
  stats_.segment.increase(large, 1);
  if (range != nullptr) range->segments++;
  return segment;
}

// One segment fewer in a range, which goes with the last.
void CachingAllocator::leave(AddressRange* range) {
  if (--range->segments > 0) return;
  backend_.release_addresses(device_, range->base, range->size);
  delete range;
}

// Forgets a segment that has no memory any more.
void CachingAllocator::drop_segment(Segment* segment, Pool& pool) {
  stats_.segment.decrease(pool.large, 1);
  segments_.erase(reinterpret_cast<uintptr_t>(segment->base));
  if (AddressRange* const range = segment->range; range != nullptr) {
    if (range == pool.growing && range->segments == 1) pool.growing = nullptr;
    leave(range);
  }
  delete segment;
}

// The segment that ends where a range grows.
Segment* CachingAllocator::end_of(const AddressRange& range) {
  const auto next = segments_.lower_bound(reinterpret_cast<uintptr_t>(range.end));
  return std::prev(next)->second;
}

// Puts memory behind the end of the pool's growing segment, which joins a free block there, so that a block of `size`
// bytes is free. Called when there is none.
bool CachingAllocator::expand(Pool& pool, size_t size, const std::shared_ptr<void>& caller) {
  AddressRange* range = pool.growing;
  Block* last = range != nullptr ? end_of(*range)->first : nullptr;
  while (last != nullptr && last->after != nullptr) last = last->after;
  size_t tail = last != nullptr && last->state == Block::State::free ? last->size : 0;
  if (range != nullptr && round_up(size - tail, kSegmentAlignment) > range->room()) {
    range = nullptr;  // holes have used the addresses up: others are taken
    last = nullptr;
    tail = 0;
  }
  const size_t exact = round_up(size - tail, kSegmentAlignment);
  AddressRange fresh;
  if (range == nullptr) {
    fresh.size = round_up(backend_.memory_info(device_).total, kSegmentAlignment);
    if (fresh.size < exact) return false;
    fresh.base = fresh.end = static_cast<char*>(backend_.reserve_addresses(device_, fresh.size));
    if (fresh.base == nullptr) return false;
  }
  char* const end = range != nullptr ? range->end : fresh.end;
  const size_t room = range != nullptr ? range->room() : fresh.room();
  const size_t reserved = static_cast<size_t>(stats_.reserved_bytes.stat[PoolStat::kAll].current);
  for (const size_t bytes : {std::max(exact, kSmallestGrowth[pool.large]), exact}) {
    if (reserved + bytes > limit() || bytes > room || !backend_.system_commit(device_, end, bytes)) continue;
    Segment* segment;
    if (range == nullptr) {
      pool.growing = range = new AddressRange(fresh);
      segment = add_segment(end, bytes, nullptr, range, pool.large);
    } else {
      segment = end_of(*range);
      segment->size += bytes;
    }
    range->end += bytes;
    stats_.num_device_alloc++;
    stats_.reserved_bytes.increase(pool.large, static_cast<int64_t>(bytes));
    if (tail > 0) {
      remove_free(last);
      last->size += bytes;
    } else {
      Block* const block = new_node();
      block->base = end;
      block->size = bytes;
      block->pool = &pool;
      block->segment = segment;
      block->before = last;
      (last != nullptr ? last->after : segment->first) = block;
      last = block;
    }
    insert_free(last);
    trace(MemoryEvent::Action::segment_alloc, end, bytes, pool, caller);
    return true;
  }
  if (range == nullptr) backend_.release_addresses(device_, fresh.base, fresh.size);
  return false;
}

// Takes the memory of a free block of a growing segment away, but for the ends that share pieces with its neighbours.
// What lies behind it becomes a segment of its own. Returns how many bytes went.
size_t CachingAllocator::shrink(Block* block) {
  Segment* const segment = block->segment;
  AddressRange* const range = segment->range;
  Pool& pool = *block->pool;
  char* const base = block->base;
  char* const end = base + block->size;
  char* const segment_end = segment->base + segment->size;
  const auto aligned = [](size_t address) { return reinterpret_cast<char*>(address); };
  char* const from = aligned(round_up(reinterpret_cast<uintptr_t>(base), kSegmentAlignment));
  char* const to = aligned(reinterpret_cast<uintptr_t>(end) / kSegmentAlignment * kSegmentAlignment);
  if (from >= to) return 0;
  const size_t bytes = to - from, front = from - base, rear = end - to;
  if (!backend_.system_decommit(device_, from, bytes)) return 0;
  trace(MemoryEvent::Action::segment_free, from, bytes, pool, nullptr);
  stats_.num_device_free++;
  stats_.reserved_bytes.decrease(pool.large, static_cast<int64_t>(bytes));
  remove_free(block);
  Block* behind = block->after;
  if (behind != nullptr) behind->before = nullptr;
  if (rear > 0) {
    Block* const rest = new_node();
    rest->base = to;
    rest->size = rear;
    rest->pool = &pool;
    rest->after = behind;
    if (behind != nullptr) behind->before = rest;
    behind = rest;
  }
  resident_ -= block->resident;  // of the ends nothing is known: no pages are given back where segments grow
  block->resident = 0;
  if (front > 0) {
    block->size = front;
    block->after = nullptr;
    insert_free(block);
  } else {
    (block->before != nullptr ? block->before->after : segment->first) = nullptr;
    delete_node(block);
  }
  segment->size = from - segment->base;
  if (behind != nullptr) {
    Segment* const other = add_segment(to, segment_end - to, behind, range, pool.large);
    for (Block* b = behind; b != nullptr; b = b->after) b->segment = other;
    if (rear > 0) insert_free(behind);
  } else if (segment_end == range->end) {
    range->end = from;
    if (segment->size == 0 && range->segments > 1) {  // back to the end of the segment before
      const Segment* const previous = std::prev(segments_.find(reinterpret_cast<uintptr_t>(segment->base)))->second;
      range->end = previous->base + previous->size;
    }
  }
  if (segment->size == 0) drop_segment(segment, pool);
  return bytes;
}

bool CachingAllocator::grow(Pool& pool, size_t size, const std::shared_ptr<void>& caller) {
  if (options_.expandable && options_.kind == Kind::device && expand(pool, size, caller)) return true;
  const size_t reserved = static_cast<size_t>(stats_.reserved_bytes.stat[PoolStat::kAll].current);
  const size_t exact = round_up(size, kSegmentAlignment);
  const size_t growth =
      std::clamp(round_up(reserved / 8, kSegmentAlignment), kSmallestGrowth[pool.large], kLargestGrowth);
  for (const size_t bytes : {std::max(exact, growth), exact, round_up(size, kSmallestSegment)}) {
    if (reserved + bytes > limit()) continue;
    void* const base = system_allocate(bytes);
    if (base == nullptr) continue;
    stats_.num_device_alloc++;
    stats_.reserved_bytes.increase(pool.large, static_cast<int64_t>(bytes));
    Block* block = new_node();
    block->base = static_cast<char*>(base);
    block->size = bytes;
    block->pool = &pool;
    block->segment = add_segment(base, bytes, block, nullptr, pool.large);
    insert_free(block);
    trace(MemoryEvent::Action::segment_alloc, base, bytes, pool, caller);
    return true;
  }
  return false;
}

// Gives back a free block that is a whole segment.
void CachingAllocator::release_segment(Block* block) {
  Pool& pool = *block->pool;
  Segment* const segment = block->segment;
  trace(MemoryEvent::Action::segment_free, segment->base, segment->size, pool, nullptr);
  remove_free(block);
  resident_ -= block->resident;
  delete_node(block);
  stats_.reserved_bytes.decrease(pool.large, static_cast<int64_t>(segment->size));
  stats_.num_device_free++;
  system_free(segment->base, segment->size);
  drop_segment(segment, pool);
}

// Gives segments without a held block back, and what is free of those that grow, the largest of each pool first, until
// `enough` bytes have gone. Returns how many went.
size_t CachingAllocator::release_free_segments(size_t enough) {
  size_t released = 0;
  const auto release = [&](Pool& pool) {
    pool.bins.for_each_descending([&](Block* block) {
      if (released >= enough) return false;
      if (block->segment->range != nullptr) {
        released += shrink(block);
      } else if (block->whole_segment()) {
        released += block->size;
        release_segment(block);
      }
      return true;
    });
  };
  for (const bool large : {true, false}) {
    release(*default_pools_[large]);
    for (auto& [id, pool] : other_pools_[large]) release(*pool);
  }
  return released;
}

// Whether `size` bytes would be free if everything cached were given back.
bool CachingAllocator::could_make_room(size_t size) const {
  const int64_t cached =
      stats_.reserved_bytes.stat[PoolStat::kAll].current - stats_.allocated_bytes.stat[PoolStat::kAll].current;
  if (cached <= 0 || options_.kind != Kind::device) return false;
  return size <= static_cast<size_t>(cached) + backend_.memory_info(device_).free;
}

void CachingAllocator::empty_cache() {
  std::lock_guard guard(lock_);
  if (!pending_.empty()) process_events();
  flush_quick_lists();
  release_free_segments();
  resident_floor_ = 0;
}

// Keeps the memory that has pages below what was held at most, plus slack: gives pages of free blocks back, the largest
// first. When that does not reach, for free blocks are small, it is tried again only 8 MiB later.
void CachingAllocator::bound_resident() {
  if (!backend_.host_accessible()) return;  // a GPU's memory has no pages to give back, and freeing it waits for it
  const size_t held = static_cast<size_t>(stats_.allocated_bytes.stat[PoolStat::kAll].current);
  most_held_ = std::max(most_held_, held);
  const size_t bound = most_held_ + most_held_ / 16 + kResidentSlack;
  if (resident_ <= std::max(bound, resident_floor_)) return;
  flush_quick_lists();
  bool possible = true;
  const auto give_back = [&](Pool& pool) {
    pool.bins.for_each_descending([&](Block* block) {
      if (!possible || resident_ <= bound || block->size < kSmallestDecommit) return false;
      if (block->resident == 0) return true;
      if (block->whole_segment()) {
        release_segment(block);
        return true;
      }
      const uintptr_t begin = round_up(reinterpret_cast<uintptr_t>(block->base), kSegmentAlignment);
      const uintptr_t end =
          (reinterpret_cast<uintptr_t>(block->base) + block->size) / kSegmentAlignment * kSegmentAlignment;
      possible = backend_.system_decommit(device_, reinterpret_cast<void*>(begin), end - begin);
      if (!possible) return false;
      const size_t edges = std::min(block->size - (end - begin), block->resident);
      resident_ -= block->resident - edges;
      block->resident = edges;
      return true;
    });
  };
  give_back(*default_pools_[true]);
  for (auto& [id, pool] : other_pools_[true]) give_back(*pool);
  give_back(*default_pools_[false]);
  resident_floor_ = resident_ > bound ? resident_ + kResidentSlack : 0;
}

void* CachingAllocator::system_allocate(size_t bytes) {
  return options_.kind == Kind::device ? backend_.system_allocate(device_, bytes) : backend_.host_allocate(bytes);
}

void CachingAllocator::system_free(void* ptr, size_t bytes) {
  if (options_.kind == Kind::device) {
    backend_.system_free(device_, ptr, bytes);
  } else {
    backend_.host_free(ptr, bytes);
  }
}

bool CachingAllocator::owns(const void* ptr) {
  std::lock_guard guard(lock_);
  const uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
  auto next = segments_.upper_bound(address);
  if (next == segments_.begin()) return false;
  --next;
  return address < next->first + next->second->size;
}

std::vector<SegmentInfo> CachingAllocator::snapshot() {
  std::vector<SegmentInfo> found;
  std::lock_guard guard(lock_);
  if (!pending_.empty()) process_events();
  for (const auto& [base, segment] : segments_) {
    const Pool& pool = *segment->first->pool;
    SegmentInfo& info =
        found.emplace_back(SegmentInfo{base, segment->size, pool.stream, pool.large, segment->range != nullptr, {}});
    for (const Block* block = segment->first; block != nullptr; block = block->after) {
      const bool held = block->state == Block::State::held;
      const auto state = held                                    ? BlockInfo::State::held
                         : block->state == Block::State::pending ? BlockInfo::State::pending
                                                                 : BlockInfo::State::inactive;
      info.blocks.push_back({reinterpret_cast<uintptr_t>(block->base), block->size, held ? block->requested : 0, state,
                             held ? MemoryTrace::instance().caller_of(block) : nullptr});
    }
  }
  return found;
}

}  // namespace minitorch
