"""The committed results of the whole run: for each operator and dtype a string with a letter for each variant.

    p  passes        x  expected failure (expected_failures.py)        -  the OpInfo has nothing to check

`python -m tests.conformance.run --results` writes them, and refuses to write anything else; docs/coverage.md counts them.
"""

import collections
import json
import pathlib

from tests.conformance.expected_failures import reason
from tests.conformance.variants import VARIANTS

PATH = pathlib.Path(__file__).with_name("results.json")
LETTER = {"pass": "p", "expected": "x", "none": "-"}

Table = dict[str, dict[str, str]]


def judged(row: dict) -> str:
    """The row's status with what expected_failures.py says: `expected`, or `unexpected pass`, or as it was."""
    if row["status"] in ("expected", "unexpected pass"):
        return row["status"]
    if reason(row["op"], row["variant"], row["dtype"]) is None or row["status"] == "none":
        return row["status"]
    return "unexpected pass" if row["status"] == "pass" else "expected"


def table_of(rows: list[dict]) -> Table:
    """From rows of a run none of which is unexpected."""
    letters: dict[tuple[str, str], dict[str, str]] = collections.defaultdict(dict)
    for row in rows:
        letters[row["op"], row["dtype"]][row["variant"]] = LETTER[judged(row)]
    table: Table = collections.defaultdict(dict)
    for (op, dtype), found in sorted(letters.items()):
        table[op][dtype] = "".join(found[v] for v in VARIANTS)
    return table


def write(table: Table, about: dict) -> None:
    lines = [f" {json.dumps(op)}: {json.dumps(table[op])}" for op in sorted(table)]
    head = f'{{"about": {json.dumps(about)},\n"variants": {json.dumps(VARIANTS)},\n"rows": {{\n'
    PATH.write_text(head + ",\n".join(lines) + "\n}}\n")


def read() -> dict | None:
    """The recorded run, or None where none has been recorded yet."""
    return json.loads(PATH.read_text()) if PATH.exists() else None


def counts(table: Table) -> dict[tuple[str, str], collections.Counter]:
    """(variant, dtype) -> how many rows have each letter."""
    found: dict[tuple[str, str], collections.Counter] = collections.defaultdict(collections.Counter)
    for dtypes in table.values():
        for dtype, letters in dtypes.items():
            for variant, letter in zip(VARIANTS, letters, strict=True):
                found[variant, dtype][letter] += 1
    return found
