"""Who reads and writes each buffer of a program, and how much a scalar costs. Not here: what to do about it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import Call, Cast, Load, Scalar, postorder
from unistack_aot.mcir.program import HostCopy, HostIf, HostLoop, HostRefuse, Launch, Step


@dataclass
class Uses:
    """Positions in one block of steps: `reads[buffer]` and `writes[buffer]`.

    `outside` are buffers that other steps use.
    """

    reads: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    writes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    outside: set[str] = field(default_factory=set)

    def only_reader(self, buffer: str) -> int | None:
        """The position of the only launch that reads `buffer`, if nothing else uses it."""
        if buffer in self.outside or len(self.reads[buffer]) != 1:
            return None
        return self.reads[buffer][0]


def uses_of(steps: tuple[Step, ...] | list[Step | None], outer: set[str]) -> Uses:
    """Uses within a block; `outer` are buffers that steps outside the block use."""
    uses = Uses(outside=set(outer))
    for position, step in enumerate(steps):
        match step:
            case None:
                pass
            case Launch():
                for name in step.reads():
                    uses.reads[name].append(position)
                for name in step.writes():
                    uses.writes[name].append(position)
            case HostCopy() | HostIf() | HostLoop() | HostRefuse():
                uses.outside |= touched(step)
    return uses


def touched(step: Step) -> set[str]:
    """Every buffer a step uses, those of nested steps included."""
    match step:
        case Launch():
            return set(step.args)
        case HostCopy():
            return {step.source, step.target}
        case HostRefuse():
            return {step.target}
        case HostIf():
            inner = (touched(s) for s in (*step.then, *step.otherwise))
            return {step.condition}.union(*inner)
        case HostLoop():
            names = {step.condition, step.next_condition, step.iteration}
            names |= {step.trips} if isinstance(step.trips, str) else set()
            for carried in step.carried:
                names |= {carried.initial, carried.entry, carried.exit, carried.final}
            for scanned in (*step.scanned, *step.stacked):
                names |= {scanned.stacked, scanned.slice}
            known = {name for name in names if name is not None}
            return known.union(*(touched(s) for s in step.body))


def cost(value: Scalar) -> float:
    """Operations to compute a scalar once: function costs, casts at 1, loads free."""
    total = 0.0
    for node in postorder(value):
        if isinstance(node, Call):
            total += FUNCTIONS[node.fn].cost
        elif isinstance(node, Cast):
            total += 1.0
    return total


def is_movement(value: Scalar) -> bool:
    """Whether a scalar only selects an element: one load, without arithmetic or conditions."""
    return isinstance(value, Load) and not any(isinstance(e, Scalar) for e in value.index)
