// The caching allocator over a fake device whose memory is counted and whose events complete when the test says so.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "memory.h"
#include "runtime/caching_allocator.h"
#include "runtime/device_memory.h"
#include "runtime/errors.h"
#include "runtime/poison.h"

namespace minitorch {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
using Options = CachingAllocator::Options;
constexpr auto kDeviceKind = CachingAllocator::Kind::device;

struct FakeEvent : Event {
  bool done = false;
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(bool synchronous) : synchronous_(synchronous) {}
  const char* name() const noexcept override { return "fake"; }
  int device_count() const noexcept override { return 1; }
  DeviceProperties properties(int) const override { return {}; }
  bool host_accessible() const noexcept override { return true; }
  bool synchronous() const noexcept override { return synchronous_; }
  int current_device() const noexcept override { return 0; }
  void set_device(int) override {}
  Stream current_stream(int) const noexcept override { return {}; }
  Stream exchange_stream(Stream s) override { return s; }
  Stream pooled_stream(int, bool) override { return {}; }
  Stream new_stream(int, int) override { return {}; }
  bool query_stream(Stream) override { return true; }
  void synchronize_stream(Stream) override {}
  void synchronize_device(int) override { finish_events(); }
  Event* create_event(int, bool) override { return *events.insert(new FakeEvent).first; }
  void destroy_event(Event* e) noexcept override {
    events.erase(static_cast<FakeEvent*>(e));
    delete static_cast<FakeEvent*>(e);
  }
  void record_event(Event*, Stream) override {}
  void wait_event(Event*, Stream) override {}
  bool query_event(Event* e) override { return static_cast<FakeEvent*>(e)->done; }
  void synchronize_event(Event*) override {}
  double elapsed_ms(Event*, Event*) override { return 0; }
  void* system_allocate(int, size_t bytes) noexcept override {
    if (taken + bytes > capacity) return nullptr;
    taken += bytes;
    return std::aligned_alloc(kSegmentAlignment,
                              (bytes + kSegmentAlignment - 1) / kSegmentAlignment * kSegmentAlignment);
  }
  void system_free(int, void* p, size_t bytes) noexcept override {
    taken -= bytes;
    std::free(p);
  }
  bool system_decommit(int, void*, size_t bytes) noexcept override {
    decommitted += bytes;
    return true;
  }
  MemoryInfo memory_info(int) const override { return {capacity - taken, capacity}; }
  void* host_allocate(size_t bytes) noexcept override { return system_allocate(0, bytes); }
  void host_free(void* p, size_t bytes) noexcept override { system_free(0, p, bytes); }
  void fill_bytes(void* p, unsigned char v, size_t n, Stream) override { std::memset(p, v, n); }
  void copy_bytes(void* to, const void* from, size_t n, Stream) override { std::memcpy(to, from, n); }
  void copy_to_host(void* h, const void* d, size_t n, Stream) override { std::memcpy(h, d, n); }

  void finish_events() {
    for (FakeEvent* e : events) e->done = true;
  }
  size_t capacity = size_t{1} << 40, taken = 0, decommitted = 0;
  std::set<FakeEvent*> events;

 private:
  bool synchronous_;
};

const Stat& all(const PoolStat& figure) { return figure.stat[PoolStat::kAll]; }
int64_t held(CachingAllocator& a) { return all(a.stats().allocated_bytes).current; }

TEST(BlockSize, IsAlignedTightAndConsistentWithItsClass) {
  std::set<int> classes;
  for (size_t n = 1; n <= 4 * kMiB; n += n < 70000 ? 1 : 997) {
    const size_t size = round_block_size(n);
    ASSERT_GE(size, n);
    ASSERT_EQ(size % kBlockAlignment, 0u);
    ASSERT_EQ(round_block_size(size), size);
    if (n > 512) {
      ASSERT_LE(size - n, n / 8) << n;
    }
    if (size <= kQuickLimit) {
      const int c = quick_class(size);
      ASSERT_TRUE(c >= 0 && c < kQuickClasses);
      classes.insert(c);
    }
  }
  EXPECT_EQ(static_cast<int>(classes.size()), kQuickClasses);
}

TEST(CachingAllocator, ReusesABlockOfTheSameSizeAtOnce) {
  FakeBackend backend(true);
  CachingAllocator a(backend, 0, {});
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{5000}, size_t{102400}, 3 * kMiB, 70 * kMiB}) {
    Block* x = a.allocate(bytes, {});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x->data()) % 64, 0u);
    char* const where = x->data();
    a.deallocate(x);
    Block* y = a.allocate(bytes, {});
    EXPECT_EQ(y->data(), where);
    a.deallocate(y);
  }
  a.empty_cache();
  EXPECT_EQ(backend.taken, 0u);
  EXPECT_EQ(held(a), 0);
  EXPECT_EQ(all(a.stats().reserved_bytes).current, 0);
}

TEST(CachingAllocator, BlocksNeverOverlapAndContentsSurvive) {
  FakeBackend backend(true);
  CachingAllocator a(backend, 0, {});
  std::mt19937 random(7);
  struct Live {
    Block* block;
    size_t bytes;
    char mark;
  };
  std::vector<Live> live;
  int64_t requested = 0;
  for (int step = 0; step < 20000; step++) {
    if (live.size() < 200 && random() % 5 < 3) {
      const size_t bytes = 1 + (random() % 4 == 0 ? random() % (3 * kMiB) : random() % 3000);
      Block* block = a.allocate(bytes, {});
      const char mark = static_cast<char>(random());
      block->data()[0] = block->data()[bytes - 1] = mark;
      live.push_back({block, bytes, mark});
      requested += static_cast<int64_t>(bytes);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const Live one = live.back();
      live.pop_back();
      ASSERT_EQ(one.block->data()[0], one.mark);
      ASSERT_EQ(one.block->data()[one.bytes - 1], one.mark);
      a.deallocate(one.block);
      requested -= static_cast<int64_t>(one.bytes);
    }
    if (step % 1000 == 0) {
      std::vector<std::pair<char*, size_t>> ranges;
      for (const Live& one : live) ranges.emplace_back(one.block->base, one.block->size);
      std::sort(ranges.begin(), ranges.end());
      for (size_t i = 1; i < ranges.size(); i++) ASSERT_LE(ranges[i - 1].first + ranges[i - 1].second, ranges[i].first);
    }
  }
  const MemoryStats s = a.stats();
  EXPECT_EQ(all(s.requested_bytes).current, requested);
  EXPECT_EQ(all(s.allocation).current, static_cast<int64_t>(live.size()));
  for (const Live& one : live) a.deallocate(one.block);
  a.empty_cache();
  EXPECT_EQ(backend.taken, 0u) << "every block must have merged back into whole segments";
  EXPECT_EQ(all(a.stats().inactive_split_bytes).current, 0);
}

TEST(CachingAllocator, StatisticsHavePyTorchsMeaning) {
  FakeBackend backend(true);
  CachingAllocator a(backend, 0, {});
  Block* small = a.allocate(100, {});
  Block* large = a.allocate(2 * kMiB, {});
  MemoryStats s = a.stats();
  EXPECT_EQ(s.allocated_bytes.stat[PoolStat::kSmall].current, 128);
  EXPECT_EQ(s.allocated_bytes.stat[PoolStat::kLarge].current, static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(all(s.requested_bytes).current, static_cast<int64_t>(2 * kMiB + 100));
  EXPECT_EQ(all(s.active).current, 2);
  EXPECT_EQ(all(s.segment).current, 2);
  a.deallocate(large);
  s = a.stats();
  EXPECT_EQ(all(s.allocated_bytes).peak, static_cast<int64_t>(2 * kMiB + 128));
  EXPECT_EQ(s.allocated_bytes.stat[PoolStat::kLarge].freed, static_cast<int64_t>(2 * kMiB));
  a.reset_peak_stats();
  a.reset_accumulated_stats();
  s = a.stats();
  EXPECT_EQ(all(s.allocated_bytes).peak, 128);
  EXPECT_EQ(all(s.active_bytes).peak, 128);
  EXPECT_EQ(all(s.allocated_bytes).allocated, 0);
  a.deallocate(small);
  const auto flat = flatten(a.stats());
  EXPECT_TRUE(std::any_of(flat.begin(), flat.end(),
                          [](const auto& kv) { return kv.first == "reserved_bytes.all.current" && kv.second > 0; }));
}

TEST(CachingAllocator, FailsWithFiguresAndRecovers) {
  FakeBackend backend(true);
  CachingAllocator a(backend, 0, {kDeviceKind, 8 * kMiB, false});
  Block* x = a.allocate(5 * kMiB, {});
  try {
    a.allocate(6 * kMiB, {});
    FAIL() << "the limit did not hold";
  } catch (const OutOfMemory& e) {
    const std::string text = e.what();
    for (const char* part : {"Tried to allocate 6.00 MiB", "may take 8.00 MiB", "holds 5.00 MiB", "is free"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(a.stats().num_ooms, 1);
  EXPECT_THROW(a.allocate(SIZE_MAX, {}), OutOfMemory);
  EXPECT_THROW(a.allocate(SIZE_MAX - 100, {}), OutOfMemory);
  a.deallocate(x);
  Block* y = a.allocate(7 * kMiB, {});  // fits only when the cache is given back first
  EXPECT_EQ(held(a), static_cast<int64_t>(7 * kMiB));
  a.deallocate(y);
  EXPECT_LE(backend.taken, 8 * kMiB);
}

TEST(CachingAllocator, WorksUnderALimitBelowAHugePage) {
  FakeBackend backend(true);
  CachingAllocator a(backend, 0, {kDeviceKind, kMiB, false});
  Block* x = a.allocate(1000, {});
  Block* y = a.allocate(600 * 1024, {});
  EXPECT_THROW(a.allocate(600 * 1024, {}), OutOfMemory);
  a.deallocate(x);
  a.deallocate(y);
}

TEST(CachingAllocator, SmallRequestsFindRoomAmongLargeBlocks) {
  FakeBackend backend(true);
  for (const bool poison : {false, true}) {
    CachingAllocator a(backend, 0, {kDeviceKind, 16 * kMiB, poison});
    Block* x = a.allocate(4 * kMiB, {});  // its segment is all that the limit allows
    std::vector<Block*> small;
    for (const size_t bytes : {1, 64, 1000, 5000, 40000, 600000}) small.push_back(a.allocate(bytes, {}));
    EXPECT_EQ(a.stats().num_ooms, 0);
    for (Block* b : small) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(b->base) % 4096, 0u);
      a.deallocate(b);
    }
    // They merge with the free memory they came from, and are counted where they lay.
    Block* y = a.allocate(11 * kMiB, {});
    a.deallocate(y);
    a.deallocate(x);
    EXPECT_EQ(held(a), 0);
    for (const Stat& stat : a.stats().allocation.stat) EXPECT_EQ(stat.current, 0);
    a.empty_cache();
    EXPECT_EQ(backend.taken, 0u);
  }
}

TEST(CachingAllocator, RetriesAfterGivingTheCacheBackWhenTheSystemHasNone) {
  FakeBackend backend(true);
  backend.capacity = 40 * kMiB;
  CachingAllocator a(backend, 0, {});
  a.deallocate(a.allocate(20 * kMiB, {}));
  Block* y = a.allocate(30 * kMiB, {});
  EXPECT_EQ(a.stats().num_alloc_retries, 1);
  a.deallocate(y);
}

TEST(CachingAllocator, GivesBackNoMoreThanItMustUnderPressure) {
  FakeBackend backend(false);
  backend.capacity = 100 * kMiB;
  CachingAllocator a(backend, 0, {});
  Block* large = a.allocate(60 * kMiB, {});
  Block* small = a.allocate(34 * kMiB, {});
  a.deallocate(large);
  a.deallocate(small);
  Block* larger = a.allocate(64 * kMiB, {});  // the segment of 60 MiB goes, that of 34 MiB stays
  EXPECT_EQ(a.stats().num_device_free, 1);
  EXPECT_EQ(a.stats().num_alloc_retries, 1);
  EXPECT_EQ(all(a.stats().reserved_bytes).current, static_cast<int64_t>(98 * kMiB));
  a.deallocate(larger);
}

TEST(CachingAllocator, ASnapshotCoversAllMemory) {
  FakeBackend backend(false);
  CachingAllocator a(backend, 0, {});
  MemoryTrace& trace = MemoryTrace::instance();
  MemoryTrace::Options options;
  options.callers = MemoryTrace::Callers::alloc;
  options.gather = [] { return std::static_pointer_cast<void>(std::make_shared<int>(7)); };
  trace.start(options);
  const Stream stream{0, 4};
  Block* x = a.allocate(3 * kMiB, stream);
  Block* y = a.allocate(5 * kMiB, stream);
  a.record_stream(y, {0, 6});
  a.deallocate(y);
  const std::vector<SegmentInfo> segments = a.snapshot();
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].stream, stream);
  EXPECT_TRUE(segments[0].large);
  ASSERT_EQ(segments[0].blocks.size(), 3u);
  using State = BlockInfo::State;
  const State states[] = {State::held, State::pending, State::inactive};
  uintptr_t address = segments[0].address;
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(segments[0].blocks[i].state, states[i]);
    EXPECT_EQ(segments[0].blocks[i].address, address);
    EXPECT_EQ(segments[0].blocks[i].caller != nullptr, i == 0);
    address += segments[0].blocks[i].size;
  }
  EXPECT_EQ(address, segments[0].address + segments[0].size);
  backend.finish_events();
  a.deallocate(x);
  a.empty_cache();
  using Action = MemoryEvent::Action;
  std::vector<Action> actions;
  for (const MemoryEvent& event : trace.events(0)) actions.push_back(event.action);
  const std::vector<Action> expected{Action::segment_alloc,  Action::alloc,          Action::alloc,
                                     Action::free_requested, Action::free_requested, Action::free_completed,
                                     Action::free_completed, Action::segment_free};
  EXPECT_EQ(actions, expected);
  EXPECT_NE(trace.events(0)[1].caller, nullptr);
  EXPECT_EQ(trace.events(0)[3].caller, nullptr);
  trace.stop();
  EXPECT_TRUE(trace.events(0).empty());
}

TEST(CachingAllocator, MemoryWithPagesStaysNearWhatWasHeld) {
  FakeBackend backend(true);
  CachingAllocator a(backend, 0, {});
  // Ever larger tensors, one at a time: each would leave its segment behind.
  for (size_t mib = 20; mib <= 200; mib += 20) a.deallocate(a.allocate(mib * kMiB, {}));
  EXPECT_LE(backend.taken, (200 + 200 / 16 + 8 + 2) * kMiB);
  a.empty_cache();
  // A small neighbour keeps a segment; the pages of its free part can still go.
  a.deallocate(a.allocate(100 * kMiB, {}));
  Block* pin = a.allocate(2 * kMiB, {});  // from the same segment
  EXPECT_EQ(backend.decommitted, 0u);
  Block* other = a.allocate(190 * kMiB, {});
  EXPECT_EQ(all(a.stats().segment).current, 2);
  EXPECT_GE(backend.decommitted, 96 * kMiB);
  for (Block* b : {other, pin}) a.deallocate(b);
  a.empty_cache();
  EXPECT_EQ(backend.taken, 0u);
}

TEST(CachingAllocator, KeepsStreamsApartAndWaitsForRecordedOnes) {
  FakeBackend backend(false);
  CachingAllocator a(backend, 0, {});
  const Stream first{0, 0}, second{0, 2};
  Block* x = a.allocate(1000, first);
  char* const where = x->data();
  a.deallocate(x);
  Block* y = a.allocate(1000, second);
  EXPECT_NE(y->data(), where) << "memory of another stream may still be in use";
  a.deallocate(y);

  Block* z = a.allocate(1000, first);
  EXPECT_EQ(z->data(), where);
  a.record_stream(z, second);
  a.record_stream(z, second);
  a.record_stream(z, first);  // its own stream needs no event
  a.deallocate(z);
  EXPECT_EQ(backend.events.size(), 1u);
  EXPECT_EQ(all(a.stats().active).current, 1);
  EXPECT_EQ(all(a.stats().allocation).current, 0);
  Block* w = a.allocate(1000, first);
  EXPECT_NE(w->data(), where) << "the second stream has not passed its event";
  backend.finish_events();
  Block* v = a.allocate(2000, first);
  EXPECT_TRUE(backend.events.empty());
  EXPECT_EQ(all(a.stats().active).current, 2);
  a.deallocate(v);
  a.deallocate(w);
}

TEST(CachingAllocator, WaitsForStreamsBeforeItGivesUp) {
  FakeBackend backend(false);
  CachingAllocator a(backend, 0, {kDeviceKind, 16 * kMiB, false});
  Block* x = a.allocate(10 * kMiB, {});
  a.record_stream(x, {0, 2});
  a.deallocate(x);
  Block* y = a.allocate(12 * kMiB, {});  // needs x's memory, which a stream still uses
  EXPECT_EQ(a.stats().num_sync_all_streams, 1);
  a.deallocate(y);
}

TEST(CachingAllocator, CanariesFindWritesPastBothEnds) {
  FakeBackend backend(true);
  CachingAllocator a(backend, 0, {kDeviceKind, SIZE_MAX, true});
  set_maker_source([] { return "aten::empty"; });
  for (const int64_t where : {int64_t{-1}, int64_t{10}}) {
    Block* x = a.allocate(10, {});
    EXPECT_EQ(static_cast<unsigned char>(x->data()[9]), kPoisonByte);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x->data()) % 64, 0u);
    x->data()[where] = 0;
    a.deallocate(x);
    try {
      a.allocate(10, {});
      FAIL() << "damage was not reported";
    } catch (const std::runtime_error& e) {
      const std::string text = e.what();
      const std::string side = where < 0 ? "before" : "after";
      EXPECT_NE(text.find("1 of the 64 bytes " + side + " a block of 10 bytes"), std::string::npos) << text;
      EXPECT_NE(text.find("aten::empty"), std::string::npos) << text;
    }
  }
  set_maker_source(nullptr);
  Block* x = a.allocate(1000, {});
  std::memset(x->data(), 0, 1000);
  a.deallocate(x);
  EXPECT_NO_THROW(throw_if_memory_was_damaged());
}

TEST(CachingAllocator, ThreadsShareIt) {
  FakeBackend backend(true);
  CachingAllocator a(backend, 0, {});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<std::pair<Block*, size_t>> mine;
      const auto release = [&](std::pair<Block*, size_t> one) {
        for (size_t k = 0; k < std::min<size_t>(one.second, 256); k++) wrong += one.first->data()[k] != t;
        a.deallocate(one.first);
      };
      for (int i = 0; i < 5000; i++) {
        const size_t bytes = 1 + random() % 100000;
        Block* b = a.allocate(bytes, {});
        std::memset(b->data(), t, std::min<size_t>(bytes, 256));
        mine.emplace_back(b, bytes);
        if (mine.size() > 20) {
          release(mine.front());
          mine.erase(mine.begin());
        }
      }
      for (const auto& one : mine) release(one);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(held(a), 0);
}

TEST(CachingAllocator, KnowsItsOwnMemory) {
  FakeBackend backend(true);
  CachingAllocator a(backend, 0, {CachingAllocator::Kind::pinned_host, SIZE_MAX, false});
  Block* x = a.allocate(100, {});
  int other = 0;
  EXPECT_TRUE(a.owns(x->data()));
  EXPECT_TRUE(a.owns(x->data() + 99));
  EXPECT_FALSE(a.owns(&other));
  EXPECT_FALSE(a.owns(nullptr));
  a.deallocate(x);
}

TEST(DeviceMemory, AChildAfterForkMayAllocateWhileThreadsWereBusy) {
  MT_CPU_ONLY();
  caching_allocator(0);  // made before any fork, as importing the module does
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) deallocate(allocate(0, 100));
  });
  for (int i = 0; i < 20; i++) {
    const pid_t child = fork();
    if (child == 0) {
      Block* b = caching_allocator(0).allocate(1000, {});
      caching_allocator(0).deallocate(b);
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  stop = true;
  busy.join();
}

TEST(DeviceMemory, RefusesDevicesAndFractionsThatDoNotExist) {
  EXPECT_THROW(caching_allocator(1), InvalidDevice);
  EXPECT_THROW(caching_allocator(-1), InvalidDevice);
  for (const double f : {0.0, -1.0, 1.5, std::nan("")}) EXPECT_THROW(set_memory_fraction(f, 0), std::invalid_argument);
  const MemoryInfo info = device_memory_info(0);
  EXPECT_GT(info.total, 0u);
  EXPECT_LE(info.free, info.total);
  EXPECT_EQ(allocate(0, 0), nullptr);
  deallocate(nullptr);
}

}  // namespace
}  // namespace minitorch
