#include "runtime/cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace minitorch::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// A file that holds one number, as the control groups have them; `otherwise` if it is not there or says "max".
size_t read_number(const char* path, size_t otherwise) {
  std::ifstream file(path);
  size_t value;
  return file >> value ? value : otherwise;
}

size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  size_t kib;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib << 10;
    std::getline(file, unit);
  }
  return static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void* map_pages(size_t bytes) noexcept {
  const auto map = [](size_t n) {
    void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
  };
  if (bytes < kHugePage) return map(bytes);
  char* const wide = map(bytes + kHugePage);
  if (wide == nullptr) return nullptr;
  char* const aligned =
      reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(wide) + kHugePage - 1) / kHugePage * kHugePage);
  if (aligned != wide) munmap(wide, aligned - wide);
  if (const size_t tail = wide + kHugePage - aligned) munmap(aligned + bytes, tail);
  madvise(aligned, bytes, MADV_HUGEPAGE);  // advice only: without huge pages it is slower, not wrong
  return aligned;
}

void unmap_pages(void* ptr, size_t bytes) noexcept { munmap(ptr, bytes); }

bool drop_pages(void* ptr, size_t bytes) noexcept { return madvise(ptr, bytes, MADV_DONTNEED) == 0; }

MemoryInfo memory_info() {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  MemoryInfo info;
  info.total = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  info.free = std::min(available_bytes(), info.total);
  // Control groups, version 2 and version 1.
  for (const auto& [limit_path, usage_path] :
       {std::pair{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        std::pair{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}) {
    const size_t limit = read_number(limit_path, kNone);
    if (limit >= info.total) continue;
    info.total = limit;
    info.free = std::min(info.free, limit - std::min(limit, read_number(usage_path, 0)));
  }
  return info;
}

}  // namespace minitorch::cpu
