// The kernel objects of shape.h.
#include "kernels/shape.h"

namespace minitorch {
constinit Kernel<void(const PointwiseView&)> flip_kernel{"flip"};
constinit Kernel<void(const CatArgs&)> cat_kernel{"cat"};
constinit Kernel<void(const TriangleArgs&)> triangle_kernel{"triangle"};
constinit Kernel<void(const TriangleIndexArgs&)> triangle_indices_kernel{"triangle_indices"};
constinit Kernel<void(const RepeatArgs&)> repeat_interleave_kernel{"repeat_interleave"};
constinit Kernel<void(const PadArgs&)> pad_kernel{"pad"};
constinit Kernel<void(const PadArgs&)> pad_backward_kernel{"pad_backward"};
constinit Kernel<void(const ColumnArgs&)> im2col_kernel{"im2col"};
constinit Kernel<void(const ColumnArgs&)> col2im_kernel{"col2im"};
}  // namespace minitorch
