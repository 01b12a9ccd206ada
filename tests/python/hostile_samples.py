"""Calls that op_db's samples make, each with one or two arguments spoilt, in search of crashes.

    MINITORCH_POISON=1 python -m tests.python.hostile_samples [--cases N] [--only REGEX] --survey

tests/python/hostile.py draws all arguments at random, and most of its calls fail the first check. Here the operators that
a sample's forward and backward pass end in are noted with their arguments, and then called with a dimension less, an
index out of range, a list too short, memory given back and so on. An exception is a good answer.
"""

import argparse
import contextlib
import functools
import random
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from tests.python.hostile import DEVICE, DTYPES, INTEGERS, LEFT_OUT, NUMBERS, make_calls, survey, values

PER_OVERLOAD = 2  # noted calls of one overload for an op_db entry


class Notes(TorchDispatchMode):
    """Keeps what reaches kernels of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, int] = {}
        self.calls: list[tuple] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func.name()
        own = name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")
        if own and not LEFT_OUT.match(name) and self.kept.get(name, 0) < PER_OVERLOAD:
            self.kept[name] = self.kept.get(name, 0) + 1
            self.calls.append((func, *copied((args, kwargs or {}))))
        return func(*args, **(kwargs or {}))


def copied(value: Any) -> Any:
    return tree_map(lambda v: v.detach().clone() if isinstance(v, torch.Tensor) else v, value)


def calls_of(op: Any, samples: int) -> list[tuple]:
    """The calls of kernels that some samples of an op_db entry make, forward and backward."""
    supported = op.supported_dtypes("cpu")
    if not supported:
        return []
    dtype = torch.float32 if torch.float32 in supported else sorted(supported, key=str)[0]
    gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(7)
    found, notes = [], Notes()
    with contextlib.suppress(NotImplementedError):  # sparse samples of kinds that the device has none of
        found = list(op.sample_inputs(DEVICE, dtype, requires_grad=gradient))
    for sample in found[:: max(1, len(found) // samples)][:samples]:
        with contextlib.suppress(Exception), notes:
            result = op.op(sample.input, *sample.args, **sample.kwargs)
            outputs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
            if outputs:
                torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    return notes.calls


def reshaped(rng: random.Random, t: torch.Tensor) -> torch.Tensor:
    kind = rng.randrange(10)
    dim = rng.randrange(t.dim()) if t.dim() else None
    if dim is None or kind == 0:
        return t.expand(rng.choice([(2, *t.shape), (0, *t.shape), (1,) * 20 + tuple(t.shape)]))
    if kind == 1:
        return t.select(dim, 0) if t.size(dim) else t.sum(dim)
    if kind == 2:
        return t.narrow(dim, 0, 0)
    if kind == 3:
        return t.narrow(dim, t.size(dim) // 2, t.size(dim) - t.size(dim) // 2)
    if kind == 4:
        return torch.cat([t, t], dim)
    if kind == 5 and t.size(dim):
        return t.narrow(dim, 0, 1).expand_as(t)
    if kind == 6 and t.size(dim):
        size = (1 << 24) // max(1, t.numel())
        return t.narrow(dim, 0, 1).expand(*t.shape[:dim], size, *t.shape[dim + 1 :])
    if kind == 7:
        return t.transpose(dim, rng.randrange(t.dim()))
    if kind == 8:  # no elements, and sizes whose product overflows
        huge = [rng.choice([0, 1, 2**31, 2**40, 2**62]) for _ in t.shape]
        huge[dim] = 0
        return t.new_empty(1).as_strided(huge, [0] * t.dim())
    return t.reshape(-1)


def spoilt_tensor(rng: random.Random, t: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    kind = rng.randrange(10)
    if kind < 4:
        return reshaped(rng, t)
    if kind == 4:
        return t.to(rng.choice(DTYPES))
    if kind == 5:
        return values(rng, tuple(t.shape), t.dtype, True).to(t.device) if t.numel() < 1 << 20 else t
    if kind == 6 and t.numel():
        extremes = INTEGERS if not (t.is_floating_point() or t.is_complex()) else NUMBERS
        flat = t.clone(memory_format=torch.contiguous_format).view(-1)
        with contextlib.suppress(RuntimeError):  # a number that the dtype does not hold
            flat[rng.randrange(flat.numel())] = rng.choice(extremes)
        return flat.view(t.shape)
    if kind == 7:
        t.untyped_storage().resize_(rng.choice([0, t.untyped_storage().nbytes() // 2]))
        return t
    if kind == 8:
        return torch.cat([t.new_zeros(7), t.reshape(-1)])[7:].view(t.shape)
    return rng.choice(others)


def spoilt_list(rng: random.Random, items: list, tensors: list[torch.Tensor]) -> list:
    kind = rng.randrange(4)
    if not items or kind == 0:
        return items + (items[-1:] or [1]) * rng.choice([1, 2, 20])
    if kind == 1:
        return items[:-1]
    i = rng.randrange(len(items))
    return [*items[:i], spoilt(rng, items[i], tensors), *items[i + 1 :]]


def spoilt(rng: random.Random, value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return spoilt_tensor(rng, value, tensors)
    if isinstance(value, (list, tuple)):
        return spoilt_list(rng, list(value), tensors)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([*INTEGERS, value + 1, value - 1, -value])
    if isinstance(value, float):
        return rng.choice(NUMBERS)
    if isinstance(value, torch.dtype):
        return rng.choice(DTYPES)
    return value


def spoilt_call(seed: str, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    rng = random.Random(seed)
    args, kwargs = copied((args, kwargs))
    places = [(None, i) for i in range(len(args))] + [(1, name) for name in kwargs]
    places = [p for p in places if (args[p[1]] if p[0] is None else kwargs[p[1]]) is not None]
    tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
    positional = list(args)
    for where, which in rng.sample(places, min(len(places), rng.choice([1, 1, 1, 2]))):
        holder = positional if where is None else kwargs
        holder[which] = spoilt(rng, holder[which], tensors)
    return tuple(positional), kwargs


def call(name: str, overload: Any, args: tuple, kwargs: dict) -> None:
    args, kwargs = spoilt_call(name, args, kwargs)
    overload(*args, **kwargs)


def calls(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every call with its name, which is its seed: op_db entry, overload, which of them, case."""
    from torch.testing._internal.common_methods_invocations import op_db

    entry_after = options.after.split(" ")[0]
    behind = not options.after
    for op in op_db:
        entry = op.formatted_name
        if not behind and entry != entry_after:
            continue
        if not re.search(options.only, entry):
            continue
        for number, (overload, args, kwargs) in enumerate(calls_of(op, 3)):
            if not re.search(options.overload, overload.name()):
                continue
            for case in range(options.seed, options.seed + options.cases):
                name = f"{entry} {overload.name()} {number} {case}"
                if behind:
                    yield name, functools.partial(call, name, overload, args, kwargs)
                behind = behind or name == options.after


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10, help="calls for each that was noted")
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--only", default="", help="a regular expression on the op_db entry's name")
    parser.add_argument("--overload", default="", help="a regular expression on the kernel's operator, as aten::name")
    parser.add_argument("--after", default="", help="begin behind this call, a line of the log")
    parser.add_argument("--survey", action="store_true", help="go on after a death, in a new process")
    parser.add_argument("--log", default="/dev/stderr")
    options = parser.parse_args()
    if options.survey:
        flags = ["--only", options.only, "--overload", options.overload]
        flags += ["--cases", str(options.cases), "--seed", str(options.seed)]
        return survey("tests.python.hostile_samples", options.after, flags)
    make_calls(options.log, calls(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
