"""The ways in which one kernel may be realised, ranked by predicted time, and who chose among them.

A choice is the usual way (rules measured with the tile instruction) unless another was measured to
be faster, or is predicted to be by more than the model's own error on a machine whose map was
measured: a generic map assumes a number of cores, and shares of work rest on it. Not here: how long a way takes
(cost.py), how it is measured (tune/).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil, log2
from typing import TypeVar

from unistack_aot.hw.machine import Machine
from unistack_aot.hw.roofline import Prediction
from unistack_aot.schedule.choices import Choice, Pick, Picks, found_of, reason_of, tried_of
from unistack_aot.schedule.cost import explained, rank
from unistack_aot.schedule.decision import Decision, microseconds
from unistack_aot.schedule.panel_blocks import F32, FEW_PANELS, MOST_ROWS, Extents, depth_unit
from unistack_aot.schedule.panels import PANEL, Blocks

MARGIN = 0.15  # the model's median error on kernels it was not fitted to (docs/cost_model.md)
SHOWN = 6  # losers in a record
ANOTHER_ALGORITHM = (99.0, 0.0, 0.0, 0.0, 0.0)  # a place far from all blocks (`placed`)
T = TypeVar("T")


def choose(
    kind: str,
    subject: str,
    writes: tuple[str, ...],
    key: str,
    ways: Mapping[str, T],
    cost: Callable[[str], Prediction],
    machine: Machine,
    picks: Picks,
    near: Collection[str],
    because: str = "",
) -> tuple[T, Decision, Choice]:
    """The way to take (`ways` begins with the usual one), the record of it, and what could be measured.

    Ranked are the usual way, those named by `near`, and what was measured.
    """
    pick = picks.get(key)
    usual, measured = next(iter(ways)), tried_of(pick)
    ranked = [name for name in ways if name == usual or name in near or name in measured]
    chosen = pick.way if pick is not None and pick.way in ways else ""
    times = {name: cost(name) for name in dict.fromkeys((*ranked, *filter(None, [chosen])))}
    best, _ = rank(kind, subject, ((name, name) for name in times), times.__getitem__, machine)
    gain = 1.0 - times[best].seconds / times[usual].seconds
    measured_map = machine.map.need("units.count").mark == "probe"
    chosen = chosen or (best if measured_map and gain > MARGIN else usual)
    reason = _reason(chosen, usual, best, gain, pick, machine)
    words = "; ".join(filter(None, (because, reason, explained(times[chosen], machine))))
    losers = sorted(_ranked(times), key=lambda name: name not in measured)  # measured ones first
    tried = tuple(_beside(name, times, chosen, pick) for name in losers if name != chosen)
    decision = Decision(kind, subject, chosen, words, tried[:SHOWN])
    predicted = tuple((name, times[name].seconds) for name in _ranked(times))
    return ways[chosen], decision, Choice(key, subject, (writes,), predicted, usual, chosen)


def _ranked(times: Mapping[str, Prediction]) -> list[str]:
    return sorted(times, key=lambda name: times[name].seconds)


def _reason(
    chosen: str, usual: str, best: str, gain: float, pick: Pick | None, machine: Machine
) -> str:
    """Why this way: measured, predicted, or usual although another is predicted to be faster."""
    if pick is not None and pick.way == chosen:
        return reason_of(pick)
    if chosen != usual:
        return f"{gain:.0%} less than {usual}"
    if gain > MARGIN:
        return (
            f"{best}: -{gain:.0%} predicted, but the machine is assumed; --map gives a measured one"
        )
    if best != usual and gain >= 0.005:
        return f"{best}: -{gain:.0%} predicted, within the model's error of {MARGIN:.0%}"
    return ""


def _beside(name: str, times: Mapping[str, Prediction], chosen: str, pick: Pick | None) -> str:
    """A loser: how much slower it is predicted to be, and the term that grows most."""
    mine, best = times[name], times[chosen]
    share = mine.seconds / best.seconds - 1.0
    own = {term.name: term.seconds for term in best.terms}
    grown = max(mine.terms, key=lambda term: term.seconds - own.get(term.name, 0.0))
    more = grown.seconds - own.get(grown.name, 0.0)
    reason = f" ({grown.name} +{microseconds(more)})" if more > 0 and share > 0 else ""
    return f"{name} {share:+.0%}{reason}{found_of(name, pick)}"


# --- blocks of a contraction ------------------------------------------------------------------------


def block_ways(e: Extents, usual: Blocks, machine: Machine) -> dict[str, Blocks]:
    """The usual blocks first, then every combination of neighbouring sizes and shares of the work."""
    rows = sorted({max(1, min(e.rows, MOST_ROWS, r)) for r in _around(usual.row_block)})
    depths = {usual.depth_block, 0, *_depths(e, usual.depth_block or e.depth)}
    groups = {usual.panel_group, min(FEW_PANELS, e.panels), e.panels}
    found = [usual]
    for task_rows, task_panels in _shares(e, usual, machine.parallel_units):
        for row in rows:
            for depth in sorted(depths):
                for group in sorted({min(g, task_panels) for g in groups}):
                    found.append(Blocks(task_rows, task_panels, row, group, depth))
    return {named(blocks, e): blocks for blocks in dict.fromkeys(found) if _sound(blocks, e)}


def neighbours(ways: Mapping[str, Blocks]) -> list[str]:
    """The ways that differ from the first one in one thing: the share of tasks, rows, panels or depth."""
    usual = next(iter(ways.values()))
    mine = (
        (usual.task_rows, usual.task_panels),
        usual.row_block,
        usual.panel_group,
        usual.depth_block,
    )
    found: list[str] = []
    for name, b in ways.items():
        its = ((b.task_rows, b.task_panels), b.row_block, b.panel_group, b.depth_block)
        if sum(x != y for x, y in zip(its, mine, strict=True)) == 1:
            found.append(name)
    return found


def named(blocks: Blocks, e: Extents) -> str:
    """Blocks in words: "2 tasks of rows, 192 rows x 8 panels x 256 deep"."""
    share = "rows" if blocks.task_rows else "panels"
    depth = blocks.depth_block or e.depth
    return (
        f"{_tasks(blocks, e)} tasks of {share}, {blocks.row_block} rows x {blocks.panel_group} panels"
        f" x {depth} deep"
    )


def placed(blocks: Blocks, e: Extents) -> tuple[float, ...]:
    """Where blocks lie in the space of a contraction: the axis that is shared, tasks, rows, panels, depth."""
    depth = blocks.depth_block or e.depth
    sizes = (_tasks(blocks, e), blocks.row_block, blocks.panel_group, depth)
    return (1.0 if blocks.task_rows else 0.0, *(log2(size) for size in sizes))


def apart(ways: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Places of ways that no size relates: each far from all others."""
    return {name: (99.0 * number,) for number, name in enumerate(ways)}


def _tasks(blocks: Blocks, e: Extents) -> int:
    if blocks.task_rows:
        return ceil(e.rows / blocks.task_rows)
    return ceil(e.panels / blocks.task_panels)


def _around(size: int) -> Iterable[int]:
    return (size // 2, size, 2 * size)


def _depths(e: Extents, usual: int) -> set[int]:
    """Half and twice the usual depth in whole units; 0 stands for all of it."""
    unit = depth_unit(e)
    sizes = {max(unit, size // unit * unit) for size in _around(usual)}
    return {0 if size >= e.depth else size for size in sizes}


def _shares(e: Extents, usual: Blocks, units: int) -> list[tuple[int, int]]:
    """How tasks may divide the work: as usual, twice as fine, or along the other axis."""
    wanted = max(1, ceil(units / max(1, e.batch)))
    found = [(usual.task_rows, usual.task_panels)]
    for tasks in (wanted, 2 * wanted):
        if e.rows >= 2 * tasks:
            found.append((ceil(e.rows / tasks), e.panels))
        if e.panels >= 2 * tasks:
            found.append((0, ceil(e.panels / tasks)))
    return list(dict.fromkeys(found))


def _sound(blocks: Blocks, e: Extents) -> bool:
    """Partial sums of a cut depth must not outgrow the scratch memory they are meant to stay in."""
    partial = blocks.row_block * blocks.panel_group * PANEL * F32
    return blocks.depth_block == 0 or partial <= (1 << 22)
