// The float8 kernel objects.
#include "kernels/float8.h"

namespace minitorch {
constinit Kernel<void(Float8, const uint8_t*, float*, int64_t)> float8_decode_kernel{"float8_decode"};
constinit Kernel<void(Float8, uint8_t, const float*, uint8_t*, int64_t)> float8_encode_kernel{"float8_encode"};
}  // namespace minitorch
