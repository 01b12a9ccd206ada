// Reductions on CUDA: which reducer an operator takes (reducers.cuh) and in which types; reduce.cuh runs it.
#include "kernels/cuda/reduce.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace reduction;

template <template <class> class R, class... T>
bool run_for(DType compute, Types<T...> types, const PointwiseView& v, const Params& p) {
  return dispatch(compute, types, [&](auto tag) { run<R<typename decltype(tag)::type>>(v, p); });
}

bool dispatch_op(ReduceOp op, const PointwiseView& v, const Params& p) {
  const DType out = v.dtype[0], in = compute_dtype(v.compute);
  const DType sum = is_integral(out) || out == DType::Bool ? DType::I64 : compute_dtype(out);
  using All = Types<float, double, int64_t, Complex<float>, Complex<double>>;
  using Inexact = Types<float, double, Complex<float>, Complex<double>>;
  switch (op) {
    case ReduceOp::sum: return run_for<SumReducer>(sum, All{}, v, p);
    case ReduceOp::mean: return !is_integral(sum) && run_for<SumReducer>(sum, All{}, v, p);
    case ReduceOp::nansum: return run_for<NansumReducer>(sum, FloatTypes{}, v, p);
    case ReduceOp::prod: return run_for<ProdReducer>(sum, All{}, v, p);
    case ReduceOp::count_nonzero:
    case ReduceOp::any:
    case ReduceOp::all: run<CountReducer>(v, p); return true;
    case ReduceOp::norm:
    case ReduceOp::power_sum:
      return NormReducer<float>::takes(p) ? run_for<NormReducer>(in, Inexact{}, v, p)
                                          : run_for<PowerReducer>(in, Inexact{}, v, p);
    case ReduceOp::var:
    case ReduceOp::std: return run_for<MomentReducer>(in, FloatTypes{}, v, p);
    default: break;
  }
  const bool narrow = in == DType::Bool || in == DType::U8 || in == DType::I8 || in == DType::I16;
  const DType ordered = narrow ? DType::I32 : in;
  using Ordered = Types<float, double, int32_t, int64_t>;
  const bool values = op == ReduceOp::max || op == ReduceOp::min || op == ReduceOp::aminmax;
  return values ? run_for<AminmaxReducer>(ordered, Ordered{}, v, p)
                : run_for<ExtremumReducer>(ordered, Ordered{}, v, p);
}

void reduce(ReduceOp op, const PointwiseView& v, const ReduceParams& params) {
  const Params p{op, params.p, params.correction};
  if (!dispatch_op(op, v, p)) missing_kernel(reduce_kernel.name(), name_of(v.dtype[v.num_operands - 1]));
}

MT_REGISTER_KERNEL(reduce_kernel, &reduce);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
