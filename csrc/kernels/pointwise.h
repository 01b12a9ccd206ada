// Pointwise operators: every output element depends on the input elements at the same index.
// Adding one: a functor in functors/, a line in the table below (and its binding line in ops/pointwise.cpp).
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// X(enumerator, functor): unary functors, `T -> result`.
#define MT_UNARY_FLOAT_OPS(X) X(exp, Exp)
#define MT_UNARY_NUMERIC_OPS(X) X(neg, Neg)

enum class UnaryOp : uint8_t {
#define MT_ENUM(name, functor) name,
  MT_UNARY_FLOAT_OPS(MT_ENUM) MT_UNARY_NUMERIC_OPS(MT_ENUM)
#undef MT_ENUM
};

// X(enumerator, functor): binary functors, `(T, T) -> result`.
#define MT_BINARY_NUMERIC_OPS(X) X(add, Add) X(mul, Mul)

enum class BinaryOp : uint8_t {
#define MT_ENUM(name, functor) name,
  MT_BINARY_NUMERIC_OPS(MT_ENUM)
#undef MT_ENUM
};

extern Kernel<void(UnaryOp, const PointwiseView&, const PointwiseParams&)> unary_kernel;
extern Kernel<void(BinaryOp, const PointwiseView&, const PointwiseParams&)> binary_kernel;

// output = input with conversion between any two dtypes; equal dtypes are moved as bytes.
extern Kernel<void(const PointwiseView&)> copy_kernel;
// Every element of the single output becomes the scalar.
extern Kernel<void(const PointwiseView&, const Scalar&)> fill_kernel;

}  // namespace minitorch
