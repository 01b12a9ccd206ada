"""Names of operators, their forms, and how their arguments cross into a kernel."""

import difflib
import functools
from dataclasses import dataclass
from typing import Any

import torch

NUMBERS = (bool, int, float, complex)
TENSORS = ("Tensor", "Optional[Tensor]")
ENUMERATIONS = ("ScalarType", "Layout", "MemoryFormat")  # what PyTorch's schemas pass as an int


@dataclass(frozen=True)
class Operator:
    """An operator to be overridden: the form that makes its result, and the two that write somewhere else."""

    functional: torch._ops.OpOverload
    inplace: torch._ops.OpOverload | None
    out: torch._ops.OpOverload | None

    @property
    def name(self) -> str:
        return self.functional.name()

    @property
    def pointwise(self) -> bool:
        """Whether its tensors are broadcast against each other and promoted to one dtype."""
        return torch.Tag.pointwise in self.functional.tags

    @property
    def base(self) -> str:
        """The name without namespace and overload."""
        return self.functional._schema.name.split("::")[1]


def find(name: str) -> Operator:
    """The operator that a name such as "aten::silu" or "aten::add.Tensor" means.

    Raises LookupError with near matches, or with the overloads to choose from.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of an operator is a text such as 'aten::silu', not {name!r}")
    namespace, _, rest = name.rpartition("::")
    namespace = namespace or "aten"
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    dispatched = set(torch._C._dispatch_get_all_op_names())
    if not isinstance(packet, torch._ops.OpOverloadPacket):  # torch.ops.aten.name is the namespace's
        there = [op.split("::") for op in dispatched]
        known = {full.partition(".")[0] for space, full in there if space == namespace}
        close = [f"_{base}"] if f"_{base}" in known else []
        close += [n for n in difflib.get_close_matches(base, known, n=5) if n not in close]
        raise LookupError(f"there is no operator {name!r}; near matches: {', '.join(close) or 'none'}")
    every = [o for o in packet.overloads() if getattr(packet, o).name() in dispatched]
    overloads = [o for o in every if not _writes(getattr(packet, o))]
    if overload and overload not in every:
        raise LookupError(f"{namespace}::{base} has no overload {overload!r}; it has {', '.join(every)}")
    if not overloads or (overload and overload not in overloads):
        raise LookupError(
            f"{name} writes into its argument; override the form that makes its result: {base.rstrip('_')}"
        )
    chosen = overload or ("default" if "default" in overloads else "")
    if not chosen and len(overloads) > 1 and not all(_composite(getattr(packet, o)) for o in overloads):
        raise LookupError(
            f"{namespace}::{base} has several forms; name one: {', '.join(f'{base}.{o}' for o in overloads)}"
        )
    functional = getattr(packet, chosen or overloads[0])  # of several, which are all composed, any says so
    if _composite(functional):
        inner = [f"aten::{n}" for n in (f"_{base}", f"native_{base}") if hasattr(torch.ops.aten, n)]
        hint = f"override {' or '.join(inner)}" if inner else "override one of those, which torch.profiler shows"
        raise LookupError(f"{name} is composed of other operators, which bring its gradient: {hint}")
    if torch.Tag.dynamic_output_shape in functional.tags:
        raise LookupError(
            f"{name} cannot be overridden: the shape of its result depends on values, so no kernel's can be checked"
        )
    return Operator(functional, _inplace(namespace, base, functional), _out(packet, functional))


def _writes(overload: torch._ops.OpOverload) -> bool:
    return any(a.alias_info is not None and a.alias_info.is_write for a in overload._schema.arguments)


def _composite(overload: torch._ops.OpOverload) -> bool:
    """Whether the device has no kernel of its own that every call reaches, with gradients and without."""
    has = lambda key: torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key)  # noqa: E731
    return has("CompositeImplicitAutograd") and (not has("PrivateUse1") or has("AutogradPrivateUse1"))


def _shape(overload: torch._ops.OpOverload) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in overload._schema.arguments if not a.is_out]


def _inplace(namespace: str, base: str, functional: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    packet = getattr(getattr(torch.ops, namespace), f"{base}_", None)
    for name in packet.overloads() if packet else ():
        if _shape(getattr(packet, name)) == _shape(functional):
            return getattr(packet, name)
    return None


def _out(packet: torch._ops.OpOverloadPacket, functional: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    for name in packet.overloads():
        overload = getattr(packet, name)
        if any(a.is_out for a in overload._schema.arguments) and _shape(overload) == _shape(functional):
            return overload
    return None


@functools.cache
def _tensors(overload: torch._ops.OpOverload) -> frozenset[int | str]:
    """Positions and names of the arguments that are a tensor."""
    found = [(i, a.name) for i, a in enumerate(overload._schema.arguments) if str(a.type) in TENSORS]
    return frozenset(key for pair in found for key in pair)


def numbers_as_tensors(overload: torch._ops.OpOverload, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a call with what ``x + 1`` has where the schema has a tensor, a number, as a tensor again."""
    tensors = _tensors(overload)
    given = [*enumerate(args), *kwargs.items()]
    if not any(key in tensors and isinstance(value, NUMBERS) for key, value in given):
        return args, kwargs
    others = [value for key, value in given if key in tensors and isinstance(value, torch.Tensor)]

    def as_tensor(key: int | str, value: Any) -> Any:
        return _beside(value, others) if key in tensors and isinstance(value, NUMBERS) else value

    return tuple(as_tensor(i, v) for i, v in enumerate(args)), {name: as_tensor(name, v) for name, v in kwargs.items()}


def _beside(number: complex, others: list[torch.Tensor]) -> torch.Tensor:
    """A number as a tensor on the CPU that promotes the tensors beside it no further than the number does.

    PyTorch marks such tensors as wrapped numbers, which Python cannot. Beside tensors with dimensions one without any
    does the same, in full precision, unless it is of a higher kind; otherwise it has the dtype that comes out.
    """
    wide = torch.tensor(number, dtype={float: torch.float64, complex: torch.complex128}.get(type(number)))
    dtype = next((torch.result_type(t, number) for t in others), wide.dtype)
    same = any(t.dim() for t in others) and all(torch.result_type(t, wide) == dtype for t in others if t.dim())
    return wide if same else wide.to(dtype)


def is_enumeration(argument: Any) -> bool:
    """Whether a schema's argument is a dtype, a layout or a memory format."""
    return any(word in str(argument.real_type) for word in ENUMERATIONS)


@functools.cache
def kernel_arguments(functional: torch._ops.OpOverload) -> list[tuple[str, str]]:
    """(name, kind) of the arguments that a compiled kernel takes; kinds: Tensor, int, float, bool, list.

    Tensors, numbers and lists of integers go in, in the order of the schema. A Scalar becomes a double, an optional
    integer that is not given the smallest int64, an optional float NaN; other arguments (a memory format, a text) stay
    out. Raises LookupError for an operator with arguments that cannot be left out.
    """
    found = []
    for a in functional._schema.arguments:
        kind = str(a.type)
        if kind in TENSORS:
            found.append((a.name, "Tensor"))
        elif kind in ("int", "Optional[int]") and not is_enumeration(a):
            found.append((a.name, "int"))
        elif kind in ("float", "Optional[float]", "number", "Optional[number]"):
            found.append((a.name, "float"))
        elif kind == "bool":
            found.append((a.name, "bool"))
        elif kind in ("List[int]", "Optional[List[int]]"):
            found.append((a.name, "list"))
        elif not a.has_default_value():
            raise LookupError(
                f"{functional.name()} takes {a.name} ({kind}), which a compiled kernel cannot: use a Python callable"
            )
    return found
