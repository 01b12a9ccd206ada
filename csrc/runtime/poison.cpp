// The record of damaged blocks.
#include "runtime/poison.h"

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace minitorch {
namespace {

std::atomic<bool> damaged{false};
std::mutex mutex;
std::string& reports() {
  static std::string& text = *new std::string;  // outlives every static destructor that may free a tensor
  return text;
}
std::atomic<const char* (*)()> maker_source{nullptr};

}  // namespace

void report_damage(size_t block_bytes, const char* side, size_t bytes_damaged, const std::string& maker) {
  std::lock_guard lock(mutex);
  if (reports().size() < 4096) {
    reports() += "\n  " + std::to_string(bytes_damaged) + " of the " + std::to_string(kCanaryBytes) + " bytes " + side +
                 " a block of " + std::to_string(block_bytes) + " bytes were overwritten";
    if (!maker.empty()) reports() += "; the block was made by " + maker;
  }
  damaged.store(true, std::memory_order_release);
}

void throw_if_memory_was_damaged() {
  if (!damaged.load(std::memory_order_acquire)) return;
  std::string text;
  {
    std::lock_guard lock(mutex);
    damaged.store(false, std::memory_order_relaxed);
    text = std::exchange(reports(), std::string());
  }
  if (!text.empty()) throw std::runtime_error("minitorch found memory damaged by writes outside a tensor:" + text);
}

void set_maker_source(const char* (*source)()) { maker_source = source; }

const char* current_maker() {
  const auto source = maker_source.load(std::memory_order_relaxed);
  return source ? source() : "";
}

}  // namespace minitorch
