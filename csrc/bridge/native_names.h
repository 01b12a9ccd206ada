// Native's words for a dtype that an operator does not take.
#pragma once
#include <c10/core/ScalarType.h>

namespace minitorch {

// The name that native CPU has in `"name" not implemented for 'dtype'` when `op` meets that dtype; null if native takes
// it, or refuses it in other words.
const char* native_refusal(const char* op, c10::ScalarType dtype);

}  // namespace minitorch
