"""Nests of independent loops, and what a number has to stand for: joint places, spans, ranges.

Not here: who takes which point of a nest (many_narrow.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from unistack_aot.base.symbolic import Dim, Range, Ranges, minimum, symbols
from unistack_aot.mcir.nodes import Axis, Fold, Loop, Role, Stmt, When
from unistack_aot.mcir.transform import walk
from unistack_aot.schedule.contraction import product

SYMBOLIC = 1 << 20  # what an extent without a bound counts as


@dataclass(frozen=True, slots=True)
class Nest:
    """A stage of a kernel: independent loops around `body`."""

    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]

    @property
    def points(self) -> Dim:
        """Iterations of all loops together."""
        return product(self.axes)


def nest_of(body: tuple[Stmt, ...]) -> Nest:
    """The independent loops around a body, outermost first."""
    axes: list[Axis] = []
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].role is Role.MAP:
        loop = body[0]
        if symbols(loop.extent) & {axis.var for axis in axes}:
            break
        axes.append(Axis(loop.var, loop.extent))
        body = loop.body
    return Nest(tuple(axes), body)


def decoded(axes: tuple[Axis, ...], joint: Dim) -> dict[str, Dim]:
    """Each axis's variable as an expression of the joint (row-major) number."""
    env: dict[str, Dim] = {axis.var: 0 for axis in axes}
    live = [axis for axis in axes if axis.extent != 1]
    for axis in reversed(live):
        env[axis.var] = joint if axis is live[0] else joint % axis.extent
        joint = joint // axis.extent
    return env


def part(total: Dim, first: Dim, size: Dim) -> Dim:
    """How many of `size` items from `first` on lie below `total`."""
    whole = total == size or (
        isinstance(total, int) and isinstance(size, int) and total % size == 0
    )
    return size if whole else minimum(size, total - first)


def span_of(stmt: Stmt) -> int:
    """Points of a fold or of a nest of loops."""
    match stmt:
        case Fold():
            inner = max((span_of(s) for s in stmt.body), default=1)
            return prod(number(a.extent) for a in stmt.axes) * inner
        case Loop():
            return number(stmt.extent) * max((span_of(s) for s in stmt.body), default=1)
        case When():
            return max((span_of(s) for s in (*stmt.body, *stmt.otherwise)), default=1)
        case _:
            return 1


def last_var(stmt: Stmt) -> str | None:
    """The innermost variable of a fold or of a nest of loops."""
    match stmt:
        case Fold():
            return stmt.axes[-1].var
        case Loop() if len(stmt.body) == 1 and isinstance(stmt.body[0], Loop):
            return last_var(stmt.body[0])
        case Loop():
            return stmt.var
        case _:
            return None


def number(extent: Dim) -> int:
    """An extent as a number."""
    return extent if isinstance(extent, int) else SYMBOLIC


def axis_ranges(axes: tuple[Axis, ...]) -> dict[str, Range]:
    """The ranges of the variables of loops."""
    return {
        axis.var: (0, axis.extent - 1 if isinstance(axis.extent, int) else None) for axis in axes
    }


def bounded(ranges: Ranges, body: tuple[Stmt, ...]) -> dict[str, Range]:
    """The ranges with every loop and fold variable of a body."""
    inside = dict(ranges)
    for stmt in walk(body):
        match stmt:
            case Loop():
                inside |= axis_ranges((Axis(stmt.var, stmt.extent),))
            case Fold():
                inside |= axis_ranges(stmt.axes)
            case _:
                pass
    return inside
