// The figures that the caching allocator keeps, with the names and the meaning of torch.cuda.memory_stats.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace minitorch {

struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
  void increase(int64_t n) {
    current += n;
    allocated += n;
    peak = std::max(peak, current);
  }
  void decrease(int64_t n) {
    current -= n;
    freed += n;
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }
};

// One figure for all memory and for each pool: requests up to 1 MiB go to the small pool.
struct PoolStat {
  enum { kAll, kSmall, kLarge, kPools };
  Stat stat[kPools];
  void increase(bool large, int64_t n) {
    stat[kAll].increase(n);
    stat[kSmall + large].increase(n);
  }
  void decrease(bool large, int64_t n) {
    stat[kAll].decrease(n);
    stat[kSmall + large].decrease(n);
  }
};

struct MemoryStats {
  PoolStat allocation, allocated_bytes;           // blocks that client code holds
  PoolStat requested_bytes;                       // what it asked for, before rounding
  PoolStat active, active_bytes;                  // held, or freed while a stream still uses them
  PoolStat segment, reserved_bytes;               // taken from the system
  PoolStat inactive_split, inactive_split_bytes;  // free, but in a segment that is partly held
  int64_t num_alloc_retries = 0;                  // the system had none, so the cache was given back
  int64_t num_ooms = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0, num_device_free = 0;

  template <class F>
  void for_each(F&& f) {
    f("allocation", allocation);
    f("segment", segment);
    f("active", active);
    f("inactive_split", inactive_split);
    f("allocated_bytes", allocated_bytes);
    f("reserved_bytes", reserved_bytes);
    f("active_bytes", active_bytes);
    f("inactive_split_bytes", inactive_split_bytes);
    f("requested_bytes", requested_bytes);
  }
};

// The flat form that torch.cuda.memory_stats has: "allocated_bytes.all.current" and so on.
std::vector<std::pair<std::string, int64_t>> flatten(MemoryStats stats);

}  // namespace minitorch
