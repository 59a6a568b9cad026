"""What rounding errors really do to the outputs at some inputs, measured by evaluating with random ones.

Not here: the judgement of a package's results (checker.py), values on a grid (quantum.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Array
from unistack_aot.check.compare import difference
from unistack_aot.check.oracles import Disturbance, Feeds, disturbed
from unistack_aot.check.tolerance import Rounding, magnitudes

DISTURBED_RUNS = 4
DISTURBED_MARGIN = 4.0
"""Times the worst of a few disturbed evaluations: few runs see less than the worst case."""
TIE_RUNS = 16
"""An exact tie of two flips in half of the runs: one in 2^16 is not seen to be a tie."""


@dataclass(frozen=True, slots=True)
class Moves:
    """How far rounding moved an output: what errors are measured against, and the room they need.

    `ulps` is `DISTURBED_MARGIN` times the worst error seen, in units of eps(type) * `scale`.
    """

    scale: np.ndarray[Any, Any]
    ulps: float


@dataclass(frozen=True, slots=True)
class Conditioning:
    """A bound graph at some inputs, and how a package of it rounds."""

    rounding: Rounding
    graph: Graph
    feeds: Feeds
    _seen: dict[tuple[int, float], dict[str, Array]] = field(default_factory=dict, compare=False)

    def runs(self, output: str, count: int, amplitude: float, like: Array) -> Iterator[Array]:
        """An output under several sets of random errors; those whose shape changes are left out."""
        for seed in range(count):
            found = self._run(seed, amplitude)[output]
            if found.shape == like.shape:
                yield found

    def _run(self, seed: int, amplitude: float) -> dict[str, Array]:
        """All outputs under one set of errors, evaluated once however many of them are asked for."""
        known = self._seen.get((seed, amplitude))
        if known is None:
            errors = Disturbance(self.rounding, seed, amplitude)
            known = self._seen[seed, amplitude] = disturbed(self.graph, self.feeds, errors)
        return known

    def moves(self, output: str, truth: Array, kind: np.dtype[Any]) -> Moves:
        """How far rounding moves a real output of some type from its exact value."""
        runs = list(self.runs(output, DISTURBED_RUNS, 1.0, truth))
        scale = magnitudes(truth)
        if not np.any(scale):  # all of it cancels: what rounding leaves is the only magnitude
            scale = np.full_like(scale, max((np.max(np.abs(run)) for run in runs), default=0.0))
        errors = [difference(run.astype(kind), truth, scale).error for run in runs]
        measured = max((error for error in errors if np.isfinite(error)), default=0.0)
        return Moves(scale, DISTURBED_MARGIN * measured)
