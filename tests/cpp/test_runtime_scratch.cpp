// Scratch memory of CPU kernels: where it comes from, and what happens when there is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "core/parallel.h"
#include "memory.h"
#include "runtime/device_memory.h"
#include "runtime/errors.h"
#include "runtime/memory_trace.h"
#include "runtime/scratch.h"

namespace minitorch {
namespace {

int64_t held() { return caching_allocator(0).stats().allocated_bytes.stat[PoolStat::kAll].current; }

TEST(Scratch, IsTheAllocatorsFromItsThresholdOn) {
  MT_CPU_ONLY();
  const int64_t before = held();
  const ScratchMemory small = take_scratch(kSharedScratch - 1);
  EXPECT_EQ(small.block, nullptr);
  EXPECT_EQ(held(), before);
  const ScratchMemory large = take_scratch(kSharedScratch);
  ASSERT_NE(large.block, nullptr);
  EXPECT_GE(held() - before, static_cast<int64_t>(kSharedScratch));
  for (const ScratchMemory& memory : {small, large}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data) % 64, 0u);
    give_back_scratch(memory);
  }
  EXPECT_EQ(held(), before);
}

TEST(Scratch, IsTheSameMemoryInTheNextCall) {
  MT_CPU_ONLY();
  const ScratchMemory first = take_scratch(size_t{5} << 20);
  give_back_scratch(first);
  const ScratchMemory second = take_scratch(size_t{5} << 20);
  EXPECT_EQ(first.data, second.data);
  give_back_scratch(second);
}

TEST(Scratch, ThreadsOfAParallelLoopTakeTheirOwn) {
  MT_CPU_ONLY();
  const int64_t before = held();
  std::atomic<int> wrong{0};
  parallel_for(256, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const size_t n = kSharedScratch + static_cast<size_t>(i) * 1024;
      const ScratchMemory memory = take_scratch(n);
      char* const data = static_cast<char*>(memory.data);
      std::fill(data, data + n, static_cast<char>(i));
      wrong += std::count(data, data + n, static_cast<char>(i)) != static_cast<int64_t>(n);
      give_back_scratch(memory);
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(held(), before);
}

TEST(Scratch, RunningOutIsOutOfMemoryAndLosesNothing) {
  MT_CPU_ONLY();
  const int64_t before = held();
  EXPECT_THROW(take_scratch(size_t{1} << 50), OutOfMemory);
  parallel_for(1, 1, [](int64_t, int64_t) {});
  EXPECT_THROW(parallel_for(4, 1, [](int64_t, int64_t) { give_back_scratch(take_scratch(size_t{1} << 50)); }),
               OutOfMemory);
  EXPECT_EQ(held(), before);
}

std::atomic<int> gathered{0};
std::shared_ptr<void> count_gathering() {
  if (omp_get_thread_num() > 0) throw std::logic_error("gathered on a worker");
  gathered++;
  return nullptr;
}

// Gathering waits for the interpreter's lock, which the thread that waits for the workers may hold.
TEST(Scratch, WorkersDoNotGatherCallers) {
  MT_CPU_ONLY();
  MemoryTrace::Options options;
  options.callers = MemoryTrace::Callers::all;
  options.gather = &count_gathering;
  MemoryTrace::instance().start(options);
  gathered = 0;
  std::atomic<int> workers{0};
  parallel_for(64, 1, [&](int64_t, int64_t) {
    workers += omp_get_thread_num() > 0;
    give_back_scratch(take_scratch(kSharedScratch));
  });
  MemoryTrace::instance().stop();
  EXPECT_EQ(gathered, 2);  // taken and given back, by the thread that called
  if (num_threads() > 1) EXPECT_GT(workers, 0);
}

}  // namespace
}  // namespace minitorch
