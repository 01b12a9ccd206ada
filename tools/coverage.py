"""Which aten operators run on minitorch, and how: from PyTorch's dispatcher, so it cannot be out of date.

    python tools/coverage.py                            # the summary
    python tools/coverage.py --write docs/coverage.md   # the whole list

minitorch_backend/coverage.py says what counts as what.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

from minitorch_backend import coverage


def page(table: dict[str, dict[str, str]]) -> str:
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
        "A composite operator works when the operators that it is composed of do. What is tested against native "
        "is in [tests/conformance](../tests/conformance/README.md).",
        "",
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
    parser.add_argument("--write", type=pathlib.Path, help="write the whole list to this Markdown file")
    args = parser.parse_args()
    text = page(coverage.operators())
    if args.write:
        args.write.write_text(text)
    print(text.split("\n")[4])
    return 0


if __name__ == "__main__":
    sys.exit(main())
