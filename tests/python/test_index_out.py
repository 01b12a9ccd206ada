"""Indexing into an output that is given."""

import pytest
import torch
from index_values import values
from twin import check, check_error


def test_index_out_variants():
    i = torch.tensor([1, 0, 1])
    check(lambda x, i, out: torch.index_select(x, 0, i, out=out), values(4, 3), i, torch.empty(3, 3).t())
    check(lambda x, i, out: torch.gather(x, 0, i[:, None], out=out), values(4, 3), i, torch.empty(0))
    check(lambda x, i, out: torch.index_add(x, 0, i, x[:3], out=out), values(4, 3), i, torch.empty(3, 4).t())
    check(lambda x, i, out: torch.scatter(x, 0, i[:, None], 2.0, out=out), values(4, 3), i, torch.empty(4, 3))
    check(lambda x, i, out: torch.take(x, i, out=out), values(4, 3), i, torch.empty(0))


@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize(("dim", "row", "column"), [(0, 0, 1), (0, 1, 1), (0, 0, 0), (1, 0, 1), (1, 1, 0)])
def test_output_that_is_partly_the_input(dim, row, column, rows):
    """Native sees what two slices share where they are dense, and computes something where it does not."""
    i = torch.arange(rows) % 2

    def select(x):
        out = x[row : row + rows, column : column + 4] if dim == 0 else x[row : row + 4, column : column + rows]
        return torch.index_select(x[:4, :4], dim, i.to(x.device), out=out)

    x = values(6, 9)
    if dim == 0 and (row, column) == (0, 1):
        check_error(select, x)
    else:
        assert select(x.to("minitorch")).shape == select(x.clone()).shape
