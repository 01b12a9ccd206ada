"""Numbers as arguments: beyond the range of the tensors' dtype, or of another kind, as on native CPU."""

import pytest
import torch

from tests.python.twin import ASYNCHRONOUS, check, check_error


@pytest.mark.skipif(ASYNCHRONOUS, reason="on a GPU integers divided by zero are all ones")
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32], ids=str)
@pytest.mark.parametrize(
    "divide", ["fmod", "remainder", "floor_divide", "__floordiv__", "__mod__", "fmod_", "floor_divide_"]
)
def test_divisors_that_become_zero_are_refused(divide, dtype):
    """256 is zero as an int8: the division would end the process."""
    x = torch.tensor([5, 0, 7, 1] * 5).to(dtype)
    number = 2**40
    check_error(lambda t: getattr(t, divide)(number), x)
    check(lambda t: getattr(t, divide)(number + 1), x)
    if not divide.startswith("__"):
        wide = torch.full((20,), number + 3)
        wide[7] = number
        check_error(lambda t: getattr(t, divide)(torch.tensor(number, device=t.device)), x)
        if divide.endswith("_"):
            check_error(
                lambda t, u: getattr(t, divide)(u),
                x,
                torch.ones(20, dtype=torch.long).index_fill(0, torch.tensor(3), 0),
            )
            check(lambda t, u: getattr(t, divide)(u), x, wide)
            check(lambda t, u: getattr(t, divide)(u), x[::2], wide[::2])
