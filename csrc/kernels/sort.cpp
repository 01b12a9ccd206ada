// The sorting kernel objects. Static initialisation fills their slots, so they must be constant initialised.
#include "kernels/sort.h"

namespace minitorch {
constinit Kernel<void(const TensorView&, const TensorView&, const TensorView&, int, bool)> sort_kernel{"sort"};
constinit Kernel<void(const TensorView&, const TensorView&, const TensorView&, int, int64_t, bool)> topk_kernel{"topk"};
constinit Kernel<void(SelectOp, const TensorView&, const TensorView&, const TensorView&, int, int64_t)> select_kernel{
    "select"};
constinit Kernel<void(const SearchArgs&)> search_kernel{"searchsorted"};
constinit Kernel<void(const RunsArgs&)> runs_kernel{"unique"};
constinit Kernel<void(const char*, DType, int64_t, int64_t*, char*)> run_values_kernel{"unique_consecutive"};
constinit Kernel<void(int64_t*, char*, DType, int64_t, int64_t)> lexicographic_order_kernel{"lexicographic_order"};
constinit Kernel<void(const CountArgs&)> count_kernel{"bincount"};
constinit Kernel<void(const HistogramArgs&)> histogram_kernel{"histogram"};
constinit Kernel<void(const MembershipArgs&)> membership_kernel{"isin"};
}  // namespace minitorch
