"""Predicted time of scheduled kernels on a machine: named terms, and the map entries that decided.

Cores with caches: the work of the busiest core (core_work.py), then the bytes of each memory level.
Wide machines: counts for the roofline (group_counts.py). Not here: the roofline itself
(hw/roofline.py), which candidates exist (panel_blocks.py, block_tiles.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import TypeVar

from unistack_aot.base.symbolic import evaluate
from unistack_aot.hw import roofline
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.occupancy import Occupancy
from unistack_aot.hw.roofline import Prediction, Term
from unistack_aot.mcir.nodes import Kernel
from unistack_aot.mcir.program import Kind, Program
from unistack_aot.mcir.text import kernel_names
from unistack_aot.schedule.core_work import bound_kernel, core_work, moved_bytes
from unistack_aot.schedule.decision import Decision, Record, microseconds
from unistack_aot.schedule.group_counts import group_counts
from unistack_aot.schedule.steps import launched_steps

CACHES = ("l1", "l2", "l3")
MOST_DOUBLINGS = 12
# Lines of a kernel's code that it waits for when it begins, after all others ran: assumed, not probed.
CODE_LINES = 16
SHOWN = 4  # terms in words
T = TypeVar("T")


def predict_kernel(
    kernel: Kernel,
    machine: Machine,
    dims: Mapping[str, int] | None = None,
    held: Mapping[str, str] | None = None,
    units: int | None = None,
) -> Prediction:
    """Seconds of one launch of a scheduled kernel, its dimensions bound by `dims`.

    `held` says in which level parameters lie at the start (others: far); `units` how many cores take
    part (default: all).
    """
    return _predict(bound_kernel(kernel, dims or {}), machine, held or {}, units)


def _predict(
    kernel: Kernel, machine: Machine, held: Mapping[str, str], units: int | None
) -> Prediction:
    if machine.is_wide:
        return _on_groups(kernel, machine)
    return _on_cores(kernel, machine, held, units or machine.parallel_units)


def _on_groups(kernel: Kernel, machine: Machine) -> Prediction:
    """The roofline of a launch, as often as an ordered loop around the grid makes one."""
    ordered, inside = launched_steps(kernel)
    once = roofline.predict(machine, group_counts(kernel.with_body(inside), machine))
    if ordered is None:
        return once
    times = evaluate(ordered.extent, {})
    terms = tuple(replace(term, seconds=term.seconds * times) for term in once.terms)
    return replace(once, seconds=once.seconds * times, terms=terms)


def _on_cores(kernel: Kernel, machine: Machine, held: Mapping[str, str], units: int) -> Prediction:
    """Phases of the busiest core and of each level add up: prefetching hides little of what a tile waits for.

    Sums fit the kernels of docs/cost_model.md better than the longest alone.
    """
    work = core_work(kernel, machine)
    busy = max(1, min(units, work.tasks))
    turns = ceil(work.tasks / busy)
    share = turns / work.tasks  # the last turn may leave cores idle
    terms = [
        Term(name, seconds * (share if work.tasks > 1 else 1.0), work.entries[name])
        for name, seconds in work.seconds.items()
        if seconds
    ]
    for level, moved in _levels(kernel, machine, held, work.again).items():
        rate = machine.bandwidth(level, busy)
        terms.append(Term(machine.memory(level), moved / rate.value, (rate,)))
    slowest = max((machine.latency(held.get(p.name, "far")) for p in kernel.params), key=float)
    terms.append(Term("latency", slowest.value, (slowest,)))  # first lines, asked for together
    fetched = machine.latency("near")
    terms.append(Term("code", CODE_LINES * fetched.value, (fetched,)))
    if busy > 1:  # else the caller does it all
        launch, barrier = machine.launch_cost(), machine.barrier_cost()
        terms.append(Term("launch", launch.value, (launch,)))
        terms.append(Term("barrier", work.regions * barrier.value, (barrier,)))
    ordered = tuple(sorted(terms, key=lambda term: (-term.seconds, term.name)))
    seconds = sum(term.seconds for term in terms)
    return Prediction(seconds, ordered, turns, Occupancy(1, "units.count", 1.0))


def _levels(
    kernel: Kernel, machine: Machine, held: Mapping[str, str], again: Mapping[str, float]
) -> dict[str, float]:
    """Bytes that each level beyond the first cache delivers or takes.

    A store reads its line before it is written back.
    """
    found: dict[str, float] = defaultdict(float)
    for (name, write), moved in moved_bytes(kernel).items():
        level = held.get(name, "far")
        if level != "l1":
            found[level] += moved * (2 if write else 1)
    sizes = {
        p.name: evaluate(p.layout.elements(p.shape), {}) * p.dtype.bytes for p in kernel.params
    }
    for name, moved in again.items():
        level = holding(machine, sizes[name])
        if level != "l1":
            found[level] += moved
    return found


def holding(machine: Machine, footprint: float) -> str:
    """The smallest cache that keeps `footprint` bytes, or far memory.

    A measured `.capacity.seen` counts more than what the machine says of itself: others may fill a shared cache.
    """
    for level in CACHES:
        size = machine.map.get(f"{level}.capacity.seen") or machine.map.get(f"{level}.capacity")
        if size is not None and footprint <= size.value:
            return level
    return "far"


# --- programs ---------------------------------------------------------------------------------------


class Residence:
    """Where each buffer lies: the smallest cache that holds all bytes touched since its last use."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.recent: dict[str, float] = {}  # least recent first

    def level(self, buffer: str, unseen: float) -> str:
        """The level that answers the next access; `unseen` is the distance of a buffer that was not touched yet."""
        if buffer not in self.recent:
            return holding(self.machine, unseen)
        distance = 0.0
        for name in reversed(self.recent):
            distance += self.recent[name]
            if name == buffer:
                break
        return holding(self.machine, distance)

    def touch(self, buffer: str, moved: float) -> None:
        """Note an access of `moved` bytes."""
        before = self.recent.pop(buffer, 0.0)
        self.recent[buffer] = max(before, moved)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of a run: everything, and what the arena holds at its fullest."""

    total: float
    arena: float


def predict_program(
    program: Program, machine: Machine, dims: Mapping[str, int], units: int | None = None
) -> tuple[Prediction, ...]:
    """One prediction per launch, in order, for a run after another; branches and loops count once."""
    launches = tuple(program.launches())
    bound = {k: bound_kernel(k, dims) for k in dict.fromkeys(each.kernel for each in launches)}
    moved = {kernel: _by_param(fresh) for kernel, fresh in bound.items()}
    roots = {b.name: b.alias_of or b.name for b in program.buffers}
    arena = {b.name for b in program.buffers if b.kind is Kind.ARENA}
    touched = [
        [
            (p.name, roots[arg], moved[each.kernel].get(p.name, 0.0))
            for p, arg in zip(each.kernel.params, each.args, strict=True)
        ]
        for each in launches
    ]
    size = footprint(touched, arena)
    place = Residence(machine)
    known: dict[tuple[Kernel, tuple[str, ...]], Prediction] = {}
    result: list[Prediction] = []
    for each, uses in zip(launches, touched, strict=True):
        levels = tuple(
            place.level(buffer, size.arena if buffer in arena else size.total)
            for _, buffer, _ in uses
        )
        key = (each.kernel, levels)
        if key not in known:
            held = {name: level for (name, _, _), level in zip(uses, levels, strict=True)}
            known[key] = _predict(bound[each.kernel], machine, held, units)
        result.append(known[key])
        for _, buffer, amount in uses:
            place.touch(buffer, amount)
    return tuple(result)


def predict_usual(
    program: Program, machine: Machine, typical: Mapping[str, int], highest: Mapping[str, int]
) -> tuple[dict[str, int], tuple[Prediction, ...]]:
    """Sizes and predictions at the typical sizes, doubled while an extent that divides others is 0 at them."""
    at = {name: max(1, size) for name, size in typical.items()}
    for _ in range(MOST_DOUBLINGS):
        try:
            return at, predict_program(program, machine, at)
        except ZeroDivisionError:
            at = {name: min(2 * size, highest[name]) for name, size in at.items()}
    return at, predict_program(program, machine, at)


def _by_param(kernel: Kernel) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for (name, _), amount in moved_bytes(kernel).items():
        found[name] = max(found[name], amount)
    return found


def footprint(touched: list[list[tuple[str, str, float]]], arena: set[str]) -> Footprint:
    """The footprint of a run from what each launch touches: (parameter, buffer, bytes)."""
    sizes: dict[str, float] = defaultdict(float)
    span: dict[str, tuple[int, int]] = {}
    for number, uses in enumerate(touched):
        for _, buffer, amount in uses:
            sizes[buffer] = max(sizes[buffer], amount)
            span[buffer] = (span.get(buffer, (number, number))[0], number)
    peak = 0.0
    for number in range(len(touched)):
        live = (n for n, (first, last) in span.items() if n in arena and first <= number <= last)
        peak = max(peak, sum(sizes[n] for n in live))
    kept = sum(amount for name, amount in sizes.items() if name not in arena)
    return Footprint(kept + peak, peak)


# --- choices and words ------------------------------------------------------------------------------


def rank(
    kind: str,
    subject: str,
    candidates: Iterable[tuple[str, T]],
    cost: Callable[[T], Prediction],
    machine: Machine,
) -> tuple[T, Decision]:
    """The candidate with the least predicted time, and the record: what decided, what the others would take.

    Equal times keep the order of the candidates, so that equal maps give equal choices.
    """
    scored = [(cost(candidate), name, candidate) for name, candidate in candidates]
    scored.sort(key=lambda each: each[0].seconds)
    best, name, chosen = scored[0]
    tried = tuple(f"{other} {microseconds(p.seconds)}" for p, other, _ in scored[1:])
    return chosen, Decision(kind, subject, name, explained(best, machine), tried)


def prediction_records(
    program: Program, predictions: Iterable[Prediction], machine: Machine
) -> list[Record]:
    """The predictions of a program's launches as records of its kernels, one for each kernel: its slowest launch."""
    names = kernel_names(program)
    slowest: dict[str, Prediction] = {}
    for launch, found in zip(program.launches(), predictions, strict=True):
        name = names[launch.kernel]
        if name not in slowest or found.seconds > slowest[name].seconds:
            slowest[name] = found
    return [
        {
            "kernel": name,
            "what": "predicted",
            "subject": "",
            "chosen": microseconds(found.seconds),
            "because": _reasons(found, machine),
            "tried": [],
        }
        for name, found in slowest.items()
    ]


def explained(prediction: Prediction, machine: Machine) -> str:
    """A prediction in words: "3.1 us (multiply-add 1.4, dram 0.5; map h100-sxm: mma.bf16, dram.bandwidth)"."""
    return f"{microseconds(prediction.seconds)} ({_reasons(prediction, machine)})"


def _reasons(prediction: Prediction, machine: Machine) -> str:
    heavy = [t for t in prediction.terms if t.seconds >= 0.02 * prediction.seconds][:SHOWN]
    words = ", ".join(f"{t.name} {t.seconds * 1e6:.3g}" for t in heavy)
    entries = dict.fromkeys(entry.name for term in heavy for entry in term.entries)
    return f"{words}; map {machine.id}: {', '.join(entries)}"
