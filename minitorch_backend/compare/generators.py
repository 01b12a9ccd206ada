"""The states of random generators, carried from the subject to the reference so that both draw the same numbers."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def default_state(device: torch.device) -> Tensor:
    return torch.get_rng_state() if device.type == "cpu" else getattr(torch, device.type).get_rng_state(device)


def set_default_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        getattr(torch, device.type).set_rng_state(state, device)


def alike(a: torch.device, b: torch.device) -> bool:
    """Whether two devices draw the same numbers from the same state."""
    if a.type == b.type:
        return True
    return default_state(a).numel() == default_state(b).numel()


def given(args: Any, kwargs: dict) -> torch.Generator | None:
    """The generator that a call names."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Generator):
            return value
    return None


def get(device: torch.device, args: Any, kwargs: dict) -> Tensor:
    """The state from which a call will draw."""
    generator = given(args, kwargs)
    return generator.get_state() if generator is not None else default_state(device)


def put(device: torch.device, state: Tensor, args: Any, kwargs: dict) -> None:
    generator = given(args, kwargs)
    if generator is not None:
        generator.set_state(state)
    else:
        set_default_state(device, state)


@contextlib.contextmanager
def seeded(device: torch.device, state: Tensor, args: list, kwargs: dict) -> Iterator[tuple[list, dict]]:
    """The call's arguments with generators of `device` in `state`; its default generator is put back afterwards."""
    if given(args, kwargs) is not None:
        own = torch.Generator(device)
        own.set_state(state)
        swap = [own if isinstance(a, torch.Generator) else a for a in args]
        yield swap, {k: own if isinstance(v, torch.Generator) else v for k, v in kwargs.items()}
        return
    saved = default_state(device)
    set_default_state(device, state)
    try:
        yield args, kwargs
    finally:
        set_default_state(device, saved)
