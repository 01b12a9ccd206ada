"""What the times say: a ratio with its interval, and whether two runs differ.

A round gives one ratio, the rival's time by ours, from two blocks that ran one after the other; whatever slows the
machine for longer than a round slows both. The reported ratio is the median of the rounds. Its interval is a bootstrap
over blocks of neighbouring rounds (Künsch 1989), because noise on a shared machine lasts longer than a round, which
makes neighbours alike and the plain bootstrap too sure of itself.

A case is visited several times over a run, set up anew each time: memory lies elsewhere, and a neighbour of the machine
has come or gone. No bootstrap over the rounds of one visit sees that. What comes from outside makes a side slower and
never faster (Chen and Revels 2016), so of four visits or more those count in which no side took much longer than in its
best one: the same rule for both sides, which prefers none. The result is the mean of those of them that agree with
their median, as far as their noise lets one tell, so that one odd visit does not decide. Its interval comes from what
the visits differ by. Two or three tell their variance badly, so it is drawn, as so many further visits
would, towards what is known of it: how unsure each visit is by its own rounds, and how much visits to the same code
differ over all cases (a moderated t-statistic, Smyth 2004).

A difference is called significant when the interval lies beyond ``SAME`` on one side of 1. SAME is what the same code
against itself is apart on an idle machine, because of where its buffers happen to lie in memory.
"""

import math
from dataclasses import dataclass

import numpy as np

SAME = 0.03
CONFIDENCE = 0.99
DRAWS = 2000
# The bootstrap of a median from 15 to 63 values holds the true one in 97 to 98 of 100 cases; so widened, in 99.
WIDER = 1.25
FEW = 10  # of fewer values the interval is their range, widened in the same way
APART = 0.01  # what the same code's visits on a CPU are known to differ by, as a standard deviation
PRIOR = 8  # what is known of it counts as so many degrees of freedom
STUDENT = (3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977)  # 99 % of t with PRIOR + 0, 1, ... degrees of freedom
ALIKE = 3.0  # visits within so many standard deviations of their median are averaged, others left out
DISTURBED = 0.15  # a visit in which a side takes so much longer than in its best one was disturbed
TELLING = 4  # of fewer visits all count: the best may have been disturbed as well
LEAST = 0.25  # so many of the visits count in any case, the least disturbed


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


def undisturbed(times: "list[list[float]] | np.ndarray") -> list[int]:
    """Which visits count. ``times``: visit by visit the seconds of each side; the result is in order."""
    logs = np.log(np.asarray(times, dtype=float))
    n = len(logs)
    if n < TELLING:
        return list(range(n))
    longer = (logs - logs.min(axis=0)).max(axis=1)
    limit = max(math.log1p(DISTURBED), np.sort(longer)[math.ceil(LEAST * n) - 1])
    return [int(i) for i in np.flatnonzero(longer <= limit)]


def combine(visits: list[Estimate], apart: float = APART) -> Estimate:
    """One estimate from those of several visits, with an interval from how unsure and how far apart they are.

    Raises ValueError when there is none.
    """
    if not visits:
        raise ValueError("no visits")
    if len(visits) == 1 and apart == 0:
        return visits[0]
    logs, n = np.log([visit.value for visit in visits]), len(visits)
    known = apart**2 + sum(visit.error**2 for visit in visits) / n
    variance = (PRIOR * known + float(np.sum((logs - logs.mean()) ** 2))) / (PRIOR + n - 1)
    middle = np.sort(logs)[(n - 1) // 2]
    alike = logs[np.abs(logs - middle) <= ALIKE * math.sqrt(known)] if n > 2 else logs
    width = STUDENT[min(n, len(STUDENT)) - 1] * math.sqrt(variance / len(alike))
    value = float(np.exp(alike.mean()))
    spread = math.exp(width) if width < 700 else math.inf
    return Estimate(value, value / spread, value * spread)


def verdict(new: Estimate, old: Estimate) -> str:
    """ "slower", "faster" or "same": whether the ratio of one run differs from another's beyond the noise of both.

    The change must exceed SAME and both intervals' half widths combined.
    """
    change = new.value / old.value
    noise = math.hypot(min(new.half_width, 1.0), min(old.half_width, 1.0))
    limit = 1 + max(SAME, noise)
    return "slower" if change < 1 / limit else "faster" if change > limit else "same"
