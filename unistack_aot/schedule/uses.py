"""Who reads and writes each buffer of a program, and how much a scalar costs. Not here: what to do about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Set

from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import Call, Cast, Load, Scalar, postorder
from unistack_aot.mcir.program import HostCopy, HostIf, HostLoop, HostRefuse, Launch, Step


class UseTable:
    """The steps of one block and who reads each buffer, kept true while launches are replaced.

    `outside` are buffers that something else than the block's launches uses.
    """

    def __init__(self, steps: Iterable[Step], outer: Set[str]) -> None:
        self._steps: list[Step | None] = list(steps)
        self._reads: dict[str, Counter[int]] = defaultdict(Counter)
        self.outside = set(outer)
        for position, step in enumerate(self._steps):
            if isinstance(step, Launch):
                self._count(position, step, 1)
            elif step is not None:
                self.outside |= touched(step)

    def __len__(self) -> int:
        """How many positions there are."""
        return len(self._steps)

    def launch(self, position: int) -> Launch | None:
        """The launch at a position; None if it is gone, or another kind of step."""
        step = self._steps[position]
        return step if isinstance(step, Launch) else None

    def readers(self, buffer: str) -> list[int]:
        """Positions of the launches that read a buffer, in order."""
        return sorted(self._reads[buffer])

    def only_reader(self, buffer: str) -> int | None:
        """The position of the only launch that reads `buffer`, once, if nothing else uses it."""
        reads = self._reads[buffer]
        if buffer in self.outside or reads.total() != 1:
            return None
        return next(iter(reads))

    def replace(self, position: int, launch: Launch | None) -> None:
        """Put another launch, or none, in place of a launch."""
        before = self.launch(position)
        assert before is not None
        self._count(position, before, -1)
        if launch is not None:
            self._count(position, launch, 1)
        self._steps[position] = launch

    def left(self) -> tuple[Step, ...]:
        """The steps that are left."""
        return tuple(step for step in self._steps if step is not None)

    def _count(self, position: int, launch: Launch, change: int) -> None:
        for name in launch.reads():
            reads = self._reads[name]
            reads[position] += change
            if not reads[position]:
                del reads[position]


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
