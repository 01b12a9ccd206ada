// The reduction kernel object. Static initialisation fills its slots, so it must be constant initialised.
#include "kernels/reduce.h"

#include <iterator>

namespace minitorch {
constinit Kernel<void(ReduceOp, const PointwiseView&, const ReduceParams&)> reduce_kernel{"reduce"};

const char* name_of(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum",    "nansum", "mean", "prod",      "count_nonzero", "any",
                                           "all",    "max",    "min",  "aminmax",   "max_index",     "min_index",
                                           "argmax", "argmin", "norm", "power_sum", "var",           "std"};
  static_assert(std::size(kNames) == static_cast<size_t>(ReduceOp::std) + 1);
  return kNames[static_cast<size_t>(op)];
}

}  // namespace minitorch
