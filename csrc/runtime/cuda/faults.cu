// What kernels find wrong in their arguments: each thread that launches them has a record in memory that the device
// writes and the host reads.
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
  Fault* faults = nullptr;  // [kRecords], mapped
  std::atomic<int> used{1};
  std::mutex mutex;
  std::vector<int> left;  // by threads that have ended
  // What another thread has raised, and the one whose call it was has not.
  std::array<std::optional<Fault>, kRecords> kept;
  std::array<std::atomic<bool>, kRecords> is_kept{};

  bool ready(int record) const { return *reinterpret_cast<volatile unsigned*>(&faults[record].ready) != 0; }
};

// Threads outlive static objects: it lives as long as the process.
Records& records() {
  static Records& all = []() -> Records& {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, sizeof(Fault) * kRecords, cudaHostAllocMapped | cudaHostAllocPortable),
          "allocating the fault records");
    auto* const made = new Records;
    made->faults = new (memory) Fault[kRecords]{};
    return *made;
  }();
  return all;
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
  if (!all.ready(record)) return std::nullopt;
  Fault& shared = all.faults[record];
  const Fault fault = shared;
  shared.ready = 0;
  shared.claimed = 0;
  const bool owned = record != kNobody && std::find(all.left.begin(), all.left.end(), record) == all.left.end();
  if (record != own && owned && !all.is_kept[record]) {
    all.kept[record] = fault;
    all.is_kept[record] = true;
  }
  return fault;
}

}  // namespace

Fault* fault_record() { return records().faults + (launches_for_another() ? kNobody : place.take()); }

void raise_own_fault() {
  Records& all = records();
  const int own = launches_for_another() ? kNobody : place.get();
  if (!all.is_kept[own] && !all.ready(own)) return;
  if (const auto fault = take(all, own, own)) raise(*fault);
}

void raise_fault() {
  raise_own_fault();
  if (launches_for_another()) return;
  Records& all = records();
  for (int record = 0; record < all.used; record++) {
    if (!all.ready(record)) continue;
    if (const auto fault = take(all, record, place.get())) raise(*fault);
  }
}

}  // namespace minitorch::cuda
