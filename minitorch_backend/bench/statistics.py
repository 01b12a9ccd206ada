"""What the times say: a ratio with its interval, and whether two runs differ.

A round gives one ratio, the rival's time by ours, from two blocks that ran one after the other; whatever slows the
machine for longer than a round slows both. The reported ratio is the median of the rounds. Its interval is a bootstrap
over blocks of neighbouring rounds (Künsch 1989), because noise on a shared machine lasts longer than a round, which
makes neighbours alike and the plain bootstrap too sure of itself.

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


@dataclass(frozen=True)
class Estimate:
    """A median with its interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval as a share of the value."""
        return (self.high - self.low) / 2 / self.value if self.value > 0 else math.inf

    @property
    def significant(self) -> bool:
        """For a ratio: whether it differs from 1 by more than the same code from itself."""
        return self.low > 1 + SAME or self.high < 1 / (1 + SAME)


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
    return Estimate(value, value * float(low / value) ** WIDER, value * float(high / value) ** WIDER)


def ratio(rival: list[float], ours: list[float]) -> Estimate:
    """The rival's time by ours, round by round; above 1 we are faster."""
    return median_interval(np.asarray(rival) / np.asarray(ours))


def verdict(new: Estimate, old: Estimate) -> str:
    """ "slower", "faster" or "same": whether the ratio of one run differs from another's beyond the noise of both.

    The change must exceed SAME and both intervals' half widths combined.
    """
    change = new.value / old.value
    noise = math.hypot(min(new.half_width, 1.0), min(old.half_width, 1.0))
    limit = 1 + max(SAME, noise)
    return "slower" if change < 1 / limit else "faster" if change > limit else "same"
