"""Which way of a kernel is worth measuring next: the predictions, corrected by what was measured.

The logarithm of measured over predicted time is taken for a smooth function over the space of ways:
near ways are mispredicted alike (a Gaussian process). The next trial is the way with the largest
expected improvement over the best so far. Not here: measuring (search.py), predicting (schedule/cost.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import erf, exp, log, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Place = tuple[float, ...]

# In logarithms of time: what the model gets wrong for all ways of a kernel alike, for one way against
# another (0.01 to 0.06 in the spaces of docs/cost_model.md), and what a measurement gets wrong.
COMMON, OWN, NOISE = 0.5, 0.1, 0.01
REACH = 4.0  # steps along the axes after which little of an error is shared; a step halves or doubles a size


@dataclass(frozen=True, slots=True)
class Space:
    """The ways of one kernel: the usual one, predicted seconds, and where each lies along the axes."""

    usual: str
    predicted: Mapping[str, float]
    places: Mapping[str, Place]

    def ways(self) -> list[str]:
        """All ways in a fixed order, the best predicted first."""
        names = self.predicted.keys() & self.places.keys()
        return sorted(names, key=lambda way: (self.predicted[way], way))


def next_way(space: Space, measured: Mapping[str, float]) -> str | None:
    """The way to measure next, the usual one first; None when all were measured."""
    untried = [way for way in space.ways() if way not in measured]
    if space.usual in untried:
        return space.usual
    known = [way for way in space.ways() if way in measured]
    if not untried or not known:
        return next(iter(untried), None)
    gains = expected_gains(space, known, measured, untried)
    return max(zip(gains, untried, strict=True), key=lambda each: each[0])[1]


def expected_gains(
    space: Space, known: list[str], measured: Mapping[str, float], untried: list[str]
) -> list[float]:
    """By how much each untried way is expected to be faster than the best known one, in logarithms of time."""
    errors = np.array([log(measured[way] / space.predicted[way]) for way in known])
    near = covariance(space, untried, known)
    weights = np.linalg.solve(
        covariance(space, known, known) + NOISE**2 * np.eye(len(known)), near.T
    )
    shift = weights.T @ errors
    spread = np.sqrt(np.maximum(COMMON**2 + OWN**2 - np.sum(near * weights.T, axis=1), 1e-12))
    best = min(log(measured[way]) for way in known)
    ahead = [best - log(space.predicted[way]) for way in untried]
    return [
        improvement(lead - float(mean), float(width))
        for lead, mean, width in zip(ahead, shift, spread, strict=True)
    ]


def covariance(space: Space, rows: list[str], cols: list[str]) -> Array:
    """How far the model's errors of two ways go together: the less, the further apart they lie."""
    a, b = (np.array([space.places[way] for way in ways]) for ways in (rows, cols))
    steps = np.abs(a[:, None, :] - b[None, :, :]).sum(axis=2)
    return COMMON**2 + OWN**2 * np.exp(-steps / REACH)


def improvement(lead: float, width: float) -> float:
    """The mean of max(0, x) for a normal x around `lead`."""
    z = lead / width
    density = exp(-z * z / 2) / sqrt(2 * pi)
    return lead * (1 + erf(z / sqrt(2))) / 2 + width * density
