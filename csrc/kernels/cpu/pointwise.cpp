// CPU side of the unary and binary tables.
#include "kernels/pointwise.h"

#include "kernels/cpu/pointwise_engine.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using NumericTypes = Types<float, double, uint8_t, int8_t, int16_t, int32_t, int64_t, Complex<float>, Complex<double>>;

template <template <class> class F, class List>
void unary_over(const char* name, List types, const PointwiseView& v, const PointwiseParams& p) {
  const DType compute = compute_dtype(v.compute);
  if (!dispatch(compute, types, [&](auto tag) { run_unary<F, typename decltype(tag)::type>(v, p); }))
    missing_kernel(name, name_of(v.compute));
}
template <template <class> class F, class List>
void binary_over(const char* name, List types, const PointwiseView& v, const PointwiseParams& p) {
  const DType compute = compute_dtype(v.compute);
  if (!dispatch(compute, types, [&](auto tag) { run_binary<F, typename decltype(tag)::type>(v, p); }))
    missing_kernel(name, name_of(v.compute));
}

void unary(UnaryOp op, const PointwiseView& v, const PointwiseParams& p) {
  switch (op) {
#define MT_CASE(name, functor) \
  case UnaryOp::name:          \
    return unary_over<functors::functor>(#name, FloatTypes{}, v, p);
    MT_UNARY_FLOAT_OPS(MT_CASE)
#undef MT_CASE
#define MT_CASE(name, functor) \
  case UnaryOp::name:          \
    return unary_over<functors::functor>(#name, NumericTypes{}, v, p);
    MT_UNARY_NUMERIC_OPS(MT_CASE)
#undef MT_CASE
  }
}

void binary(BinaryOp op, const PointwiseView& v, const PointwiseParams& p) {
  switch (op) {
#define MT_CASE(name, functor) \
  case BinaryOp::name:         \
    return binary_over<functors::functor>(#name, NumericTypes{}, v, p);
    MT_BINARY_NUMERIC_OPS(MT_CASE)
#undef MT_CASE
  }
}

MT_REGISTER_KERNEL(unary_kernel, &unary);
MT_REGISTER_KERNEL(binary_kernel, &binary);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
