"""Operators on masks: masked_select, masked_fill, masked_scatter, nonzero, where."""

import pytest
import torch
from index_values import ALL, layouts, values
from twin import check, check_error


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", ALL)
def test_masks(dtype):
    for x in layouts(values(6, 5, dtype=dtype)):
        mask = torch.rand(6, 5) > 0.5
        check(
            lambda x, m: (
                x[m],
                x.masked_select(m),
                x.masked_fill(m, 1),
                x.masked_fill(m[:1], 0),
                x.masked_select(m[0]),
            ),
            x,
            mask,
        )
        check(lambda x, m, s: (x.masked_scatter(m, s), x[0].masked_scatter(m, s)), x, mask, values(40, dtype=dtype))
        check(lambda x, m: x.masked_fill_(m, torch.tensor(1, device=x.device)), x, mask.t().contiguous().t())
        check(
            lambda x: (
                x.nonzero(),
                torch.argwhere(x),
                torch.where(x),
                torch.nonzero_static(x, size=4),
                torch.nonzero_static(x, size=40, fill_value=-7),
            ),
            x,
        )


def test_mask_gradients():
    mask = torch.rand(6, 5) > 0.5
    for x in layouts(values(6, 5)):
        x = x.requires_grad_()
        check(lambda x, m: (x[m], x.masked_select(m), x.masked_fill(m, 1.0)), x, mask)
        check(lambda x, m, v: x.masked_fill(m, v), x, mask, torch.tensor(2.0, requires_grad=True), exact=False)
        check(lambda x, m, s: x.masked_scatter(m, s), x, mask, values(6, 5).requires_grad_())


def test_masks_large():
    x = values(300, 40, 11)
    mask = torch.rand(300, 40, 11) > 0.9
    check(
        lambda x, m: (
            x[m],
            m.nonzero(),
            x.masked_fill(m, -1),
            m.t().nonzero() if m.dim() == 2 else m.transpose(0, 2).nonzero(),
            x.transpose(0, 2)[m.transpose(0, 2)],
        ),
        x,
        mask,
    )
    check(lambda x, m: (torch.nonzero_static(m, size=1000), x.masked_scatter(m, x)), x, mask)
    check(lambda m: (m.nonzero(), m.all(), m.sum()) if False else m.nonzero(), torch.ones(70000, dtype=torch.bool))


def test_mask_out_and_errors():
    x = values(3, 4)
    check(lambda x, out: torch.masked_select(x, x > 0, out=out), x, torch.empty(0))
    check(lambda x, out: torch.nonzero(x, out=out), x, torch.empty(12, 2, dtype=torch.long))
    check(lambda x: torch.nonzero(torch.tensor(3.0, device=x.device)), x)
    check_error(lambda x: x.masked_fill_(x, 1), x)
    check_error(lambda x: x.masked_fill_((x > 0).byte(), 1), x)
    check_error(lambda x: x.masked_fill_(x > 0, 1j), x)
    check_error(lambda x: x.byte().masked_fill_(x > 0, 300), x)
    check_error(lambda x: x.masked_fill_(x > 0, x), x)
    check_error(lambda x: x.masked_fill_(x[:, :3] > 0, 1), x)
    check_error(lambda x: x.masked_select(x), x)
    check_error(lambda x: x.masked_select(x[:, :3] > 0), x)
    check_error(lambda x: x.masked_scatter_(x > -100, x[0, :1].clone()), x)
    check_error(lambda x: x.masked_scatter_(x > 0, x.double()), x)
    check_error(lambda x: x.masked_scatter_(x, x.clone()), x)
    check_error(lambda x: torch.nonzero(x, out=torch.empty(0, device=x.device)), x)
    check_error(lambda x: torch.nonzero_static(x, size=-1), x)


def test_masked_fill_keeps_the_rest():
    x = torch.tensor([float("nan"), -0.0, float("inf"), 1.0])
    check(lambda x, m: x.masked_fill(m, float("-inf")), x, torch.tensor([False, False, False, True]))
    y = (
        torch.tensor([float("nan"), -0.0])
        .to("minitorch")
        .masked_fill(torch.tensor([False, False]).to("minitorch"), 0.0)
    )
    assert torch.signbit(y.cpu())[1]
