// Where the number of threads comes from.
#include "core/parallel.h"

#include <atomic>

namespace minitorch {

namespace {
std::atomic<int (*)()> thread_source{&omp_get_max_threads};
}  // namespace

int num_threads() { return thread_source.load(std::memory_order_relaxed)(); }
void set_num_threads_source(int (*source)()) { thread_source = source; }

}  // namespace minitorch
