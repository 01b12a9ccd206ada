"""The overrides of one operator, one after the other, which come and go while other threads call it.

PyTorch reads its tables of kernels without a lock, so they are changed once for an operator and not again: a trampoline
(csrc/python/override.cpp) takes the operator's place, which leads to the kernel that was there, or, while there are
overrides, to a shadow: an operator of the same schema whose kernel is the chain. A call takes the chain's links as they
are when it comes; whoever adds or removes one makes a new tuple.
"""

import re
from collections.abc import Callable
from typing import Any

import torch

from minitorch_backend import _C
from minitorch_backend.kernels import schema
from minitorch_backend.kernels.errors import KernelError

SHADOWS = "minitorch_override"
# What a link is: (below, keys, args, kwargs) -> results, where below(keys, args, kwargs) is the next older one.
Below = Callable[[Any, tuple, dict], Any]
Link = Callable[[Below, Any, tuple, dict], Any]
_chains: dict[tuple[str, str], "Chain"] = {}
_library: torch.library.Library | None = None  # of the shadows, which stay


class Chain:
    """One form of an operator under one dispatch key. The newest link is asked first, the original kernel last."""

    def __init__(self, form: torch._ops.OpOverload, key: str) -> None:
        self.form, self.name, self.key = form, form.name(), key
        self.links: tuple[Link, ...] = ()
        try:
            self.original = torch.library.get_kernel(self.name, key)
        except RuntimeError:
            raise KernelError(f"{self.name} has no kernel under {key} that could be replaced") from None
        self.hook = _C.OperatorHook(self.name, shadow(form, key, self._call), key)

    def add(self, link: Link) -> None:
        self.links += (link,)
        self.hook.put_in()
        self.hook.active = True

    def remove(self, link: Link) -> None:
        """Take a link out where it was added last. Calls that are on their way to it still reach it."""
        places = [i for i, other in enumerate(self.links) if other == link]
        self.links = self.links[: places[-1]] + self.links[places[-1] + 1 :]
        self.hook.active = bool(self.links)

    def _call(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        return self._descend(self.links, keys, args, kwargs)

    def _descend(self, links: tuple[Link, ...], keys: Any, args: tuple, kwargs: dict) -> Any:
        if not links:
            args, kwargs = schema.numbers_as_tensors(self.form, args, kwargs)
            return self.original.call_boxed(keys, *args, **kwargs)
        return links[-1](lambda *call: self._descend(links[:-1], *call), keys, args, kwargs)


def chain(form: torch._ops.OpOverload, key: str) -> Chain:
    """The chain of an operator's form under a dispatch key. The caller holds the lock of changes."""
    name = (form.name(), key)
    if name not in _chains:
        _chains[name] = Chain(form, key)
    return _chains[name]


def shadow(form: torch._ops.OpOverload, key: str, function: Callable[..., Any]) -> str:
    """The name of a new operator with the form's schema, whose kernel under the key is a function."""
    global _library
    if _library is None:
        _library = torch.library.Library(SHADOWS, "DEF")
    base, _, overload = form.name().partition(".")
    name = re.sub(r"\W", "_", f"{base}_{key}") + (f".{overload}" if overload else "")
    text = str(form._schema)
    _library.define(name + text[text.index("(") :])
    _library.impl(name, function, key, with_keyset=True)
    return f"{SHADOWS}::{name}"


def withdraw() -> None:
    """Take the trampolines of operators without overrides out again, which saves their calls half a microsecond.

    Only while no other thread calls one of them.
    """
    for made in list(_chains.values()):
        if not made.links:
            made.hook.take_out()
