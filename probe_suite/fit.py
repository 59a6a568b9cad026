"""From curves to numbers: plateaus, knees, lines. Not here: measuring or drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Plateau:
    """A flat stretch of a staircase: from x `first` to x `last` the value stays near `level`."""

    first: float
    last: float
    level: float
    points: int


def plateaus(x: Sequence[float], y: Sequence[float], step: float = 1.25) -> tuple[Plateau, ...]:
    """Split a rising staircase into flat stretches; a new one starts where y exceeds its median by
    `step`.

    Points on the way up between two plateaus belong to neither: a stretch needs two points.
    """
    groups: list[list[int]] = []
    for index, value in enumerate(y):
        if groups and value <= step * median(y[i] for i in groups[-1]):
            groups[-1].append(index)
        else:
            groups.append([index])
    return tuple(
        Plateau(x[group[0]], x[group[-1]], median(y[i] for i in group), len(group))
        for group in groups
        if len(group) >= 2
    )


def within(x: Sequence[float], y: Sequence[float], low: float, high: float) -> tuple[float, ...]:
    """Return the y values whose x lies in [low, high]."""
    return tuple(value for at, value in zip(x, y, strict=True) if low <= at <= high)


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return (intercept, slope) of the least-squares line; ValueError with fewer than two distinct
    x.
    """
    count, mean_x, mean_y = len(x), sum(x) / len(x), sum(y) / len(y)
    spread = sum((at - mean_x) ** 2 for at in x)
    if count < 2 or spread == 0:
        raise ValueError("a line needs two distinct points")
    slope = sum((at - mean_x) * (value - mean_y) for at, value in zip(x, y, strict=True)) / spread
    return mean_y - slope * mean_x, slope


def knee(x: Sequence[float], y: Sequence[float], factor: float = 1.5) -> float | None:
    """Return the last x before y first exceeds `factor` times its lowest value, or None when it
    never does.
    """
    floor = min(y)
    for before, value in zip(x, y[1:], strict=False):
        if value > factor * floor:
            return before
    return None


def geometric(first: float, last: float, per_octave: int) -> tuple[int, ...]:
    """Return whole numbers from `first` to `last`, `per_octave` per doubling, each a multiple of
    64.
    """
    found: list[int] = []
    value = float(first)
    while value <= last * 1.0001:
        rounded = max(64, round(value / 64) * 64)
        if not found or rounded > found[-1]:
            found.append(rounded)
        value *= 2.0 ** (1.0 / per_octave)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Roof:
    """y = max(flat, slope * x): two stages of which the slower one decides.

    `residual` is the median relative distance of the samples from it.
    """

    flat: float
    slope: float
    residual: float

    def at(self, x: float) -> float:
        """The model's value."""
        return max(self.flat, self.slope * x)


def roof(x: Sequence[float], y: Sequence[float]) -> Roof:
    """Fit the larger of a constant and a proportion; ValueError without samples.

    Every split of the samples into a flat left and a proportional right part is tried.
    """
    order = sorted(zip(x, y, strict=True))
    if not order:
        raise ValueError("a roof needs samples")
    tried: list[Roof] = []
    for split in range(len(order) + 1):
        left, right = order[:split], order[split:]
        flat = median(value for _, value in left) if left else 0.0
        slope = median(value / at for at, value in right) if right else 0.0
        model = Roof(flat, slope, 0.0)
        far = [abs(model.at(at) / value - 1.0) for at, value in order]
        tried.append(Roof(flat, slope, median(far) + sum(far) / len(far)))
    best = min(tried, key=lambda each: each.residual)
    return Roof(best.flat, best.slope, median(abs(best.at(a) / v - 1.0) for a, v in order))


def stairs(x: Sequence[float], steps: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """The staircase's value at each x: `steps` are (last x, level), nearest first."""
    return tuple(next((level for last, level in steps if at <= last), steps[-1][1]) for at in x)
