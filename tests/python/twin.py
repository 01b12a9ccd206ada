"""Runs the same code on native CPU and on minitorch and compares everything that can be seen."""

import re

import torch
from torch.utils._pytree import tree_flatten, tree_map

import minitorch_backend

DEVICE = "minitorch"
# On a GPU a call returns before its work is done: what a kernel finds wrong in its arguments is raised by the next
# synchronisation, as an IndexError that names the operator, the index and the size.
ASYNCHRONOUS = minitorch_backend._C.backend_name() == "cuda"
# The native device whose random numbers ours draws; None where this torch does not have it.
NATIVE = "cpu" if not ASYNCHRONOUS else "cuda" if torch.cuda.is_available() else None
_FOUND_LATER = re.compile(r"(.+: index (-?\d+) is out of bounds for dimension with size \d+) \(found by the device; ")
_FOUND_BY_DEVICE = " (found by the device; the call that caused it was made before this one)"
# Limits for results whose sums are taken in another order than native's.
TOLERANCE = {
    torch.float64: {"rtol": 1e-12, "atol": 1e-12},
    torch.float32: {"rtol": 1e-5, "atol": 1e-6},
    torch.bfloat16: {"rtol": 2e-2, "atol": 1e-2},
    torch.float16: {"rtol": 2e-3, "atol": 1e-3},
}
FLOATS = list(TOLERANCE)


def twin(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on our device with the same sizes, strides, offset and memory around it."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    memory = tensor.detach().as_strided((elements,), (1,), 0)
    copy = memory.to(DEVICE).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    return copy.requires_grad_(tensor.requires_grad)


def _twins(args):
    return tree_map(lambda a: twin(a) if isinstance(a, torch.Tensor) else a, args)


def assert_same(ours, native, *, exact=True, strides=True, what="result", **tolerance):
    """Values, dtype, shape and (by default) strides agree, through any nesting of lists and tuples."""
    ours_leaves, ours_tree = tree_flatten(ours)
    native_leaves, native_tree = tree_flatten(native)
    assert ours_tree == native_tree, f"{what}: structure {ours_tree} instead of {native_tree}"
    for a, b in zip(ours_leaves, native_leaves, strict=False):
        if not isinstance(b, torch.Tensor):
            assert a == b, f"{what}: {a!r} instead of {b!r}"
            continue
        assert a.device.type == DEVICE, f"{what} is on {a.device}"
        assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype} {a.shape} instead of {b.dtype} {b.shape}"
        if strides and b.numel() > 0:
            assert a.stride() == b.stride(), f"{what}: strides {a.stride()} instead of {b.stride()}"
        limits = tolerance or ({"rtol": 0, "atol": 0} if exact else {})
        torch.testing.assert_close(a.detach().cpu(), b.detach(), equal_nan=True, msg=lambda m: f"{what}: {m}", **limits)


def check(fn, *args, wide=False, **options):
    """fn(*args) gives the same on both devices: results, changes to the arguments, and gradients where any are required.

    With ``wide`` native computes 16-bit floats in double and rounds at the end: for sums in which native itself rounds
    every partial sum and we do not.
    """
    device_args = _twins(args)
    native_args = tree_map(lambda a: _clone_layout(a) if isinstance(a, torch.Tensor) else a, args)
    if wide and any(isinstance(a, torch.Tensor) and a.dtype in (torch.bfloat16, torch.float16) for a in args):
        narrow = next(a.dtype for a in args if isinstance(a, torch.Tensor) and a.is_floating_point())
        widened = tree_map(
            lambda a: a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a, native_args
        )
        expected = tree_map(lambda r: r.to(narrow) if r.is_floating_point() else r, fn(*widened))
        assert_same(fn(*device_args), expected, **{**options, "exact": False})
        return
    native, ours = fn(*native_args), fn(*device_args)
    assert_same(ours, native, **options)
    assert_same(device_args, native_args, **{**options, "what": "arguments"})
    outputs = [t for t in tree_flatten(native)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs:
        return
    torch.manual_seed(1)
    weights = [torch.randn(t.shape, dtype=t.dtype) for t in outputs]
    device_outputs = [t for t in tree_flatten(ours)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.autograd.backward(outputs, weights)
    torch.autograd.backward(device_outputs, [w.to(DEVICE) for w in weights])
    for i, (a, b) in enumerate(zip(tree_flatten(device_args)[0], tree_flatten(native_args)[0], strict=False)):
        if isinstance(b, torch.Tensor) and b.requires_grad and b.is_leaf:
            assert (a.grad is None) == (b.grad is None), f"gradient of argument {i} exists on one device only"
            if b.grad is not None:
                assert_same(a.grad, b.grad, **{**options, "strides": False, "what": f"gradient of argument {i}"})


def _clone_layout(tensor):
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    memory = tensor.detach().as_strided((elements,), (1,), 0).clone()
    copy = memory.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    return copy.requires_grad_(tensor.requires_grad)


def check_error(fn, *args, text=True):
    """fn(*args) raises the same exception with the same first line on both devices, and ours leaves its arguments alone."""
    device_args = _twins(args)
    before = tree_map(lambda a: a.detach().cpu().clone() if isinstance(a, torch.Tensor) else a, device_args)
    native_error = error_of(fn, *tree_map(lambda a: a.clone() if isinstance(a, torch.Tensor) else a, args))
    ours = error_of(fn, *device_args)
    assert_same_error(ours, native_error, text=text)
    if found_later(ours):
        return
    for a, b in zip(tree_flatten(device_args)[0], tree_flatten(before)[0], strict=False):
        if isinstance(b, torch.Tensor):
            now = a.detach().cpu()
            kept = torch.equal(now, b) or torch.allclose(now, b, rtol=0, atol=0, equal_nan=True)
            assert kept, "an argument changed although the call failed"


def error_of(fn, *args):
    """What ``fn(*args)`` raises, or the device while it still works for it; None if all is well."""
    try:
        fn(*args)
        torch.minitorch.synchronize()
    except Exception as error:  # the kind of exception is what is compared
        return error
    return None


def found_later(error):
    """True for an error that the device found: other elements have been written by then."""
    return ASYNCHRONOUS and _FOUND_LATER.match(str(error)) is not None


def assert_same_error(ours, native, *, text=True):
    """Type and first line agree. What the device found has one form for all operators; the index must be native's."""
    assert native is not None, "native accepts this"
    assert ours is not None, f"no error; native raises {native!r}"
    if found_later(ours):
        assert type(ours) is IndexError, repr(ours)
        named = re.findall(r"(?<![#\w])-?\d+", str(native))
        index = _FOUND_LATER.match(str(ours))[2]
        assert not named or index in named, f"{ours!r} names index {index}, native is {native!r}"
        return
    assert type(ours) is type(native), f"{ours!r} instead of {native!r}"
    if text:
        assert _first_line(ours) == _first_line(native), f"{_first_line(ours)!r} instead of {_first_line(native)!r}"


def _first_line(error):
    """The message without the stack below it, and without what says that the device found it later.

    It names a tensor's type as torch.FloatTensor on the CPU only.
    """
    line = str(error).split("\n")[0].removesuffix(_FOUND_BY_DEVICE)
    return re.sub(rf"{DEVICE}(\w+)Type", r"torch.\1Tensor", line)


def same(actual, expected, dtype, strides=True, **limits):
    """Two tensors agree: floats within the limits of `dtype`, everything else exactly."""
    assert actual.device.type == DEVICE and actual.dtype == expected.dtype and actual.shape == expected.shape
    if strides:
        assert actual.stride() == expected.stride()
    if dtype in TOLERANCE and expected.is_floating_point():
        limits = {**TOLERANCE[dtype], **limits}
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True, **limits)
    else:
        assert torch.equal(actual.cpu(), expected)


def both(fn, tensors, dtype, grad=True, second=False, differentiable=None, grad_strides=True, **limits):
    """fn(*tensors) on native and on ours: all its results agree, and so do the gradients of the first one.

    Gradients are those of the floating point tensors among the first `differentiable` (None: all). With `second` the
    gradients of the sum of their squares are compared too. `limits` replace those of `dtype`.
    """
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    results = []
    for device in ("cpu", DEVICE):
        args = [
            t if t is None else t.to(device).detach().requires_grad_(grad and t.is_floating_point() and i in which)
            for which in [range(len(tensors) if differentiable is None else differentiable)]
            for i, t in enumerate(tensors)
        ]
        outs = fn(*args)
        outs = (outs,) if isinstance(outs, torch.Tensor) else outs
        inputs, grads = [a for a in args if a is not None and a.requires_grad], ()
        if grad:
            torch.manual_seed(1)
            weights = torch.randn(outs[0].shape, dtype=torch.float64).to(outs[0].dtype).to(device)
            grads = torch.autograd.grad(outs[0], inputs, weights, create_graph=second, allow_unused=True)
            if second:
                square = sum((g**2).sum() for g in grads if g is not None)
                grads += torch.autograd.grad(square, inputs, allow_unused=True)
        results.append((outs, grads))
    (expected, expected_grads), (actual, actual_grads) = results
    for a, e in zip(actual, expected, strict=True):
        same(a, e, dtype, **limits)
    for a, e in zip(actual_grads, expected_grads, strict=True):
        assert (a is None) == (e is None)
        if e is not None:
            same(a, e, dtype, grad_strides, **limits)


def same_error(fn, *tensors):
    """fn(*tensors) raises the same exception with the same first line on both devices."""
    native = error_of(fn, *tensors)
    ours = error_of(fn, *(t.to(DEVICE) if isinstance(t, torch.Tensor) else t for t in tensors))
    assert_same_error(ours, native)
