"""Conformance rows in `make test`: every claimed operator in float32 in all variants, in one other dtype in some.

`make conformance` runs every dtype in every variant, with all sample inputs.
"""

import zlib

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests import older_torch
from tests.conformance.checks import applies, run_row
from tests.conformance.expected_failures import reason
from tests.conformance.families import CLAIMED, UNCLAIMED
from tests.conformance.variants import SAMPLES, VARIANTS, limit_for

# What depends on the dtype most.
OTHER_DTYPE_VARIANTS = ("forward", "noncontig", "layouts", "inplace", "out", "grad")
OPS = {op.formatted_name: op for op in op_db}


def thinned(name: str) -> list[str]:
    """float32 if native has it, and one of the other dtypes, chosen by the name so that all are used somewhere."""
    supported = sorted(str(dtype).removeprefix("torch.") for dtype in OPS[name].supported_dtypes("cpu"))
    rest = [dtype for dtype in supported if dtype != "float32" and not dtype.startswith(("complex32", "float8"))]
    chosen = ["float32"] if "float32" in supported else []
    return chosen + ([rest[zlib.crc32(name.encode()) % len(rest)]] if rest else [])


def rows() -> list:
    params = []
    for name in sorted(CLAIMED & OPS.keys()):
        for i, dtype in enumerate(thinned(name)):
            for variant in VARIANTS if i == 0 else OTHER_DTYPE_VARIANTS:
                if not applies(OPS[name], getattr(torch, dtype), variant):
                    continue
                why = reason(name, variant, dtype)
                marks = [pytest.mark.xfail(reason=why, strict=True)] if why else []
                params.append(pytest.param(name, dtype, variant, id=f"{name}-{dtype}-{variant}", marks=marks))
    return params


@pytest.mark.skipif(older_torch.version(torch.__version__) < (2, 13), reason="an older op_db has other operators")
def test_every_entry_is_claimed_or_left_out_for_a_reason():
    assert CLAIMED.isdisjoint(UNCLAIMED) and CLAIMED | UNCLAIMED.keys() == OPS.keys()


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("name", "dtype", "variant"), rows())
def test_row(name: str, dtype: str, variant: str):
    outcome = run_row(OPS[name], getattr(torch, dtype), variant, limit_for(dtype, SAMPLES))
    assert outcome.status in ("pass", "none"), outcome.detail
