"""The committed results of the whole run: for each operator and dtype a string with a letter for each variant.

    p  passes        x  expected failure (expected_failures.py)        -  the OpInfo has nothing to check

`python -m tests.conformance.run --results` writes them, and refuses to write anything else; docs/coverage.md counts them.
On a GPU it writes a file of its own, in which a row may also have the letter F: fails there.
"""

import collections
import json
import pathlib
from collections.abc import Callable

from tests.conformance.expected_failures import reason
from tests.conformance.variants import VARIANTS

PATH = pathlib.Path(__file__).with_name("results.json")
CUDA_PATH = pathlib.Path(__file__).with_name("results-cuda.json")
LETTER = {"pass": "p", "expected": "x", "none": "-"}

Table = dict[str, dict[str, str]]


def judged(row: dict) -> str:
    """The row's status with what expected_failures.py says: `expected`, or `unexpected pass`, or as it was."""
    if row["status"] in ("expected", "unexpected pass"):
        return row["status"]
    if reason(row["op"], row["variant"], row["dtype"]) is None or row["status"] == "none":
        return row["status"]
    return "unexpected pass" if row["status"] == "pass" else "expected"


def on_cuda(row: dict) -> str:
    """A row's letter on a GPU, where what fails beside the expected failures is recorded too."""
    status = judged(row)
    return "p" if status == "unexpected pass" else LETTER.get(status, "F")


def table_of(rows: list[dict], letter: Callable[[dict], str] = lambda row: LETTER[judged(row)]) -> Table:
    """From rows of a run; with the usual letters none of them may be unexpected."""
    letters: dict[tuple[str, str], dict[str, str]] = collections.defaultdict(dict)
    for row in rows:
        letters[row["op"], row["dtype"]][row["variant"]] = letter(row)
    table: Table = collections.defaultdict(dict)
    for (op, dtype), found in sorted(letters.items()):
        table[op][dtype] = "".join(found.get(v, "-") for v in VARIANTS)
    return table


def write(table: Table, about: dict, path: pathlib.Path = PATH) -> None:
    lines = [f" {json.dumps(op)}: {json.dumps(table[op])}" for op in sorted(table)]
    head = f'{{"about": {json.dumps(about)},\n"variants": {json.dumps(VARIANTS)},\n"rows": {{\n'
    path.write_text(head + ",\n".join(lines) + "\n}}\n")


def read(path: pathlib.Path = PATH) -> dict | None:
    """The recorded run, or None where none has been recorded yet."""
    return json.loads(path.read_text()) if path.exists() else None


def counts(table: Table) -> dict[tuple[str, str], collections.Counter]:
    """(variant, dtype) -> how many rows have each letter."""
    found: dict[tuple[str, str], collections.Counter] = collections.defaultdict(collections.Counter)
    for dtypes in table.values():
        for dtype, letters in dtypes.items():
            for variant, letter in zip(VARIANTS, letters, strict=True):
                found[variant, dtype][letter] += 1
    return found
