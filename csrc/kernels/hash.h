// Hashes of tensors.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// Exclusive or over the reduced dimensions (those where the output's stride is 0) of the elements' bits: operand 0 is
// uint64, operand 1 any real dtype. Floating-point elements count as the bits of their double, integers sign-extended.
extern Kernel<void(const PointwiseView&)> xor_hash_kernel;

}  // namespace minitorch
