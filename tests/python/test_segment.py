"""segment_reduce against native CPU."""

import itertools

import pytest
import torch

from tests.python.twin import DEVICE, check, check_error

REDUCTIONS = ["max", "mean", "min", "sum", "prod"]
TOLERANCE = {
    torch.float32: dict(rtol=1e-5, atol=1e-6),
    torch.float64: dict(rtol=1e-12, atol=1e-12),
    torch.bfloat16: dict(rtol=2e-2, atol=2e-2),
    torch.float16: dict(rtol=2e-3, atol=2e-3),
}


def data(*shape, dtype=torch.float32):
    torch.manual_seed(len(shape))
    return torch.randint(-3, 4, shape).to(dtype).requires_grad_()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_lengths_and_offsets(reduction, dtype):
    for initial, kind in itertools.product((None, 2), (torch.int, torch.long)):
        lengths = torch.tensor([2, 0, 3, 1], dtype=kind)
        offsets = torch.tensor([0, 2, 2, 5, 6], dtype=kind)
        for shape in ((6,), (6, 3), (6, 2, 5)):
            check(
                lambda x, n: torch.segment_reduce(x, reduction, lengths=n, initial=initial),
                data(*shape, dtype=dtype),
                lengths,
                wide=True,
                **TOLERANCE[dtype],
            )
            check(
                lambda x, n: torch.segment_reduce(x, reduction, offsets=n, initial=initial),
                data(*shape, dtype=dtype),
                offsets,
                wide=True,
                **TOLERANCE[dtype],
            )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_another_axis_and_layouts(reduction):
    lengths = torch.tensor([[2, 3], [0, 5], [5, 0]])
    for x in (data(3, 5, 4), data(5, 3, 4).detach().transpose(0, 1).requires_grad_(), data(3, 5, 8).detach()[..., ::2]):
        check(
            lambda x, n: torch.segment_reduce(x, reduction, lengths=n, axis=1), x, lengths, **TOLERANCE[torch.float32]
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_odd_values(reduction):
    x = torch.tensor([1.0, float("nan"), 2.0, float("nan"), 3.0, 0.0, 0.0, float("inf")], requires_grad=True)
    lengths = torch.tensor([2, 1, 2, 0, 2, 1])
    check(lambda x, n: torch.segment_reduce(x, reduction, lengths=n), x, lengths)


def test_errors():
    x, lengths = torch.ones(4), torch.tensor([1, 3])
    check_error(lambda x, n: torch.segment_reduce(x, "median", lengths=n), x, lengths)
    check_error(lambda x: torch.segment_reduce(x, "max"), x)
    check_error(lambda x, n: torch.segment_reduce(x, "max", lengths=n), x, lengths - 2)
    check_error(lambda x, n: torch.segment_reduce(x, "max", lengths=n), x, lengths + 2)
    check_error(lambda x, n: torch.segment_reduce(x.int(), "max", lengths=n), x, lengths)
    for unsafe in ([1, 9], [-1, 5], [2**62, 2**62]):
        with pytest.raises(RuntimeError, match="segment"):
            torch.segment_reduce(x.to(DEVICE), "max", lengths=torch.tensor(unsafe, device=DEVICE), unsafe=True)
