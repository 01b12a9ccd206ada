"""Each planted fault is named: operator, side, kind of verdict and first call."""

import pytest

from tests.compare.faults import FAULTS, run_fault


def test_there_are_enough():
    assert len({f.name for f in FAULTS}) == len(FAULTS) >= 20
    assert {f.model.split()[0] for f in FAULTS} == {"CNN", "GPT", "LSTM"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_is_named(fault):
    assert run_fault(fault, keep=0).problem() == ""
