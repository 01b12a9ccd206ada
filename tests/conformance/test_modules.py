"""module_db: every torch.nn module in every dtype that it lists, in training and in evaluation mode, forward and backward
against native; and its error inputs.
"""

import copy

import pytest
import torch
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

from tests.conformance.calls import evenly
from tests.conformance.compare import call, compare_errors
from tests.conformance.crossing import DEVICE, Crossing, tensors_in

# (module, dtype, mode): why it does not pass. Strict.
EXPECTED_FAILURES = {}
MODULES = {info.name: info for info in module_db}
# Several operators in a row, each within native's own tolerance.
TOLERANCES = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-9},
    torch.complex128: {"rtol": 1e-9, "atol": 1e-9},
    torch.float32: {"rtol": 1e-4, "atol": 2e-5},
    torch.complex64: {"rtol": 1e-4, "atol": 2e-5},
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.complex32: {"rtol": 1e-2, "atol": 1e-2},
    torch.bfloat16: {"rtol": 4e-2, "atol": 4e-2},
}
FEW = 6  # inputs in dtypes other than float32, spread over all that there are


def assert_same(ours, native, what: str) -> None:
    ours, native = list(tensors_in(ours)), list(tensors_in(native))
    assert len(ours) == len(native), what
    for a, b in zip(ours, native, strict=True):
        assert a.device.type == DEVICE, what
        tolerance = TOLERANCES.get(b.dtype, {"rtol": 0, "atol": 0})
        torch.testing.assert_close(
            a.detach().cpu(), b.detach(), equal_nan=True, msg=lambda m: f"{what}: {m}", **tolerance
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
        for dtype in MODULES[name].dtypes:
            for mode in ("train", "eval"):
                key = (name, str(dtype).removeprefix("torch."), mode)
                why = EXPECTED_FAILURES.get(key)
                marks = [pytest.mark.xfail(reason=why, strict=True)] if why else []
                params.append(pytest.param(name, dtype, mode == "train", id="-".join(key), marks=marks))
    return params


@pytest.mark.parametrize(("name", "dtype", "training"), rows())
def test_module(name: str, dtype: torch.dtype, training: bool):
    info = MODULES[name]
    torch.manual_seed(5)
    inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    checked = 0
    for i, module_input in enumerate(evenly(list(inputs), None if dtype == torch.float32 else FEW)):
        if module_input.forward_input is None:
            continue
        made = module_input.constructor_input
        native = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
        crossing = Crossing()
        ours = copy.deepcopy(native).to(DEVICE)
        args, kwargs = module_input.forward_input.args, module_input.forward_input.kwargs
        expected = call(run, native, args, kwargs)
        found = call(run, ours, crossing(args), crossing(kwargs))
        compare_errors(expected, found)
        what = f"{name} input {i} ({module_input.desc})"
        if expected.error is None:
            assert_same(found.result[0], expected.result[0], f"{what} output")
            assert_same(found.result[1], expected.result[1], f"{what} gradients")
        assert_same(list(ours.buffers()), list(native.buffers()), f"{what} buffers")
        checked += 1
    assert checked > 0


@pytest.mark.parametrize("name", [name for name in sorted(MODULES) if MODULES[name].module_error_inputs_func])
def test_errors(name: str):
    info = MODULES[name]
    checked = 0
    for training in (True, False):
        for wrong in info.module_error_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=False, training=training
        ):
            made, given = wrong.module_error_input.constructor_input, wrong.module_error_input.forward_input
            moves = (("cpu", lambda value: value), (DEVICE, Crossing()))
            if wrong.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
                native, ours = (call(info.module_cls, *move(made.args), **move(made.kwargs)) for _, move in moves)
            else:
                module = info.module_cls(*made.args, **made.kwargs)
                native, ours = (
                    call(copy.deepcopy(module).to(device), *move(given.args), **move(given.kwargs))
                    for device, move in moves
                )
            assert isinstance(native.error, wrong.error_type)
            compare_errors(native, ours)
            checked += 1
    assert checked > 0
