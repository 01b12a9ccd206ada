// Temporary memory of a kernel. A plain class in the architecture namespace: the members of std::vector are shared
// inline functions, of which the linker keeps the copy of whichever instruction set it meets first.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/macros.h"
#include "runtime/scratch.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// n uninitialised elements of T, 64-byte aligned; up to Inline bytes lie in the object itself.
template <class T, size_t Inline = 0>
class Scratch {
 public:
  explicit Scratch(int64_t n) {
    const size_t bytes = static_cast<size_t>(n) * sizeof(T);
    if (bytes > Inline) memory_ = take_scratch(bytes);
    data_ = static_cast<T*>(bytes > Inline ? memory_.data : inline_);
  }
  ~Scratch() {
    if (memory_.data != nullptr) give_back_scratch(memory_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* get() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }
  MT_INLINE void zero(int64_t n) const {
    std::memset(static_cast<void*>(data_), 0, static_cast<size_t>(n) * sizeof(T));
  }

 private:
  alignas(64) unsigned char inline_[Inline == 0 ? 1 : Inline];
  ScratchMemory memory_{};
  T* data_;
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
