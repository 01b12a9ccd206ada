// Memory checks, switched on by MINITORCH_POISON=1. Fresh memory is filled with 0xFF bytes, which is NaN in every
// floating point format and -1 in every integer, so that reading what was never written shows. Every block stands
// between two canaries, which are compared when it is freed, so that writing past an end shows. Freed memory is filled
// as well. Damage is recorded, and thrown by the next allocation or synchronisation: a destructor cannot throw.
#pragma once
#include <cstddef>
#include <string>

namespace minitorch {

inline constexpr size_t kCanaryBytes = 64;  // on either side; keeps the alignment of blocks
inline constexpr unsigned char kPoisonByte = 0xFF, kCanaryByte = 0xC5;

// Records that `bytes_damaged` bytes around a block were overwritten; `maker` may be empty.
void report_damage(size_t block_bytes, const char* side, size_t bytes_damaged, const std::string& maker);

// Throws std::runtime_error describing all damage recorded since the last call, if any. One load when there is none.
void throw_if_memory_was_damaged();

// Names who is allocating (an operator), for the reports; the bridge installs it. Called only when poison is on.
void set_maker_source(const char* (*source)());
const char* current_maker();

}  // namespace minitorch
