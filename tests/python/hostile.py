"""Calls every operator of the device with hostile arguments made from its schema; run as a program, in a process of its own.

    python -m tests.python.hostile --cases 20 [--only REGEX] [--log FILE]
    python -m tests.python.hostile --cases 200 --survey

An exception is a good answer. The log's last line names the call during which the process died, by operator and case:
`--only '^aten::OP$' --first-case N --cases 1` repeats it. A survey starts a new process behind each such call and ends
with the list of them.
"""

import argparse
import contextlib
import functools
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator

import torch
from torch.utils._pytree import tree_leaves

from minitorch_backend import _C

DEVICE = "minitorch"
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INTEGERS = [0, 1, -1, 2, 3, -2, 5, 64, 2**31, 2**40, INT64_MIN, INT64_MIN + 1, INT64_MAX]
LIKELY_INTEGERS = [0, 1, -1, 2, 3]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e300, float("nan"), float("inf"), float("-inf")]
SHAPES = [
    (),
    (0,),
    (1,),
    (3,),
    (17,),
    (2, 3),
    (3, 3),
    (0, 3),
    (3, 0),
    (2, 3, 4),
    (2, 0, 4),
    (1, 2, 4, 4),
    (2, 3, 5, 5),
    (1, 0, 4, 4),
    (1, 2, 3, 4, 4),
    (2, 1, 0, 2, 2),
    (1,) * 20,
    (1, 2) * 10,
    (0,) + (1,) * 20,
    (1,) * 66,
]
DTYPES = [torch.float32] * 6 + [torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.int32]
DTYPES += [torch.int8, torch.uint8, torch.bool, torch.int16]
INDEX_NAMES = re.compile("ind|offset|target|label|bag|length|batch_sizes")
# They wait for something, end the process by design, or take and give pointers.
LEFT_OUT = re.compile(r"aten::(_copy_from|record_stream|set_data|_assert_async|from_file|_pin_memory)")


def values(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype, index: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_floating_point or dtype.is_complex:
        t = torch.randn(shape, generator=generator).to(dtype)
        extremes = NUMBERS
    else:
        t = torch.randint(0, 4, shape, generator=generator).to(dtype)
        extremes = [v for v in (INT64_MIN, INT64_MAX, -1, 2**31, 100) if dtype == torch.int64] or [
            torch.iinfo(dtype).max,
            torch.iinfo(dtype).min,
        ]
    if t.numel() and rng.random() < (0.5 if index else 0.3):
        t.view(-1)[rng.randrange(t.numel())] = rng.choice(extremes)
    return t


def laid_out(rng: random.Random, t: torch.Tensor) -> torch.Tensor:
    """The tensor on the device, in some layout."""
    kind = rng.randrange(8)
    if kind == 0 and 2 <= t.dim() <= 64:
        return t.transpose(0, -1).contiguous().to(DEVICE).transpose(0, -1)
    if kind == 1 and 0 < t.dim() <= 64 and t.size(0) > 0:
        return t[:1].to(DEVICE).expand_as(t)
    if kind == 2 and t.numel():
        storage = torch.cat([torch.zeros(7, dtype=t.dtype), t.reshape(-1)]).to(DEVICE)
        return storage[7:].view(t.shape)
    if kind == 3 and t.dim() <= 20:
        doubled = torch.stack([t, t], -1).to(DEVICE)
        return doubled[..., 1]
    if kind == 4 and rng.random() < 0.4:
        freed = t.to(DEVICE)
        freed.untyped_storage().resize_(rng.choice([0, freed.untyped_storage().nbytes() // 2]))
        return freed
    return t.to(DEVICE)


class Arguments:
    """Makes the arguments of one call; its tensors tend to agree in shape and dtype, or few calls would pass the checks."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.shape, self.dtype = self.rng.choice(SHAPES), self.rng.choice(DTYPES)
        self.wild = self.rng.random() < 0.3
        self.rank = self.rng.choice([1, 1, 2, 2, 3])

    def tensor(self, name: str) -> torch.Tensor:
        rng = self.rng
        index = INDEX_NAMES.search(name) is not None and rng.random() < 0.8
        shape = rng.choice(SHAPES) if rng.random() < 0.35 else self.shape
        if rng.random() < 0.15:
            shape = shape[:-1]
        dtype = torch.int64 if index else self.dtype if rng.random() < 0.85 else rng.choice(DTYPES)
        if name == "mask" and rng.random() < 0.8:
            dtype = torch.bool
        return laid_out(rng, values(rng, shape, dtype, index))

    def integer(self) -> int:
        return self.rng.choice(INTEGERS if self.wild or self.rng.random() < 0.1 else LIKELY_INTEGERS)

    def of(self, name: str, kind: str) -> object:
        rng = self.rng
        if kind.startswith("Optional["):
            return None if rng.random() < 0.4 else self.of(name, kind[9:-1])
        if kind.startswith("List["):
            inner = kind[5:-1]
            length = rng.choice([0, 1, 2, 3, 20]) if self.wild else self.rank
            if inner == "bool":
                length = rng.choice([1, 2, 3])
            return [self.of(name, inner) for _ in range(length)]
        if kind == "Tensor":
            return self.tensor(name)
        if kind == "int":
            # PyTorch's parser takes any integer for a dtype, and its table of names ends somewhere.
            return rng.choice(DTYPES) if name.endswith("dtype") else self.integer()
        if kind == "float":
            return rng.choice(NUMBERS if self.wild else NUMBERS[:6])
        if kind == "number":
            return rng.choice(NUMBERS) if rng.random() < 0.5 else self.integer()
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "str":
            return rng.choice(["", "sum", "mean", "none", "reflect", "ij", "linear", "L", "U", "left", "amax", "prod"])
        if kind == "Device":
            return torch.device(DEVICE)
        return None


def arguments(overload: torch._ops.OpOverload, seed: str) -> tuple[list[object], dict[str, object]]:
    make = Arguments(seed)
    positional, named = [], {}
    for argument in overload._schema.arguments:
        value = make.of(argument.name, str(argument.type))
        if argument.name == "device":
            value = torch.device(DEVICE)
        elif argument.name == "layout" or argument.name == "generator":
            value = None
        elif argument.has_default_value() and make.rng.random() < 0.5:
            value = argument.default_value
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named


def call(overload: torch._ops.OpOverload, seed: str) -> None:
    """The call of that seed; if it is accepted, then also without the memory of one of its tensors, for each of them."""
    positional, named = arguments(overload, seed)
    overload(*positional, **named)
    count = len(tensors_in(positional, named))
    for k in range(count):
        positional, named = arguments(overload, seed)
        tensors_in(positional, named)[k].untyped_storage().resize_(0)
        with contextlib.suppress(Exception):
            overload(*positional, **named)


def tensors_in(*arguments: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]


def overloads() -> list[torch._ops.OpOverload]:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    found = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if name.startswith("aten::") and has(name, "PrivateUse1") and not LEFT_OUT.match(name):
            base, _, overload = name.removeprefix("aten::").partition(".")
            packet = getattr(torch.ops.aten, base, None)  # none: a kernel whose operator this torch does not define
            if packet is not None and (overload or "default") in packet.overloads():
                found.append(getattr(packet, overload or "default"))
    return found


def survey(program: str, after: str, flags: list[str]) -> int:
    """Runs a program of calls again and again, each time from behind the call that ended it."""
    deaths = 0
    with tempfile.NamedTemporaryFile("r", suffix=".log") as log:
        while True:
            command = [sys.executable, "-m", program, "--log", log.name, "--after", after, *flags]
            done = subprocess.run(command, capture_output=True, text=True)
            last = pathlib.Path(log.name).read_text().splitlines()[-1]
            if last == "done":
                print(done.stdout.strip())
                break
            ended = signal.Signals(-done.returncode).name if done.returncode < 0 else done.stderr[-300:]
            print(f"{last}: {ended}", flush=True)
            deaths, after = deaths + 1, last
    print(f"{deaths} calls ended the process")
    return 1 if deaths else 0


def limit_memory() -> None:
    """Bounds what the host gives. CUDA reserves addresses far beyond any such bound: there only what is used counts."""
    kind, most = (resource.RLIMIT_DATA, 16 << 30) if _C.backend_name() == "cuda" else (resource.RLIMIT_AS, 6 << 30)
    resource.setrlimit(kind, (most, most))


def make_calls(
    path: str,
    calls: Iterable[tuple[str, Callable[[], object]]],
    tell: Callable[[str, Exception], None] = lambda name, error: None,
) -> None:
    """Makes named calls within bounds of memory and time. The log's last line names the one under way, or is "done"."""
    warnings.simplefilter("ignore")
    limit_memory()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(2)
    made = passed = 0
    with open(path, "w") as log:
        for name, run in calls:
            log.write(name + "\n")
            log.flush()
            signal.alarm(20)
            made += 1
            try:
                run()
                passed += 1
            except Exception as error:  # any refusal will do
                tell(name, error)
            signal.alarm(0)
        log.write("done\n")
    print(f"{made} calls, {passed} of them computed")


def chosen_calls(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], object]]]:
    after, _, after_case = options.after.partition(" ")
    for overload in overloads():
        operator = overload.name()
        if operator < after or (operator == after and not after_case) or not re.search(options.only, operator):
            continue
        for case in range(options.first_case, options.first_case + options.cases):
            if operator != after or case > int(after_case):
                yield f"{operator} {case}", functools.partial(call, overload, f"{operator} {case}")


def tell(name: str, error: Exception) -> None:
    print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:150]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20, help="calls an operator")
    parser.add_argument("--first-case", type=int, default=0)
    parser.add_argument("--only", default="", help="a regular expression on the operator's name")
    parser.add_argument("--after", default="", help="begin after this operator, or with 'NAME CASE' after this call")
    parser.add_argument("--survey", action="store_true", help="go on after a death, in a new process")
    parser.add_argument("--log", default="/dev/stderr")
    options = parser.parse_args()
    if options.survey:
        flags = ["--only", options.only, "--cases", str(options.cases), "--first-case", str(options.first_case)]
        return survey("tests.python.hostile", options.after, flags)
    few = options.only and options.cases <= 5
    make_calls(options.log, chosen_calls(options), *([tell] if few else []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
