"""No unary operator is more than one ulp behind native on any 16-bit input; docs/accuracy.md has the figures."""

import pathlib

import pytest
import torch

from tools import accuracy

MARKS = {name: pytest.mark.xfail(strict=True, reason=reason) for name, reason in accuracy.BEHIND.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in accuracy.operators()])
def test_no_worse_than_native_by_more_than_one_ulp(name):
    for dtype in accuracy.DTYPES:
        row = accuracy.measure(name, dtype)
        if row is not None:
            assert row.behind <= 1, f"{dtype}: {row.behind:.3g} ulp behind native at {row.worst_input!r}"


def test_errors_are_counted_in_ulp():
    best = torch.tensor([1.0, 0.0, float("inf"), float("nan")], dtype=torch.float16)
    assert accuracy.ulp_error(best, best.double()).tolist() == [0.0] * 4
    above = torch.tensor([1.0 + 2**-10], dtype=torch.float16)
    assert accuracy.ulp_error(above, torch.ones(1, dtype=torch.float64)).item() == 1
    assert accuracy.ulp_error(best[2:3], torch.ones(1, dtype=torch.float64)).item() == float("inf")
    subnormal = torch.tensor([2.0**-24], dtype=torch.float16)
    assert accuracy.ulp_error(subnormal, torch.zeros(1, dtype=torch.float64)).item() == 1


def test_the_page_has_a_row_for_each_operator():
    page = pathlib.Path(__file__).parents[2].joinpath("docs", "accuracy.md").read_text()
    missing = [name for name in accuracy.operators() if f"| {name} | bfloat16 |" not in page]
    assert not missing, f"run `make accuracy`: no rows for {missing}"
