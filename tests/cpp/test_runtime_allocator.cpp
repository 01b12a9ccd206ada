// The caching allocator over a fake device whose memory is counted and whose events complete when the test says so.
#include <gtest/gtest.h>

#include "fake_backend.h"

namespace minitorch {
namespace {

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

// Asking is a use of the device: an allocator that is only made does not ask.
TEST(CachingAllocator, AsksForTheSizeOfTheDeviceWhenItIsUsed) {
  FakeBackend backend(true);
  backend.capacity = 8 * kMiB;
  CachingAllocator a(backend, 0, {kDeviceKind, CachingAllocator::kWholeDevice, false});
  EXPECT_EQ(a.stats().num_ooms, 0);
  EXPECT_EQ(backend.asked_for_properties, 0);
  a.deallocate(a.allocate(5 * kMiB, {}));
  EXPECT_EQ(a.limit(), 8 * kMiB);
  EXPECT_EQ(backend.asked_for_properties, 1);
  backend.capacity = 100 * kMiB;  // the limit stays
  EXPECT_THROW(a.allocate(9 * kMiB, {}), OutOfMemory);
  CachingAllocator b(backend, 0, {kDeviceKind, CachingAllocator::kWholeDevice, false});
  b.set_limit(2 * kMiB);
  EXPECT_EQ(b.limit(), 2 * kMiB);
  EXPECT_EQ(backend.asked_for_properties, 1);
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

TEST(CachingAllocator, WaitsForStreamsOfAnotherDeviceToo) {
  FakeBackend backend(false);
  for (const auto kind : {CachingAllocator::Kind::device, CachingAllocator::Kind::pinned_host}) {
    CachingAllocator a(backend, 0, {kind, 16 * kMiB, false});
    Block* x = a.allocate(10 * kMiB, {});
    a.record_stream(x, {1, 2});
    a.deallocate(x);
    Block* y = a.allocate(12 * kMiB, {});  // needs x's memory
    EXPECT_EQ(a.stats().num_sync_all_streams, 1);
    EXPECT_TRUE(backend.events.empty());
    a.deallocate(y);
  }
}

TEST(CachingAllocator, AFaultWhileEventsAreAskedForLosesNoneOfThem) {
  FakeBackend backend(false);
  CachingAllocator a(backend, 0, {});
  Block* blocks[3];
  for (int i = 0; i < 3; i++) {
    blocks[i] = a.allocate(2 * kMiB, {});
    a.record_stream(blocks[i], {0, 2 + 2 * i});
  }
  std::vector<FakeEvent*> events;
  for (Block* b : blocks) {
    const std::set<FakeEvent*> before = backend.events;
    a.deallocate(b);
    for (FakeEvent* e : backend.events)
      if (!before.contains(e)) events.push_back(e);
  }
  ASSERT_EQ(events.size(), 3u);
  events[0]->done = events[2]->done = true;  // the second still runs, and the third cannot be asked for at first
  events[2]->fails = true;
  EXPECT_THROW(a.allocate(100, {}), std::runtime_error);
  EXPECT_EQ(backend.events.size(), 2u);
  events[2]->fails = false;
  a.deallocate(a.allocate(100, {}));  // asks for none that was destroyed
  EXPECT_EQ(backend.events.size(), 1u);
  backend.finish_events();
  a.empty_cache();
  EXPECT_TRUE(backend.events.empty());
  EXPECT_EQ(backend.taken, 0u);
}

TEST(CachingAllocator, AsksForNoEventBehindOneThatIsToCome) {
  FakeBackend backend(false);
  CachingAllocator a(backend, 0, {});
  Block* blocks[100];
  for (int i = 0; i < 100; i++) {
    blocks[i] = a.allocate(2 * kMiB, {});
    a.record_stream(blocks[i], {0, 2 + i % 2 * 2});
  }
  for (Block* b : blocks) a.deallocate(b);
  backend.asked = 0;
  Block* const more = a.allocate(100, {});
  EXPECT_EQ(backend.asked, 2) << "one for each stream";
  EXPECT_EQ(backend.events.size(), 100u);
  backend.finish_events();
  a.deallocate(a.allocate(100, {}));
  EXPECT_TRUE(backend.events.empty());
  a.deallocate(more);
}

TEST(CachingAllocator, PinnedMemoryThatRunsOutIsTheHosts) {
  FakeBackend backend(false);
  backend.capacity = 3 * kMiB;
  CachingAllocator a(backend, 0, {CachingAllocator::Kind::pinned_host, SIZE_MAX, false});
  try {
    a.allocate(4 * kMiB, {});
    FAIL() << "there is no such memory";
  } catch (const OutOfMemory& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("The host has a total capacity of "), std::string::npos) << text;
    EXPECT_EQ(text.find("capacity of 3.00 MiB"), std::string::npos) << text;  // those are the device's
  }
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
  EXPECT_THROW(caching_allocator(backend().device_count()), InvalidDevice);
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
