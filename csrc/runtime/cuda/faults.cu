// What kernels find wrong in their arguments: each thread that launches them has, for each device, a record in memory
// that the device writes and the host reads.
//
// A fault is raised by the next synchronisation of any thread, for it may be that thread which reads the results. The
// thread whose call it was is told too, at its own next synchronisation, even if another has been before: else it would
// go on with results that are wrong. What a backward pass launches, and what threads launched that have ended, belongs
// to nobody, and is raised once; a backward pass that waits raises nothing else, for it may be another thread's.
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel.h"
#include "runtime/cuda/cuda.h"

namespace minitorch::cuda {
namespace {

constexpr int kRecords = 256;  // of as many threads at once; further ones share record 0
constexpr int kNobody = 0;

struct Records {
  std::vector<std::atomic<Fault*>> of_device;  // [kRecords] each, mapped; none where nothing was launched yet
  std::atomic<int> used{1};
  std::mutex mutex;
  std::vector<int> left;  // by threads that have ended
  // What another thread has raised, and the one whose call it was has not.
  std::array<std::optional<Fault>, kRecords> kept;
  std::array<std::atomic<bool>, kRecords> is_kept{};

  explicit Records(int devices) : of_device(static_cast<size_t>(devices)) {}

  // Of the current device.
  Fault* here() {
    int device = 0;
    check(cudaGetDevice(&device), "reading the current device");
    std::atomic<Fault*>& faults = of_device[static_cast<size_t>(device)];
    if (Fault* const made = faults.load(std::memory_order_acquire)) return made;
    const std::lock_guard lock(mutex);
    if (faults.load() == nullptr) faults.store(make(), std::memory_order_release);
    return faults.load();
  }
  // The device whose record holds something, or -1.
  int ready(int record) const {
    for (size_t d = 0; d < of_device.size(); d++) {
      const Fault* const faults = of_device[d].load(std::memory_order_acquire);
      if (faults != nullptr && *const_cast<const volatile unsigned*>(&faults[record].ready) != 0)
        return static_cast<int>(d);
    }
    return -1;
  }

 private:
  static Fault* make() {
    constexpr const char* kWhat = "allocating the fault records";
    void *memory = nullptr, *claims = nullptr;
    check(cudaMalloc(&claims, sizeof(unsigned) * kRecords), kWhat);
    check(cudaMemset(claims, 0, sizeof(unsigned) * kRecords), kWhat);
    check(cudaStreamSynchronize(nullptr), kWhat);
    check(cudaHostAlloc(&memory, sizeof(Fault) * kRecords, cudaHostAllocMapped | cudaHostAllocPortable), kWhat);
    auto* const made = new (memory) Fault[kRecords]{};
    for (int i = 0; i < kRecords; i++) made[i].claimed = static_cast<unsigned*>(claims) + i;
    return made;
  }
};

// Threads outlive static objects: it lives as long as the process.
Records& records() {
  static Records& all = []() -> Records& {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "counting devices");
    return *new Records(devices);
  }();
  return all;
}

// The record may be written again. Not by the default stream, which would wait for others.
void release(Fault& fault, int device) {
  fault.ready = 0;
  const ScopedDevice scope(device);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "clearing a fault record");
  const cudaError_t set = cudaMemsetAsync(fault.claimed, 0, sizeof(unsigned), stream);
  const cudaError_t waited = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  check(set, "clearing a fault record");
  check(waited, "clearing a fault record");
}

// A thread's record, from its first kernel that may report something on.
class Place {
 public:
  int get() const { return record_; }
  int take() {
    if (taken_) return record_;
    taken_ = true;
    Records& all = records();
    const std::lock_guard lock(all.mutex);
    if (!all.left.empty()) {
      record_ = all.left.back();
      all.left.pop_back();
    } else if (all.used < kRecords) {
      record_ = all.used++;
    }
    return record_;
  }
  ~Place() {
    if (record_ == kNobody) return;
    Records& all = records();
    const std::lock_guard lock(all.mutex);
    all.kept[record_].reset();
    all.is_kept[record_] = false;
    all.left.push_back(record_);
  }

 private:
  int record_ = kNobody;
  bool taken_ = false;
};
thread_local Place place;

[[noreturn]] void raise(const Fault& fault) {
  if (fault.size < 0)
    throw std::runtime_error(fault.what + (fault.size == kMessageAndNumber ? std::to_string(fault.index) : "") +
                             " (found by the device; the call that caused it was made before this one)");
  index_fault(fault.what, fault.index, fault.size);
}

// Takes what `record` holds, for the thread with the record `own`.
std::optional<Fault> take(Records& all, int record, int own) {
  const std::lock_guard lock(all.mutex);
  if (record == own && all.is_kept[record]) {
    all.is_kept[record] = false;
    return std::exchange(all.kept[record], std::nullopt);
  }
  const int device = all.ready(record);
  if (device < 0) return std::nullopt;
  Fault& shared = all.of_device[static_cast<size_t>(device)].load()[record];
  const Fault fault = shared;
  release(shared, device);
  const bool owned = record != kNobody && std::find(all.left.begin(), all.left.end(), record) == all.left.end();
  if (record != own && owned && !all.is_kept[record]) {
    all.kept[record] = fault;
    all.is_kept[record] = true;
  }
  return fault;
}

}  // namespace

Fault* fault_record() { return records().here() + (launches_for_another() ? kNobody : place.take()); }

void raise_own_fault() {
  Records& all = records();
  const int own = launches_for_another() ? kNobody : place.get();
  if (!all.is_kept[own] && all.ready(own) < 0) return;
  if (const auto fault = take(all, own, own)) raise(*fault);
}

void raise_fault() {
  raise_own_fault();
  if (launches_for_another()) return;
  Records& all = records();
  for (int record = 0; record < all.used; record++) {
    if (all.ready(record) < 0) continue;
    if (const auto fault = take(all, record, place.get())) raise(*fault);
  }
}

}  // namespace minitorch::cuda
