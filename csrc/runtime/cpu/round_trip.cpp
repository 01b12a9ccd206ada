#include "runtime/cpu/round_trip.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#if defined(__linux__)
#include <sched.h>
#endif

#include "core/parallel.h"

namespace minitorch::cpu {

#if defined(__linux__)

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSeries = 16, kTrips = 150;
constexpr std::chrono::milliseconds kMost{20};

// Holds the calling thread on one processor while it lives.
class OnProcessor {
 public:
  explicit OnProcessor(int processor) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(processor, &only);
    sched_setaffinity(0, sizeof only, &only);
  }
  ~OnProcessor() { sched_setaffinity(0, sizeof before_, &before_); }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;

 private:
  cpu_set_t before_;
};

// The ball alone on its cache line: odd when it was served, even when it came back.
struct alignas(128) Line {
  std::atomic<int> ball{0};
};
constexpr int kOver = -1;

double serve(Line& line) {
  double best = std::numeric_limits<double>::infinity();
  const Clock::time_point end = Clock::now() + kMost;
  int ball = 0;
  for (int series = 0; series <= kSeries; series++) {  // the first one waits for the other thread to come
    const Clock::time_point start = Clock::now();
    for (int trip = 0; trip < kTrips; trip++) {
      line.ball.store(++ball, std::memory_order_release);
      ball++;
      while (line.ball.load(std::memory_order_acquire) != ball) {
      }
    }
    const Clock::time_point now = Clock::now();
    if (series > 0) best = std::min(best, std::chrono::duration<double>(now - start).count() / kTrips);
    if (now > end) break;
  }
  line.ball.store(kOver, std::memory_order_release);
  return best < std::numeric_limits<double>::infinity() ? best : std::numeric_limits<double>::quiet_NaN();
}

void give_back(Line& line) {
  for (int seen = 0; seen != kOver; seen = line.ball.load(std::memory_order_acquire))
    if (seen % 2 == 1) line.ball.store(seen + 1, std::memory_order_release);
}

}  // namespace

double cache_line_round_trip() {
  double found = std::numeric_limits<double>::quiet_NaN();
  cpu_set_t allowed;
  if (num_threads() < 2 || omp_in_parallel() || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return found;
  if (CPU_COUNT(&allowed) < 2) return found;
  int first = 0, last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(first, &allowed)) first++;
  while (!CPU_ISSET(last, &allowed)) last--;

  Line line;
#pragma omp parallel num_threads(num_threads())  // the whole pool: for a smaller team the rest would be ended
  {
    const int id = omp_get_thread_num();
    if (omp_get_num_threads() > 1 && id < 2) {
      const OnProcessor here(id == 0 ? first : last);
      if (id == 0)
        found = serve(line);
      else
        give_back(line);
    }
  }
  return found;
}

#else

double cache_line_round_trip() { return std::numeric_limits<double>::quiet_NaN(); }

#endif

}  // namespace minitorch::cpu
