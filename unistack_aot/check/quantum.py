"""Outputs that are requantised values: their quantum, and how far rounding may move them.

A value that is rounded to a multiple of a quantum is either right or off by whole quanta: an error of
a rounding before it is not an error of a few ulps after it, it moves elements near a tie by one. How
many, and how far, is measured (oracles.Disturbance); no other element may differ. Not here: judging
outputs that are no multiples of anything (checker.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Array, Constant
from unistack_aot.base.dtypes import dtype_of
from unistack_aot.check.tolerance import MARGIN, eps
from unistack_aot.ops.quant import Dequantize, Quantize

OFF_GRID = 4.0
"""Roundings by which a multiple of the quantum may be off: (x - zero) * scale rounds once or twice."""


@dataclass(frozen=True, slots=True)
class Moved:
    """How many elements differ, and by how many quanta at most."""

    count: int
    furthest: int


def quantum_of(graph: Graph, output: str) -> float | None:
    """The quantum of an output that only moves requantised elements; None for any other output."""
    node = dict(graph.outputs)[output]
    while node.op.family == "reindex" and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node.op, Quantize):
        return 1.0
    if isinstance(node.op, Dequantize) and isinstance(node.args[1].op, Constant):
        scale = node.args[1].op.data.array
        return float(scale.reshape(-1)[0]) if scale.size == 1 else None
    return None


def steps(array: Array, quantum: float) -> np.ndarray[Any, Any] | None:
    """The elements in quanta; None if one of them is no multiple."""
    exact, whole = array.astype(np.float64) / quantum, nearest(array, quantum)
    room = OFF_GRID * max(eps(dtype_of(array.dtype)), eps("f32")) * np.maximum(np.abs(whole), 1.0)
    return whole if bool(np.all(np.abs(exact - whole) <= room)) else None


def nearest(array: Array, quantum: float) -> np.ndarray[Any, Any]:
    """The quanta that elements are nearest to, whatever a rounding after them has added."""
    return np.rint(array.astype(np.float64) / quantum)


def moved(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> Moved:
    """How two arrays in quanta differ."""
    distance = np.abs(got - want)
    return Moved(int(np.count_nonzero(distance)), int(distance.max(initial=0)))


def allowance(runs: Iterable[Moved], elements: int) -> Moved:
    """What rounding may do: the most of some disturbed runs, and MARGIN deviations of a count more."""
    seen = list(runs)
    count = max((run.count for run in seen), default=0)
    spread = MARGIN * sqrt(count * (1 - count / elements)) if count else 0.0
    return Moved(int(count + spread), max((run.furthest for run in seen), default=0))
