"""The dispatch mode that holds every operator call of the subject device against the reference.

For each call, in this order (see comparison): the written arguments are copied; the subject runs; the reference runs on
the same inputs (the memory itself where both devices see it, copies otherwise); the results are compared; the native
shadow goes on.
"""

import time
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._python_dispatch import TorchDispatchMode

from minitorch_backend.compare import generators
from minitorch_backend.compare.comparison import Comparison, Kind
from minitorch_backend.compare.metadata import has_memory
from minitorch_backend.compare.mirror import Mirror
from minitorch_backend.compare.operators import Operator, operator_of
from minitorch_backend.compare.options import Options
from minitorch_backend.compare.sampling import Sampling
from minitorch_backend.compare.shadow import Shadow
from minitorch_backend.compare.store import Store
from minitorch_backend.compare.where import Where

_PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer, UninitializedParameter, UninitializedBuffer)
_DETACH = torch.ops.aten.detach.default
_FAKE, _PROXY = torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY
_mode_of = torch._C._get_dispatch_mode
# How torch is told to leave a function and what it calls alone; None in versions without.
_STRATEGY = getattr(torch._C._dynamo.eval_frame, "set_code_exec_strategy", None)
MOST_VIEWS = 4096  # kinds of views that are remembered


def tracing() -> bool:
    """Whether torch traces what is called (torch.func.linearize, export): those modes come after all others."""
    return _mode_of(_FAKE) is not None or _mode_of(_PROXY) is not None


class Recorder(TorchDispatchMode):
    """Compares while it is entered. `store` holds what it finds; `on_finding(call, view)` writes replay files."""

    def __init__(self, options: Options, on_finding: Any = None) -> None:
        super().__init__()
        self.options = options
        self.store = Store(options.keep)
        self.on_finding = on_finding
        self.subject, self.reference = torch.device(options.subject), torch.device(options.reference)
        self.type = self.subject.type
        self.mirror = Mirror(self.subject, self.reference)
        self.shadow = Shadow(self.mirror, self.reference, options.memory) if options.shadow else None
        self.kinds: dict[Any, Kind] = {}
        self.views: dict[tuple, list] = {}  # how views of a kind came out where the reference agreed
        self.active = True
        self.in_flight: Any = None
        self.on_call: Any = None
        self.filters = bool(options.only or options.modules or options.steps)
        self.sampling = Sampling(self, options.every, pauses=not self.filters) if options.every > 1 else None
        self.where = Where(follow=self.sampling is None or options.modules is not None)
        self.thorough_first = 2 if self.sampling is None else 1
        self.same_generators = generators.alike(self.subject, self.reference)

    # The mode

    supports_higher_order_operators = True  # cond, while_loop and their like come here, too

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch keeps compiled programs from compiling the dispatch; the end of this file does it better."""
        return _STRATEGY is None

    def __enter__(self) -> "Recorder":
        self.where.install()
        super().__enter__()
        if self.sampling is not None:
            self.sampling.enter()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.sampling is not None:
            self.sampling.exit()
        self.where.remove()
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.sampling is not None:
            waiting = self.sampling.left
            left = waiting.get(func, 0)
            if left > 0:
                waiting[func] = left - self.sampling.weight
                self.store.calls += 1
                return func._op(*args, **kwargs) if kwargs else func._op(*args)
        kwargs = kwargs or {}
        if not self.active or tracing():
            return func(*args, **kwargs)
        for t in types:
            if t not in _PLAIN:
                return NotImplemented
        op = operator_of(func)
        if op is None:
            self.store.note(f"{func}: what runs inside a higher-order operator is not compared")
            return func(*args, **kwargs)
        if op.ignored or not self.involves(args, kwargs):
            return func(*args, **kwargs)
        index = self.store.calls
        self.store.calls = index + 1
        if self.filters and not self.selected(op):
            return func(*args, **kwargs)
        if self.sampling is not None:
            self.sampling.looked(func)
        return self.compare(op, index, args, kwargs)

    def involves(self, args: Any, kwargs: dict) -> bool:
        """Whether the subject device takes part in a call."""
        kind = self.type
        for a in args:
            if isinstance(a, Tensor):
                if a.device.type == kind:
                    return a.layout is torch.strided
            elif type(a) in (list, tuple):
                for b in a:
                    if isinstance(b, Tensor):
                        if b.device.type == kind:
                            return b.layout is torch.strided
                        break
        if kwargs:
            device = kwargs.get("device")
            if device is not None:
                return torch.device(device).type == kind
            for a in kwargs.values():
                if isinstance(a, Tensor) and a.device.type == kind:
                    return True
            return kind == "cpu" and "device" in kwargs
        return False

    @property
    def watched_steps(self) -> int:
        """Of the optimizers' steps so far, those that were not paused for."""
        return self.sampling.watched if self.sampling is not None and self.sampling.pauses else self.where.step

    def selected(self, op: Operator) -> bool:
        o = self.options
        if o.only and not o.only.search(op.full_name):
            return False
        if o.steps and not o.steps[0] <= self.where.step < o.steps[1]:
            return False
        return not (o.modules and not o.modules.search(self.where.path()))

    # One call

    def compare(self, op: Operator, index: int, args: Any, kwargs: dict) -> Any:
        start = time.perf_counter()
        if self.in_flight is not None:
            self.in_flight(index, op.full_name, self.where.path())
        if op.func is _DETACH and has_memory(args[0]):
            result = op.func(*args, **kwargs)
            if result.untyped_storage()._cdata == args[0].untyped_storage()._cdata and result.shape == args[0].shape:
                self.store.compared += 1
                return result
            comparison = Comparison(self, op, index, args, kwargs)
            comparison.result = result
            comparison.compare_view(result)
            return result
        comparison = Comparison(self, op, index, args, kwargs)
        result = comparison.run()
        self.store.compared += 1
        statistics = self.store.statistics(op.full_name)
        statistics.seconds += time.perf_counter() - start
        if self.on_call is not None:
            self.on_call(index)
        return result

    def kind(self, key: Any) -> Kind:
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = Kind()
        return found

    def remember_view(self, key: tuple, layouts: list) -> None:
        if len(self.views) >= MOST_VIEWS:
            self.views.clear()
        self.views[key] = layouts


if _STRATEGY is not None:
    # Marked once, which costs nothing later: the wrapper would take longer than the rest of a call not looked at.
    _SKIP = torch._C._dynamo.eval_frame._FrameAction.SKIP
    _STRATEGY(Recorder.__torch_dispatch__.__code__, torch._C._dynamo.eval_frame._FrameExecStrategy(_SKIP, _SKIP))
