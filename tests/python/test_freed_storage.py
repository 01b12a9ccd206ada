"""Operators on storage whose memory was given back: refused by all of them, and whole again with new memory."""

import pytest
import torch
import torch.nn.functional as F

DEVICE = "minitorch"


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: x.sum(),
        lambda x: x.clone(),
        lambda x: x.cpu(),
        lambda x: x.copy_(torch.ones(6)),
        lambda x: x[1:].exp(),
        lambda x: x.sort(),
        lambda x: torch.where(x > 0, x, x),
        lambda x: repr(x),
        lambda x: x.cumsum(0),
        lambda x: x[torch.tensor([0], device=x.device)],
    ],
)
def test_memory_that_was_given_back(use):
    x = torch.arange(6.0).to(DEVICE)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"not allocated yet|out of bounds for storage of size 0"):
        use(x)
    x.untyped_storage().resize_(24)
    assert x.copy_(torch.ones(6)).sum().item() == 6


FREED = {
    "foreach": lambda x: torch._foreach_add([x, x], 1.0),
    "cat": lambda x: torch.cat([x, x]),
    "item": lambda x: x[5].item(),
    "view with an offset": lambda x: x[2:] + 1,
    "out": lambda x: torch.add(torch.ones(6, device=x.device), 1, out=x),
    "out of a reduction": lambda x: torch.sum(torch.ones(2, 6, device=x.device), 0, out=x),
    "in-place": lambda x: x.exp_(),
    "normal": lambda x: x.normal_(),
    "take": lambda x: x.take(torch.tensor([0], device=x.device)),
    "softmax": lambda x: x.softmax(0),
    "matmul": lambda x: x @ x,
    "layer norm": lambda x: F.layer_norm(x, (6,)),
    "zero": lambda x: x.zero_(),
    "fill": lambda x: x.fill_(2.0),
    "shift": lambda x: torch.ops.aten.__lshift__.Scalar(x, 1),
    "floor division": lambda x: torch.floor_divide(x, 2),
    "bernoulli": lambda x: x.bernoulli_(0.5),
    "linspace": lambda x: torch.linspace(0, 1, 6, out=x),
    "searchsorted": lambda x: torch.searchsorted(torch.arange(3.0, device=x.device), x),
    "unique": lambda x: x.unique(),
    "count": lambda x: x.count_nonzero(0),
    "where": lambda x: torch.where(torch.ones(6, dtype=torch.bool, device=x.device), x, x),
    "histogram": lambda x: torch.histogram(x, 3),
    "gamma": lambda x: torch._standard_gamma(x),
    "log sigmoid": lambda x: F.logsigmoid(x),
    "batch norm": lambda x: torch.batch_norm_stats(x.view(1, 6), 1e-5),
    "adaptive pooling": lambda x: torch._adaptive_avg_pool2d(x.view(1, 2, 3), [1, 1]),
    "dropout": lambda x: torch.native_dropout(x, 0.5, True),
}


@pytest.mark.parametrize("name", FREED)
@pytest.mark.parametrize("left", [0, 8])
def test_operators_see_that_memory_was_given_back(name, left):
    x = torch.arange(6.0).to(DEVICE)
    view = x[:]
    x.untyped_storage().resize_(left)
    with pytest.raises(RuntimeError, match=r"not allocated yet|out of bounds for storage of size"):
        FREED[name](view)


def test_negative_sizes_are_refused():
    x = torch.arange(6.0).to(DEVICE)
    with pytest.raises(RuntimeError, match="negative number of bytes, got -1"):
        x.untyped_storage().resize_(-1)
    assert x.sum().item() == 15
