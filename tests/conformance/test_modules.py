"""module_db: every torch.nn module, in training and in evaluation mode, forward and backward against native."""

import copy

import pytest
import torch
from torch.testing._internal.common_modules import module_db

from tests.conformance.crossing import DEVICE, Crossing, tensors_in

# (module, mode): why it does not pass. Strict.
EXPECTED_FAILURES = {}
MODULES = {info.name: info for info in module_db}
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}  # several operators in a row, each within native's own tolerance


def assert_same(ours, native, what: str) -> None:
    ours, native = list(tensors_in(ours)), list(tensors_in(native))
    assert len(ours) == len(native), what
    for a, b in zip(ours, native, strict=True):
        assert a.device.type == DEVICE, what
        torch.testing.assert_close(
            a.detach().cpu(), b.detach(), equal_nan=True, msg=lambda m: f"{what}: {m}", **TOLERANCE
        )


def run(module: torch.nn.Module, args: tuple, kwargs: dict):
    """(outputs, gradients of inputs and parameters); gradients for ones as output gradients scaled by position."""
    torch.manual_seed(0)
    outputs = module(*args, **kwargs)
    differentiable = [t for t in tensors_in(outputs) if t.requires_grad]
    if not differentiable:
        return outputs, []
    wrt = [t for t in tensors_in((args, kwargs)) if t.requires_grad] + list(module.parameters())
    seeds = [torch.linspace(-1, 1, t.numel()).reshape(t.shape).to(t) for t in differentiable]
    return outputs, torch.autograd.grad(differentiable, wrt, seeds, allow_unused=True)


def rows() -> list:
    params = []
    for name in sorted(MODULES):
        for mode in ("train", "eval"):
            why = EXPECTED_FAILURES.get((name, mode))
            marks = [pytest.mark.xfail(reason=why, strict=True)] if why else []
            params.append(pytest.param(name, mode == "train", id=f"{name}-{mode}", marks=marks))
    return params


@pytest.mark.parametrize(("name", "training"), rows())
def test_module(name: str, training: bool):
    info = MODULES[name]
    torch.manual_seed(5)
    inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
    checked = 0
    for i, module_input in enumerate(inputs):
        if module_input.forward_input is None:
            continue
        made = module_input.constructor_input
        native = info.module_cls(*made.args, **made.kwargs).float().train(training)
        crossing = Crossing()
        ours = copy.deepcopy(native).to(DEVICE)
        args, kwargs = module_input.forward_input.args, module_input.forward_input.kwargs
        expected, expected_gradients = run(native, args, kwargs)
        result, gradients = run(ours, crossing(args), crossing(kwargs))
        what = f"{name} input {i} ({module_input.desc})"
        assert_same(result, expected, f"{what} output")
        assert_same(gradients, expected_gradients, f"{what} gradients")
        assert_same(list(ours.buffers()), list(native.buffers()), f"{what} buffers")
        checked += 1
    assert checked > 0
