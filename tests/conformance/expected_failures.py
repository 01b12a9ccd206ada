"""Claimed rows that do not pass, each with the reason. Strict: a row that begins to pass must leave this list.

`(op, variant, dtype)`; None stands for every variant or dtype. The reason says what differs and why.
"""

import fnmatch

EXPECTED_FAILURES: tuple[tuple[str, str | None, str | None, str], ...] = ()


def reason(op: str, variant: str, dtype: str) -> str | None:
    """Why this row is expected to fail, or None."""
    for name, v, d, why in EXPECTED_FAILURES:
        if fnmatch.fnmatchcase(op, name) and v in (None, variant) and d in (None, dtype):
            return why
    return None
