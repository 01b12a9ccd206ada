// Temporary memory of a kernel. A plain class in the architecture namespace: the members of std::vector are shared inline
// functions, of which the linker keeps the copy of whichever instruction set it meets first.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <new>

#include "core/macros.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// n uninitialised elements of T, 64-byte aligned.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t n)
      : data_(static_cast<T*>(std::aligned_alloc(64, (static_cast<size_t>(n) * sizeof(T) + 127) / 64 * 64))) {
    if (data_ == nullptr) throw std::bad_alloc();
  }
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* get() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  T* data_;
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
