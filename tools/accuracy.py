"""Errors of operators in ulp, beside native's: every unary operator on all 65,536 inputs of both 16-bit floating types
and on a choice of single and double precision, functions of two arguments on a grid of special values.

    python tools/accuracy.py                             # the tables
    python tools/accuracy.py --write docs/accuracy.md    # the page

For 16-bit types the reference is native's result in float64, otherwise truth.py's. An ulp is the distance between
neighbours of the type at the reference. A result that is the reference rounded to the type has an error of at most half
an ulp, also where that is an infinity; a NaN or an infinity where the reference rounds to something else counts as an
infinite error.
"""

import argparse
import pathlib
import sys
import warnings
from collections.abc import Callable
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
import torch.nn.functional as F

from tools import truth

DTYPES = (torch.bfloat16, torch.float16)
NAMES = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "i0",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "neg",
    "rad2deg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
SPECIAL = ["entr", "i0e", "i1", "i1e"]
ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
]


# Bessel functions of infinities, where native multiplies an infinity by zero: theirs are not numbers.
LIMITS = {"i0": torch.abs, "special.i1": torch.clone}
# Where native's cancels in double as well.
EXACT = ("nn.functional.gelu", "nn.functional.gelu, tanh")
WIDE_DTYPES = (torch.float32, torch.float64)
SAMPLES = 1500  # inputs an operator and type
# Single and double precision whose largest error is above native's by more than an ulp.
BEHIND = {
    "nn.functional.gelu": "float32: 1 + erf(x / sqrt(2)) cancels below x = -3, where both lose the relative error",
}
# Behind native by more than an ulp for some input, though no largest error is above native's.
NEAR_ZEROS = "near zeros of the function the rounding of inner steps counts as a large relative error, for native more"
SUMS = "a sum of two parts, each rounded"
TAIL = "the exponential multiplies what rounding its argument lost"
ELSEWHERE = {
    "digamma": NEAR_ZEROS,
    "lgamma": NEAR_ZEROS,
    "trigamma": "left of zero by reflection, the difference of two numbers",
    "nn.functional.gelu, tanh": TAIL,
    "nn.functional.mish": "below x = -87 by way of subnormal numbers",
    "nn.functional.selu": "two products after expm1, each rounded",
    "special.airy_ai": NEAR_ZEROS,
    "special.bessel_j0": NEAR_ZEROS,
    "special.bessel_j1": NEAR_ZEROS,
    "special.bessel_y0": NEAR_ZEROS,
    "special.bessel_y1": NEAR_ZEROS,
    "special.log_ndtr": SUMS,
    "special.modified_bessel_k0": SUMS,
    "special.modified_bessel_k1": SUMS,
    "special.scaled_modified_bessel_k0": SUMS,
    "special.scaled_modified_bessel_k1": SUMS,
}
ROUNDINGS = (
    "These are polynomials evaluated in the type itself (in single precision exp, exp2, log1p and softplus are, the "
    "others are computed in double), rounded once or twice more than in native's libraries."
)


def operators() -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    table = {name: getattr(torch, name) for name in NAMES}
    table |= {f"special.{name}": getattr(torch.special, name) for name in SPECIAL}
    table |= {f"nn.functional.{name}": getattr(F, name) for name in ACTIVATIONS}
    table["nn.functional.gelu, tanh"] = lambda x: F.gelu(x, approximate="tanh")
    return table


class Row(NamedTuple):
    """Largest errors in ulp, where ours lies furthest behind native's, and how many results are not the best ones."""

    ours: float
    native: float
    behind: float
    worst_input: float
    off: int


def every_value(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def ulp_error(result: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    dtype = result.dtype
    info = torch.finfo(dtype)
    exponent = torch.frexp(reference.abs().clamp(min=info.tiny, max=info.max)).exponent - 1
    ulp = torch.ldexp(torch.full_like(reference, info.eps), exponent)
    got = result.double()
    error = (got - reference).abs() / ulp
    best = reference.to(dtype)
    unusual = ~(got.isfinite() & best.isfinite())
    same = (result == best) | (result.isnan() & best.isnan())
    error[unusual] = torch.where(same, 0.0, float("inf")).double()[unusual]
    return error


def measure(name: str, dtype: torch.dtype) -> Row | None:
    """None where native has no kernel for the dtype."""
    fn = operators()[name]
    x = every_value(dtype)
    try:
        native = truth.natively(fn, x)
    except (RuntimeError, NotImplementedError):
        return None
    reference = fn(x.double())
    if name in EXACT:
        reference = torch.from_numpy(
            truth.OPERATORS[name].truth(x.double().numpy().astype(truth.Long)).astype("float64")
        )
    if name in LIMITS:
        reference = torch.where(x.isinf(), LIMITS[name](x.double()), reference)
    ours = ulp_error(fn(x.to("minitorch")).cpu(), reference)
    theirs = ulp_error(native, reference)
    behind = torch.where(ours <= theirs, 0.0, ours - theirs)
    place = int(behind.argmax())
    return Row(float(ours.max()), float(theirs.max()), float(behind[place]), float(x[place]), int((ours > 0.5).sum()))


def sweep() -> dict[str, dict[torch.dtype, Row]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = {name: {d: measure(name, d) for d in DTYPES} for name in operators()}
    return {name: {d: r for d, r in by.items() if r is not None} for name, by in rows.items()}


def wide_sweep() -> dict[str, dict[torch.dtype, truth.Errors]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {n: {d: truth.measure(n, d, SAMPLES) for d in WIDE_DTYPES} for n in truth.OPERATORS}


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def page(rows: dict[str, dict[torch.dtype, Row]], wide: dict[str, dict[torch.dtype, truth.Errors]]) -> str:
    lines = [
        "# Accuracy",
        "",
        f"Written by `make accuracy` for torch {torch.__version__.split('+')[0]}; do not edit by hand.",
        "",
        "Largest errors in ulp, ours and native's. *behind*: how far the worst of our results lies behind native's "
        "result for the same input.",
        "",
        "## Single and double precision",
        "",
        f"{SAMPLES} inputs an operator over the whole range and near the places that matter, against values in "
        "extended precision. *mean*: of the errors. Largest errors above native's and behind it by more than an ulp:",
        "",
    ]
    measured = [(name, dtype, e) for name in sorted(wide) for dtype, e in wide[name].items()]
    lines += [f"- {name}: {reason}." for name, reason in BEHIND.items()]
    lines += ["", "Behind native by more than an ulp for some input, while no error is above native's largest:", ""]
    found = dict.fromkeys(n for n, _, e in measured if e.behind > 1 and not e.is_behind)
    lines += [f"- {name}: {ELSEWHERE.get(name, '?')}." for name in found]
    lines += ["", "Largest errors above native's, but nowhere behind it by more than an ulp:", ""]
    above = [f"{name} ({short(dtype)})" for name, dtype, e in measured if e.behind <= 1 and e.ours > e.native + 0.005]
    lines += [", ".join(above) + ". " + ROUNDINGS]
    lines += ["", "| operator | dtype | ours | native | mean | native | behind |", "|---|---|---:|---:|---:|---:|---:|"]
    for name in sorted(wide):
        for dtype, e in wide[name].items():
            means = f"{e.ours_mean:.3g} | {e.native_mean:.3g}"
            lines.append(f"| {name} | {short(dtype)} | {e.ours:.3g} | {e.native:.3g} | {means} | {e.behind:.2g} |")
    lines += [
        "",
        "## 16-bit types",
        "",
        "Each operator on all 65,536 inputs, against float64. *off*: how many of our results are not the nearest "
        "value.",
        "",
        "| operator | dtype | ours | native | behind | off |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name in sorted(rows):
        for dtype, row in rows[name].items():
            lines.append(
                f"| {name} | {short(dtype)} | {row.ours:.3g} | {row.native:.3g} | {row.behind:.2g} | {row.off} |"
            )
    lines += [
        "",
        "## Two arguments",
        "",
        "Every pair from a grid of special values: zeros, infinities, NaN, the smallest and largest numbers, odd and "
        "even integers at the limit of the mantissa.",
        "",
        "| operator | dtype | ours | native | behind |",
        "|---|---|---:|---:|---:|",
    ]
    for name in truth.BINARY:
        for dtype in (*WIDE_DTYPES, *DTYPES):
            ours, native, behind, _ = truth.measure_pairs(name, dtype)
            lines.append(f"| {name} | {short(dtype)} | {ours:.3g} | {native:.3g} | {behind:.2g} |")
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=pathlib.Path, help="write the table to this Markdown file")
    args = parser.parse_args()
    rows, wide = sweep(), wide_sweep()
    text = page(rows, wide)
    if args.write:
        args.write.write_text(text)
    else:
        print(text)
    behind = {f"{n} {d}": r.behind for n, by in rows.items() for d, r in by.items() if r.behind > 1}
    behind |= {f"{n} {d}": e.behind for n, by in wide.items() for d, e in by.items() if e.is_behind and n not in BEHIND}
    behind |= {
        f"{n} {d}": e.behind
        for n, by in wide.items()
        for d, e in by.items()
        if e.behind > 1 and n not in {**BEHIND, **ELSEWHERE}
    }
    for name, ulp in behind.items():
        print(f"{name}: {ulp:.3g} ulp behind native", file=sys.stderr)
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
