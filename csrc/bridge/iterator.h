// TensorIterator to plain view.
#pragma once
#include <ATen/TensorIterator.h>

#include "kernels/view.h"

namespace minitorch {

// The iterator's operands as a view: dimensions merged and ordered as TensorIterator left them, strides in bytes.
// Valid while the iterator lives.
PointwiseView view_of(const at::TensorIteratorBase& iter);

}  // namespace minitorch
