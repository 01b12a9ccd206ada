// State shared by all kernels: the active slot and what happens when a slot is empty.
#include "kernels/kernel.h"

#include <atomic>
#include <stdexcept>
#include <string>

namespace minitorch {

Slot active_slot = Slot::baseline;

const char* slot_name(Slot slot) {
  switch (slot) {
    case Slot::baseline: return "baseline";
    case Slot::avx2: return "avx2";
    case Slot::avx512: return "avx512";
    case Slot::cuda: return "cuda";
    case Slot::idle: return "idle";
  }
  return "unknown";
}

namespace {
std::atomic<void (*)(const char*, const char*, const char*)> missing_handler{nullptr};
}  // namespace

void set_missing_kernel_handler(void (*handler)(const char*, const char*, const char*)) { missing_handler = handler; }

void missing_kernel(const char* kernel, const char* detail) {
  const char* backend = active_slot == Slot::cuda ? "cuda" : "cpu";
  if (auto handler = missing_handler.load()) handler(kernel, backend, detail);
  throw std::runtime_error(std::string("minitorch: kernel ") + kernel + " is not implemented on the " + backend +
                           " backend " + detail);
}

namespace {
std::atomic<void (*)(const char*, int64_t, int64_t)> fault_handler{nullptr};
std::atomic<bool (*)()> for_another_handler{nullptr};
}  // namespace

void set_index_fault_handler(void (*handler)(const char*, int64_t, int64_t)) { fault_handler = handler; }

void index_fault(const char* what, int64_t index, int64_t size) {
  if (auto handler = fault_handler.load()) handler(what, index, size);
  throw std::out_of_range(std::string(what) + ": index " + std::to_string(index) + " is out of bounds for size " +
                          std::to_string(size));
}

void set_launches_for_another_handler(bool (*handler)()) { for_another_handler = handler; }

bool launches_for_another() {
  auto handler = for_another_handler.load();
  return handler != nullptr && handler();
}

}  // namespace minitorch
