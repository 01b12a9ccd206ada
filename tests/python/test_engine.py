"""The backward pass: which thread runs it, and that the user's own switches stay as they were."""

import subprocess
import sys
import threading

import pytest
import torch

from tests.python.twin import ASYNCHRONOUS


def threads_of_backward() -> set[int]:
    seen = set()

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.neg()

        @staticmethod
        def backward(ctx, grad):
            seen.add(threading.get_ident())
            return grad.neg()

    x = torch.ones(4).to("minitorch").requires_grad_()
    Probe.apply(x).exp().backward(torch.ones(4).to("minitorch"))
    return seen


@pytest.mark.skipif(ASYNCHRONOUS, reason="PyTorch's engine has a thread for each GPU")
def test_backward_runs_in_the_calling_thread():
    assert threads_of_backward() == {threading.get_ident()}


@pytest.mark.skipif(ASYNCHRONOUS, reason="PyTorch's engine has a thread for each GPU")
def test_backward_in_a_thread_of_the_user():
    result = []
    thread = threading.Thread(target=lambda: result.append((threads_of_backward(), threading.get_ident())))
    thread.start()
    thread.join()
    ((seen, own),) = result
    assert seen == {own}


@pytest.mark.parametrize("enabled", [True, False])
def test_the_switch_is_left_as_it_was(enabled):
    with torch.autograd.set_multithreading_enabled(enabled):
        threads_of_backward()
        assert torch._C._is_multithreading_enabled() is enabled


def test_the_switch_is_restored_after_an_error():
    x = torch.ones(4).to("minitorch").requires_grad_()
    y = x.exp()
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        y.backward()
    z = x.exp()
    z.backward(torch.ones(4).to("minitorch"))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        z.backward(torch.ones(4).to("minitorch"))
    assert torch._C._is_multithreading_enabled()


@pytest.mark.skipif(ASYNCHRONOUS, reason="a forked child cannot use a GPU: see test_device")
@pytest.mark.parametrize("before", ["", "step()"])
def test_a_forked_child_has_backward_passes(before):
    code = f"""
import os, torch, minitorch_backend
w = torch.ones(300, 300, device="minitorch", requires_grad=True)
def step():
    w.grad = None
    (w @ w).relu().sum().backward()
    return w.grad.sum().item()
{before}
pid = os.fork()
if pid == 0:
    ok = step() == step() == 2 * 300.0**3
    grand = os.fork()
    if grand == 0:
        os._exit(0 if step() == 2 * 300.0**3 else 1)
    os._exit(0 if ok and os.waitstatus_to_exitcode(os.waitpid(grand, 0)[1]) == 0 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert step() == 2 * 300.0**3
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
