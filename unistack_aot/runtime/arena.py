"""Arena offsets from buffer lifetimes, and the least any plan needs.

Not here: the lifetimes (schedule/), the memory (cpu.py, cuda.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# The search stops after this many neighbour visits (about 40 ms) or orders.
_VISITS = 150_000
_ATTEMPTS = 32
_DENSE = 100


@dataclass(frozen=True, slots=True)
class Interval:
    """A block of ``size`` bytes in use from step ``first`` to step ``last``, inclusive."""

    size: int
    first: int
    last: int
    alignment: int = 64


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Byte offset of each block, bytes needed in all, and bytes no plan can do without."""

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int


@dataclass(frozen=True, slots=True)
class _Attempt:
    order: list[int]
    offsets: list[int]
    peak: int


def plan_arena(intervals: Sequence[Interval]) -> ArenaPlan:
    """Place all blocks so that blocks alive at once never overlap; equal input gives an equal plan.

    Best fit in several orders, largest first (Pisarchyk and Lee 2020, "Efficient Memory Management
    for Deep Neural Net Inference"), then the blocks that reach the peak are moved to the front and
    the order is tried again, until the lower bound or a fixed amount of work is reached.
    """
    bound = lower_bound(intervals)
    live = [number for number, interval in enumerate(intervals) if interval.size > 0]
    neighbours = _neighbours(intervals, live)
    visits = 1 + sum(len(others) for others in neighbours)
    best: _Attempt | None = None
    last = _Attempt([], [], 0)
    for attempt in range(min(_ATTEMPTS, max(1, _VISITS // visits))):
        if attempt < len(_ORDERS):
            key = _ORDERS[attempt]
            order = sorted(live, key=lambda number: (*key(intervals[number]), number))
        elif last.order == (order := _promote(intervals, last)):
            break
        last = _try(intervals, neighbours, order)
        if best is None or last.peak < best.peak:
            best = last
        if best.peak <= bound:
            break
        if attempt + 1 == len(_ORDERS):
            last = best
    assert best is not None
    return ArenaPlan(tuple(best.offsets), best.peak, bound)


def lower_bound(intervals: Sequence[Interval]) -> int:
    """The most bytes alive at one step, each block rounded up to the smallest alignment of all."""
    grain = min((interval.alignment for interval in intervals), default=1)
    changes: dict[int, int] = {}
    for interval in intervals:
        size = -(-interval.size // grain) * grain
        changes[interval.first] = changes.get(interval.first, 0) + size
        changes[interval.last + 1] = changes.get(interval.last + 1, 0) - size
    most = alive = 0
    for step in sorted(changes):
        alive += changes[step]
        most = max(most, alive)
    return most


_ORDERS: tuple[Callable[[Interval], tuple[int, ...]], ...] = (
    lambda block: (-block.size, block.first),
    lambda block: (-block.size * (block.last - block.first + 1),),
    lambda block: (block.first - block.last, -block.size),
    lambda block: (block.first, -block.size),
)


def _neighbours(intervals: Sequence[Interval], live: Iterable[int]) -> list[list[int]]:
    """For each block, the blocks alive at some step of its life."""
    found: list[list[int]] = [[] for _ in intervals]
    alive: list[int] = []
    for number in sorted(live, key=lambda n: intervals[n].first):
        first = intervals[number].first
        alive = [other for other in alive if intervals[other].last >= first]
        for other in alive:
            found[other].append(number)
        found[number].extend(alive)
        alive.append(number)
    return found


def _place(
    intervals: Sequence[Interval], neighbours: Sequence[Sequence[int]], order: Iterable[int]
) -> list[int]:
    starts = np.full(len(intervals), -1, np.int64)
    sizes = np.array([interval.size for interval in intervals], np.int64)
    offsets = [-1] * len(intervals)
    for number in order:
        block, others = intervals[number], neighbours[number]
        if len(others) < _DENSE:
            taken = sorted((offsets[o], offsets[o] + intervals[o].size) for o in others)
            offset = _best_gap([t for t in taken if t[0] >= 0], block.size, block.alignment)
        else:
            offset = _best_gap_of_many(starts, sizes, others, block)
        offsets[number] = starts[number] = offset
    return [max(offset, 0) for offset in offsets]


def _best_gap(taken: Sequence[tuple[int, int]], size: int, alignment: int) -> int:
    """The start of the tightest gap between taken ranges, or the place above all of them."""
    mask = alignment - 1
    best = -1
    slack = 0
    cursor = 0
    for start, stop in taken:
        spare = start - cursor - size
        if spare >= 0 and (best < 0 or spare < slack):
            best, slack = cursor, spare
        cursor = max(cursor, (stop + mask) & ~mask)
    return cursor if best < 0 else best


def _best_gap_of_many(
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    others: Sequence[int],
    block: Interval,
) -> int:
    """`_best_gap` by array operations: from about 100 neighbours on it is faster."""
    index = np.array(others, np.int64)
    index = index[starts[index] >= 0]
    begin = starts[index]
    rank = np.argsort(begin, kind="stable")
    begin = begin[rank]
    end = np.maximum.accumulate(begin + sizes[index][rank])
    cursor = np.concatenate(([0], (end + block.alignment - 1) & -block.alignment))
    spare = begin - cursor[:-1] - block.size
    fitting = np.flatnonzero(spare >= 0)
    if fitting.size == 0:
        return int(cursor[-1])
    return int(cursor[fitting[np.argmin(spare[fitting])]])


def _promote(intervals: Sequence[Interval], tried: _Attempt) -> list[int]:
    """The order with the blocks that reach the peak placed first."""
    ends = {n: tried.offsets[n] + intervals[n].size for n in tried.order}
    top = max(ends.values(), default=0)
    return [n for n in tried.order if ends[n] == top] + [n for n in tried.order if ends[n] < top]


def _try(
    intervals: Sequence[Interval], neighbours: Sequence[Sequence[int]], order: list[int]
) -> _Attempt:
    offsets = _place(intervals, neighbours, order)
    grain = min((interval.alignment for interval in intervals), default=1)
    top = max((o + i.size for o, i in zip(offsets, intervals, strict=True)), default=0)
    return _Attempt(order, offsets, -(-top // grain) * grain)
