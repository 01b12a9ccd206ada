// Moving elements whose type does not matter.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

struct Bits128 {
  uint64_t low, high;
};

// Calls f(Tag<T>) with a type of `size` bytes.
template <class F>
inline void with_element_size(int64_t size, const F& f) {
  switch (size) {
    case 1: return f(Tag<uint8_t>{});
    case 2: return f(Tag<uint16_t>{});
    case 4: return f(Tag<uint32_t>{});
    case 8: return f(Tag<uint64_t>{});
    case 16: return f(Tag<Bits128>{});
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
