"""What a comparison is told to do."""

import re
from dataclasses import dataclass


@dataclass
class Options:
    """Devices, sampling and limits of a comparison.

    subject, reference: the device in question, and the one that it is held against.
    every: take each operator's first call and then every n-th of it; more than 1 turns the shadow off. From 14 on, one
        training step in seven is watched, and seven times as many calls of it are taken.
    only, modules: regular expressions for operator names (``aten::add.Tensor``) and module paths.
    steps: (first, last + 1) optimizer steps.
    keep: how many of the worst calls a report lists.
    shadow: carry a native shadow of the run along, which gives the inherited error; False is streaming mode.
    thorough: arbiter, second run and check of the inputs for every call.
    memory: most bytes that the shadow may hold.
    """

    subject: str = "minitorch"
    reference: str = "cpu"
    every: int = 1
    only: re.Pattern | None = None
    modules: re.Pattern | None = None
    steps: tuple[int, int] | None = None
    keep: int = 200
    shadow: bool = True
    thorough: bool = False
    memory: int | None = None

    def __post_init__(self) -> None:
        self.only = re.compile(self.only) if isinstance(self.only, str) else self.only
        self.modules = re.compile(self.modules) if isinstance(self.modules, str) else self.modules
        if self.every < 1:
            raise ValueError(f"every must be at least 1, but is {self.every}")
        if self.every > 1:
            self.shadow = False


def parse_steps(text: str) -> tuple[int, int]:
    """ "3" is step 3 alone, "3:7" the steps 3 to 6, "3:" all from 3 on. Raises ValueError for anything else."""
    first, colon, last = text.partition(":")
    start = int(first) if first else 0
    end = (int(last) if last else 2**62) if colon else start + 1
    if end <= start:
        raise ValueError(f"no step lies in {text!r}")
    return start, end


def parse_bytes(text: str) -> int:
    """A number of bytes: digits, or a number with K, M, G or T. Raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is no number of bytes (examples: 500M, 2G)")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))
