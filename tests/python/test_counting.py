"""Counts: bincount, histograms and runs over more elements than a block takes, against native CPU."""

import math

import pytest
import torch

from tests.python.twin import check

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def generator():
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("n", [1, 255, 70_001])
def test_bincount(dtype, n):
    x = torch.randint(100, (n,), generator=generator()).to(dtype)
    check(torch.bincount, x)
    check(lambda t: torch.bincount(t, minlength=300), x)
    check(torch.bincount, torch.full((n,), 7, dtype=dtype))  # every element meets in one bin


@pytest.mark.parametrize("bins", [1, 2, 31, 383, 3071, 3073, 12287, 12289, 200_000])
def test_bincount_of_any_number_of_bins(bins):
    x = torch.randint(bins, (300_003,), generator=generator())
    check(lambda t: torch.bincount(t, minlength=bins), x)
    check(lambda t: torch.bincount(t[1::3], minlength=bins + 1), x)


@pytest.mark.parametrize("low", [-120, -7, 3])
def test_unique_of_a_narrow_range(low):
    x = torch.randint(low, low + 40, (70_001,), generator=generator()).to(torch.int8)
    check(lambda t: torch.unique(t, return_inverse=True, return_counts=True), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [1, 10, 5000, 20_000])
def test_histogram(dtype, bins):
    x = torch.randn(100_003, generator=generator()).to(dtype)
    x[::97], x[1::97], x[2::1001] = 2.0, -2.0, math.inf
    check(lambda t: torch.histc(t, bins, -2, 2), x)
    ours, native = (
        torch.histogram(x.to("minitorch"), bins, range=(-2.0, 2.0)),
        torch.histogram(x, bins, range=(-2.0, 2.0)),
    )
    torch.testing.assert_close(ours.bin_edges.cpu(), native.bin_edges)
    # A GPU rounds some edges otherwise, as linspace there does; points are counted between those that it gives.
    assert torch.equal(ours.hist.cpu(), torch.histogram(x, ours.bin_edges.cpu()).hist)
    edges = torch.linspace(-2, 2, bins + 1, dtype=dtype) ** 3
    check(lambda t, e: torch.histogram(t, e).hist, x, edges)
    x[3::1001] = math.nan
    check(lambda t, e: torch.histogram(t, e).hist, x, edges)


@pytest.mark.parametrize("bins", [7, 9000])
def test_weighted_histogram(bins):
    x, w = torch.randn(50_001, generator=generator()).double(), torch.rand(50_001, generator=generator()).double()
    check(lambda t, u: torch.histogram(t, bins, range=(-2.0, 2.0), weight=u).hist, x, w, rtol=1e-9, atol=1e-9)


def test_histogram_of_vectors():
    points = torch.randn(20_011, 3, generator=generator()).double()
    check(lambda t: torch.histogramdd(t, [5, 1, 40]).hist, points)
    check(lambda t: torch.histogramdd(t, [60, 70, 2]).hist, points)


def runs(n, longest, values):
    lengths = torch.randint(1, longest + 1, (n,), generator=generator())
    return values.repeat(n // len(values) + 1)[:n].repeat_interleave(lengths)[:n]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
@pytest.mark.parametrize("longest", [1, 3, 5000])
def test_values_of_runs(dtype, longest):
    values = torch.tensor([0, 1, 0, 1, 1, 0, 1], dtype=dtype) if dtype == torch.bool else torch.arange(7).to(dtype)
    for n in (1, 31, 16_384, 16_385, 100_003):
        x = runs(n, longest, values)
        check(torch.unique_consecutive, x)
        check(torch.unique_consecutive, x[1:])  # not at a multiple of 16 bytes
        check(lambda t: torch.unique_consecutive(t, return_counts=True, return_inverse=True), x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_runs_of_special_values(dtype):
    x = torch.tensor([0.0, -0.0, 1.0, math.nan, math.nan, math.inf, math.inf, -0.0], dtype=dtype).repeat(1001)
    check(torch.unique_consecutive, x)
