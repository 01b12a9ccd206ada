"""Claimed rows that do not pass, each with the reason. Strict: a row that begins to pass must leave this list."""

from typing import NamedTuple

import torch

import minitorch_backend
from tests.older_torch import version


class Expected(NamedTuple):
    """Rows of one operator; `variants` and `dtypes` are separated by blanks."""

    op: str
    variants: str
    dtypes: str | None  # None: all that native has
    reason: str
    before: str = ""  # the torch version from which on they pass
    backend: str = ""  # the only one on which they fail

    def counts(self, torch_version: str, backend: str) -> bool:
        """Whether the entry is about this torch and backend."""
        older = not self.before or version(torch_version) < version(self.before)
        return older and self.backend in ("", backend)


WITHOUT_VALUES = "native asks whether two tensors are equal, which vmap and FakeTensorMode cannot answer"
EXPECTED_FAILURES: tuple[Expected, ...] = (
    Expected(
        "nn_functional_scaled_dot_product_attention",
        "gradgrad",
        "bfloat16 float16 float32",
        "attention with dropout is fused, as native's on CUDA is, and has no second derivative there either; native on the"
        " CPU takes its composite",
        backend="cuda",
    ),
    Expected("nanquantile", "func fake", "float32", WITHOUT_VALUES, before="2.13"),
    Expected("quantile", "func fake", "float32", WITHOUT_VALUES, before="2.13"),
    Expected(
        "torch__scaled_mm_v2", "forward noncontig layouts", None, "native has no such kernel on the CPU", before="2.13"
    ),
)
RUNNING = (torch.__version__, minitorch_backend._C.backend_name())


def expected_on(torch_version: str, backend: str) -> list[Expected]:
    return [e for e in EXPECTED_FAILURES if e.counts(torch_version, backend)]


def reason(op: str, variant: str, dtype: str, where: tuple[str, str] = RUNNING) -> str | None:
    """Why this row is expected to fail with that torch and backend, or None."""
    for e in expected_on(*where):
        if e.op == op and variant in e.variants.split() and (e.dtypes is None or dtype in e.dtypes.split()):
            return e.reason
    return None
