"""Random number generators of the device, shaped like ``torch.cuda.random``.

The numbers are those of native CPU for the same seed, on a GPU those of native CUDA, drawn from a generator of the
device's own.
"""

from collections.abc import Iterable

import torch

from minitorch_backend import _C
from minitorch_backend._utils import _get_device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generator(device: "int | str | torch.device | None" = None) -> torch.Generator:
    return _C.default_generator(_get_device_index(device, optional=True))


def get_rng_state(device: "int | str | torch.device" = "minitorch") -> torch.Tensor:
    """The state of a device's generator as a CPU byte tensor, in native's own format: the CPU's, on a GPU CUDA's."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: "int | str | torch.device" = "minitorch") -> None:
    """Put a device's generator into a state that :func:`get_rng_state` returned."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of the generators of all devices."""
    return [get_rng_state(d) for d in range(_C.device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of the generators of all devices."""
    for device, state in enumerate(new_states):
        set_rng_state(state, device)


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for device in range(_C.device_count()):
        _generator(device).manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator with a random number."""
    _generator().seed()


def seed_all() -> None:
    """Seed the generators of all devices with one random number."""
    manual_seed_all(_generator(0).seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator().initial_seed()
