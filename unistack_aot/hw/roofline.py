"""Predicted time of one kernel from counts, as named terms with the map entries that decided.

The model: time = launch + barriers + the longest of one term per memory level, one per engine, and
the latency term. Each term runs full rounds of groups on all units and the rest on as many as are
left, so that wave quantisation is inside it. It ranks candidates; absolute error of such models is
10 to 15 % at best (Hong & Kim 2009, GCoM 2022). Not here: how a kernel is counted (schedule), which
counts are legal (occupancy.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from unistack_aot.hw.machine import Machine
from unistack_aot.hw.occupancy import Occupancy, resident_groups
from unistack_aot.hw.property import Property


@dataclass(frozen=True, slots=True)
class Counts:
    """What one kernel does. Bytes and flops are totals of the whole launch.

    `flops` is keyed by (tile instruction, operand dtype); `bytes` by level. `bytes_in_flight` is
    what one thread keeps under way (loads in flight x bytes); on a CPU it may stay 0: hardware
    prefetch is in the measured bandwidths. `barriers` counts barriers along one group's path.
    """

    bytes: Mapping[str, float]
    flops: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    groups: int = 1
    threads: int = 1
    registers: int = 32
    shared_bytes: int = 0
    bytes_in_flight: float = 0.0
    barriers: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """One contribution: seconds, and the quantities it was computed from."""

    name: str
    seconds: float
    entries: tuple[Property, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.seconds * 1e6:.3g} us"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of one launch; `terms` are sorted by weight, the first one dominates.

    `rounds` is how many times the units are filled (the last time perhaps in part).
    """

    seconds: float
    terms: tuple[Term, ...]
    rounds: int
    occupancy: Occupancy

    @property
    def dominant(self) -> Term:
        """The heaviest term."""
        return self.terms[0]

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the map entries that decided: those of the dominant term."""
        return tuple(dict.fromkeys(entry.name for entry in self.dominant.entries))


def predict(machine: Machine, counts: Counts) -> Prediction:
    """Return the predicted time of one kernel; infinite when a group does not fit at all."""
    occupancy = resident_groups(machine, counts.threads, counts.registers, counts.shared_bytes)
    rounds = waves(counts.groups, machine.parallel_units)
    if occupancy.groups == 0:
        entry = machine.map.need(occupancy.limit)
        term = Term(f"does not fit: {occupancy.limit}", float("inf"), (entry,))
        return Prediction(float("inf"), (term,), len(rounds), occupancy)
    work = [_bytes_term(machine, level, n, rounds) for level, n in counts.bytes.items() if n]
    work += [_flops_term(machine, key, n, rounds) for key, n in counts.flops.items() if n]
    work += _latency_terms(machine, counts, occupancy)
    launch, barrier = machine.launch_cost(), machine.barrier_cost()
    start = Term("launch", launch.value, (launch,))
    turns = ceil(counts.groups / (machine.parallel_units * occupancy.groups))
    meets = counts.barriers * (turns if machine.is_wide else 1)
    sync = Term("barriers", meets * barrier.value, (barrier,))
    seconds = start.seconds + sync.seconds + max((term.seconds for term in work), default=0.0)
    terms = sorted((*work, sync, start), key=lambda term: (-term.seconds, term.name))
    count = ceil(max(1, counts.groups) / machine.parallel_units)
    return Prediction(seconds, tuple(terms), count, occupancy)


def waves(groups: int, units: int) -> tuple[tuple[float, int], ...]:
    """Return (share of the work, busy units) of the full rounds and of the last, partial one.

    Groups that share a unit share its speed, so work is handed out in steps of one group per unit,
    whatever the number of resident groups.
    """
    full, rest = divmod(max(1, groups), units)
    parts = ((full * units / max(1, groups), units), (rest / max(1, groups), rest))
    return tuple((share, busy) for share, busy in parts if busy and share)


Waves = tuple[tuple[float, int], ...]


def _bytes_term(machine: Machine, level: str, amount: float, rounds: Waves) -> Term:
    rates = [(share, machine.bandwidth(level, busy)) for share, busy in rounds]
    seconds = sum(amount * share / rate.value for share, rate in rates)
    return Term(machine.memory(level), seconds, tuple(rate for _, rate in rates))


def _flops_term(machine: Machine, key: tuple[str, str], amount: float, rounds: Waves) -> Term:
    instruction, dtype = key
    rate = machine.rate(instruction, dtype)
    reachable = rate.value * machine.reached(instruction)
    seconds = sum(amount * share * machine.parallel_units / busy for share, busy in rounds)
    return Term(f"{instruction}.{dtype}", seconds / reachable, (rate,))


def _latency_terms(machine: Machine, counts: Counts, occupancy: Occupancy) -> list[Term]:
    """Return the time of far bytes when only so many are under way (Little's law), if stated."""
    far = machine.memory("far")
    amount = sum(n for level, n in counts.bytes.items() if machine.memory(level) == far)
    if not amount or not counts.bytes_in_flight:
        return []
    groups = max(1, counts.groups)
    busy = min(groups, machine.parallel_units)
    resident = min(occupancy.groups, ceil(groups / busy))
    under_way = counts.bytes_in_flight * counts.threads * resident * busy
    wait = machine.latency("far")
    return [Term("latency", amount * wait.value / under_way, (wait,))]
