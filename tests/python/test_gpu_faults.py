"""In which thread a GPU's errors are raised that are found after the call."""

import concurrent.futures
import threading

import pytest
import torch

from tests.python.test_gpu_hazards import overlapping
from tests.python.twin import ASYNCHRONOUS, DEVICE

pytestmark = pytest.mark.skipif(not ASYNCHRONOUS, reason="needs a GPU")


def wait_and_catch():
    """The text of the error that this thread's next synchronisation raises, if any."""
    try:
        torch.minitorch.synchronize()
    except IndexError as error:
        return str(error)
    return None


def in_a_thread(function):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.fixture
def bad_lookup():
    x, i = torch.arange(5.0, device=DEVICE), torch.tensor([7], device=DEVICE)
    torch.minitorch.synchronize()
    return lambda: x.index_select(0, i)


@overlapping
def test_a_bad_index_is_raised_in_the_thread_of_the_call_also_if_another_waits_first(bad_lookup):
    for _ in range(20):
        bad_lookup()
        assert "index_select: index 7" in in_a_thread(wait_and_catch)  # the one that waits may be who reads the result
        assert in_a_thread(wait_and_catch) is None
        assert "index_select: index 7" in wait_and_catch()
        assert wait_and_catch() is None
        bad_lookup()
        assert "index_select: index 7" in wait_and_catch()
        assert in_a_thread(wait_and_catch) is None and wait_and_catch() is None


@overlapping
@pytest.mark.parametrize(
    "wait",
    [
        lambda y: y.sum().item(), lambda y: y.cpu(), lambda y: y.nonzero(), lambda y: y[y > 0], lambda y: y.unique(),
        lambda y: torch.accelerator.synchronize(), lambda y: torch.minitorch.current_stream().synchronize(),
        lambda y: torch.minitorch.current_stream().record_event().synchronize(), lambda y: torch.equal(y, y),
        lambda y: torch.linalg.matrix_exp(y.expand(2, 2)),
    ],
)  # fmt: skip
def test_whatever_waits_raises_it(bad_lookup, wait):
    with pytest.raises(IndexError, match="index_select: index 7"):
        wait(bad_lookup())
    assert wait_and_catch() is None


@overlapping
def test_each_thread_is_told_of_its_own_bad_index_first(bad_lookup):
    x, i = torch.arange(5.0, device=DEVICE), torch.tensor([9], device=DEVICE)

    def other():
        x.gather(0, i)
        return wait_and_catch()

    bad_lookup()
    assert "gather: index 9" in in_a_thread(other)
    assert "index_select: index 7" in wait_and_catch()
    assert wait_and_catch() is None


@overlapping
def test_a_bad_index_of_a_thread_that_has_ended_is_raised_once(bad_lookup):
    for _ in range(3):
        thread = threading.Thread(target=bad_lookup)
        thread.start()
        thread.join()
        assert "index_select: index 7" in wait_and_catch()
        assert in_a_thread(wait_and_catch) is None and wait_and_catch() is None


@overlapping
def test_a_bad_index_of_a_backward_pass_is_raised_once(bad_lookup):
    class Lookup(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad + bad_lookup()

    class Wait(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * grad.sum().item()

    x = torch.ones(3, device=DEVICE, requires_grad=True)
    Lookup.apply(x).sum().backward()
    assert "index_select: index 7" in wait_and_catch()
    Wait.apply(x).sum().backward()
    assert wait_and_catch() is None
