"""Driving the steps of a variant: runs of launches, branches, loops.

Not here: what a launch or a copy does on a device (cpu.py, cuda.py behind `Machine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, assert_never

from unistack_aot.artifact.manifest import (
    Copy,
    Fill,
    If,
    Launch,
    Loop,
    Refuse,
    Scanned,
    Step,
    walk,
)
from unistack_aot.base.errors import BadInput, UnistackError


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive launches, by number; ``number`` counts the runs of the variant."""

    number: int
    launches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """An If with prepared blocks."""

    condition: int
    then: Block
    otherwise: Block


@dataclass(frozen=True, slots=True)
class Repeat:
    """A Loop with a prepared body."""

    loop: Loop
    body: Block


Prepared: TypeAlias = "Run | Branch | Repeat | Copy | Fill | Refuse"
Block: TypeAlias = "tuple[Prepared, ...]"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The prepared steps, all runs in order, and the buffers to zero once per plan."""

    block: Block
    runs: tuple[Run, ...]
    zeroed_once: tuple[int, ...]


class Machine(Protocol):
    """What executing steps needs of a device; buffers go by number."""

    def run(self, run: Run) -> None:
        """Execute launches in order."""
        ...

    def copy(self, source: int, target: int) -> None:
        """Copy a whole buffer."""
        ...

    def zero(self, buffer: int) -> None:
        """Fill a buffer with zero bytes."""
        ...

    def read(self, buffer: int) -> int:
        """The value of an integer or bool scalar."""
        ...

    def write(self, buffer: int, number: int) -> None:
        """Set an integer or bool scalar."""
        ...

    def take(self, scanned: Scanned, index: int) -> None:
        """Copy slice ``index`` out of the stacked buffer."""
        ...

    def put(self, scanned: Scanned, index: int) -> None:
        """Copy the slice into place ``index`` of the stacked buffer."""
        ...

    def extent(self, buffer: int, axis: int) -> int:
        """Size of a buffer along an axis."""
        ...

    def value(self, expression: str) -> int:
        """Value of a dimension expression."""
        ...


def prepare(steps: tuple[Step, ...]) -> Schedule:
    """Number the launches in pre-order and merge consecutive ones into runs."""
    builder = _Builder()
    block = builder.block(steps)
    once = tuple(s.buffer for s in walk(steps) if isinstance(s, Fill) and s.once)
    return Schedule(block, tuple(builder.runs), once)


def execute(block: Block, machine: Machine) -> None:
    """Run a block of steps."""
    for step in block:
        match step:
            case Run():
                machine.run(step)
            case Branch():
                execute(step.then if machine.read(step.condition) else step.otherwise, machine)
            case Repeat():
                _repeat(step, machine)
            case Copy():
                machine.copy(step.source, step.target)
            case Fill():
                machine.zero(step.buffer)
            case Refuse():
                hint = "feed what takes another branch, or compile for other sizes"
                raise BadInput(step.reason, hint=hint)
            case _:
                assert_never(step)


class _Builder:
    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._launches = 0

    def block(self, steps: Sequence[Step]) -> Block:
        found: list[Prepared] = []
        pending: list[int] = []
        for step in steps:
            if isinstance(step, Launch):
                pending.append(self._launches)
                self._launches += 1
                continue
            if isinstance(step, Fill) and step.once:
                continue
            self._flush(pending, found)
            match step:
                case If():
                    then = self.block(step.then)
                    found.append(Branch(step.condition, then, self.block(step.otherwise)))
                case Loop():
                    found.append(Repeat(step, self.block(step.body)))
                case Copy() | Fill() | Refuse():
                    found.append(step)
        self._flush(pending, found)
        return tuple(found)

    def _flush(self, pending: list[int], found: list[Prepared]) -> None:
        if pending:
            run = Run(len(self.runs), tuple(pending))
            self.runs.append(run)
            found.append(run)
            pending.clear()


def _repeat(step: Repeat, machine: Machine) -> None:
    loop = step.loop
    limit = _limit(loop, machine)
    going = loop.condition is None or machine.read(loop.condition) != 0
    for carried in loop.carried:
        machine.copy(carried.initial, carried.entering)
    done = 0
    while going and (limit is None or done < limit):
        if loop.iteration is not None:
            machine.write(loop.iteration, done)
        for scanned in loop.scan_inputs:
            machine.take(scanned, _place(scanned, done, machine))
        execute(step.body, machine)
        for scanned in loop.scan_outputs:
            machine.put(scanned, _place(scanned, done, machine))
        if loop.condition_out is not None:
            going = machine.read(loop.condition_out) != 0
        for carried in loop.carried:
            machine.copy(carried.leaving, carried.entering)
        done += 1
    for carried in loop.carried:
        machine.copy(carried.entering, carried.final)
    if loop.count is not None:
        machine.write(loop.count, done)


def _limit(loop: Loop, machine: Machine) -> int | None:
    bounds: list[int] = []
    if loop.limit:
        bounds.append(machine.value(loop.limit))
    if loop.trips is not None:
        bounds.append(machine.read(loop.trips))
    return min(bounds, default=None)


def _place(scanned: Scanned, done: int, machine: Machine) -> int:
    extent = machine.extent(scanned.stacked, scanned.axis)
    if done >= extent:
        raise UnistackError(
            f"a loop ran more than the {extent} iterations its stacked values have room for",
            hint="compile with a larger bound for the loop",
        )
    return extent - 1 - done if scanned.reverse else done
