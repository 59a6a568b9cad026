"""How long one core is busy with register tiles of a contraction over panels.

Not here: into how many a kernel cuts a contraction (core_work.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from unistack_aot.schedule.core_rates import CoreRates
from unistack_aot.schedule.core_terms import Work
from unistack_aot.schedule.panels import PANEL


@dataclass(frozen=True, slots=True)
class Gathered:
    """An instruction over rounded operands: the entry that gives its rate, FLOP/s of one core, bytes of an element."""

    entry: str
    flops: float
    element: int


def add_gathered(
    work: Work,
    rates: CoreRates,
    sums: Gathered,
    rows: float,
    panels: float,
    depth: float,
    times: float,
) -> None:
    """Rows x panels, `depth` deep: rows are rounded into near memory, then products run at the instruction's rate."""
    work.seconds[sums.entry] += times * 2 * rows * panels * PANEL * depth / sums.flops
    work.seconds["l2"] += times * rows * depth * (4 + sums.element) / rates.l2
    # The finished tiles pass through the first cache once.
    work.seconds["l1"] += times * 2 * rows * panels * PANEL * 4 / rates.l1


def add_tiles(
    work: Work,
    rates: CoreRates,
    rows: float,
    panels: float,
    depth: float,
    times: float,
    share: float = 1.0,
) -> None:
    """Register tiles of rows x panels, each `depth` deep: multiply-adds, or what else keeps them waiting.

    `share` is the part of rows x depth elements of the left operand that are distinct. They come
    from the second cache, as the block of the right operand fills the first one.
    """
    vectors = PANEL * 4 / rates.lane_bytes
    most, beside, wide = rates.tile.rows, rates.tile.panels, 1.0
    if rows <= 2:
        most, wide = ceil(rows), max(2.0, 8 / vectors) / ceil(rows)
    count = ceil(rows / most)
    held = rows / count
    fused = held * PANEL * 2 / rates.flops
    loads = (vectors + held / beside) * rates.lane_bytes / rates.l1
    chain = rates.latency / wide
    found = {"multiply-add": fused, "l1": loads, "chain": chain}
    if PANEL * depth * 4 > rates.l1_capacity:  # too deep to stay for the next tile: streamed again
        found["l2"] = PANEL * 4 / rates.l2
    slowest = max(found, key=lambda name: found[name])
    work.seconds[slowest] += times * count * panels * depth * found[slowest]
    done = times * count * panels
    # The finished tile passes through the first cache once.
    work.seconds["l1"] += done * 2 * held * PANEL * 4 / rates.l1
    # A tile waits for pointers, then for first elements; its loop and its epilogue each end
    # with a mispredicted branch.
    work.seconds["starts"] += done / wide * (2 * rates.refill + 4 * rates.l1_latency)
    if (rows + PANEL) * depth * 4 > rates.l1_capacity:
        work.seconds["l2"] += done / beside * held * depth * 4 * share / rates.l2
