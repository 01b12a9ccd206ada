// How far apart the processors of this process lie. Under a hypervisor that changes while a program runs: two virtual
// processors share a die at one time and not at another, and what two threads get out of the memory changes with it.
#pragma once

namespace minitorch::cpu {

// Seconds that a cache line takes from the first processor that this process may use to the last one and back: about
// 100 ns on one die, several times that between dies. Measured by two of the pool's threads, which are moved there
// meanwhile, in a millisecond; the best of several series counts, since others may take a processor away.
// NaN where there is only one thread or processor, or where no series came to its end in time.
double cache_line_round_trip();

}  // namespace minitorch::cpu
