"""First and second derivatives of reductions, softmax, scans and sorts, by finite differences on the device."""

import pytest
import torch

FUNCTIONS = {
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean((0, 1)),
    "nansum": lambda x: x.nansum(0),
    "prod": lambda x: x.prod(1),
    "prod_all": lambda x: x.prod(),
    "var": lambda x: x.var(1),
    "std_mean": lambda x: torch.std_mean(x, 0),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "norm3": lambda x: torch.linalg.vector_norm(x, 3, dim=0),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=0),
    "logsumexp": lambda x: x.logsumexp(1),
    "max_dim": lambda x: x.max(1).values,
    "min_all": lambda x: x.min(),
    "amax": lambda x: x.amax(0),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(0),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: x.cummax(1).values,
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "sort": lambda x: x.sort(1, descending=True).values,
    "topk": lambda x: x.topk(2, 1).values,
    "kthvalue": lambda x: x.kthvalue(2, 0).values,
    "median": lambda x: x.median(1).values,
    "renorm": lambda x: x.renorm(2, 0, 0.5),
    "trace": lambda x: x.trace(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    # Distinct values, far enough apart for finite differences of selections.
    x = (torch.tensor([[3, 1, 4, 7], [9, 2, 6, 5], [8, 0, 11, 10]], dtype=torch.float64) / 7 + 0.3).to("minitorch")
    x.requires_grad_()
    assert torch.autograd.gradcheck(FUNCTIONS[name], (x,))
    # The infinity norm's second derivative is PyTorch's symbolic zero, which needs aten::_efficientzerotensor.
    if name != "norm_inf":
        assert torch.autograd.gradgradcheck(FUNCTIONS[name], (x,))
