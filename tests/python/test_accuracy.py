"""No unary operator is more than one ulp behind native on any 16-bit input; in single and double precision no largest
error is above native's by more, but for accuracy.BEHIND; docs/accuracy.md has the figures."""

import pathlib
import re

import numpy as np
import pytest
import torch

from minitorch_backend import _C
from tools import accuracy, truth

# The list is the CPU's.
BEHIND = accuracy.BEHIND if truth.NATIVE == "cpu" else {}
MARKS = {name: pytest.mark.xfail(strict=True, reason=reason) for name, reason in BEHIND.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", accuracy.operators())
def test_no_worse_than_native_by_more_than_one_ulp(name):
    for dtype in accuracy.DTYPES:
        row = accuracy.measure(name, dtype)
        if row is not None:
            assert row.behind <= 1, f"{dtype}: {row.behind:.3g} ulp behind native at {row.worst_input!r}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in truth.OPERATORS])
def test_single_and_double_precision(name):
    for dtype in accuracy.WIDE_DTYPES:
        e = truth.measure(name, dtype, count=300)
        assert not e.is_behind, f"{dtype}: {e.ours:.3g} ulp, native's {e.native:.3g}, behind at {e.at!r}"
        explained = e.behind <= 1 or name in accuracy.ELSEWHERE or truth.NATIVE != "cpu"
        assert explained, f"{dtype}: {e.behind:.3g} ulp behind native at {e.at!r}, and the page does not say why"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [*accuracy.WIDE_DTYPES, *accuracy.DTYPES])
@pytest.mark.parametrize("name", truth.BINARY)
def test_two_arguments(name, dtype):
    ours, native, behind, at = truth.measure_pairs(name, dtype)
    assert behind <= 1 or ours <= native, f"{ours:.3g} ulp, native's {native:.3g}, behind at {at!r}"


def test_errors_are_counted_in_ulp():
    best = torch.tensor([1.0, 0.0, float("inf"), float("nan")], dtype=torch.float16)
    assert accuracy.ulp_error(best, best.double()).tolist() == [0.0] * 4
    above = torch.tensor([1.0 + 2**-10], dtype=torch.float16)
    assert accuracy.ulp_error(above, torch.ones(1, dtype=torch.float64)).item() == 1
    assert accuracy.ulp_error(best[2:3], torch.ones(1, dtype=torch.float64)).item() == float("inf")
    subnormal = torch.tensor([2.0**-24], dtype=torch.float16)
    assert accuracy.ulp_error(subnormal, torch.zeros(1, dtype=torch.float64)).item() == 1


@pytest.mark.parametrize("dtype", accuracy.WIDE_DTYPES)
def test_errors_against_extended_precision(dtype):
    eps = torch.finfo(dtype).eps
    one = np.array([1, 1 + truth.Long(eps) / 4, np.inf, np.nan], dtype=truth.Long)
    assert truth.ulp_error(torch.tensor([1, 1, np.inf, np.nan], dtype=dtype), one).tolist() == [0, 0.25, 0, 0]
    assert truth.ulp_error(torch.tensor([1 + eps], dtype=dtype), one[:1]).item() == 1
    assert truth.ulp_error(torch.tensor([np.inf], dtype=dtype), one[:1]).item() == float("inf")


def test_the_page_has_a_row_for_each_operator():
    page = pathlib.Path(__file__).parents[2].joinpath("docs", "accuracy.md").read_text()
    missing = [name for name in accuracy.operators() if f"| {name} | bfloat16 |" not in page]
    missing += [name for name in [*truth.OPERATORS, *truth.BINARY] if f"| {name} | float64 |" not in page]
    assert not missing, f"run `make accuracy`: no rows for {missing}"


# Operators whose true values are quick to find, on the machine that the page is of; exp and softplus among them.
QUICK = [name for name, op in truth.OPERATORS.items() if not getattr(op.truth, "__qualname__", "").startswith("mapped")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(_C.isa() != "avx512", reason="the page has the figures of another instruction set")
@pytest.mark.parametrize("name", QUICK)
def test_the_page_has_what_is_measured(name):
    page = pathlib.Path(__file__).parents[2].joinpath("docs", "accuracy.md").read_text()
    for dtype in accuracy.WIDE_DTYPES:
        row = re.search(rf"^\| {re.escape(name)} \| {accuracy.short(dtype)} \| (\S+) ", page, re.MULTILINE)
        ours = truth.measure(name, dtype, accuracy.SAMPLES).ours
        assert float(row[1]) == pytest.approx(ours, rel=0.01), f"run `make accuracy`: {dtype}"


REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "nansum": torch.nansum,
    "var": torch.var,
    "norm": torch.linalg.vector_norm,
    "logsumexp": lambda x: x.logsumexp(0),
    "cumsum": lambda x: x.cumsum(0),
    "sum of rows": lambda x: x.view(-1, 4096).sum(1),
    "sum of columns": lambda x: x.view(4096, -1).sum(0),
    "var of rows": lambda x: x.view(-1, 4096).var(1),
    "norm of columns": lambda x: torch.linalg.vector_norm(x.view(4096, -1), dim=0),
    "logsumexp of rows": lambda x: x.view(-1, 4096).logsumexp(1),
    "cumsum of columns": lambda x: x.view(4096, -1).cumsum(0),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_large_reductions_are_no_less_exact_than_native(name):
    """Root mean squares of the relative errors over a few tensors, native's with a margin for chance."""
    fn = REDUCTIONS[name]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        squares = torch.zeros(2, dtype=torch.float64)
        for seed in range(4):
            x = torch.randn(1 << 20, generator=torch.Generator().manual_seed(seed)).to(dtype)
            want = fn(x.double())
            results = fn(x.to("minitorch")).cpu(), fn(x)
            squares += torch.stack([((r.double() - want) / want.abs().mean()).square().mean() for r in results])
        ours, native = squares.div(4).sqrt().tolist()
        assert ours <= 1.25 * native + torch.finfo(dtype).eps / 8, f"{dtype}: {ours:.3g}, native {native:.3g}"
