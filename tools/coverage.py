"""Which aten operators run on minitorch, and how: from PyTorch's dispatcher, so it cannot be out of date.

    python tools/coverage.py                            # the summary
    python tools/coverage.py --write docs/coverage.md   # the whole list

An operator counts as
own        a kernel is registered for the device
composite  PyTorch composes it from other operators (which must be there in turn)
missing    native CPU has a kernel and minitorch does not: the fallback decides what happens
Operators that native CPU does not have either (other vendors' libraries, sparse and quantized ones) are left out.
"""

import argparse
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

import minitorch_backend  # noqa: F401

COMPOSITE_KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def how(name: str) -> str | None:
    """own, composite, missing, or None for an operator that native CPU does not have."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(name, "PrivateUse1"):
        return "own"
    if any(has(name, key) for key in COMPOSITE_KEYS):
        return "composite"
    return "missing" if has(name, "CPU") else None


def operators() -> dict[str, dict[str, str]]:
    """base name -> overload -> how."""
    table: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        status = how(name)
        if status is not None:
            base, _, overload = name.removeprefix("aten::").partition(".")
            table[base][overload or "default"] = status
    return table


def page(table: dict[str, dict[str, str]]) -> str:
    counts = collections.Counter(status for overloads in table.values() for status in overloads.values())
    lines = [
        "# Coverage",
        "",
        f"Written by `make coverage` for torch {torch.__version__.split('+')[0]}; do not edit by hand.",
        "",
        "Every aten operator that native CPU has, overloads counted: "
        f"{counts['own']} have a kernel here, {counts['composite']} are composed by PyTorch from other operators, "
        f"{counts['missing']} are missing and go to the fallback (`MINITORCH_FALLBACK`).",
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
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=pathlib.Path, help="write the whole list to this Markdown file")
    args = parser.parse_args()
    text = page(operators())
    if args.write:
        args.write.write_text(text)
    print(text.split("\n")[4])
    return 0


if __name__ == "__main__":
    sys.exit(main())
