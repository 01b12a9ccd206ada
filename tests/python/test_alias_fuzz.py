"""Random programs of views, in-place writes, out=, set_, resize_ and copies between devices leave the same state on both.

A program is a list of lines of Python over a list `t` of tensors, made from the state that native has reached. After each
line values, geometry, sharing of storages and version counters of all tensors are compared. A failure is shrunk by
hypothesis and printed as a program that runs on stock torch.

    MINITORCH_FUZZ_EXAMPLES=20000 python -m pytest tests/python/test_alias_fuzz.py      # the long mode
"""

import os
import warnings

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.python.twin import ASYNCHRONOUS, DEVICE

EXAMPLES = int(os.environ.get("MINITORCH_FUZZ_EXAMPLES", "150"))
START = [
    "t = []",
    "t.append(torch.arange(24.0, dtype=torch.float64, device=device).reshape(2, 3, 4))",
    "t.append(torch.arange(12.0, dtype=torch.float64, device=device).neg().reshape(4, 3))",
    "t.append(torch.arange(6, device=device))",
    # A GPU finds a bad index later, and native CUDA never works again in that process: rows stay inside there.
    "row = lambda n, x: n % x.shape[0]" if ASYNCHRONOUS else "row = lambda n, x: n",
]
# {x}, {y} and {z} are tensors of the program, {n} and {m} small numbers.
VIEWS = [
    "{x}[{n}:]",
    "{x}[..., ::2]",
    "{x}[..., {n}]",
    "{x}.transpose(0, -1)",
    "{x}.unsqueeze({n})",
    "{x}.squeeze()",
    "{x}.expand({n}, *{x}.shape)",
    "{x}.view(-1)",
    "{x}.reshape(-1)",
    "{x}.flatten(0, 1)",
    "{x}.diagonal()",
    "{x}.unfold(0, 2, 1)",
    "{x}.narrow(0, {n}, {m})",
    "{x}.chunk(2, -1)[-1]",
    "{x}.as_strided(({n}, {m}), (1, 2), {n})",
    "{x}.as_strided(({n}, {m}), (0, 1))",
    "{x}.view(torch.int64)",
    "{x}.detach()",
    "{x}.movedim(0, -1)",
    "{x}.view_as({y})",
    "{x}.expand_as({y})",
    "{x}.contiguous()",
    "{x}.clone()",
    "{x}.to(torch.float64)",
    "{x}.to('cpu', copy=True).to(device, copy=True)",
    "{x}.T",
    "{x}.alias()" if hasattr(torch.Tensor, "alias") else "torch.ops.aten.alias({x})",
]
WRITES = [
    "{x}.add_({y})",
    "{x}.sub_({y}, alpha=2)",
    "{x}.mul_(-1)",
    "{x}.fill_({n})",
    "{x}.zero_()",
    "{x}.copy_({y})",
    "{x}.copy_({y}.to('cpu', copy=True))",
    "{x}[{n}] = {m}",
    "{x}[..., {n}:] = {m}",
    "{x}[{x} > {n}] = {m}",
    "{x}.masked_fill_({x} < {n}, {m})",
    "{x}.clamp_(max={n})",
    "{x}.abs_()",
    "{x}.index_fill_(0, torch.tensor([row({n}, {x})], device=device), {m})",
    "{x}.index_add_(0, torch.tensor([row(0, {x})], device=device), {y}[:1])",
    "{x}.diagonal().fill_({m})",
    "{x}.as_strided(({n}, 2), (2, 1), {m}).neg_()",
    "{x}.t_()",
    "{x}.unsqueeze_(0)",
    "{x}.squeeze_()",
    "{x}.transpose_(0, -1)",
    "{x}.as_strided_(({n}, {m}), (1, 1))",
    "{x}.set_({y})",
    "{x}.set_({y}.untyped_storage(), {n}, ({m}, 2), (1, 1)).zero_()",
    "{x}.resize_({n}, {m}).fill_({n})",
    "{x}.resize_as_({y}).fill_({n})",
    "{x}.data = {y}",
    "torch.add({x}, {y}, out={z})",
    "torch.mul({x}, 2, out={z})",
    "torch.maximum({x}, {y}, out={z})",
    "torch.neg({x}, out={z})",
]
# Native checks no overlap between what these read and write; the answer then depends on the order of the loop.
WRITES_APART = [
    "torch.cat([{x}, {x}], out={z})",
    "torch.sum({x}, 0, out={z})",
    "torch.cumsum({x}, 0, out={z})",
    "torch.index_select({x}, 0, torch.tensor([row({n}, {x}), row(0, {x})], device=device), out={z})",
    "torch.stack([{x}, {x}], out={z})",
]
LINES = [("t.append({})", v) for v in VIEWS] + [("{}", w) for w in WRITES] + [("{}", w) for w in WRITES_APART]


class Machine:
    """One device's tensors."""

    def __init__(self, device: str) -> None:
        self.names = {"torch": torch, "device": device}
        for line in START:
            exec(line, self.names)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return self.names["t"]

    def run(self, line: str) -> str | None:
        """The type of the error, or None."""
        try:
            exec(line, self.names)
        except Exception as error:
            return type(error).__name__
        return None

    def state(self) -> list[dict]:
        storages: dict[int, int] = {}
        rows = []
        for x in self.tensors:
            storage = x.untyped_storage()
            rows.append(
                {
                    "shape": tuple(x.shape),
                    "dtype": x.dtype,
                    "strides": x.stride(),
                    "offset": x.storage_offset(),
                    "storage": storages.setdefault(storage._cdata, len(storages)),
                    "bytes": storage.nbytes(),
                    "version": x._version,
                    "values": x.tolist(),
                }
            )
        return rows


def is_defined(native: Machine, template: str, x: int, y: int, z: int) -> bool:
    """False for a line whose outcome native leaves open."""
    t = native.tensors
    if template in WRITES_APART and t[z].untyped_storage()._cdata == t[x].untyped_storage()._cdata:
        return False
    # Native CUDA resizes this out= before it refuses its dtype; native CPU, and we, refuse first.
    if ASYNCHRONOUS and "index_select" in template and t[z].dtype != t[x].dtype:
        return False
    writes_through_gaps = "index_add_" in template and t[x].untyped_storage()._cdata == t[y].untyped_storage()._cdata
    return not writes_through_gaps and not (template == "{x}.set_({y})" and x == y)


def compare(step: list[int], native: Machine, ours: Machine, program: list[str]) -> None:
    kind, x, y, z, n, m = step
    wrapper, template = LINES[kind % len(LINES)]
    count = len(native.tensors)
    x, y, z = x % count, y % count, z % count
    if not is_defined(native, template, x, y, z) or count > 12:
        return
    line = wrapper.format(template.format(x=f"t[{x}]", y=f"t[{y}]", z=f"t[{z}]", n=n, m=m))
    program.append(line)
    expected, found = native.run(line), ours.run(line)
    assert expected == found, f"native: {expected}, minitorch: {found}"
    if (
        expected is not None and "out=" in line
    ):  # it may have been resized before the error: then its values are anything
        program[-1] = f"try:\n    {line}\nexcept Exception:\n    t[{z}].zero_()"
        for machine in (native, ours):
            machine.tensors[z].zero_()
    elif expected is not None:
        program[-1] = f"try:\n    {line}\nexcept Exception:\n    pass"
    for i, (a, b) in enumerate(zip(ours.state(), native.state(), strict=True)):
        different = {k: (a[k], b[k]) for k in a if repr(a[k]) != repr(b[k])}
        assert not different, f"t[{i}] (minitorch, native): {different}"


numbers = st.integers(0, 3)
steps = st.lists(st.tuples(st.integers(0, len(LINES) - 1), *[st.integers(0, 11)] * 3, numbers, numbers), max_size=14)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=EXAMPLES <= 150,
    suppress_health_check=list(HealthCheck),
)
@given(steps)
def test_programs_leave_the_same_state(program_steps):
    native, ours = Machine("cuda" if ASYNCHRONOUS and torch.cuda.is_available() else "cpu"), Machine(DEVICE)
    program: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for step in program_steps:
                compare(step, native, ours, program)
        except AssertionError as error:
            text = "\n".join(["import torch", "device = 'cpu'  # or 'minitorch'", *START, *program, "print(t)"])
            raise AssertionError(f"{error}\n\n{text}\n") from None


def test_a_program_is_compared():
    """The fuzzer would see a device that forgets an alias."""
    native, ours = Machine("cpu"), Machine(DEVICE)
    ours.names["t"][0] = ours.names["t"][0].clone()
    ours.run("t.append(t[0].clone())")
    native.run("t.append(t[0].view(-1))")
    assert [r["storage"] for r in ours.state()] != [r["storage"] for r in native.state()]
