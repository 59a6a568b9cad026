"""Repeat one measurement until it is stable. Not here: what is measured (probes), what it means
(fit.py).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LEAST, MOST = 7, 400
AGREE = (
    0.01  # the three best runs lie within this share of the best: nothing faster is to be expected
)


@dataclass(frozen=True, slots=True)
class Samples:
    """Repeated times of one point, in seconds.

    `best` is the value reported: interference from other programs only ever adds time. `spread`
    says how well it reproduces: a quarter of all runs came within this share of the best.
    """

    best: float
    quarter: float
    count: int

    @property
    def spread(self) -> float:
        """(first quartile - best) / best, at most 0.99."""
        return min(0.99, (self.quarter - self.best) / self.best)


def repeat(measure: Callable[[], float], budget_s: float = 2.0) -> Samples:
    """Call `measure` (returns seconds) until its three best agree or `budget_s` is spent."""
    started = time.monotonic()
    times = [measure() for _ in range(LEAST)]
    while len(times) < MOST and time.monotonic() - started < budget_s:
        lowest = sorted(times)[:3]
        if lowest[-1] - lowest[0] <= AGREE * lowest[0]:
            break
        times.append(measure())
    return Samples(min(times), statistics.quantiles(times, n=4)[0], len(times))


@dataclass(frozen=True, slots=True)
class Typical:
    """What runs usually take, where the fastest is no limit but another state of the machine.

    `spread` is the distance of the quartiles in medians; `low` and `high` the 5th and 95th of 100.
    """

    middle: float
    spread: float
    low: float
    high: float
    count: int


def typical(times: Sequence[float]) -> Typical:
    """The middle and the ends of at least two times."""
    first, middle, third = statistics.quantiles(times, n=4)
    ends = statistics.quantiles(times, n=20, method="inclusive")
    return Typical(middle, min(0.99, (third - first) / middle), ends[0], ends[-1], len(times))
