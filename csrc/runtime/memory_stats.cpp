// Statistics of memory under the names that PyTorch gives them.
#include "runtime/memory_stats.h"

namespace minitorch {

std::vector<std::pair<std::string, int64_t>> flatten(MemoryStats stats) {
  std::vector<std::pair<std::string, int64_t>> flat;
  static constexpr const char* kPoolNames[PoolStat::kPools] = {"all", "small_pool", "large_pool"};
  stats.for_each([&](const std::string& name, const PoolStat& figure) {
    for (int pool = 0; pool < PoolStat::kPools; pool++) {
      const std::string prefix = name + "." + kPoolNames[pool] + ".";
      const Stat& stat = figure.stat[pool];
      flat.emplace_back(prefix + "current", stat.current);
      flat.emplace_back(prefix + "peak", stat.peak);
      flat.emplace_back(prefix + "allocated", stat.allocated);
      flat.emplace_back(prefix + "freed", stat.freed);
    }
  });
  flat.emplace_back("num_alloc_retries", stats.num_alloc_retries);
  flat.emplace_back("num_ooms", stats.num_ooms);
  flat.emplace_back("num_sync_all_streams", stats.num_sync_all_streams);
  flat.emplace_back("num_device_alloc", stats.num_device_alloc);
  flat.emplace_back("num_device_free", stats.num_device_free);
  return flat;
}

}  // namespace minitorch
