"""Which aten operators run on minitorch, and how, from PyTorch's dispatcher; which rows of op_db pass, from the last
whole run of the conformance suite (tests/conformance/results.json).

    python tools/coverage.py            # the summary
    python tools/coverage.py --write    # docs/coverage.md and the README's badge

minitorch_backend/coverage.py says what counts as what. Without a recorded run the section on op_db says so.
"""

import argparse
import collections
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

from minitorch_backend import coverage
from tests.conformance import results
from tests.conformance.expected_failures import Expected, expected_on
from tests.conformance.families import UNCLAIMED
from tests.conformance.variants import VARIANTS

ROOT = pathlib.Path(__file__).resolve().parents[1]
DTYPES = (
    "float32", "float64", "bfloat16", "float16", "complex64", "complex128", "complex32", "int64", "int32", "int16",
    "int8", "uint8", "bool", "uint64", "uint32", "uint16",
)  # fmt: skip
BADGE = re.compile(r"^\[!\[conformance\].*$", re.MULTILINE)


def page(table: dict[str, dict[str, str]], run: dict | None) -> str:
    counts = coverage.counts(table)
    lines = [
        "# Coverage",
        "",
        f"Written by `make coverage` for torch {torch.__version__.split('+')[0]}; do not edit by hand.",
        "",
        "Every aten operator that native CPU has, overloads counted: "
        f"{counts['own']} have a kernel here, {counts['composite']} are composed by PyTorch from other operators, "
        f"{counts['missing']} are missing and {counts['refused']} are refused by design; both go to the fallback "
        "(`MINITORCH_FALLBACK`), which raises an error that names them or runs them on native CPU.",
        "",
        "A composite operator works when the operators that it is composed of do.",
        "",
        *conformance(run),
        *on_cuda(results.read(results.CUDA_PATH)),
    ]
    for status, title in (("missing", "Missing"), ("own", "Own kernels"), ("composite", "Composite")):
        lines += [f"## {title}", ""]
        for base in sorted(table):
            overloads = sorted(overload for overload, s in table[base].items() if s == status)
            if overloads:
                some = "" if len(overloads) == len(table[base]) else f" ({', '.join(overloads)})"
                lines.append(f"- `{base}`{some}")
        lines.append("")
        if status == "missing":
            lines += refused(table)
    return "\n".join(lines)


def totals(run: dict) -> collections.Counter:
    return sum(results.counts(run["rows"]).values(), collections.Counter())


def samples_of(run: dict) -> str:
    samples = run["about"]["samples"]
    return "all sample inputs" if samples == "all" else f"at most {samples} sample inputs a row (float32, other dtypes)"


def conformance(run: dict | None) -> list[str]:
    """The section on op_db: rows by variant and dtype, and every expected failure."""
    title = ["## PyTorch's op_db", ""]
    if run is None:
        return [*title, "No whole run is recorded yet; `make conformance` makes one.", ""]
    total = totals(run)
    share = 100 * total["p"] / (total["p"] + total["x"])
    lines = [
        *title,
        f"{len(run['rows'])} entries of `torch.testing._internal`'s op_db in every dtype that native CPU supports, "
        f"{total['p'] + total['x']:,} rows: {total['p']:,} pass ({share:.2f} %), {total['x']:,} are expected to fail. "
        "A row is an operator in a dtype and a [variant](../tests/conformance/README.md), compared with native CPU; "
        f"{samples_of(run)}. Measured on the CPU by "
        "`make conformance`. Where a cell has two numbers, the second one counts the expected failures.",
        "",
        *by_dtype(run),
    ]
    lines += ["", "Expected failures, strict: a row that begins to pass must leave the list.", ""]
    lines += [entry(e) for e in expected_on(torch.__version__, "cpu")]
    by_reason = collections.defaultdict(list)
    for name, why in UNCLAIMED.items():
        by_reason[why].append(f"`{name}`")
    lines += ["", "Entries that are left out:", "", "| entries | why |", "|---|---|"]
    lines += [f"| {', '.join(entries)} | {why} |" for why, entries in by_reason.items()]
    return [*lines, ""]


def entry(e: Expected) -> str:
    """A line about an expected failure."""
    dtypes = e.dtypes.replace(" ", ", ") if e.dtypes else "all"
    since = f" (torch before {e.before})" if e.before else ""
    return f"- `{e.op}`, {e.variants.replace(' ', ', ')}, {dtypes}: {e.reason}{since}"


def by_dtype(run: dict) -> list[str]:
    """A table of how many rows pass, by dtype and variant."""
    counts = results.counts(run["rows"])
    lines = ["| dtype | " + " | ".join(VARIANTS) + " |", "|---|" + "---:|" * len(VARIANTS)]
    present = {dtype for _, dtype in counts}
    for dtype in (*DTYPES, *sorted(present - set(DTYPES))):
        cells = [counts[v, dtype] for v in VARIANTS if dtype in present]
        if cells:
            lines.append(f"| {dtype} | " + " | ".join(cell(c) for c in cells) + " |")
    return lines


def cell(c: collections.Counter) -> str:
    short = c["x"] + c["F"]
    return f"{c['p']}, {short}" if short else str(c["p"] or "")


def on_cuda(run: dict | None) -> list[str]:
    """The section on the last run on a GPU, with every row that fails there."""
    if run is None:
        return []
    total, about = totals(run), run["about"]
    checked = total["p"] + total["x"] + total["F"]
    lines = [
        "## The same on a GPU",
        "",
        f"{about['device']}, torch {about['torch']}, commit {about['commit'][:10]}, {about['date'][:10]}, "
        f"{samples_of(run)}: {checked:,} rows, {total['p']:,} pass "
        f"({100 * total['p'] / checked:.2f} %), {total['x']:,} are expected to fail, "
        f"{total['F']:,} fail. Compared with native CPU; of operators that draw random numbers only what is not "
        "random. Where a cell has two numbers, the second one counts the rows that do not pass.",
        "",
        *by_dtype(run),
        "",
    ]
    failing = [
        f"- `{op}` {dtype}: " + ", ".join(v for v, letter in zip(VARIANTS, letters, strict=True) if letter == "F")
        for op, dtypes in run["rows"].items()
        for dtype, letters in dtypes.items()
        if "F" in letters
    ]
    expected = [entry(e) for e in expected_on(about["torch"], "cuda")]
    if expected:
        lines += ["Expected failures there, strict:", "", *expected, ""]
    return [*lines, *(["Rows that fail:", "", *failing, ""] if failing else [])]


def badge(run: dict) -> str:
    """The README's line; the picture is drawn by shields.io."""
    total = totals(run)
    share = f"{100 * total['p'] / (total['p'] + total['x']):.1f}"
    text = f"{share} % of {total['p'] + total['x']:,} op_db rows pass"
    picture = f"https://img.shields.io/badge/op__db-{share}%25_of_{total['p'] + total['x']}_rows-brightgreen"
    return f'[![conformance]({picture} "{text}")](docs/coverage.md)'


def with_badge(readme: str, run: dict) -> str:
    return BADGE.sub(lambda _: badge(run), readme)


def refused(table: dict[str, dict[str, str]]) -> list[str]:
    """The section on what is refused, a line for each reason."""
    lines = ["## Refused by design", "", "For what these would need:", ""]
    for reason, names in coverage.REFUSED.items():
        there = sorted(n for n in names.split() if "refused" in table.get(n, {}).values())
        if there:
            lines.append(f"- {reason}: " + ", ".join(f"`{n}`" for n in there))
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/coverage.md and the README's badge")
    args = parser.parse_args()
    run = results.read()
    text = page(coverage.operators(), run)
    if args.write:
        (ROOT / "docs/coverage.md").write_text(text)
        readme = ROOT / "README.md"
        if run is not None:
            readme.write_text(with_badge(readme.read_text(), run))
    print(text.split("\n")[4])
    return 0


if __name__ == "__main__":
    sys.exit(main())
