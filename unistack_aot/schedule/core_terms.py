"""What the work of one core is counted in. Not here: how it is read off a kernel (core_work.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from unistack_aot.base.symbolic import Dim, evaluate, symbols
from unistack_aot.hw.property import Property
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import Call, Load, Scalar, postorder
from unistack_aot.mcir.nodes import Stmt
from unistack_aot.mcir.transform import scalars

# A series counts 10 operations or more as a formula; its code also reduces the argument, guards the
# ends and builds powers of two (exp: 26 instructions in ua/math.h).
SERIES, AROUND = 10.0, 2.5
SAMPLES = 64  # values of a loop variable tried for an extent that depends on it


@dataclass
class Work:
    """Seconds of one core by term, all tasks together; the number of tasks.

    `regions` counts how often cores begin such tasks together and meet at their end. `again` holds
    the bytes of a buffer that are read after the first time. `entries` are the map entries that each term was
    computed from.
    """

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    again: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    tasks: int = 1
    regions: float = 0.0
    entries: dict[str, tuple[Property, ...]] = field(
        default_factory=dict[str, tuple[Property, ...]]
    )

    @property
    def total(self) -> float:
        """Seconds of all terms: phases of one core follow each other."""
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True)
class Point:
    """One iteration of straight code: instructions by lane width, bytes through L1, elements gathered one by one."""

    instructions: float
    bytes: float
    gathered: float
    chain: float = 0.0


class Extents:
    """The ranges of loop variables that were declared so far, and what extents are within them."""

    def __init__(self) -> None:
        self.ranges: dict[str, tuple[int | None, int | None]] = {}

    def inside(self, var: str, extent: Dim) -> None:
        """Declare the range of a loop variable."""
        top = self.greatest(extent)
        self.ranges[var] = (0, max(0, top - 1))

    def greatest(self, extent: Dim) -> int:
        """The largest value of an extent."""
        return max(self.values(extent))

    def size(self, extent: Dim) -> float:
        """The mean value of an extent over the iterations of the loops around."""
        found = self.values(extent)
        return sum(found) / len(found)

    def values(self, extent: Dim) -> list[int]:
        """What an extent is in sampled iterations of the loops around."""
        if isinstance(extent, int):
            return [extent]
        envs: list[dict[str, int]] = [{}]
        for name in sorted(symbols(extent)):
            high = self.ranges.get(name, (0, 0))[1] or 0
            step = max(1, (high + 1) // SAMPLES)
            tried = range(0, high + 1, step)
            envs = [{**env, name: value} for env in envs[:SAMPLES] for value in tried]
        return [max(0, evaluate(extent, env)) for env in envs]


def conditional(body: Iterable[Stmt], changes: Callable[[Scalar], bool]) -> bool:
    """Whether a load happens only where a condition holds that changes from one iteration to the next.

    Compilers then leave vectors, as the load might fault; one that stays is decided before the loop.
    """
    choices = (
        node
        for stmt in body
        for node in postorder(*scalars(stmt))
        if isinstance(node, Call) and node.fn == "where" and changes(node.args[0])
    )
    return any(isinstance(v, Load) for node in choices for v in postorder(*node.args[1:]))


def issued(fn: str) -> float:
    """Instructions of one call of a scalar function."""
    cost = FUNCTIONS[fn].cost
    return cost * AROUND if cost >= SERIES else cost
