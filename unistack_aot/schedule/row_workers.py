"""One row over the workers of a warp or a group: its folds and loops are shared, barriers keep their order.

Not here: which rows go to a warp or a group (many_narrow.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unistack_aot.base.symbolic import Dim, Ranges, symbol
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.nodes import Axis, Fold, Kernel, Let, Loop, Role, Stmt, Store, Sync, When
from unistack_aot.mcir.transform import all_loads, substitute_vars, walk
from unistack_aot.schedule.contraction import product
from unistack_aot.schedule.nests import axis_ranges, decoded, nest_of, number, span_of
from unistack_aot.schedule.operator import or_same
from unistack_aot.schedule.unswitch import UNSWITCH
from unistack_aot.schedule.vectorising import VECTORISE, VECTORISE_FOLD
from unistack_aot.schedule.vectors import is_straight, width_of

SHORT_ROW = 32  # rows up to this length are folded by one thread: a warp would idle


@dataclass(frozen=True, slots=True)
class Row:
    """Distributes the statements of one row over the workers of role `role`."""

    kernel: Kernel
    role: Role
    ranges: Ranges
    lanes: int
    vector_bytes: int

    def body(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """All statements of a row; values that only its last stores need are computed by the worker that stores."""
        last = len(stmts)
        while last and isinstance(stmts[last - 1], Let | Store):
            last -= 1
        shared = tuple(self.statement(stmt, place) for place, stmt in enumerate(stmts[:last]))
        single = stmts[last:]
        if not any(isinstance(stmt, Store) for stmt in single):
            return (*shared, *single)
        return (*shared, Loop(f"once{last}", 1, single, self.role))

    def statement(self, stmt: Stmt, place: int) -> Stmt:
        """Folds and independent loops are shared; a store is done by one worker; ordered loops stay ordered."""
        match stmt:
            case Fold():
                return self.fold(stmt)
            case Loop() if stmt.role is Role.MAP:
                return self.by_warps(stmt) if self.folds_long(stmt) else self.loop(stmt)
            case Loop():
                return replace(stmt, body=self.body(or_same(UNSWITCH(stmt), stmt).body))
            case When():
                yes, no = self.body(stmt.body), self.body(stmt.otherwise)
                return replace(stmt, body=yes, otherwise=no)
            case Store():
                return Loop(f"once{place}", 1, (stmt,), self.role)
            case _:
                return stmt

    def fold(self, fold: Fold) -> Fold:
        """The axes as one joint axis over workers; wide loads where the elements allow it."""
        joint = fold.axes[0].var if len(fold.axes) == 1 else f"{fold.axes[-1].var}_j"
        extent = product(fold.axes)
        values, body = fold.values, tuple(sequential(s) for s in fold.body)
        if len(fold.axes) > 1:
            values, body = self._rewritten(values, body, decoded(fold.axes, symbol(joint)))
        axis = Axis(joint, extent)
        single = Fold(fold.states, fold.monoid, (axis,), values, body, self.role)
        lets = tuple(Let(f"v{k}", v) for k, v in enumerate(values))
        width = 1 if body else self.width(lets, axis)
        if width == 1:
            return single
        return VECTORISE_FOLD.sure(self.kernel, single, width, self.inside(axis))

    def _rewritten(
        self, values: tuple[Scalar, ...], body: tuple[Stmt, ...], env: dict[str, Dim]
    ) -> tuple[tuple[Scalar, ...], tuple[Stmt, ...]]:
        lets = tuple(Let(f"v{k}", v) for k, v in enumerate(values))
        fresh = substitute_vars(lets, env)
        return tuple(s.value for s in fresh if isinstance(s, Let)), substitute_vars(body, env)

    def loop(self, loop: Loop) -> Loop:
        """A nest of independent loops as one joint loop over workers."""
        nest = nest_of((loop,))
        joint = nest.axes[0].var if len(nest.axes) == 1 else f"{nest.axes[-1].var}_j"
        extent, body = nest.points, tuple(sequential(s) for s in nest.body)
        if len(nest.axes) > 1:
            body = substitute_vars(body, decoded(nest.axes, symbol(joint)))
        axis, single = Axis(joint, extent), Loop(joint, extent, body, self.role)
        width = self.width(body, axis) if is_straight(body) else 1
        return (
            single if width == 1 else VECTORISE.sure(self.kernel, single, width, self.inside(axis))
        )

    def folds_long(self, loop: Loop) -> bool:
        """Whether each iteration of a group's loop folds enough to keep a warp busy."""
        body = nest_of((loop,)).body
        return self.role is Role.GROUP and any(
            isinstance(stmt, Fold) and span_of(stmt) > SHORT_ROW for stmt in body
        )

    def by_warps(self, loop: Loop) -> Loop:
        """A nest of independent loops as one joint loop over warps, whose lanes share the folds."""
        nest = nest_of((loop,))
        joint = f"{nest.axes[-1].var}_j"
        body = substitute_vars(nest.body, decoded(nest.axes, symbol(joint)))
        lanes = replace(self, role=Role.LANE)
        return Loop(joint, nest.points, lanes.body(body), Role.GROUP)

    def inside(self, axis: Axis) -> Ranges:
        """The ranges with that of an axis."""
        return {**self.ranges, **axis_ranges((axis,))}

    def width(self, body: tuple[Stmt, ...], axis: Axis) -> int:
        """Elements per worker and step; only for rows long enough that all workers still have some."""
        params = {p.name: p for p in self.kernel.params}
        inside = self.inside(axis)
        width = width_of(params, body, axis.var, axis.extent, inside, self.vector_bytes)
        while width > 1 and number(axis.extent) < width * self.lanes:
            width //= 2
        return width


def with_barriers(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Barriers between statements of a group where one writes far memory that another reads or writes."""
    result: list[Stmt] = []
    read: set[str] = set()
    written: set[str] = set()
    for stmt in body:
        if isinstance(stmt, Loop) and stmt.role is Role.SEQ:
            inner = with_barriers(stmt.body)
            if _written(inner) & _read(inner):
                inner = (*inner, Sync())
            stmt = replace(stmt, body=inner)
        elif isinstance(stmt, When):
            yes, no = with_barriers(stmt.body), with_barriers(stmt.otherwise)
            stmt = replace(stmt, body=yes, otherwise=no)
        reads, writes = _read((stmt,)), _written((stmt,))
        if written & (reads | writes) or read & writes:
            result.append(Sync())
            read, written = set(), set()
        result.append(stmt)
        read |= reads
        written |= writes
    return tuple(result)


def sequential(stmt: Stmt) -> Stmt:
    """Everything inside one thread: in order."""
    match stmt:
        case Loop():
            body = tuple(sequential(s) for s in stmt.body)
            return replace(stmt, role=Role.SEQ if stmt.role is Role.MAP else stmt.role, body=body)
        case Fold():
            return replace(stmt, role=Role.SEQ, body=tuple(sequential(s) for s in stmt.body))
        case When():
            yes = tuple(sequential(s) for s in stmt.body)
            return replace(stmt, body=yes, otherwise=tuple(map(sequential, stmt.otherwise)))
        case _:
            return stmt


def _read(body: tuple[Stmt, ...]) -> set[str]:
    return {load.buffer for load in all_loads(body)}


def _written(body: tuple[Stmt, ...]) -> set[str]:
    return {stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)}
