"""Each planted fault is named: operator, side, kind of verdict and first call, as the table in docs/diff.md says."""

import pytest
import torch

from minitorch_backend.compare.library import LIBRARY
from tests.compare.faults import FAULTS, row, rows_of_page, run_fault

# Call numbers follow from which operators torch makes of a model: those of the CPU backend with this version.
TABLE_OF = (2, 13)


def test_there_are_enough():
    assert len({f.name for f in FAULTS}) == len(FAULTS) >= 20
    assert {f.model.split()[0] for f in FAULTS} == {"CNN", "GPT", "LSTM"}


def test_the_page_has_a_row_for_each():
    assert [line.split(" | ")[0] for line in rows_of_page()] == [f"| {f.name}" for f in FAULTS]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_is_named(fault):
    result = run_fault(fault, keep=0)
    assert result.problem() == ""
    if LIBRARY is not None and tuple(map(int, torch.__version__.split(".")[:2])) == TABLE_OF:
        assert row(result) in rows_of_page(), "python -m tests.compare.faults writes the table anew"
