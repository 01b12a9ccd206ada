// The pointwise kernel on CUDA: finds the entry of an operator and compute type in the tables, which the other
// pointwise_*.cu compile a part of each, and launches its dense or its general form.
#include "kernels/pointwise.h"

#include "kernels/cuda/pointwise_engine.cuh"
#include "kernels/functors/loss.h"
#include "kernels/loss.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

bool is_single(const PointwiseView& v, int k) {
  for (int d = 0; d < v.ndim; d++)
    if (v.strides[k][d] != 0 && v.sizes[d] != 1) return false;
  return true;
}

bool is_host(const PointwiseView& v, int k) { return v.host_operands >> k & 1; }

// The value of a host operand, converted to the functor's type; 16-bit computation rounds it first, as native does.
void convert_host_value(const PointwiseView& v, int k, DType to, bool rounds, char* value) {
  const auto store = [&](auto x) {
    dispatch(to, AllUnsignedTypes{}, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T result = convert<T>(x);
      if constexpr (std::is_same_v<T, float>) {
        if (rounds) result = v.compute == DType::BF16 ? float(BFloat16(result)) : float(Half(result));
      }
      memcpy(value, &result, sizeof(result));
    });
  };
  switch (v.dtype[k]) {
#define MT_CASE(D, T) \
  case DType::D: return store(*reinterpret_cast<const T*>(v.data[k]));
    MT_FOR_ALL_DTYPES(MT_CASE)
#undef MT_CASE
  }
}

// Native casts operands to the common dtype first, which for 16-bit floats rounds.
bool rounds_through(const PointwiseView& v, const PointwiseEntry& entry, int k) {
  return is_half(v.compute) && entry.types[k] == DType::F32 && v.dtype[k] != v.compute &&
         !(entry.wide_scalar && k == 2 && is_single(v, k));
}

bool is_dense(const PointwiseView& v, int k) {
  int64_t expected = static_cast<int64_t>(size_of(v.dtype[k]));
  for (int d = 0; d < v.ndim; d++) {
    if (v.sizes[d] != 1 && v.strides[k][d] != expected) return false;
    expected *= v.sizes[d];
  }
  return true;
}

// How operand k meets the elements of a dense output in packs of `width`; false if in no way that the dense form knows.
bool meet(const PointwiseView& v, int k, int64_t width, DenseArgs& a) {
  const bool aligned = reinterpret_cast<uintptr_t>(v.data[k]) % 16 == 0;
  if (is_dense(v, k)) {
    a.meets[k] = Meets::each;
    return aligned;
  }
  if (v.numel >= int64_t{1} << 31) return false;
  const auto size = static_cast<int64_t>(size_of(v.dtype[k]));
  int64_t inner = 1, extent = 1;
  int d = 0;
  for (; d < v.ndim && (v.strides[k][d] == 0 || v.sizes[d] == 1); d++) inner *= v.sizes[d];
  for (; d < v.ndim && (v.strides[k][d] == size * extent || v.sizes[d] == 1); d++) extent *= v.sizes[d];
  for (; d < v.ndim; d++)
    if (v.strides[k][d] != 0 && v.sizes[d] != 1) return false;
  a.meets[k] = inner == 1 ? Meets::cycle : Meets::held;
  a.inner[k] = Divider(static_cast<uint32_t>(inner));
  a.extent[k] = Divider(static_cast<uint32_t>(extent));
  return inner == 1 ? aligned && extent % width == 0 : inner % width == 0;
}

bool try_dense(const PointwiseView& v, const PointwiseEntry& entry, const PointwiseParams& params) {
  static constexpr DType kStorage[] = {DType::F32, DType::BF16, DType::F16};
  for (int s = 0; s < 3; s++) {
    if (entry.dense[s] == nullptr) continue;
    DenseArgs a;
    const bool singles = entry.num_operands - v.num_outputs > 1;  // the dense form of one operand has none
    bool fits = is_dense(v, 0);
    for (int k = 0; fits && k < entry.num_operands; k++) {
      a.data[k] = v.data[k];
      if (is_host(v, k)) {
        convert_host_value(v, k, entry.types[k], rounds_through(v, entry, k), a.host_value[k]);
        a.data[k] = nullptr;
        a.meets[k] = Meets::single;
        fits = singles;
        continue;
      }
      fits = v.dtype[k] == (entry.types[k] == DType::F32 ? kStorage[s] : entry.types[k]);
      if (singles && k >= v.num_outputs && is_single(v, k)) {
        a.meets[k] = Meets::single;
      } else {
        fits = fits && meet(v, k, entry.width[s], a);
      }
    }
    if (!fits) continue;
    a.numel = v.numel;
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
    if (rounds_through(v, entry, k)) a.through[k] = v.compute;
    if (is_host(v, k)) {
      memcpy(a.host_value[k], v.data[k], size_of(v.dtype[k]));
      a.data[k] = nullptr;
    }
  }
  entry.general<<<grid_for(v.numel), kThreads, 0, cuda::current_stream()>>>(a, params);
}

const PointwiseEntry* find_entry(PointwiseOp op, DType compute) {
  for (auto lookup : {&arithmetic_entry, &compare_entry, &math_entry, &activation_entry, &integer_entry, &special_entry,
                      &bessel_entry, &orthogonal_entry, &pathwise_entry})
    if (const PointwiseEntry* entry = lookup(op, compute)) return entry;
  return nullptr;
}

void pointwise(PointwiseOp op, const PointwiseView& v, const PointwiseParams& params) {
  // The few operators on the bits of a 16-bit float are built for it, and some on its values.
  const bool on_bits = is_half(v.compute) && op == PointwiseOp::nextafter;
  const PointwiseEntry* entry = is_half(v.compute) ? narrow_entry(op, v.compute) : nullptr;
  if (entry == nullptr) entry = find_entry(op, on_bits ? v.compute : compute_dtype(v.compute));
  if (entry == nullptr) missing_kernel(name_of(op), name_of(v.compute));
  run_pointwise(name_of(op), v, *entry, params);
}

const PointwiseEntry* loss_entry(LossOp op, DType compute) {
  switch (op) {
#define MT_FIND(name, functor) \
  case LossOp::name: return engine::find<functors::functor>(compute, FloatTypes{});
    MT_LOSS_OPS(MT_FIND)
#undef MT_FIND
  }
  return nullptr;
}

void loss(LossOp op, const PointwiseView& v, const PointwiseParams& params) {
  const PointwiseEntry* entry = loss_entry(op, compute_dtype(v.compute));
  if (entry == nullptr) missing_kernel("loss", name_of(v.compute));
  run_pointwise("loss", v, *entry, params);
}

MT_REGISTER_KERNEL(pointwise_kernel, &pointwise);
MT_REGISTER_KERNEL(loss_kernel, &loss);

}  // namespace

void run_pointwise(const char* name, const PointwiseView& v, const PointwiseEntry& entry,
                   const PointwiseParams& params) {
  if (v.numel == 0) return;
  if (!try_dense(v, entry, params)) run_general(v, entry, params);
  cuda::check_launch("launching the pointwise kernel", name);
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
