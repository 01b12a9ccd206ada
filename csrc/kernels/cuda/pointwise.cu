// The pointwise kernel on CUDA: finds the entry of an operator and compute type in the tables, which the other
// pointwise_*.cu compile a part of each, and launches its dense or its general form.
#include "kernels/pointwise.h"

#include "kernels/cuda/pointwise_engine.cuh"
#include "kernels/functors/loss.h"
#include "kernels/loss.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

const char* op_name(PointwiseOp op) {
  switch (op) {
#define MT_NAME(name, functor, types) \
  case PointwiseOp::name: return #name;
    MT_ARITHMETIC_OPS(MT_NAME)
    MT_COMPARE_OPS(MT_NAME)
    MT_INTEGER_OPS(MT_NAME)
    MT_MATH_OPS(MT_NAME)
    MT_SPECIAL_OPS(MT_NAME)
    MT_ACTIVATION_OPS(MT_NAME)
#undef MT_NAME
  }
  return "pointwise";
}

bool is_single(const PointwiseView& v, int k) {
  for (int d = 0; d < v.ndim; d++)
    if (v.strides[k][d] != 0 && v.sizes[d] != 1) return false;
  return true;
}

bool is_host(const PointwiseView& v, int k) { return v.host_operands >> k & 1; }

// Operand k lies dense and 16-byte aligned in dtype d, or is a single value of it.
bool dense_as(const PointwiseView& v, int k, DType d) {
  if (v.dtype[k] != d) return false;
  if (k >= v.num_outputs && is_single(v, k)) return true;
  return v.ndim == 1 && v.strides[k][0] == static_cast<int64_t>(size_of(d)) &&
         reinterpret_cast<uintptr_t>(v.data[k]) % 16 == 0;
}

bool try_dense(const PointwiseView& v, const PointwiseEntry& entry, const PointwiseParams& params) {
  if (v.ndim > 1) return false;
  static constexpr DType kStorage[] = {DType::F32, DType::BF16, DType::F16};
  for (int s = 0; s < 3; s++) {
    if (entry.dense[s] == nullptr) continue;
    bool fits = true;
    for (int k = 0; fits && k < entry.num_operands; k++)
      fits = dense_as(v, k, entry.types[k] == DType::F32 ? kStorage[s] : entry.types[k]);
    if (!fits) continue;
    DenseArgs a;
    a.numel = v.numel;
    for (int k = 0; k < entry.num_operands; k++) {
      a.single[k] = k >= v.num_outputs && is_single(v, k);
      a.data[k] = v.data[k];
      if (is_host(v, k)) {
        memcpy(a.host_value[k], v.data[k], size_of(v.dtype[k]));
        a.data[k] = nullptr;
      }
    }
    const auto blocks = static_cast<unsigned>(ceil_div(v.numel, entry.elements[s]));
    entry.dense[s]<<<blocks, kThreads, 0, cuda::current_stream()>>>(a, params);
    return true;
  }
  return false;
}

void run_general(const PointwiseView& v, const PointwiseEntry& entry, const PointwiseParams& params) {
  GeneralArgs a;
  a.numel = v.numel;
  a.space = Space(v.ndim, v.sizes, v.numel);
  for (int k = 0; k < entry.num_operands; k++) {
    a.data[k] = v.data[k];
    a.dtype[k] = a.through[k] = v.dtype[k];
    for (int d = 0; d < v.ndim; d++) a.strides[k][d] = v.strides[k][d];
    // Native casts operands to the common dtype first, which for 16-bit floats rounds.
    if (is_half(v.compute) && entry.types[k] == DType::F32 && v.dtype[k] != v.compute &&
        !(entry.wide_scalar && k == 2 && is_single(v, k)))
      a.through[k] = v.compute;
    if (is_host(v, k)) {
      memcpy(a.host_value[k], v.data[k], size_of(v.dtype[k]));
      a.data[k] = nullptr;
    }
  }
  entry.general<<<grid_for(v.numel), kThreads, 0, cuda::current_stream()>>>(a, params);
}

const PointwiseEntry* find_entry(PointwiseOp op, DType compute) {
  for (auto lookup :
       {&arithmetic_entry, &compare_entry, &math_entry, &activation_entry, &integer_entry, &special_entry})
    if (const PointwiseEntry* entry = lookup(op, compute)) return entry;
  return nullptr;
}

void pointwise(PointwiseOp op, const PointwiseView& v, const PointwiseParams& params) {
  const PointwiseEntry* entry = find_entry(op, compute_dtype(v.compute));
  // The few operators on the bits of a 16-bit float are built for it.
  if (is_half(v.compute) && op == PointwiseOp::nextafter) entry = find_entry(op, v.compute);
  if (entry == nullptr) missing_kernel(op_name(op), name_of(v.compute));
  run_pointwise(v, *entry, params);
}

const PointwiseEntry* loss_entry(LossOp op, DType compute) {
  using engine::find;
  switch (op) {
    case LossOp::mse_backward: return find<functors::MseBackward>(compute, FloatTypes{});
    case LossOp::smooth_l1_backward: return find<functors::SmoothL1Backward>(compute, FloatTypes{});
    case LossOp::huber_backward: return find<functors::HuberBackward>(compute, FloatTypes{});
    case LossOp::binary_cross_entropy: return find<functors::BinaryCrossEntropy>(compute, FloatTypes{});
    case LossOp::binary_cross_entropy_backward:
      return find<functors::BinaryCrossEntropyBackward>(compute, FloatTypes{});
  }
  return nullptr;
}

void loss(LossOp op, const PointwiseView& v, const PointwiseParams& params) {
  const PointwiseEntry* entry = loss_entry(op, compute_dtype(v.compute));
  if (entry == nullptr) missing_kernel("loss", name_of(v.compute));
  run_pointwise(v, *entry, params);
}

MT_REGISTER_KERNEL(pointwise_kernel, &pointwise);
MT_REGISTER_KERNEL(loss_kernel, &loss);

}  // namespace

void run_pointwise(const PointwiseView& v, const PointwiseEntry& entry, const PointwiseParams& params) {
  if (v.numel == 0) return;
  if (!try_dense(v, entry, params)) run_general(v, entry, params);
  cuda::check_launch("launching a pointwise kernel");
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
