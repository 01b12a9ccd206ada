"""Who is wrong: two results of one operator call against a third, computed in double precision.

Plain torch, no import from this package: replay files carry the text of this module, so that they run on a stock torch.

Vocabulary. The *subject* is the device in question, the *reference* the one it is held against, the *arbiter* the same
operator on the reference device with every floating input widened to float64 (complex128). An error in *ulp* is the
distance to the arbiter in units of the spacing of the result's dtype at the arbiter's value. The *norm* error is the
largest distance in units of the dtype's epsilon times the largest value of the tensor: the measure for sums and
products, whose small elements are differences of large ones.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

EQUAL = "equal bits"
AGREE = "agree"
SUBJECT_WORSE = "subject worse"
REFERENCE_WORSE = "reference worse"
BOTH_POOR = "both poor"
NONDETERMINISTIC = "nondeterministic"
METADATA = "metadata differs"
SUBJECT_RAISED = "subject raised"
REFERENCE_RAISED = "reference raised"
MISSING = "missing on reference"

#: Verdicts that are findings. "both poor" is none, whether conditioning explains it or not: neither side is the better.
BAD = frozenset({SUBJECT_WORSE, REFERENCE_WORSE, NONDETERMINISTIC, METADATA, SUBJECT_RAISED, REFERENCE_RAISED})

# A side is suspected when its error exceeds a floor and a multiple of the other's. The floors leave room for another
# order of summation, the multiples for chance: the largest of many errors varies by a factor of two or three.
# 16-bit results are rounded from wider sums, which leaves less room.
NORM_FLOOR, NORM_TIMES = {2: 4.0, 4: 32.0, 8: 32.0}, 8.0
MEAN_FLOOR, MEAN_TIMES = {2: 3.0, 4: 32.0, 8: 32.0}, 8.0
ULP_FLOOR, ULP_TIMES = 1024.0, 64.0
# An error is laid to the condition of the problem when moving the inputs by one ulp moves the result a comparable way.
# Rounding errors of a serial sum of n terms walk as far as sqrt(n) times that, so n (inputs per result) counts.
CONDITION_TIMES = 8.0
MOST_TERMS = 4096.0
# A movement of this many ulp makes something of nothing: an element that is zero but for the arbiter's own rounding.
NOTHING = {2: 2.0**20, 4: 2.0**46, 8: 2.0**104}
TURNS = 12  # tries to change an integer: of two equal candidates a try moves one ahead with a probability of a third
SHAKEN = 0.1  # relative movement of a result that leaves nothing of it
BINS = 30  # of a histogram: 0, below 1/2 ulp, [1/2, 1), [1, 2), [2, 4), ..., not finite
HISTOGRAM_SAMPLE = 1 << 16
CHUNK = 1 << 14  # values whose errors are worked out at a time: temporaries stay small

# Operators that may order equal keys as they like: their indices are checked by what they point at.
TIES = {"aten::sort", "aten::topk", "aten::kthvalue", "aten::median", "aten::nanmedian", "aten::mode"}
# Operators whose integers (pivots, ranks) follow from values that they round: those may turn on an ulp of the input.
PIVOTED = ("aten::linalg_", "aten::_linalg_")


@dataclass
class Errors:
    """Errors of one side against the arbiter."""

    max_ulp: float = 0.0
    mean_ulp: float = 0.0
    norm: float = 0.0
    relative: float = 0.0  # largest distance by the largest value
    wrong_class: int = 0  # elements that are NaN or infinite on one side only
    at: int = -1  # flat index of the largest distance
    histogram: list[int] = field(default_factory=lambda: [0] * BINS)


@dataclass
class Judgement:
    """A verdict with the numbers that it rests on."""

    verdict: str
    subject: Errors | None = None
    reference: Errors | None = None
    condition: float | None = None  # movement of the result, in units of `norm`, when inputs move by one ulp
    detail: str = ""


def real_view(t: Tensor) -> Tensor:
    """Complex values as pairs of real ones; anything else as it is. What a view conjugates or negates is done."""
    return torch.view_as_real(t.resolve_conj().resolve_neg()) if t.is_complex() else t.resolve_neg()


def spacing(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance between neighbours of `dtype` at finite `values` (float64): a power of two, by its bits."""
    info = torch.finfo(dtype)
    power = (values.view(torch.int64) & 0x7FF0000000000000).view(torch.float64)
    return power.clamp_(min=info.tiny).mul_(info.eps)


def histogram_of(ulps: Tensor) -> list[int]:
    """Counts by bin: 0, below 1/2, [1/2, 1), [1, 2), [2, 4), ..., not finite; on a sample if there are many."""
    if ulps.numel() > HISTOGRAM_SAMPLE:
        ulps = ulps[:: ulps.numel() // HISTOGRAM_SAMPLE].contiguous()
    exponent = (ulps.view(torch.int64) >> 52) - 1023
    index = torch.where(ulps == 0, 0, (exponent + 3).clamp_(1, BINS - 2))
    index = torch.where(torch.isfinite(ulps), index, BINS - 1)
    return torch.bincount(index, minlength=BINS).tolist()


def errors(result: Tensor, arbiter: Tensor) -> Errors:
    """Errors of `result` (any floating dtype) against `arbiter` (its widened form)."""
    dtype = real_view(result).dtype
    r, a = real_view(result).reshape(-1), real_view(arbiter).reshape(-1)
    if r.numel() == 0:
        return Errors()
    parts = zip(r.split(CHUNK), a.split(CHUNK), strict=True)
    return joined([_errors(x.to(torch.float64), y.to(torch.float64), dtype) for x, y in parts], dtype)


def _errors(r: Tensor, a: Tensor, dtype: torch.dtype) -> tuple[Errors, float, float, int]:
    """(errors without norm, largest value, largest distance, count) of a stretch of float64 values."""
    distance = (r - a).abs_()
    largest, worst = a.abs().max().item(), distance.max().item()
    if math.isfinite(largest + worst) and largest <= torch.finfo(dtype).max:
        ulps = distance / spacing(a, dtype)
        found = Errors(ulps.max().item(), ulps.mean().item(), at=int(distance.argmax()), histogram=histogram_of(ulps))
        return found, largest, worst, r.numel()
    rounded = a.to(dtype).to(torch.float64)
    finite = torch.isfinite(r) & torch.isfinite(rounded)
    same = finite | (r == rounded) | (torch.isnan(r) & torch.isnan(a))
    distance = torch.where(finite, (r - a).abs(), 0.0)
    ulps = distance / spacing(torch.where(finite, a, 1.0), dtype)
    largest = torch.where(finite, a.abs(), 0.0).max().item()
    wrong = int((~same).sum())
    marked = torch.where(same, ulps, math.inf)
    found = Errors(
        math.inf if wrong else ulps.max().item(), ulps.mean().item(), wrong_class=wrong,
        at=int((~same).to(torch.uint8).argmax()) if wrong else int(distance.argmax()), histogram=histogram_of(marked),
    )  # fmt: skip
    return found, largest, math.inf if wrong else distance.max().item(), r.numel()


def joined(parts: list[tuple[Errors, float, float, int]], dtype: torch.dtype) -> Errors:
    """The errors of a tensor from those of its stretches."""
    scale = max(torch.finfo(dtype).tiny, *(largest for _, largest, _, _ in parts))
    worst = max(distance for _, _, distance, _ in parts)
    count = sum(n for *_, n in parts)
    place = max(range(len(parts)), key=lambda i: (parts[i][0].wrong_class > 0, parts[i][2]))
    return Errors(
        max_ulp=max(e.max_ulp for e, *_ in parts),
        mean_ulp=sum(e.mean_ulp * n for e, _, _, n in parts) / count,
        norm=worst / (scale * torch.finfo(dtype).eps),
        relative=worst / scale,
        wrong_class=sum(e.wrong_class for e, *_ in parts),
        at=parts[place][0].at + sum(n for *_, n in parts[:place]),
        histogram=[sum(column) for column in zip(*(e.histogram for e, *_ in parts), strict=True)],
    )


def suspected(mine: Errors, other: Errors, size: int = 4, elementwise: bool = True) -> bool:
    """Whether `mine` is too large to be rounding, by itself and by the other side. `size`: bytes of the dtype."""
    if mine.wrong_class or other.wrong_class:
        return mine.wrong_class > NORM_TIMES * other.wrong_class
    return (
        mine.norm > max(NORM_FLOOR[size], NORM_TIMES * other.norm)
        or mine.mean_ulp > max(MEAN_FLOOR[size], MEAN_TIMES * other.mean_ulp)
        or (elementwise and mine.max_ulp > max(ULP_FLOOR, ULP_TIMES * other.max_ulp))
    )


def explained(mine: Errors, movement: Errors, size: int, terms: float) -> bool:
    """Whether moving the inputs by one ulp moves the result about as far as `mine` is off."""
    if mine.wrong_class:
        # An infinity, the logarithm of a determinant for instance, is as good as a value of which no digit is certain.
        return movement.wrong_class > 0 or movement.relative > SHAKEN
    times = CONDITION_TIMES * math.sqrt(min(max(terms, 1.0), MOST_TERMS))
    if mine.norm > times * movement.norm + NORM_FLOOR[size]:
        return False
    # Where elements are nothing but rounding, ulp say no more than the dice.
    return movement.max_ulp > NOTHING[size] or (
        mine.mean_ulp <= times * movement.mean_ulp + MEAN_FLOOR[size]
        and mine.max_ulp <= times * movement.max_ulp + ULP_FLOOR
    )


def overflows(result: Tensor, arbiter: Tensor) -> bool:
    """Whether all that is wrongly NaN or infinite in a result lies beyond its dtype's range.

    A sum of such terms is an infinity of either sign or NaN, as its order has it.
    """
    r, a = real_view(result), real_view(arbiter).to(torch.float64)
    rounded = a.to(r.dtype)
    right = (torch.isfinite(r) & torch.isfinite(rounded)) | (r == rounded) | (torch.isnan(r) & torch.isnan(a))
    return bool((right | (torch.isfinite(a) & ~torch.isfinite(rounded) & ~torch.isfinite(r))).all())


def flat_tensors(value) -> list:
    """The tensors and numbers in a result, in order; None stays None."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat_tensors(item)]
    return [value]


def map_tensors(value, function):
    """`value` with `function` applied to each tensor in it, through lists and tuples."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(item, function) for item in value)
    return value


def widen(args, kwargs, move=None, apart=False):
    """Arguments with floating tensors as float64 and complex ones as complex128; `move(t)` may disturb each.

    Two arguments that are the same memory with the same shape become one tensor again, unless they are kept `apart`.
    """
    memo: dict = {}

    def wide(t: Tensor) -> Tensor:
        key = (t.data_ptr(), t.dtype, tuple(t.shape), t.stride())
        if apart or key not in memo or t.numel() == 0:
            new = t.detach()
            if t.is_complex() or t.is_floating_point():
                new = (move(new) if move else new).to(torch.complex128 if t.is_complex() else torch.float64)
                memo[key] = new.clone() if new.dtype == t.dtype else new
            else:
                memo[key] = new.clone()
        return memo[key]

    def one(value):
        if isinstance(value, torch.dtype):
            if value.is_complex:
                return torch.complex128
            return torch.float64 if value.is_floating_point else value
        return map_tensors(value, wide)

    return [one(a) for a in args], {k: one(v) for k, v in kwargs.items()}


def nudge(generator: torch.Generator):
    """A function that moves each value of a tensor to one of its neighbours, or leaves it, at random."""

    def move(t: Tensor) -> Tensor:
        dtype = real_view(t).dtype
        moved = real_view(t).to(torch.float64, copy=True, memory_format=torch.contiguous_format)
        for values in moved.view(-1).split(CHUNK):
            sign = torch.randint(-1, 2, values.shape, generator=generator, dtype=torch.int8, device="cpu")
            finite = torch.isfinite(values) & (values != 0)
            step = spacing(torch.where(finite, values, 1.0), dtype).mul_(sign.to(values.device))
            values.add_(step.masked_fill_(~finite, 0.0))
        return torch.view_as_complex(moved) if t.is_complex() else moved

    return move


def outcome(operator, args, kwargs, mutated) -> list:
    """What a call leaves behind: its results, then the tensors that it writes. `mutated` names those arguments."""
    returned = operator(*args, **kwargs)
    written = [
        leaf for name in mutated for leaf in flat_tensors(kwargs.get(name) if isinstance(name, str) else args[name])
    ]
    results = [leaf for leaf in flat_tensors(returned) if not any(leaf is w for w in written)]
    return results + written


class Arbiter:
    """The operator in double precision; computed once, and again with nudged inputs when the condition is asked for.

    ``make_args()`` gives fresh (args, kwargs) in the state before the call. An operator that ``widens`` takes them as
    they are.
    """

    def __init__(self, operator, make_args, mutated, seed: int = 0, widens: bool = False) -> None:
        self.operator, self.make_args, self.mutated, self.seed = operator, make_args, mutated, seed
        self.widens = widens
        self.results: list | None = None
        self.failure = ""
        self.inputs = 0  # floating values that go in
        try:
            args, kwargs = make_args()
            leaves = [t for v in (*args, *kwargs.values()) for t in flat_tensors(v) if isinstance(t, Tensor)]
            self.inputs = sum(t.numel() for t in leaves if t.is_floating_point() or t.is_complex())
            if not self.widens:
                args, kwargs = widen(args, kwargs)
            leaves = []
            self.results = outcome(operator, args, kwargs, mutated)
        except Exception as error:
            self.failure = f"no arbiter: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"

    def moved(self, index: int, tries: int = 3):
        """Result `index` with inputs that have moved by an ulp, some times over.

        An operator rounds what it makes of each argument for itself, also where two arguments are one tensor: they move
        apart, unless one is written.
        """
        generator = torch.Generator("cpu").manual_seed(self.seed)
        for _ in range(tries):
            args, kwargs = widen(*self.make_args(), nudge(generator), apart=not self.mutated)
            yield outcome(self.operator, args, kwargs, self.mutated)[index].to(self.results[index].device)

    def turned(self, index: int) -> bool:
        """Whether an integer result changes when the inputs move by an ulp.

        Also when little or nothing of a number among the other results is left by that: whether it is exactly zero,
        which it never is in double precision, then says nothing of who is right.
        """
        try:
            if not all(torch.equal(m, self.results[index]) for m in self.moved(index, TURNS)):
                return True
            for i, base in enumerate(self.results):
                rounded = isinstance(base, Tensor) and (base.is_floating_point() or base.is_complex())
                if rounded and any(((m - base).abs() > SHAKEN * base.abs()).any() for m in self.moved(i)):
                    return True
        except Exception:
            return False
        return False

    def movement(self, index: int, dtype: torch.dtype) -> Errors:
        """How far result `index` moves when the inputs move by an ulp: the worst of three tries."""
        worst = Errors()
        tries = self.moved(index)
        while True:
            try:
                moved = next(tries, None)
            except Exception:
                return worst
            if moved is None:
                return worst
            assert self.results is not None
            base = self.results[index]
            if moved.shape != base.shape:
                return Errors(max_ulp=math.inf, mean_ulp=math.inf, norm=math.inf, wrong_class=1)
            e = errors_wide(moved, base, dtype)
            worst = Errors(
                max(worst.max_ulp, e.max_ulp), max(worst.mean_ulp, e.mean_ulp), max(worst.norm, e.norm),
                max(worst.relative, e.relative), max(worst.wrong_class, e.wrong_class),
            )  # fmt: skip


def errors_wide(moved: Tensor, base: Tensor, dtype: torch.dtype) -> Errors:
    """The distance between two double-precision results in units of a narrower dtype."""
    m, b = real_view(moved).to(torch.float64).reshape(-1), real_view(base).to(torch.float64).reshape(-1)
    finite = torch.isfinite(m) & torch.isfinite(b)
    if m.numel() == 0 or not finite.any():
        return Errors(wrong_class=int((torch.isfinite(m) != torch.isfinite(b)).sum()))
    distance = torch.where(finite, (m - b).abs(), 0.0)
    ulps = distance / spacing(torch.where(finite, b, 1.0), dtype)
    scale = max(torch.where(finite, b.abs(), 0.0).max().item(), torch.finfo(dtype).tiny)
    return Errors(
        ulps.max().item(), ulps.mean().item(), distance.max().item() / (scale * torch.finfo(dtype).eps),
        distance.max().item() / scale, int((torch.isfinite(m) != torch.isfinite(b)).sum()),
    )  # fmt: skip


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one dtype and shape hold the same bits; any NaN is a NaN."""
    if a.numel() == 0:
        return True
    if not a.is_floating_point() and not a.is_complex():
        return torch.equal(a, b)
    x, y = real_view(a), real_view(b)
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    if torch.equal(x.view(kind), y.view(kind)):
        return True
    both_nan = torch.isnan(x) & torch.isnan(y)
    return bool(both_nan.any()) and bool(((x.view(kind) == y.view(kind)) | both_nan).all())


def judge_exact(subject: Tensor, reference: Tensor, arbiter: Tensor | None) -> Judgement:
    """Integer and boolean results: no rounding, so one side is wrong."""
    wrong_s = int((subject != reference).sum())
    if arbiter is None or arbiter.shape != subject.shape:
        return Judgement(SUBJECT_WORSE, detail=f"{wrong_s} of {subject.numel()} values differ; no arbiter")
    off_s, off_r = int((subject != arbiter).sum()), int((reference != arbiter).sum())
    text = f"{off_s} values of the subject and {off_r} of the reference are wrong"
    if off_s and off_r:
        return Judgement(
            SUBJECT_WORSE if off_s > off_r else REFERENCE_WORSE if off_r > off_s else BOTH_POOR, detail=text
        )
    return Judgement(SUBJECT_WORSE if off_s else REFERENCE_WORSE, detail=text)


def judge(subject, reference, arbiter: Arbiter | None, index: int = 0, pivoted: bool = False) -> Judgement:
    """The verdict on one result. Tensors have the same shape and dtype and are on one device; numbers are Python's.

    `pivoted`: integers depend on rounded values (see PIVOTED).
    """
    if not isinstance(subject, Tensor):
        same = subject == reference or (subject != subject and reference != reference)
        return Judgement(EQUAL if same else SUBJECT_WORSE, detail="" if same else f"{subject!r} against {reference!r}")
    if same_bits(subject, reference):
        if arbiter is None or arbiter.results is None or not (subject.is_floating_point() or subject.is_complex()):
            return Judgement(EQUAL)
        wide = arbiter.results[index]
        if wide.shape != subject.shape:
            return Judgement(EQUAL)
        both = errors(subject, wide)
        return Judgement(EQUAL, both, both)
    wide = arbiter.results[index] if arbiter is not None and arbiter.results is not None else None
    if not (subject.is_floating_point() or subject.is_complex()):
        if pivoted and wide is not None and wide.shape == subject.shape and arbiter.turned(index):
            return Judgement(BOTH_POOR, detail="they turn on the inputs' rounding")
        return judge_exact(subject, reference, wide)
    size = real_view(subject).element_size()
    if wide is None or wide.shape != subject.shape:
        # Without an arbiter the reference is taken as right, and the distance to it is the error.
        off = errors(subject, reference.to(torch.complex128 if subject.is_complex() else torch.float64))
        verdict = SUBJECT_WORSE if suspected(off, Errors(), size, elementwise=False) else AGREE
        return Judgement(verdict, off, None, detail=(arbiter.failure if arbiter else "") or "no arbiter")
    s, r = errors(subject, wide), errors(reference, wide)
    suspect_s, suspect_r = suspected(s, r, size), suspected(r, s, size)
    if not suspect_s and not suspect_r:
        poor = min(s.norm, r.norm) > 64 * NORM_FLOOR[size] or (s.wrong_class and r.wrong_class)
        if not poor:
            return Judgement(AGREE, s, r)
    assert arbiter is not None
    movement = arbiter.movement(index, real_view(subject).dtype)
    terms = arbiter.inputs / max(subject.numel(), 1)
    wrong = subject if suspect_s and s.wrong_class else reference if suspect_r and r.wrong_class else None
    if wrong is not None and terms > 2 and overflows(wrong, wide):
        return Judgement(BOTH_POOR, s, r, movement.norm, "sums beyond the dtype's range")
    if suspect_s and not explained(s, movement, size, terms):
        return Judgement(SUBJECT_WORSE, s, r, movement.norm)
    if suspect_r and not explained(r, movement, size, terms):
        return Judgement(REFERENCE_WORSE, s, r, movement.norm)
    if explained(s, movement, size, terms):
        return Judgement(BOTH_POOR, s, r, movement.norm, "the inputs' rounding moves the result as far")
    return Judgement(
        BOTH_POOR, s, r, movement.norm, "both are far from the arbiter, and the problem is well conditioned"
    )
