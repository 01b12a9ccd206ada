// A record of what the caching allocators do and, optionally, of where in the program it was asked for. Off unless
// somebody switches it on; what it costs then is one load an allocation.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace minitorch {

struct Block;

struct MemoryEvent {
  enum class Action : uint8_t { alloc, free_requested, free_completed, segment_alloc, segment_free, oom };
  Action action;
  int device;
  uintptr_t address;  // 0 for oom
  size_t size;
  int64_t stream;
  int64_t time_us;               // since the epoch
  size_t device_free;            // of oom
  std::shared_ptr<void> caller;  // what Options::gather returned; may be null
};

class MemoryTrace {
 public:
  // Which events the caller is gathered for: none, allocations of memory that is still held, all allocations, or frees
  // as well.
  enum class Callers : uint8_t { never, state, alloc, all };
  struct Options {
    bool history = true;  // false: only who made the memory that is held
    Callers callers = Callers::never;
    std::shared_ptr<void> (*gather)() = nullptr;  // called without any lock
    size_t most_events = SIZE_MAX;                // the latest ones stay
    bool clear = false;
  };

  static MemoryTrace& instance();

  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  void start(const Options& options);
  void stop();  // and forgets everything

  // Who asks; null if that is not recorded. Takes no lock, since gathering may wait for the interpreter's.
  std::shared_ptr<void> gather(bool freeing) const;
  void record(MemoryEvent event) noexcept;
  void hold(const Block* block, const std::shared_ptr<void>& caller) noexcept;
  void release(const Block* block) noexcept;

  std::vector<MemoryEvent> events(int device) const;
  std::shared_ptr<void> caller_of(const Block* block) const;

 private:
  std::atomic<bool> enabled_{false};
  std::atomic<Callers> callers_{Callers::never};
  std::atomic<std::shared_ptr<void> (*)()> gather_{nullptr};
  mutable std::mutex mutex_;
  Options options_;
  std::deque<MemoryEvent> events_;
  std::unordered_map<const Block*, std::shared_ptr<void>> held_;
};

}  // namespace minitorch
