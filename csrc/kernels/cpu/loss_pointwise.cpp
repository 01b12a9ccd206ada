// Pointwise losses on the CPU, over the engine that all pointwise operators use.
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/functors/loss.h"
#include "kernels/loss.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

const Block* block_of(LossOp op, DType compute) {
  switch (op) {
#define MT_FIND(name, functor) \
  case LossOp::name: return engine::find<functors::functor>(compute, FloatTypes{});
    MT_LOSS_OPS(MT_FIND)
#undef MT_FIND
  }
  return nullptr;
}

void loss(LossOp op, const PointwiseView& v, const PointwiseParams& params) {
  const Block* block = block_of(op, compute_dtype(v.compute));
  if (block == nullptr) missing_kernel("loss", name_of(v.compute));
  run_pointwise(v, *block, params);
}

template <class T>
MT_INLINE bool outside_unit(const char* p, int64_t stride, int64_t n) {
  bool outside = false;
  for (int64_t i = 0; i < n; i++) {
    const compute_t<T> x = *reinterpret_cast<const T*>(p + i * stride);
    outside |= !((x >= 0) & (x <= 1));
  }
  return outside;
}

void unit_interval(const PointwiseView& v, int* offender) {
  *offender = 0;
  for (int k = v.num_outputs; k < v.num_operands; k++) {
    bool outside = false;
    const bool known = dispatch(v.dtype[k], FloatingTypes{}, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for_each_row(v, [&](char* const* ptrs, int64_t n) {
        const int64_t stride = v.ndim > 0 ? v.strides[k][0] : 0;
        const bool bad =
            stride == sizeof(T) ? outside_unit<T>(ptrs[k], sizeof(T), n) : outside_unit<T>(ptrs[k], stride, n);
        if (bad) __atomic_store_n(&outside, true, __ATOMIC_RELAXED);
      });
    });
    if (!known) missing_kernel("unit_interval", name_of(v.dtype[k]));
    if (!outside) continue;
    *offender = k;
    return;
  }
}

MT_REGISTER_KERNEL(loss_kernel, &loss);
MT_REGISTER_KERNEL(unit_interval_kernel, &unit_interval);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
