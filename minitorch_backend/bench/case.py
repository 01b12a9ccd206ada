"""A case of the benchmark: work that can be set up on any device, and what it costs at best.

    Case("softmax 4096x1024", lambda s: forward(lambda x: x.softmax(-1), s.normal(4096, 1024)), bytes=8 * 4096 * 1024)

``make(setup)`` makes the inputs through ``setup``, which knows device and dtype, and returns a function that does the
work once and returns its results. The same case is set up a third time in float64 on the CPU: what that gives is the
reference that both devices' results are measured against.
"""

import contextlib
import copy
import difflib
import functools
import hashlib
import importlib
import math
import pathlib
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Work = Callable[[], Any]
_drawn: dict[Any, Any] | None = None
MOST_DRAWN = 2**24 + 3  # odd, so that rows of a matrix differ
REFERENCE_DTYPES = {torch.complex64: torch.complex128}


@dataclass
class Setup:
    """Makes inputs on a device. The values depend only on the order of the calls, not on the device.

    ``dtype`` is the case's. With ``reference`` every floating tensor, after rounding to its own dtype, becomes float64.
    """

    device: torch.device
    dtype: torch.dtype = torch.float32
    reference: bool = False
    seed: int = 0
    count: int = field(default=0, init=False)

    def _draw(self, kind: Any, draw: Callable[[torch.Generator], Any]) -> Any:
        """What ``draw`` gives with this call's seed; a copy of it belongs to the caller, not the thing itself."""
        self.count += 1
        key = (self.seed, self.count, kind)
        if _drawn is not None and key in _drawn:
            return _drawn[key]
        made = draw(torch.Generator().manual_seed(1_000_003 * self.seed + self.count))
        if _drawn is not None:
            _drawn[key] = made
        return made

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor made on the CPU, where the case runs."""
        if self.reference and (tensor.is_floating_point() or tensor.is_complex()):
            tensor = tensor.to(REFERENCE_DTYPES.get(tensor.dtype, torch.float64))
        return tensor.to(self.device)

    def normal(
        self, *shape: int, dtype: torch.dtype | None = None, grad: bool = False, scale: float = 1.0
    ) -> torch.Tensor:
        """Normal random numbers."""
        dtype = dtype or self.dtype
        drawn = torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32
        drawn = torch.complex64 if dtype == torch.complex64 else drawn
        values = self._draw(("normal", shape, drawn), lambda g: _repeated(torch.randn, shape, g, drawn))
        return self.place((values * scale).to(dtype)).requires_grad_(grad)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: torch.dtype | None = None) -> Any:
        """Uniform random numbers."""
        values = self._draw(("uniform", shape), lambda g: _repeated(torch.rand, shape, g))
        return self.place((values * (high - low) + low).to(dtype or self.dtype))

    def integers(self, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Random integers in [0, high)."""
        values = self._draw(("integers", high, shape), lambda g: torch.randint(high, shape, generator=g))
        return self.place(values.to(dtype, copy=True))

    def permutation(self, count: int) -> torch.Tensor:
        """The numbers from 0 to count - 1 in random order."""
        return self.place(self._draw(("permutation", count), lambda g: torch.randperm(count, generator=g)).clone())

    def module(self, make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        """A module with the same random weights everywhere."""

        def build(generator: torch.Generator) -> torch.nn.Module:
            with torch.random.fork_rng(devices=[]), fast_initialisation():
                torch.manual_seed(generator.initial_seed())
                return make()

        module = copy.deepcopy(self._draw("module", build)).to(self.dtype)
        return module.to(self.device, torch.float64) if self.reference else module.to(self.device)


def _repeated(
    draw: Callable[..., torch.Tensor],
    shape: tuple[int, ...],
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Random numbers of a shape. They repeat after MOST_DRAWN: drawing takes a second for every 100 million."""
    count = math.prod(shape)
    values = draw(min(count, MOST_DRAWN), generator=generator, dtype=dtype)
    return values.repeat(-(-count // MOST_DRAWN))[:count].view(shape) if count > MOST_DRAWN else values.view(shape)


@contextlib.contextmanager
def remembered_draws() -> Iterator[None]:
    """Inside, what one set-up drew serves the next ones: drawing takes longer than copying."""
    global _drawn
    _drawn = {}
    try:
        yield
    finally:
        _drawn = None


@contextlib.contextmanager
def fast_initialisation() -> Iterator[None]:
    """Large models spend seconds in truncated-normal initialisers; a plain normal serves a benchmark."""
    original = torch.nn.init.trunc_normal_
    torch.nn.init.trunc_normal_ = lambda t, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None: torch.nn.init.normal_(
        t, mean, std
    )
    try:
        yield
    finally:
        torch.nn.init.trunc_normal_ = original


@dataclass(frozen=True)
class Later:
    """A part of a result, gathered only where results are compared: the work that is timed does not do it."""

    gather: Callable[[], Any]


def forward(function: Callable[..., Any], *inputs: Any) -> Work:
    """The work of calling a function. Nothing is added to the call, so its inputs must not require gradients."""
    return functools.partial(function, *inputs)


def training(setup: Setup, function: Callable[..., torch.Tensor], *inputs: Any, parameters: Iterable = ()) -> Work:
    """The work of forward and backward: the result and the gradients of all inputs and parameters that want one."""
    leaves = [t for t in (*inputs, *parameters) if isinstance(t, torch.Tensor) and t.requires_grad]
    seed: list[torch.Tensor] = []

    def make_seed(result: torch.Tensor) -> None:
        if not seed:
            seed.append(torch.ones_like(result) if result.dim() == 0 else _gradient(setup, result))

    def work() -> Any:
        for leaf in leaves:
            leaf.grad = None
        result = function(*inputs)
        make_seed(result)
        result.backward(seed[0])
        return [result.detach(), *(leaf.grad for leaf in leaves)]

    @torch.no_grad()
    def ready() -> None:
        make_seed(function(*inputs))

    work.ready = ready
    return work


def make_ready(work: Work) -> None:
    """Have what a first call of the work would make beside it, the gradient that it starts from: none of its memory."""
    getattr(work, "ready", lambda: None)()


def compile_work(work: Work) -> Work:
    """The work through torch.compile."""
    return torch.compile(work, dynamic=False)


def _gradient(setup: Setup, result: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    values = torch.randn(result.shape, generator=generator, dtype=torch.float32).to(setup.dtype)
    return setup.place(values).to(result.dtype)


@dataclass(frozen=True)
class Case:
    """One line of the benchmark.

    ``bytes`` and ``flops`` are what the best implementation must move and compute: every input read once, every output
    written once, a multiplication and an addition counted as two. None when a figure says nothing (overhead, models
    without a count). ``access`` says what the traffic is like: "" copying or reading, "update" in place, "write" hardly
    anything read. ``working_set``: bytes of different memory, where some is counted twice. ``dtype`` names the
    arithmetic peak that ``flops`` is a share of, or else ``arithmetic`` ("tf32"). ``floor`` is a ratio that the case
    must not fall below, ``memory_floor`` the same for peak memory.
    ``check`` is "float64", "native" (random numbers: the same seed gives the same numbers) or
    "none" with the reason in ``unchecked``. ``unlike`` says in what the sides' work differs where it is
    not the same: such a case counts in no mean and no summary. ``cold`` empties the GPU's L2 cache before each call.
    """

    name: str
    make: Callable[[Setup], Work]
    bytes: float | None = None
    flops: float | None = None
    dtype: torch.dtype = torch.float32
    access: str = ""
    working_set: float | None = None
    arithmetic: str = ""
    backends: tuple[str, ...] = ("cpu",)
    check: str = "float64"
    unchecked: str = ""
    unlike: str = ""
    floor: float | None = None
    memory_floor: float | None = None
    quick: bool = False
    cold: bool = False
    family: str = ""

    def setup(self, device: str | torch.device, reference: bool = False) -> Work:
        """The work on a device, or its float64 reference on the CPU."""
        place = torch.device("cpu" if reference else device)
        return self.make(Setup(place, self.dtype, reference))

    @property
    def full_name(self) -> str:
        return f"{self.family}/{self.name}"


def short(dtype: torch.dtype) -> str:
    """float32 as f32 and so on, as case names have it."""
    names = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}
    return names.get(dtype) or str(dtype).removeprefix("torch.").replace("complex", "c").replace("int", "i")


def amount(count: int) -> str:
    """16777216 as 16M and so on."""
    for exponent, unit in ((30, "G"), (20, "M"), (10, "k")):
        if count >= 1 << exponent and count % (1 << exponent) == 0:
            return f"{count >> exponent}{unit}"
    return str(count)


def volume(*tensors: Sequence[int], dtype: torch.dtype = torch.float32) -> float:
    """Bytes of tensors with these shapes."""
    return float(sum(math.prod(shape) for shape in tensors) * dtype.itemsize)


def default_folder() -> pathlib.Path:
    """benchmarks/cases of the source tree that this package is in."""
    return pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "cases"


def load(folder: pathlib.Path | None = None) -> list[Case]:
    """All cases, in the order of the files. A family is a file with a list ``CASES``.

    Raises FileNotFoundError without such a folder, ValueError when two cases have one name or a file is not of cases.
    """
    folder = (folder or default_folder()).resolve()
    files = sorted(path for path in folder.glob("*.py") if not path.stem.startswith("_"))
    if not files:
        raise FileNotFoundError(f"no cases in {folder}: the cases are in the source tree, name it with --cases")
    root = str(folder.parent.parent)
    if root not in sys.path:
        sys.path.insert(0, root)
    cases: list[Case] = []
    for path in files:
        found = getattr(_import(path, folder), "CASES", None)
        if not isinstance(found, (list, tuple)) or not all(isinstance(case, Case) for case in found):
            raise ValueError(f"{path} has no list CASES of cases (minitorch_backend.bench.case.Case)")
        cases += [Case(**{**vars(case), "family": path.stem}) for case in found]
    names = [(case.full_name, backend) for case in cases for backend in case.backends]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two cases have the same name: {sorted(twice)}")
    return cases


def _import(path: pathlib.Path, folder: pathlib.Path) -> Any:
    """A file of cases as a module of a package that is its folder, whatever that is called.

    Raises ValueError, with the line, for whatever goes wrong in it.
    """
    package = f"minitorch_cases_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    name = f"{package}.{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    if package not in sys.modules:
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [str(folder)]
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f":{lines[-1]}" if lines else ""
        raise ValueError(f"{path}{where}: {type(error).__name__}: {error}") from error


def choose(cases: list[Case], only: str, backend: str, quick: bool = False, floors: bool = False) -> list[Case]:
    """The cases of a backend whose full name the regular expression is found in.

    ``floors`` leaves those that must reach a ratio, ``quick`` those of the rough look, where there are any.

    Raises LookupError, which names near matches, when there is none, and re.error for a bad expression.
    """
    pattern = re.compile(only)
    here = [case for case in cases if backend in case.backends]
    found = [case for case in here if pattern.search(case.full_name)]
    if not found:
        raise LookupError(f"no case on {backend} matches {only!r}; {near(only, [case.full_name for case in here])}")
    if floors and not (found := [case for case in found if case.floor]):
        raise LookupError(f"no case on {backend} that matches {only!r} has a floor")
    if floors:
        return found
    return [case for case in found if case.quick] or found if quick else found


def near(name: str, known: Iterable[str]) -> str:
    """A sentence with the known names that are most like one that is not."""
    known = list(dict.fromkeys(known))
    lowered = {k.lower(): k for k in known}
    words = {word: k for k in known for word in re.split(r"[/ ]", k.lower())}
    close = [lowered[m] for m in difflib.get_close_matches(name.lower(), lowered, n=5, cutoff=0.5)]
    close += [words[m] for m in difflib.get_close_matches(name.lower(), words, n=5, cutoff=0.6)]
    close = list(dict.fromkeys(close))[:5]
    return f"near matches: {', '.join(close)}" if close else "--list shows all names"
