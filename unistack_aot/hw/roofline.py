"""Predicted time of one kernel from counts, as named terms with the map entries that decided.

The model: time = launch + max(one term per memory level and engine, latency term) x waves +
barriers. It ranks candidates; absolute error of such models is 10 to 15 % at best (Hong & Kim 2009,
GCoM 2022). Not here: how a kernel is counted (schedule), which counts are legal (occupancy.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from unistack_aot.hw.machine import Machine
from unistack_aot.hw.measured import Measured
from unistack_aot.hw.occupancy import Occupancy, resident_groups


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
    entries: tuple[Measured, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.seconds * 1e6:.3g} us"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of one launch; `terms` are sorted by weight, `dominant` is the largest, `waves` the
    quantisation factor.
    """

    seconds: float
    terms: tuple[Term, ...]
    waves: float
    occupancy: Occupancy

    @property
    def dominant(self) -> Term:
        """The heaviest term."""
        return self.terms[0]

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the map entries that decided: those of the dominant term."""
        return tuple(entry.name for entry in self.dominant.entries)


def predict(machine: Machine, counts: Counts) -> Prediction:
    """Return the predicted time of one kernel on `machine`; seconds is infinite when a group does
    not fit at all.
    """
    occupancy = resident_groups(machine, counts.threads, counts.registers, counts.shared_bytes)
    launch = machine.launch_cost()
    if occupancy.groups == 0:
        term = Term(
            f"does not fit: {occupancy.limit}", float("inf"), (machine.map.need(occupancy.limit),)
        )
        return Prediction(float("inf"), (term,), 1.0, occupancy)
    busy = min(machine.parallel_units, max(1, counts.groups))
    waves = wave_factor(
        counts.groups, machine.parallel_units * occupancy.groups, machine.parallel_units
    )
    streams = [
        _bytes_term(machine, level, amount, busy)
        for level, amount in counts.bytes.items()
        if amount
    ]
    engines = [
        _flops_term(machine, key, amount, busy) for key, amount in counts.flops.items() if amount
    ]
    waiting = _latency_terms(machine, counts, occupancy, busy)
    bound = max((term.seconds for term in (*streams, *engines, *waiting)), default=0.0)
    barrier = machine.barrier_cost()
    rounds = (
        ceil(counts.groups / (machine.parallel_units * occupancy.groups)) if machine.is_wide else 1
    )
    sync = Term("barriers", counts.barriers * rounds * barrier.value, (barrier,))
    start = Term("launch", launch.value, (launch,))
    terms = sorted(
        (*streams, *engines, *waiting, sync, start), key=lambda term: (-term.seconds, term.name)
    )
    return Prediction(start.seconds + sync.seconds + bound * waves, tuple(terms), waves, occupancy)


def wave_factor(groups: int, slots: int, units: int) -> float:
    """Return time lost to uneven waves: work of full rounds over `units` divided by the work there
    is (1 is ideal).

    Resident groups of one unit share it, so the last wave costs in steps of one group per unit, not
    of whole waves; with fewer groups than units the idle units are already accounted for by the
    caller's busy count.
    """
    if groups <= units or slots <= 0:
        return 1.0
    return ceil(groups / units) * units / groups


def _bytes_term(machine: Machine, level: str, amount: float, busy: int) -> Term:
    rate = machine.bandwidth(level, busy)
    return Term(machine.memory(level), amount / rate.value, (rate,))


def _flops_term(machine: Machine, key: tuple[str, str], amount: float, busy: int) -> Term:
    instruction, dtype = key
    rate = machine.rate(instruction, dtype)
    share = machine.reached(instruction) * busy / machine.parallel_units
    return Term(f"{instruction}.{dtype}", amount / (rate.value * share), (rate,))


def _latency_terms(machine: Machine, counts: Counts, occupancy: Occupancy, busy: int) -> list[Term]:
    """Far bytes limited by what the resident threads keep under way (Little's law); absent when
    nothing is stated.
    """
    amount = sum(
        count
        for level, count in counts.bytes.items()
        if machine.memory(level) == machine.memory("far")
    )
    if not amount or not counts.bytes_in_flight:
        return []
    resident = min(occupancy.groups, ceil(max(1, counts.groups) / busy))
    under_way = counts.bytes_in_flight * counts.threads * resident * busy
    wait = machine.latency("far")
    return [Term("latency", amount * wait.value / under_way, (wait,))]
