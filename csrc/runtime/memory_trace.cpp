// See memory_trace.h.
#include "runtime/memory_trace.h"

#include <omp.h>

#include <chrono>

namespace minitorch {

MemoryTrace& MemoryTrace::instance() {
  static MemoryTrace& trace = *new MemoryTrace;  // memory is freed until the process's end
  return trace;
}

void MemoryTrace::start(const Options& options) {
  const std::lock_guard lock(mutex_);
  options_ = options;
  if (options.clear) events_.clear();
  while (events_.size() > options.most_events) events_.pop_front();
  gather_ = options.gather;
  callers_ = options.gather == nullptr ? Callers::never : options.callers;
  enabled_ = true;
}

void MemoryTrace::stop() {
  const std::lock_guard lock(mutex_);
  enabled_ = false;
  callers_ = Callers::never;
  events_.clear();
  held_.clear();
}

std::shared_ptr<void> MemoryTrace::gather(bool freeing) const {
  const Callers callers = callers_;
  // A worker of a parallel loop has no caller of its own, and whoever waits for it may hold what gathering waits for.
  if (omp_get_thread_num() > 0) return nullptr;
  if (callers == Callers::never || (freeing && callers != Callers::all)) return nullptr;
  return gather_.load()();
}

void MemoryTrace::record(MemoryEvent event) noexcept {
  using namespace std::chrono;
  event.time_us = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  const std::lock_guard lock(mutex_);
  if (!enabled_ || !options_.history || options_.most_events == 0) return;
  if (options_.callers == Callers::state) event.caller = nullptr;
  try {
    if (events_.size() == options_.most_events) events_.pop_front();
    events_.push_back(std::move(event));
  } catch (const std::bad_alloc&) {
    // A gap in the record is better than a process that ends for it.
  }
}

void MemoryTrace::hold(const Block* block, const std::shared_ptr<void>& caller) noexcept {
  if (caller == nullptr) return;
  const std::lock_guard lock(mutex_);
  try {
    if (enabled_) held_[block] = caller;
  } catch (const std::bad_alloc&) {
  }
}

void MemoryTrace::release(const Block* block) noexcept {
  const std::lock_guard lock(mutex_);
  held_.erase(block);
}

std::vector<MemoryEvent> MemoryTrace::events(int device) const {
  std::vector<MemoryEvent> found;
  const std::lock_guard lock(mutex_);
  for (const MemoryEvent& event : events_)
    if (event.device == device) found.push_back(event);
  return found;
}

std::shared_ptr<void> MemoryTrace::caller_of(const Block* block) const {
  const std::lock_guard lock(mutex_);
  const auto entry = held_.find(block);
  return entry == held_.end() ? nullptr : entry->second;
}

}  // namespace minitorch
