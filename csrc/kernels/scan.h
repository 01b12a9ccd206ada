// Scans: running sums, products, maxima and minima along one dimension.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

enum class ScanOp : uint8_t { sum, prod, logsumexp };

// Input and output have the same sizes, and may be the same tensor. Nothing is empty.
extern Kernel<void(ScanOp, const TensorView& output, const TensorView& input, int dim)> scan_kernel;

// Running maximum or minimum and the index where it was last reached; NaN, once met, stays.
extern Kernel<void(bool max, const TensorView& values, const TensorView& indices, const TensorView& input, int dim)>
    scan_extremum_kernel;

}  // namespace minitorch
