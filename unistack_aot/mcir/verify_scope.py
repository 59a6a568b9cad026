"""What a statement sees when a kernel is verified, and how a fault in it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from unistack_aot.base.dtypes import DType
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, Range, ceildiv, substitute, symbol
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.formula_text import Types
from unistack_aot.mcir.layout import PLAIN, Layout
from unistack_aot.mcir.nodes import Access, Kernel, Role, Space, Stmt
from unistack_aot.mcir.text import print_body
from unistack_aot.mcir.transform import children, with_children

PARALLEL = frozenset([Role.MAP, Role.GRID, Role.GROUP, Role.LANE, Role.VECTOR])


@dataclass(frozen=True, slots=True)
class Held:
    """A buffer or tile in scope; `depth` loops surround a tile's declaration."""

    dtype: DType
    shape: tuple[Dim, ...]
    space: Space
    layout: Layout = PLAIN
    access: Access | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Around:
    """An enclosing iteration: its variable equals `first + step * (0, 1, ... count - 1)`."""

    var: str
    role: Role | None
    first: Dim
    step: int
    count: Dim

    @property
    def parallel(self) -> bool:
        """Whether iterations may run at the same time."""
        return self.role in PARALLEL


@dataclass(frozen=True)
class Scope:
    """What is known at a statement."""

    kernel: Kernel
    name: str
    buffers: Mapping[str, Held]
    names: dict[str, DType]
    ranges: Mapping[str, Range]
    dims: frozenset[str] | None
    loops: tuple[Around, ...] = ()
    heads: tuple[Stmt, ...] = ()
    guarded: bool = False
    conditions: tuple[Scalar, ...] = ()
    siblings: tuple[Stmt, ...] = field(default=())

    def inside(self, *around: Around, names: Mapping[str, DType] | None = None) -> Scope:
        """The scope of a block under more iterations and names."""
        ranges = dict(self.ranges)
        for each in around:
            ranges[each.var] = (each.first, each.first + each.step * (each.count - 1))
        known = {**self.names, **(names or {})}
        return replace(self, names=known, ranges=ranges, loops=(*self.loops, *around))

    def within(self, body: tuple[Stmt, ...], head: Stmt) -> Scope:
        """The scope for the statements of a block of statement `head`."""
        return replace(self, names=dict(self.names), siblings=body, heads=(*self.heads, head))

    def with_buffer(self, name: str, held: Held) -> Scope:
        """The scope after a tile's declaration."""
        return replace(self, buffers={**self.buffers, name: held})

    def guard(self, *holding: Scalar) -> Scope:
        """The scope of a conditional block, and conditions that hold there."""
        return replace(self, guarded=True, conditions=(*self.conditions, *holding))

    def types(self) -> Types:
        """What text needs to know."""
        return Types({n: b.dtype for n, b in self.buffers.items()}, dict(self.names))

    def fault(self, stmt: Stmt | None, why: str) -> IRError:
        """The error for a statement, shown under its enclosing heads and between its neighbours."""
        lines = [f"  {'  ' * depth}{self.line(head)}" for depth, head in enumerate(self.heads)]
        margin = "  " * len(self.heads)
        place = next((k for k, s in enumerate(self.siblings) if s is stmt), None)
        if stmt is not None and place is None:
            lines.append(f"> {margin}{self.line(stmt)}")
        if place is not None:
            for k in range(max(0, place - 2), min(len(self.siblings), place + 2)):
                mark = "> " if k == place else "  "
                lines.append(f"{mark}{margin}{self.line(self.siblings[k])}")
        return IRError(
            "\n".join([why, *(f"    {line}" for line in lines)]), at=f"kernel {self.name}"
        )

    def line(self, stmt: Stmt) -> str:
        """The first line of a statement."""
        alone = with_children(stmt, tuple(() for _ in children(stmt)))
        written = print_body((alone,), self.types()).splitlines()
        return next((w for w in written if not w.startswith("$")), "")


def spread(
    scope: Scope, role_of: int
) -> tuple[dict[str, Dim], dict[str, Range], tuple[Around, ...]]:
    """Loop variables from depth `role_of` on as first + step * local number, with the local numbers' ranges."""
    env: dict[str, Dim] = {}
    ranges: dict[str, Range] = dict(scope.ranges)
    inner = scope.loops[role_of:]
    for each in inner:
        local = f"{each.var}'"
        env[each.var] = substitute(each.first, env) + each.step * symbol(local)
        ranges[local] = (0, substitute(each.count, env) - 1)
    return env, ranges, inner


def count_of(extent: Dim, step: int) -> Dim:
    """Iterations of a loop."""
    return extent if step == 1 else ceildiv(extent, step)
