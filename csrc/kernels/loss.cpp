// The loss kernel objects.
#include "kernels/loss.h"

namespace minitorch {
constinit Kernel<void(LossOp, const PointwiseView&, const PointwiseParams&)> loss_kernel{"loss"};
constinit Kernel<void(const PointwiseView&, int*)> unit_interval_kernel{"unit_interval"};
constinit Kernel<void(const NllArgs&)> nll_kernel{"nll"};
constinit Kernel<void(const NllArgs&)> nll_backward_kernel{"nll_backward"};
constinit Kernel<void(const MarginArgs&)> multi_margin_kernel{"multi_margin"};
constinit Kernel<void(const MarginArgs&)> multi_margin_backward_kernel{"multi_margin_backward"};
constinit Kernel<void(const MarginArgs&)> multilabel_margin_kernel{"multilabel_margin"};
constinit Kernel<void(const MarginArgs&)> multilabel_margin_backward_kernel{"multilabel_margin_backward"};
}  // namespace minitorch
