"""What kind of thing a call left behind, apart from its values: dtype, shape, strides, memory, versions, inputs kept.

Functions of a ``Comparison`` in work (comparison says how one goes).
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedTensorMixin

from minitorch_backend.compare import judge
from minitorch_backend.compare.library import LIBRARY
from minitorch_backend.compare.mirror import View, bytes_of


def metadata_problem(
    c: Any, result: Any, reference: Any, args: list, kwargs: dict, view: View, versions: list[int]
) -> str:
    """What kind of thing came out, not which values: the first difference in words, or nothing."""
    if LIBRARY is not None and not c.op.mutated and LIBRARY.alike(result, reference, view.storages):
        return state_problem(c, versions)
    mine, theirs = judge.flat_tensors(result), judge.flat_tensors(reference)
    owners = {seen._cdata: key for key, seen in view.storages.items()}
    if len(mine) != len(theirs):
        return f"{len(mine)} results against {len(theirs)}"
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            if isinstance(a, Tensor) != isinstance(b, Tensor) and not c.op.substitute:
                return f"result {i} is {type(a).__name__}, reference {type(b).__name__}"
            continue
        if c.op.substitute is not None and i in c.op.opaque:
            continue
        if a.dtype != b.dtype:
            return f"dtype of result {i}: {a.dtype}, reference {b.dtype}"
        if a.shape != b.shape:
            return f"shape of result {i}: {tuple(a.shape)}, reference {tuple(b.shape)}"
        if c.op.substitute is None:
            if a.stride() != b.stride() and a.numel() > 1 and significant(a) != significant(b):
                return f"strides of result {i}: {a.stride()}, reference {b.stride()}"
            if a.storage_offset() != b.storage_offset() and a.numel() > 0:
                return f"offset of result {i}: {a.storage_offset()}, reference {b.storage_offset()}"
            problem = alias_problem(c, i, a, b, view.storages, owners)
            if problem:
                return problem
    if c.op.inplace_returns and not c.op.is_view:
        given, given_theirs = {id(t) for t in c.inputs}, {id(t) for t in flat(args, kwargs)}
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if id(b) in given_theirs and id(a) not in given:
                return f"result {i} is a new tensor, not the one written"
    return state_problem(c, versions)


def state_problem(c: Any, versions: list[int]) -> str:
    """What happened to inputs that the operator must leave alone."""
    if versions and versions != c.versions():
        return "the version counter of an input moved"
    if c.thorough and c.before is not None:
        return mutation_problem(c)
    return ""


def alias_problem(c: Any, i: int, a: Tensor, b: Tensor, storages: dict, owners: dict) -> str:
    """Whether result `a` shares memory with the argument that `b` shares with. `owners`: arguments by storage."""
    mine, theirs = a.untyped_storage()._cdata, b.untyped_storage()._cdata
    if mine in storages:
        if storages[mine]._cdata != theirs and storages[mine].data_ptr() != b.untyped_storage().data_ptr():
            return f"result {i} shares memory with an input, the reference's does not"
    elif a.numel() and a.device.type == c.r.type and owners.get(theirs, mine) != mine:
        return f"result {i} has memory of its own, the reference's shares an input's"
    return ""


def mutation_problem(c: Any) -> str:
    """An input that changed although the operator does not write it."""
    assert c.before is not None
    written = {t.untyped_storage()._cdata for t in c.written_tensors(c.args, c.kwargs)}
    if c.op.working_memory >= 0:
        written.add(c.args[c.op.working_memory].untyped_storage()._cdata)
    for t in flat(*c.look()):
        key = t.untyped_storage()._cdata
        if t.device.type == c.r.type and key not in written and key in c.before.storages:
            now = c.r.mirror.storage(t.untyped_storage())
            target = c.r.reference
            if not torch.equal(bytes_of(now, target), bytes_of(c.before.storages[key], target)):
                return f"an input of shape {tuple(t.shape)} was written, which this operator must not do"
    return ""


def significant(t: Tensor) -> list[int]:
    """Strides of dimensions longer than one: others decide nothing."""
    return [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1]


def flat(args: Any, kwargs: dict) -> list[Tensor]:
    """The tensors of a call's arguments."""
    values = [*args, *kwargs.values()]
    return [t for v in values for t in judge.flat_tensors(v) if isinstance(t, Tensor)]


def out_of_memory(error: Exception) -> bool:
    """Whether an exception says that memory ran out: no fault of an operator."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return any(words in str(error) for words in ("not enough memory", "can't allocate memory"))


def has_memory(t: Tensor) -> bool:
    """Whether a tensor is a window on a storage: not sparse, nested or lazy, not a zero of forward-mode derivatives."""
    strided = t.layout is torch.strided and not t.is_nested
    return strided and not isinstance(t, UninitializedTensorMixin) and not t._is_zerotensor()


def with_memory(args: Any, kwargs: dict) -> list[Tensor] | None:
    """The tensors of a call's arguments; None if one of them is no window on a storage."""
    if LIBRARY is not None:
        return LIBRARY.tensors(tuple(args), kwargs)
    found = flat(args, kwargs)
    return found if all(map(has_memory, found)) else None


def view_key(op: Any, args: Any, kwargs: dict) -> tuple | None:
    """What decides how a view of one tensor must come out; None where more than that does."""
    base = args[0] if args else None
    rest = tuple(tuple(a) if type(a) is list else a for a in args[1:])
    if kwargs or not isinstance(base, Tensor) or any(isinstance(a, Tensor) for a in rest):
        return None
    return op.func, rest, base.shape, base.stride(), base.storage_offset(), base.dtype, base.is_conj(), base.is_neg()


def layout_of(result: Any, base: Tensor) -> list | None:
    """The layouts of views of `base`; None unless they are that."""
    found, storage = [], base.untyped_storage()._cdata
    for t in judge.flat_tensors(result):
        if t.untyped_storage()._cdata != storage:
            return None
        found.append((t.shape, t.stride(), t.storage_offset(), t.dtype, t.is_conj(), t.is_neg()))
    return found
