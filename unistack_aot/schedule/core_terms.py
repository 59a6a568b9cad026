"""What the work of one core is counted in. Not here: how it is read off a kernel (core_work.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from unistack_aot.hw.property import Property
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import Call, Load, postorder
from unistack_aot.mcir.nodes import Stmt
from unistack_aot.mcir.transform import scalars

# A series counts 10 operations or more as a formula; its code also reduces the argument, guards the
# ends and builds powers of two (exp: 26 instructions in ua/math.h).
SERIES, AROUND = 10.0, 2.5


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


def conditional(body: Iterable[Stmt]) -> bool:
    """Whether a load happens only where a condition holds: compilers then leave vectors, as the load might fault."""
    choices = (
        node
        for stmt in body
        for node in postorder(*scalars(stmt))
        if isinstance(node, Call) and node.fn == "where"
    )
    return any(isinstance(v, Load) for node in choices for v in postorder(*node.args[1:]))


def issued(fn: str) -> float:
    """Instructions of one call of a scalar function."""
    cost = FUNCTIONS[fn].cost
    return cost * AROUND if cost >= SERIES else cost
