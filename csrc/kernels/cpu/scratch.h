// Temporary memory of a kernel. A plain class in the architecture namespace: the members of std::vector are shared
// inline functions, of which the linker keeps the copy of whichever instruction set it meets first.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/macros.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// n uninitialised elements of T, 64-byte aligned; up to Inline bytes lie in the object itself.
template <class T, size_t Inline = 0>
class Scratch {
 public:
  explicit Scratch(int64_t n) {
    const size_t bytes = static_cast<size_t>(n) * sizeof(T);
    if (bytes <= Inline) {
      data_ = reinterpret_cast<T*>(inline_);
    } else {
      heap_ = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
      if (heap_ == nullptr) throw std::bad_alloc();
      data_ = static_cast<T*>(heap_);
    }
  }
  ~Scratch() { std::free(heap_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* get() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }
  MT_INLINE void zero(int64_t n) { std::memset(static_cast<void*>(data_), 0, static_cast<size_t>(n) * sizeof(T)); }

 private:
  alignas(64) unsigned char inline_[Inline == 0 ? 1 : Inline];
  void* heap_ = nullptr;
  T* data_;
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
