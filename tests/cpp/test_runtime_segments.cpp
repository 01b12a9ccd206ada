// The caching allocator and the system: segments that grow, what is given back under pressure, snapshots.
#include <gtest/gtest.h>

#include "fake_backend.h"

namespace minitorch {
namespace {

TEST(CachingAllocator, SegmentsThatGrowJoinWhatIsFreeAtTheirEnd) {
  FakeBackend backend(false);
  backend.capacity = 200 * kMiB;
  backend.grows = true;
  CachingAllocator a(backend, 0, {.expandable = true});
  // In segments of their own these would leave three holes, none large enough.
  std::vector<Block*> blocks;
  for (const size_t mib : {60, 50, 40}) blocks.push_back(a.allocate(mib * kMiB, {}));
  for (Block* block : blocks) a.deallocate(block);
  Block* all_of_it = a.allocate(190 * kMiB, {});
  EXPECT_EQ(a.stats().num_alloc_retries, 0);
  EXPECT_EQ(all(a.stats().segment).current, 1);
  std::memset(all_of_it->data(), 7, 190 * kMiB);
  a.deallocate(all_of_it);
  // Under pressure from another stream the free end goes, the held front stays.
  Block* front = a.allocate(30 * kMiB, {});
  Block* other = a.allocate(150 * kMiB, {0, 4});
  EXPECT_EQ(all(a.stats().segment).current, 2);
  EXPECT_EQ(all(a.stats().reserved_bytes).current, static_cast<int64_t>(backend.taken));
  EXPECT_TRUE(a.snapshot()[0].expandable);
  EXPECT_THROW(a.allocate(150 * kMiB, {}), OutOfMemory);
  a.deallocate(other);
  a.deallocate(front);
  a.empty_cache();
  EXPECT_EQ(backend.taken, 0u);
  EXPECT_EQ(all(a.stats().segment).current, 0);
  EXPECT_EQ(all(a.stats().reserved_bytes).current, 0);
  a.deallocate(a.allocate(5 * kMiB, {}));  // begins anew
}

TEST(CachingAllocator, SegmentsThatGrowGiveBackWhatIsFreeBetweenHeldBlocks) {
  FakeBackend backend(false);
  backend.capacity = 400 * kMiB;
  backend.grows = true;
  CachingAllocator a(backend, 0, {.limit = 200 * kMiB, .expandable = true});
  std::vector<Block*> blocks;
  for (const size_t mib : {41, 60, 39}) blocks.push_back(a.allocate(mib * kMiB, {}));
  for (Block* block : {blocks[0], blocks[2]}) std::memset(block->data(), 5, block->requested);
  a.deallocate(blocks[1]);
  // 58 MiB of it in whole pieces, and the 60 MiB that the limit leaves.
  Block* larger = a.allocate(118 * kMiB, {});
  std::memset(larger->data(), 6, larger->requested);
  EXPECT_EQ(a.stats().num_alloc_retries, 1);
  EXPECT_EQ(all(a.stats().segment).current, 2);
  EXPECT_EQ(backend.taken, 200 * kMiB);
  size_t bytes = 0;
  for (const SegmentInfo& segment : a.snapshot()) {
    EXPECT_TRUE(segment.expandable);
    size_t in_blocks = 0;
    for (const BlockInfo& block : segment.blocks) in_blocks += block.size;
    EXPECT_EQ(in_blocks, segment.size);
    bytes += segment.size;
  }
  EXPECT_EQ(bytes, backend.taken);
  for (Block* block : {blocks[0], blocks[2]})
    for (const size_t i : {size_t{0}, block->requested - 1}) EXPECT_EQ(block->data()[i], 5);
  // The last segment goes, and what comes next lies behind the one before.
  char* const place = blocks[2]->data();
  a.deallocate(blocks[2]);
  a.deallocate(larger);
  a.empty_cache();
  EXPECT_EQ(all(a.stats().segment).current, 1);
  Block* next = a.allocate(100 * kMiB, {});
  EXPECT_LT(next->data(), place);
  EXPECT_EQ(all(a.stats().segment).current, 1);
  a.deallocate(next);
  a.deallocate(blocks[0]);
  a.empty_cache();
  EXPECT_EQ(backend.taken, 0u);
  EXPECT_EQ(all(a.stats().segment).current, 0);
}

TEST(CachingAllocator, HolesThatUseTheAddressesUpAreNoEnd) {
  FakeBackend backend(false);
  backend.capacity = 40 * kMiB;  // and as many addresses
  backend.grows = true;
  CachingAllocator a(backend, 0, {.expandable = true});
  std::vector<Block*> held;
  for (int round = 0; round < 12; round++) {
    held.push_back(a.allocate(3 * kMiB / 2, {}));
    Block* gone = a.allocate(8 * kMiB, {});
    Block* keeper = a.allocate(3 * kMiB / 2, {});
    a.deallocate(gone);
    a.empty_cache();
    a.deallocate(keeper);
  }
  EXPECT_EQ(backend.taken, backend.pieces.size() * kSegmentAlignment);
  for (Block* block : held) a.deallocate(block);
  a.empty_cache();
  EXPECT_EQ(backend.taken, 0u);
  EXPECT_EQ(all(a.stats().segment).current, 0);
}

TEST(CachingAllocator, SegmentsThatGrowStayWholeUnderRandomUse) {
  FakeBackend backend(false);
  backend.capacity = 64 * kMiB;
  backend.grows = true;
  CachingAllocator a(backend, 0, {.expandable = true});
  std::mt19937 random(3);
  std::vector<std::pair<Block*, char>> live;
  for (int step = 0; step < 4000; step++) {
    if (live.size() < 30 && random() % 2 == 0) {
      const Stream stream{0, static_cast<int64_t>(random() % 3) * 2};
      try {
        Block* block = a.allocate(1 + random() % (random() % 3 == 0 ? 6 * kMiB : 200000), stream);
        const char mark = static_cast<char>(random());
        block->data()[0] = block->data()[block->requested - 1] = mark;
        live.emplace_back(block, mark);
      } catch (const OutOfMemory&) {
      }
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const auto [block, mark] = live.back();
      ASSERT_EQ(block->data()[0], mark);
      ASSERT_EQ(block->data()[block->requested - 1], mark);
      a.deallocate(block);
      live.pop_back();
    }
    ASSERT_LE(backend.taken, backend.capacity);
    ASSERT_EQ(all(a.stats().reserved_bytes).current, static_cast<int64_t>(backend.taken));
  }
  for (const auto& [block, mark] : live) a.deallocate(block);
  a.empty_cache();
  EXPECT_EQ(backend.taken, 0u);
}

bool segments_can_grow() {
  void* const addresses = backend().reserve_addresses(0, kSegmentAlignment);
  if (addresses != nullptr) backend().release_addresses(0, addresses, kSegmentAlignment);
  return addresses != nullptr;
}

TEST(DeviceMemory, SegmentsThatGrowHoldWhatIsWritten) {
  if (!segments_can_grow()) GTEST_SKIP() << "needs a GPU";
  Backend& b = backend();
  CachingAllocator a(b, 0, {.expandable = true});
  std::vector<Block*> blocks;
  for (const size_t mib : {20, 3, 40}) blocks.push_back(a.allocate(mib * kMiB, {}));
  for (size_t i = 0; i < blocks.size(); i++)
    b.fill_bytes(blocks[i]->data(), static_cast<unsigned char>(i + 1), blocks[i]->requested, {});
  for (size_t i = 0; i < blocks.size(); i++) {
    std::vector<unsigned char> host(blocks[i]->requested);
    b.copy_to_host(host.data(), blocks[i]->data(), host.size(), {});
    EXPECT_EQ(host, std::vector<unsigned char>(host.size(), static_cast<unsigned char>(i + 1)));
  }
  EXPECT_EQ(all(a.stats().segment).current, 1);
  for (Block* block : blocks) a.deallocate(block);
  a.empty_cache();
  EXPECT_EQ(all(a.stats().reserved_bytes).current, 0);
}

// Alone: what else runs on the device takes and gives memory meanwhile.
TEST(DeviceMemory, AloneSegmentsThatGrowTakeFromTheDeviceAndGiveBack) {
  if (!segments_can_grow()) GTEST_SKIP() << "needs a GPU";
  Backend& b = backend();
  CachingAllocator a(b, 0, {.expandable = true});
  const size_t before = b.memory_info(0).free;
  Block* const block = a.allocate(60 * kMiB, {});
  EXPECT_LE(b.memory_info(0).free, before - 60 * kMiB);
  a.deallocate(block);
  a.empty_cache();
  EXPECT_GE(b.memory_info(0).free, before - 4 * kMiB);
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

}  // namespace
}  // namespace minitorch
