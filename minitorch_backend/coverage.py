"""Which aten operators run on minitorch, and how: from PyTorch's dispatcher, so it cannot be out of date.

An operator counts as
own        a kernel is registered for the device
composite  PyTorch composes it from other operators (which must be there in turn)
missing    native CPU has a kernel and minitorch does not: the fallback decides what happens
Operators that native CPU does not have either (other vendors' libraries, sparse and quantized ones) are left out.
"""

import collections

import torch

COMPOSITE_KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def how(name: str) -> str | None:
    """own, composite, missing, or None for an operator that native CPU does not have."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(name, "PrivateUse1"):
        return "own"
    if any(has(name, key) for key in COMPOSITE_KEYS):
        return "composite"
    return "missing" if has(name, "CPU") else None


def operators() -> dict[str, dict[str, str]]:
    """base name -> overload -> how."""
    table: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        status = how(name)
        if status is not None:
            base, _, overload = name.removeprefix("aten::").partition(".")
            table[base][overload or "default"] = status
    return table


def counts(table: dict[str, dict[str, str]]) -> collections.Counter:
    """How many overloads there are of each kind."""
    return collections.Counter(status for overloads in table.values() for status in overloads.values())
