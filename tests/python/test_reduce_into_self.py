"""Reductions whose out= is their input: native's error about the dimension that resizing took away or, where native goes
on and reads what it has written, the result that another tensor would have got."""

import pytest
import torch

from tests.python.twin import DEVICE, assert_same_error, error_of

X = torch.tensor([[1.0, -2.0, 3.5, 0.5], [4.0, 0.0, -1.5, 2.0], [0.25, 0.75, -0.5, 3.0]])


def index(x):
    return torch.empty(0, dtype=torch.long, device=x.device)


OPERATORS = {
    "norm": lambda x, dim, keep: torch.norm(x, 2, dim, keep, out=x),
    "vector_norm": lambda x, dim, keep: torch.linalg.vector_norm(x, 3, dim, keep, out=x),
    "median": lambda x, dim, keep: torch.median(x, dim, keep, out=(x, index(x))),
    "nanmedian": lambda x, dim, keep: torch.nanmedian(x, dim, keep, out=(x, index(x))),
    "amax": lambda x, dim, keep: torch.amax(x, dim, keep, out=x),
    "sum": lambda x, dim, keep: torch.sum(x, dim, keep, out=x),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS)
def test_native_misses_the_dimension(name):
    errors = [error_of(OPERATORS[name], x, 1, False) for x in (X.clone(), X.clone().to(DEVICE))]
    assert_same_error(errors[1], errors[0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["std", "var"])
@pytest.mark.parametrize("dim", [0, 1])
def test_deviations_into_the_input(name, dim):
    x = X.clone().to(DEVICE)
    getattr(torch, name)(x, dim, out=x)
    torch.testing.assert_close(x.cpu(), getattr(torch, name)(X, dim))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dim", [0, 1])
def test_modes_into_the_input(dim):
    x = X.clone().to(DEVICE)
    _, indices = torch.mode(x, dim, out=(x, index(x)))
    expected = torch.mode(X, dim)
    assert torch.equal(x.cpu(), expected.values) and torch.equal(indices.cpu(), expected.indices)


@pytest.mark.filterwarnings("ignore")
def test_indices_are_the_input():
    x = torch.tensor([[3, 1, 3], [2, 2, 0]], device=DEVICE)
    values, indices = torch.mode(x, 1, out=(torch.empty(0, dtype=torch.long, device=DEVICE), x))
    assert values.tolist() == [3, 2] and indices.tolist() == [2, 1]
