"""What the times say: a ratio with its interval, and whether two runs differ.

A round gives each side a time, from two blocks that ran one after the other; whatever slows the machine for longer than
a round slows both. Of one visit to a case the ratio is the median of its rounds' ratios. Its interval is a bootstrap
over blocks of neighbouring rounds (Künsch 1989), because noise on a shared machine lasts longer than a round, which
makes neighbours alike and the plain bootstrap too sure of itself.

A case is visited several times over a run, set up anew each time: memory lies elsewhere, and a neighbour of the machine
has come or gone. What comes from outside makes a side slower and never faster (Chen and Revels 2016), and not both
alike. So the time of a side is the lower quartile of all its rounds in all visits, and the ratio is that of the two
quartiles: a rule that leaves nothing out and prefers no side. (In 28 visits each to ten cases on a shared machine, runs
drawn from them spread by a median of 2.0 %; the median of all rounds by 3.2 %, the mean of the visits' ratios by 3.0 %,
a least time by 2.5 %.) The interval comes from a bootstrap over the visits, since no bootstrap over the rounds of one
sees what they differ by. A few tell that badly, so it is drawn, as so many further visits would, towards what is known
of it: how unsure each visit is by its own rounds, and how much visits to the same code differ over all cases of the run
(a moderated t-statistic, Smyth 2004).

A difference is called significant when the interval lies beyond ``SAME`` on one side of 1. SAME is what the same code
against itself is apart on an idle machine, because of where its buffers happen to lie in memory.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

SAME = 0.03
CONFIDENCE = 0.99
DRAWS = 2000
# The bootstrap of a median from 15 to 63 values holds the true one in 97 to 98 of 100 cases; so widened, in 99.
WIDER = 1.25
FEW = 10  # of fewer values the interval is their range, widened in the same way
APART = 0.01  # what the same code's visits on a CPU differ by at least, as a standard deviation
PRIOR = 8  # what is known of it counts as so many degrees of freedom
STUDENT = (3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977)  # 99 % of t with PRIOR + 0, 1, ... degrees of freedom
QUARTILE = 0.25  # of a side's rounds, slower ones have been disturbed more
RESAMPLES = 100  # of the visits: their spread needs no tails
PAIRS = 20  # of fewer visits to the same case in a row a run does not tell how much visits differ


@dataclass(frozen=True)
class Estimate:
    """A median with its interval; ``error`` is the standard deviation of its logarithm, where it is known."""

    value: float
    low: float
    high: float
    error: float = math.inf

    @property
    def half_width(self) -> float:
        """Half of the interval as a share of the value."""
        return (self.high - self.low) / 2 / self.value if self.value > 0 else math.inf

    @property
    def significant(self) -> bool:
        """For a ratio: whether it differs from 1 by more than the same code from itself."""
        return self.low > 1 + SAME or self.high < 1 / (1 + SAME)


def median(values: "list[float] | np.ndarray") -> float:
    return float(np.median(values))


def median_interval(values: "list[float] | np.ndarray", confidence: float = CONFIDENCE, draws: int = DRAWS) -> Estimate:
    """Median and interval of a series in time order, by the circular block bootstrap.

    A block is the cube root of the count long; of fewer than 24 values blocks would leave too few, and each stands for
    itself. Raises ValueError for an empty series.
    """
    series = np.asarray(values, dtype=float)
    n = len(series)
    if n == 0:
        raise ValueError("no measurements")
    if n == 1:
        return Estimate(float(series[0]), 0.0, math.inf)
    length = round(n ** (1 / 3)) if n >= 24 else 1
    count = -(-n // length)
    source = np.random.default_rng(0)
    starts = source.integers(0, n, size=(draws, count))
    index = (starts[:, :, None] + np.arange(length)).reshape(draws, -1)[:, :n] % n
    medians = np.median(series[index], axis=1)
    tail = (1 - confidence) / 2
    low, high = (series.min(), series.max()) if n < FEW else np.quantile(medians, [tail, 1 - tail])
    value = float(np.median(series))
    if low <= 0:
        return Estimate(value, float(low), float(high))
    error = float(np.std(np.log(medians)))
    return Estimate(value, value * float(low / value) ** WIDER, value * float(high / value) ** WIDER, error)


def ratio(rival: list[float], ours: list[float]) -> Estimate:
    """The rival's time by ours, round by round; above 1 we are faster."""
    return median_interval(np.asarray(rival) / np.asarray(ours))


def quartile(times: "list[float] | np.ndarray") -> float:
    """A side's time, from those of its rounds: the shortest that a quarter of them does not exceed."""
    return float(np.quantile(times, QUARTILE, method="inverted_cdf"))


def pooled(visits: "list[tuple[list[float], list[float]]]", errors: list[float], apart: float = APART) -> Estimate:
    """One estimate from all rounds of several visits: ``visits`` are those of the rival and of ours, ``errors`` each
    visit's own (of the logarithm of its ratio).

    Raises ValueError when there is no visit.
    """
    if not visits:
        raise ValueError("no visits")
    n, sides = len(visits), list(zip(*visits, strict=True))
    rival, ours = (quartile(np.concatenate(side)) for side in sides)
    known = apart**2 + sum(error**2 for error in errors) / n
    between = 0.0
    if n > 1:
        drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
        logs = [np.log(_resampled_quartiles(side, drawn)) for side in sides]
        between = float(np.var(logs[0] - logs[1])) * n * n / (n - 1)  # the variance of one visit
    variance = (PRIOR * known + (n - 1) * between) / (PRIOR + n - 1)
    width = STUDENT[min(n, len(STUDENT)) - 1] * math.sqrt(variance / n)
    value, spread = rival / ours, math.exp(width) if width < 700 else math.inf
    return Estimate(value, value / spread, value * spread)


def _resampled_quartiles(visits: "tuple[list[float], ...]", drawn: np.ndarray) -> np.ndarray:
    """The quartile of each row of ``drawn``, which says how often each visit's rounds count."""
    times = np.concatenate(visits)
    order = np.argsort(times)
    of_visit = np.repeat(np.arange(len(visits)), [len(visit) for visit in visits])[order]
    below = np.cumsum(drawn[:, of_visit], axis=1)
    return times[order][np.argmax(below >= QUARTILE * below[:, -1:], axis=1)]


def apart_of(cases: "list[list[Estimate]]", least: float = APART) -> float:
    """What visits to one case differ by beyond their own errors, from all cases' visits in a row.

    By the median of the differences, since some cases are far noisier than the rest. ``least`` where few are known.
    """
    pairs = [pair for visits in cases for pair in itertools.pairwise(visits)]
    if len(pairs) < PAIRS:
        return least
    both = float(np.median([abs(math.log(a.value / b.value)) for a, b in pairs])) / (0.6745 * math.sqrt(2))
    own = float(np.median([a.error for pair in pairs for a in pair]))
    return max(least, math.sqrt(max(0.0, both**2 - own**2)))


def verdict(new: Estimate, old: Estimate) -> str:
    """ "slower", "faster" or "same": whether the ratio of one run differs from another's beyond the noise of both.

    The change must exceed both intervals' half widths combined, and SAME on top of that.
    """
    change = new.value / old.value
    noise = math.hypot(min(new.half_width, 1.0), min(old.half_width, 1.0))
    limit = (1 + SAME) * (1 + noise)
    return "slower" if change < 1 / limit else "faster" if change > limit else "same"
