"""Claimed rows that do not pass, each with the reason. Strict: a row that begins to pass must leave this list.

`(op, variants, dtypes, reason)`; variants and dtypes are separated by blanks, None stands for all that native has.
"""

EXPECTED_FAILURES: tuple[tuple[str, str, str | None, str], ...] = ()


def reason(op: str, variant: str, dtype: str) -> str | None:
    """Why this row is expected to fail, or None."""
    for name, variants, dtypes, why in EXPECTED_FAILURES:
        if name == op and variant in variants.split() and (dtypes is None or dtype in dtypes.split()):
            return why
    return None
