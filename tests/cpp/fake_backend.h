// A backend for tests of the caching allocator: host memory of a limited amount, and events that complete when the test
// says so.
#pragma once
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
#include <stdexcept>
#include <thread>

#include "memory.h"
#include "runtime/caching_allocator.h"
#include "runtime/device_memory.h"
#include "runtime/errors.h"
#include "runtime/poison.h"

namespace minitorch {

inline constexpr size_t kMiB = size_t{1} << 20;
using Options = CachingAllocator::Options;
inline constexpr auto kDeviceKind = CachingAllocator::Kind::device;

struct FakeEvent : Event {
  bool done = false;
  bool fails = false;  // to be asked for
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(bool synchronous) : synchronous_(synchronous) {}
  const char* name() const noexcept override { return "fake"; }
  int device_count() const noexcept override { return 2; }
  DeviceProperties properties(int) const override {
    asked_for_properties++;
    DeviceProperties p;
    p.total_memory = static_cast<int64_t>(capacity);
    return p;
  }
  bool host_accessible() const noexcept override { return !grows; }
  bool synchronous() const noexcept override { return synchronous_; }
  int current_device() const noexcept override { return 0; }
  void set_device(int) override {}
  Stream current_stream(int) const noexcept override { return {}; }
  Stream exchange_stream(Stream s) override { return s; }
  Stream pooled_stream(int, bool) override { return {}; }
  bool query_stream(Stream) override { return true; }
  void synchronize_stream(Stream) override {}
  void synchronize_device(int device) override { finish_events(device); }
  Event* create_event(int device, bool) override {
    auto* const event = new FakeEvent;
    event->device = device;
    return *events.insert(event).first;
  }
  void destroy_event(Event* e) noexcept override {
    events.erase(static_cast<FakeEvent*>(e));
    delete static_cast<FakeEvent*>(e);
  }
  void record_event(Event*, Stream) override {}
  void wait_event(Event*, Stream) override {}
  bool query_event(Event* e) override {
    asked++;
    if (!events.contains(static_cast<FakeEvent*>(e))) throw std::logic_error("the event was destroyed");
    if (static_cast<FakeEvent*>(e)->fails) throw std::runtime_error("the device has a fault");
    return static_cast<FakeEvent*>(e)->done;
  }
  int asked = 0;  // events
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
  bool system_decommit(int, void* p, size_t bytes) noexcept override {
    decommitted += bytes;
    if (!grows) return true;
    taken -= bytes;
    for_each_piece(p, bytes, [&](char* piece) {
      if (pieces.erase(piece) == 0) std::abort();  // nothing is there
      std::memset(piece, 2, kSegmentAlignment);
    });
    return true;
  }
  // Memory behind reserved addresses exists all along; only what is committed counts.
  void* reserve_addresses(int, size_t bytes) noexcept override {
    return grows ? std::aligned_alloc(kSegmentAlignment, bytes) : nullptr;
  }
  void release_addresses(int, void* p, size_t) noexcept override { std::free(p); }
  bool system_commit(int, void* p, size_t bytes) noexcept override {
    if (taken + bytes > capacity) return false;
    taken += bytes;
    for_each_piece(p, bytes, [&](char* piece) {
      if (!pieces.insert(piece).second) std::abort();  // something is there
    });
    std::memset(p, 1, bytes);
    return true;
  }
  MemoryInfo memory_info(int) const override { return {capacity - taken, capacity}; }
  void* host_allocate(size_t bytes) noexcept override { return system_allocate(0, bytes); }
  void host_free(void* p, size_t bytes) noexcept override { system_free(0, p, bytes); }
  void fill_bytes(void* p, unsigned char v, size_t n, Stream) override { std::memset(p, v, n); }
  void copy_bytes(void* to, const void* from, size_t n, Stream) override { std::memcpy(to, from, n); }
  void copy_to_host(void* h, const void* d, size_t n, Stream) override { std::memcpy(h, d, n); }

  void finish_events() {
    for (const int device : {0, 1}) finish_events(device);
  }
  void finish_events(int device) {
    for (FakeEvent* e : events)
      if (e->device == device) e->done = true;
  }
  template <class F>
  static void for_each_piece(void* p, size_t bytes, F&& f) {
    for (size_t at = 0; at < bytes; at += kSegmentAlignment) f(static_cast<char*>(p) + at);
  }

  std::set<char*> pieces;  // that have memory, where segments grow
  mutable int asked_for_properties = 0;
  size_t capacity = size_t{1} << 40, taken = 0, decommitted = 0;
  bool grows = false;  // has segments that grow
  std::set<FakeEvent*> events;

 private:
  bool synchronous_;
};

inline const Stat& all(const PoolStat& figure) { return figure.stat[PoolStat::kAll]; }
inline int64_t held(CachingAllocator& a) { return all(a.stats().allocated_bytes).current; }

}  // namespace minitorch
