"""Replacing an operator of the device by a user's kernel, and putting it back."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch._prims_common import elementwise_dtypes
from torch._prims_common.wrappers import _maybe_resize_out

from minitorch_backend.kernels import chain, compiled, schema
from minitorch_backend.kernels.errors import KernelError
from minitorch_backend.kernels.operands import (
    SELECTORS,
    bound,
    crosses,
    device_of,
    first_tensor,
    overlaps,
    promoted,
    tensors_of,
)  # fmt: skip

KEY = "PrivateUse1"
REMEMBERED = 1024  # shapes whose results are known without asking PyTorch's meta function again
REFUSED = (RuntimeError, TypeError, ValueError, IndexError)  # what native raises for bad arguments
_active: list["Override"] = []
_collecting: list[list["Override"]] = []
_inside = threading.local()
_changing = threading.RLock()  # one operator at a time is replaced or put back


class Override:
    """One operator, replaced. Ends with ``restore()`` or the ``with`` block; see ``kernels.override`` for the rest."""

    def __init__(
        self,
        operator: schema.Operator,
        run: Callable[..., Any],
        dtypes: frozenset[torch.dtype] | None,
        title: str,
        compiles: bool = False,
    ) -> None:
        # Whether the kernel is code for one dtype at a time: that is what the operands of a pointwise operator are
        # promoted to, and calls whose operands are nothing for it are left to the original.
        self.compiles = compiles
        self.operator, self.run, self.dtypes, self.title = operator, run, dtypes, title
        self.calls = 0  # how often the kernel, and not the original, did the work
        self.entered = 0  # ``with`` blocks that are open
        self.installed = False
        self.results: dict[Any, list[torch.Tensor]] = {}
        self.decided: dict[Any, torch.dtype | None] = {}  # calls that were looked at -> what the kernel computes in

    def __repr__(self) -> str:
        state = "active" if self.installed else "not active"
        return f"<{self.title} for {self.operator.name}, {state}, {self.calls} calls>"

    def install(self) -> "Override":
        with _changing:
            if not self.installed:
                self._add()
                self.installed = True
                _active.append(self)
        return self

    def _add(self) -> None:
        found = [(chain.chain(form, key), link) for form, key, link in self.links()]  # all, or none
        for links, link in found:
            links.add(link)

    def _remove(self) -> None:
        for form, key, link in self.links():
            chain.chain(form, key).remove(link)

    def links(self) -> list[tuple[torch._ops.OpOverload, str, chain.Link]]:
        """What stands in for which form under which dispatch key."""
        forms = {self.operator.functional: self._functional}
        if self.operator.inplace is not None:
            forms[self.operator.inplace] = self._inplace
        if self.operator.out is not None:
            forms[self.operator.out] = self._out
        return [(form, KEY, link) for form, link in forms.items()]

    def restore(self) -> None:
        """Put the operator back as it was. A second call does nothing."""
        with _changing:
            if self.installed:
                for _ in range(1 + self.entered):
                    self._remove()
                self.installed = False
                _active.remove(self)
            self.entered = 0

    def __enter__(self) -> "Override":
        with _changing:
            self.install()
            self._add()  # once more: in the block it is the newest, whatever came since it was installed
            self.entered += 1
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        with _changing:
            if not self.installed:  # restored inside the block
                return
            self._remove()
            self.entered -= 1
            if self.entered <= 0:  # the outermost block of several ends it
                self.restore()

    def __copy__(self) -> "Override":
        return self

    def __deepcopy__(self, memo: dict) -> "Override":
        return self  # it stands for a state of the process, of which there is one

    def __reduce__(self) -> Any:
        raise TypeError("an override is a state of this process and cannot be pickled; make it where it is needed")

    def _takes(self, args: tuple, kwargs: dict) -> bool:
        """Whether this call is for the kernel: its dtype was asked for, and it does not come from the kernel itself."""
        if self in inside():
            return False
        if self.compiles:
            return self.plan(args, kwargs) is not None
        return self.dtypes is None or self.dtype(args, kwargs) in self.dtypes

    def plan(self, args: tuple, kwargs: dict) -> torch.dtype | None:
        """What a compiled kernel computes such a call in; None for one that it does not take. Looked at once."""
        key = call_key(args, kwargs)
        try:
            return self.decided[key]
        except KeyError:
            pass
        found = self.dtype(args, kwargs) if self._can_take(args, kwargs) else None
        if len(self.decided) >= REMEMBERED:
            self.decided.clear()
        self.decided[key] = found
        return found

    def _can_take(self, args: tuple, kwargs: dict) -> bool:
        """Whether a compiled kernel can be given these operands. What native refuses is the original's: it says why."""
        pointwise = self.operator.pointwise
        if not crosses(self.operator.functional, args, kwargs, pointwise):
            return False
        wanted = self.dtypes or compiled.CPP
        if not pointwise and self.dtype(args, kwargs) not in wanted:
            return False
        try:
            results = self.expected(args, kwargs)
            dtype = self.dtype(args, kwargs)
        except KernelError:
            raise
        except REFUSED:
            return False
        if dtype not in wanted or any(r.dtype not in compiled.CPP or r.dim() > compiled.MAX_DIM for r in results):
            return False
        if pointwise:
            return True
        # Without promotion tensors come as they are: floating ones in dtypes that the kernel was made for.
        others = [*tensors_of((*args, *kwargs.values())), *results]
        return all(t.dtype in wanted for t in others if t.is_floating_point())

    def dtype(self, args: tuple, kwargs: dict) -> torch.dtype | None:
        """What the kernel computes in: the first tensor's dtype, or, of a pointwise operator's, the promoted one.

        Where the operator makes numbers of a higher kind of integers or booleans, that is its result's.
        """
        first = first_tensor((*args, *kwargs.values()))
        if first is None or not (self.compiles and self.operator.pointwise):
            return first.dtype if first is not None else None
        operands = promoted(self.operator.functional, args, kwargs)
        if all(isinstance(v, torch.Tensor) and v.dtype == first.dtype for v in operands):
            found = first.dtype
        else:
            found = elementwise_dtypes(*operands, type_promotion_kind=PROMOTION.DEFAULT)[1]
        if found.is_floating_point:
            return found
        made = self.expected(args, kwargs)[0].dtype
        return found if made == torch.bool else made

    def _compute(self, args: tuple, kwargs: dict) -> Any:
        inside().append(self)
        try:
            return self.run(self, args, kwargs)
        finally:
            inside().pop()
            self.calls += 1

    def _functional(self, below: chain.Below, keys: Any, args: tuple, kwargs: dict) -> Any:
        return self._compute(args, kwargs) if self._takes(args, kwargs) else below(keys, args, kwargs)

    def _inplace(self, below: chain.Below, keys: Any, args: tuple, kwargs: dict) -> Any:
        if not self._takes(args, kwargs) or overlaps(args[0], (*args, *kwargs.values())):
            return below(keys, args, kwargs)
        found = self._compute(args, kwargs)
        if not fits(found, args[0]) or found.shape != args[0].shape:
            return below(keys, args, kwargs)  # it says what native says
        return args[0].copy_(found)

    def _out(self, below: chain.Below, keys: Any, args: tuple, kwargs: dict) -> Any:
        names = [a.name for a in self.operator.out._schema.arguments if a.is_out]
        rest = {name: value for name, value in kwargs.items() if name not in names}
        if not self._takes(args, rest):
            return below(keys, args, kwargs)
        targets = [kwargs[name] for name in names]
        if any(overlaps(target, (*args, *kwargs.values())) for target in targets):
            return below(keys, args, kwargs)  # it says what native says
        found = self._compute(args, rest)
        found = list(found) if isinstance(found, (list, tuple)) else [found]
        if not all(map(fits, found, targets)):
            return below(keys, args, kwargs)
        for target, value in zip(targets, found, strict=True):
            _maybe_resize_out(target, value.shape)  # warns as native does
            target.copy_(value)
        return targets[0] if len(targets) == 1 else tuple(targets)

    def expected(self, args: tuple, kwargs: dict) -> list[torch.Tensor]:
        """Meta tensors with the shapes, strides and dtypes that the operator's results have.

        Raises what native raises for these arguments.
        """
        key = call_key(args, kwargs)
        found = self.results.get(key)
        if found is None:
            given, named = schema.numbers_as_tensors(
                self.operator.functional, tuple(map(to_meta, args)), {k: to_meta(v) for k, v in kwargs.items()}
            )
            try:
                result = self.operator.functional(*given, **named)
            except NotImplementedError as error:
                raise KernelError(
                    f"PyTorch does not say what shape the result of {self.operator.name} has, so it cannot be "
                    f"overridden: {str(error).splitlines()[0]}"
                ) from None
            found = [r.detach() for r in (result if isinstance(result, (list, tuple)) else [result])]
            if len(self.results) >= REMEMBERED:
                self.results.clear()
            self.results[key] = found
        return found


def inside() -> "list[Override]":
    """The overrides whose kernels are at work in this thread: what they call is the original."""
    return _inside.__dict__.setdefault("overrides", [])


def check_dtypes(dtypes: "Iterable[torch.dtype] | None") -> frozenset[torch.dtype] | None:
    """Raises TypeError, ValueError for what is no list of dtypes: such an override would never be called."""
    if dtypes is None:
        return None
    wanted = frozenset(dtypes if isinstance(dtypes, Iterable) else (dtypes,))
    if not all(isinstance(dtype, torch.dtype) for dtype in wanted):
        raise TypeError(f"dtypes is a list of dtypes such as torch.float32, not {dtypes!r}")
    if not wanted:
        raise ValueError("dtypes is empty: the kernel would never be called")
    return wanted


def fits(value: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether native would write a result of this dtype and place into such a tensor."""
    return value.device == target.device and torch.can_cast(value.dtype, target.dtype)


def call_key(args: tuple, kwargs: dict) -> Any:
    """All of a call that decides about its results and its kernel. The default dtype is what integers become."""
    return torch.get_default_dtype(), tuple(map(_key, args)), tuple((k, _key(v)) for k, v in kwargs.items())


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.shape, value.stride(), value.device)
    return tuple(map(_key, value)) if isinstance(value, (list, tuple)) else (type(value), value)


def to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return [to_meta(v) for v in value]
    return torch.device("meta") if isinstance(value, torch.device) else value


def run_callable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A Python callable as a kernel: its results must be what the operator's meta function says."""

    def run(override: Override, args: tuple, kwargs: dict) -> Any:
        result = function(*args, **kwargs)
        check_results(override, result, override.expected(args, kwargs))
        check_fresh(override, result, (*args, *kwargs.values()))
        return result

    return run


def check_fresh(override: Override, result: Any, given: Iterable[Any]) -> None:
    """Raises KernelError for a result with a gradient, or in an input's memory, where the operator's has its own."""
    if any(r.alias_info is not None for r in override.operator.functional._schema.returns):
        return
    inputs = {memory for t in tensors_of(given) if (memory := t.untyped_storage().data_ptr())}
    for value in tensors_of([result]):
        if value.requires_grad:
            raise KernelError(
                f"the result of the kernel for {override.operator.name} requires gradients; it is called below "
                "autograd, which has the operator's own formula: detach() it"
            )
        if value.untyped_storage().data_ptr() in inputs:
            raise KernelError(
                f"the kernel for {override.operator.name} gives its input or a view of it; "
                "the operator's result has memory of its own"
            )


def check_results(override: Override, result: Any, expected: list[torch.Tensor]) -> None:
    """Raises KernelError, which names what was found and what native gives."""
    several = isinstance(result, (list, tuple))
    found = list(result) if several else [result]
    name = override.operator.name
    alone = len(override.operator.functional._schema.returns) == 1 and len(expected) == 1
    if len(found) != len(expected) or not all(isinstance(f, torch.Tensor) for f in found) or (several and alone):
        kinds = ", ".join(type(f).__name__ for f in found)
        kinds = f"{type(result).__name__} of {kinds or 'nothing'}" if several else kinds
        raise KernelError(f"the kernel for {name} gave {kinds}; the operator gives {len(expected)} tensor(s)")
    for number, (f, e) in enumerate(zip(found, expected, strict=True)):
        what = f"result {number} of the kernel for {name}" if len(found) > 1 else f"the result of the kernel for {name}"
        if f.shape != e.shape:
            raise KernelError(f"{what} has shape {tuple(f.shape)}, the operator's has {tuple(e.shape)}")
        if f.dtype != e.dtype:
            raise KernelError(f"{what} has dtype {f.dtype}, the operator's has {e.dtype}")
        if f.device.type != "minitorch":
            raise KernelError(f"{what} is on {f.device}, not on minitorch")
        if 0 not in e.stride() and any(n > 1 and step == 0 for n, step in zip(f.shape, f.stride(), strict=True)):
            raise KernelError(f"{what} is expanded: some of its elements are one place in memory; clone() it")


def arrange(override: Override, args: tuple, kwargs: dict, dtype: torch.dtype, result: torch.Tensor) -> list[Any]:
    """The values of a kernel's arguments in the schema's order, with defaults filled in.

    The operands of a pointwise operator have the result's shape and the dtype that is computed in; what selects among
    them stays boolean.
    """
    given = bound(override.operator.functional, args, kwargs)
    device = result.device
    shape = result.shape if override.operator.pointwise else None
    values = []
    for name, kind in schema.kernel_arguments(override.operator.functional):
        value = given[name]
        if kind == "Tensor" and isinstance(value, schema.NUMBERS):  # of x + 1
            wide = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
            value = wide.to(device, dtype)  # an integer that is too large goes round, as native's does
        if kind == "Tensor" and value is not None and shape is not None:
            value = value.to(device, value.dtype if name in SELECTORS else dtype).expand(shape)
        values.append(value)
    return values


def allocate(override: Override, args: tuple, kwargs: dict) -> tuple[list[torch.Tensor], torch.device]:
    """Fresh results, laid out as the operator's are."""
    device = device_of((*args, *kwargs.values()))
    return [
        torch.empty_strided(e.shape, e.stride(), dtype=e.dtype, device=device)
        for e in override.expected(args, kwargs)
    ], device  # fmt: skip


def dense(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def run_compiled(kernel: compiled.CompiledKernel, strided: bool) -> Callable[..., Any]:
    """A compiled kernel: results are made here, inputs are made contiguous first unless the kernel takes strides."""

    def run(override: Override, args: tuple, kwargs: dict) -> Any:
        outputs, _ = allocate(override, args, kwargs)
        dtype = override.plan(args, kwargs)
        values = arrange(override, args, kwargs, dtype, outputs[0])
        targets = outputs
        if not strided:
            values = [v.contiguous() if isinstance(v, torch.Tensor) else v for v in values]
            targets = [o if o.is_contiguous() else dense(o) for o in outputs]
        kernel(targets, values, dtype)
        for output, target in zip(outputs, targets, strict=True):
            if output is not target:
                output.copy_(target)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run


def run_triton(kernel: Any, grid: Callable[..., tuple], constants: dict[str, Any]) -> Callable[..., Any]:
    """A Triton kernel, called with results, arguments in the schema's order, and the number of elements."""

    def run(override: Override, args: tuple, kwargs: dict) -> Any:
        outputs, device = allocate(override, args, kwargs)
        targets = [o if o.is_contiguous() else dense(o) for o in outputs]
        values = arrange(override, args, kwargs, override.plan(args, kwargs), outputs[0])
        values = [v.contiguous() if isinstance(v, torch.Tensor) else v for v in values]
        with triton_stream(device):
            kernel[grid(*targets, *values)](*targets, *values, targets[0].numel(), **constants)
        for output, target in zip(outputs, targets, strict=True):
            if output is not target:
                output.copy_(target)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run


@contextlib.contextmanager
def triton_stream(device: torch.device) -> Iterator[None]:
    """Triton launches on torch.cuda's current stream: make that ours."""
    with compiled.Stream(device, cuda=True) as handle:
        # torch.cuda has a stream of its own pool for an external handle of 0, which is the default stream's.
        default = torch.cuda.default_stream(device.index)
        stream = torch.cuda.ExternalStream(handle, device.index) if handle else default
        with torch.cuda.device(device.index), torch.cuda.stream(stream):
            yield


@contextlib.contextmanager
def collect() -> Iterator[list[Override]]:
    """Overrides that are made inside are listed, not installed: how a kernel file is read."""
    found: list[Override] = []
    _collecting.append(found)
    try:
        yield found
    finally:
        _collecting.pop()


def deliver(made: Override) -> Override:
    if _collecting:
        _collecting[-1].append(made)
        return made
    return made.install()


def active() -> list[Override]:
    """The overrides in force, the oldest first."""
    return list(_active)


def restore_all() -> None:
    """Put every operator back."""
    for made in reversed(active()):
        made.restore()
