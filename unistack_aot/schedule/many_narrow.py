"""Loop roles for machines of many narrow workers (GPUs): which rows go to a thread, a warp or a group, and how wide.

Not here: contractions (block_tiles.py), attention (attention.py), which accesses are wide (vectors.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from unistack_aot.base.symbolic import (
    Dim,
    Range,
    Ranges,
    ceildiv,
    divisible,
    minimum,
    symbol,
    symbols,
)
from unistack_aot.base.verdict import No
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.nodes import (
    Access,
    Axis,
    Fold,
    Kernel,
    Let,
    Loop,
    Param,
    Role,
    Stmt,
    Store,
    Sync,
    When,
)
from unistack_aot.mcir.transform import all_loads, substitute_vars, walk
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.independent import independent_outside
from unistack_aot.schedule.loops import FUSE
from unistack_aot.schedule.operator import or_same
from unistack_aot.schedule.unswitch import UNSWITCH
from unistack_aot.schedule.vectors import is_straight, stride_in, width_of

SYMBOLIC = 1 << 20  # what an extent without a bound counts as
MAP_GROUP = 256  # threads of a group that maps elements: eight warps hide each other's latency
WARPS = 4  # rows of one group when a warp owns a row
SHORT_ROW = 32  # rows up to this length are folded by one thread: a warp would idle
LONG_ROW = 1024  # rows beyond this length keep a whole group busy


@dataclass(frozen=True, slots=True)
class Most:
    """What the loops of a kernel may use: bytes of a wide access, threads of a group."""

    vector_bytes: int = 16
    group: int = 512


@dataclass(frozen=True, slots=True)
class Nest:
    """A stage of a kernel: independent loops around `body`."""

    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]

    @property
    def points(self) -> Dim:
        """Iterations of all loops together."""
        return product(axis.extent for axis in self.axes)


def product(extents: Iterable[Dim]) -> Dim:
    """The product of extents."""
    result: Dim = 1
    for extent in extents:
        result = result * extent
    return result


# --- stages ----------------------------------------------------------------------------------------------


def stages(kernel: Kernel) -> tuple[Kernel, ...]:
    """A kernel as a sequence of kernels, one per independent nest: there is no barrier across a whole grid.

    before:
        for i in 4 role=map { y[i] = x[i] } for j in 2 role=map { y[j + 4] = z[j] }
    after:
        for i in 4 role=map { y[i] = x[i] }   and then   for j in 2 role=map { y[j + 4] = z[j] }
    """
    if len(kernel.body) < 2 or not all(isinstance(stmt, Loop) for stmt in kernel.body):
        return (kernel,)
    nests = [(stmt,) for stmt in kernel.body]
    return tuple(_part(kernel, nest, _writes(kernel.body[:k])) for k, nest in enumerate(nests))


def _part(kernel: Kernel, body: tuple[Stmt, ...], before: set[str]) -> Kernel:
    """A kernel with only the parameters that `body` uses; results that hold something of `before` are updated."""
    read = {load.buffer for load in all_loads(body)}
    written = {stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)}
    partial = {s.buffer for s in walk(body) if isinstance(s, Store) and s.combine != "set"}
    params: list[Param] = []
    for param in kernel.params:
        if param.name in written:
            both = param.name in read | partial | before
            params.append(replace(param, access=Access.INOUT if both else Access.OUT))
        elif param.name in read:
            params.append(replace(param, access=Access.IN))
    return replace(kernel, params=tuple(params), body=body)


# --- the choice ------------------------------------------------------------------------------------------


def assign_roles(
    kernel: Kernel, ranges: Ranges, machine: Machine, most: Most = Most()
) -> tuple[Kernel, Decision]:
    """Decide every loop and fold of a one-stage kernel, and why so."""
    vector = min(machine.vector_bytes, most.vector_bytes)
    kernel = kernel.with_body(tuple(_unordered(stmt) for stmt in kernel.body))
    kernel = independent_outside(kernel)
    nest = _nest(kernel.body)
    if not any(isinstance(stmt, Loop | Fold) for stmt in walk(nest.body)):
        return _mapped(kernel, nest, ranges, vector)
    length, contiguous = _row(kernel, nest, ranges)
    points, lanes = _number(nest.points), machine.lanes
    ordered = _ordered(kernel)
    rows = f"{points} rows of {length}"
    shared = any(isinstance(s, Loop) and s.role is Role.MAP for s in walk(nest.body)) and ordered
    if (
        points >= lanes
        and not shared
        and (length <= SHORT_ROW or (not contiguous and points >= 8 * lanes))
    ):
        why = "rows are short" if length <= SHORT_ROW else "neighbouring rows are contiguous"
        done = _per_thread(kernel, nest, ranges, machine)
        return done, Decision("rows", _subject(kernel), "thread per row", f"{rows}: {why}")
    busy = points >= WARPS * machine.parallel_units
    if length <= LONG_ROW and not ordered and (busy or length <= 8 * lanes):
        done = _per_warp(kernel, nest, ranges, machine, vector)
        because = f"{rows}: a warp folds without barriers"
        return done, Decision("rows", _subject(kernel), "warp per row", because)
    group = machine.lanes
    while group < min(most.group, machine.max_threads) and group * 4 < length:
        group *= 2
    row = Row(kernel, Role.GROUP, _bounded(ranges, kernel.body), machine.lanes, vector)
    done = _per_group(kernel, nest, row, group)
    return done, Decision("rows", _subject(kernel), "group per row", rows)


def _subject(kernel: Kernel) -> str:
    return ", ".join(p.name for p in kernel.outputs)


def _nest(body: tuple[Stmt, ...]) -> Nest:
    """The independent loops around a body, outermost first."""
    axes: list[Axis] = []
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].role is Role.MAP:
        loop = body[0]
        if symbols(loop.extent) & {axis.var for axis in axes}:
            break
        axes.append(Axis(loop.var, loop.extent))
        body = loop.body
    return Nest(tuple(axes), body)


def _row(kernel: Kernel, nest: Nest, ranges: Ranges) -> tuple[int, bool]:
    """The longest fold or loop of a row, and whether its elements are contiguous in memory."""
    length, contiguous = 1, True
    params = {p.name: p for p in kernel.params}
    inside = _bounded(ranges, kernel.body)
    for stmt in nest.body:
        found = _span_of(stmt)
        if found > length:
            length = found
            last = _last_var(stmt)
            strides = [
                stride_in(params[load.buffer], load.index, last, inside)
                for load in all_loads((stmt,))
                if load.buffer in params and last is not None
            ]
            moving = [s for s in strides if s != 0]
            contiguous = bool(moving) and all(s == 1 for s in moving)
    return length, contiguous


def _span_of(stmt: Stmt) -> int:
    """Points of a fold or of a nest of loops."""
    match stmt:
        case Fold():
            inner = max((_span_of(s) for s in stmt.body), default=1)
            return prod(_number(a.extent) for a in stmt.axes) * inner
        case Loop():
            return _number(stmt.extent) * max((_span_of(s) for s in stmt.body), default=1)
        case When():
            return max((_span_of(s) for s in (*stmt.body, *stmt.otherwise)), default=1)
        case _:
            return 1


def _last_var(stmt: Stmt) -> str | None:
    match stmt:
        case Fold():
            return stmt.axes[-1].var
        case Loop() if len(stmt.body) == 1 and isinstance(stmt.body[0], Loop):
            return _last_var(stmt.body[0])
        case Loop():
            return stmt.var
        case _:
            return None


def _ordered(kernel: Kernel) -> bool:
    """Whether a kernel reads what it writes, so that its statements need barriers between them."""
    written = {stmt.buffer for stmt in walk(kernel.body) if isinstance(stmt, Store)}
    return any(load.buffer in written for load in all_loads(kernel.body))


def _unordered(stmt: Stmt) -> Stmt:
    """Ordered loops whose only effect is a commutative update of one buffer become independent."""
    if not isinstance(stmt, Loop) or stmt.role is not Role.SEQ:
        return stmt
    stores = [s for s in walk((stmt,)) if isinstance(s, Store)]
    written = {s.buffer for s in stores}
    combining = all(s.combine != "set" for s in stores) and len({s.combine for s in stores}) == 1
    if not combining or any(load.buffer in written for load in all_loads((stmt,))):
        return stmt
    return _with_map_role(stmt)


def _with_map_role(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Loop):
        return stmt
    role = Role.MAP if stmt.role is Role.SEQ else stmt.role
    return replace(stmt, role=role, body=tuple(_with_map_role(s) for s in stmt.body))


# --- a thread per element or row --------------------------------------------------------------------------


def _mapped(kernel: Kernel, nest: Nest, ranges: Ranges, vector: int) -> tuple[Kernel, Decision]:
    """Elements over threads, `width` neighbouring ones each."""
    nest = _joined(kernel, nest, ranges)
    width = 1
    if nest.axes and is_straight(nest.body):
        last = nest.axes[-1]
        inside = {**_bounded(ranges, kernel.body), **_axis_ranges(nest.axes[:-1])}
        params = {p.name: p for p in kernel.params}
        width = width_of(params, nest.body, last.var, last.extent, inside, vector)
    body = nest.body
    axes = nest.axes
    if width > 1:
        last = axes[-1]
        quads, lane = f"{last.var}_q", f"{last.var}_v"
        place = symbol(quads) * width + symbol(lane)
        body = (Loop(lane, width, substitute_vars(body, {last.var: place}), Role.VECTOR),)
        axes = (*axes[:-1], Axis(quads, ceildiv(last.extent, width)))
    body = tuple(_sequential(stmt) for stmt in body)
    done = _spread(kernel, axes, body, MAP_GROUP, MAP_GROUP)
    text = f"{width} elements per thread"
    return done, Decision("map", _subject(kernel), text, "contiguous and aligned accesses only")


def _per_thread(kernel: Kernel, nest: Nest, ranges: Ranges, machine: Machine) -> Kernel:
    body = tuple(_sequential(stmt) for stmt in nest.body)
    points = _number(nest.points)
    group = MAP_GROUP
    while group > machine.lanes and points < group * machine.parallel_units:
        group //= 2
    return _spread(kernel, nest.axes, body, group, group)


def _joined(kernel: Kernel, nest: Nest, ranges: Ranges) -> Nest:
    """Join loops, innermost first, while all addresses stay linear."""
    axes, body = list(nest.axes), nest.body
    while len(axes) > 1:
        outer, inner = axes[-2], axes[-1]
        loop = Loop(outer.var, outer.extent, (Loop(inner.var, inner.extent, body),))
        joint = FUSE(kernel, loop, {**ranges, **_axis_ranges(tuple(axes[:-2]))})
        if isinstance(joint, No):
            break
        axes[-2:] = [Axis(joint.var, joint.extent)]
        body = joint.body
    return Nest(tuple(axes), body)


def _spread(
    kernel: Kernel, axes: tuple[Axis, ...], body: tuple[Stmt, ...], size: int, group: int
) -> Kernel:
    """All points of `axes` in blocks of `size`, one block per unit, its points over the unit's workers."""
    total = product(axis.extent for axis in axes)
    block, within = "block", "within"
    joint = symbol(block) * size + symbol(within) if axes else 0
    body = substitute_vars(body, decoded(axes, joint))
    whole = divisible(total, size)
    extent = size if whole else minimum(size, total - symbol(block) * size)
    inner = Loop(within, extent if axes else 1, body, Role.GROUP)
    outer = Loop(block, ceildiv(total, size) if axes else 1, (inner,), Role.GRID)
    return replace(kernel, body=(outer,), group=group)


def decoded(axes: tuple[Axis, ...], joint: Dim) -> dict[str, Dim]:
    """Each axis's variable as an expression of the joint (row-major) number."""
    env: dict[str, Dim] = {axis.var: 0 for axis in axes}
    live = [axis for axis in axes if axis.extent != 1]
    for axis in reversed(live):
        env[axis.var] = joint if axis is live[0] else joint % axis.extent
        joint = joint // axis.extent
    return env


def _sequential(stmt: Stmt) -> Stmt:
    """Everything inside one thread: in order."""
    match stmt:
        case Loop():
            body = tuple(_sequential(s) for s in stmt.body)
            return replace(stmt, role=Role.SEQ if stmt.role is Role.MAP else stmt.role, body=body)
        case Fold():
            return replace(stmt, role=Role.SEQ, body=tuple(_sequential(s) for s in stmt.body))
        case When():
            yes = tuple(_sequential(s) for s in stmt.body)
            return replace(stmt, body=yes, otherwise=tuple(map(_sequential, stmt.otherwise)))
        case _:
            return stmt


# --- a warp or a group per row ----------------------------------------------------------------------------


def _per_warp(kernel: Kernel, nest: Nest, ranges: Ranges, machine: Machine, vector: int) -> Kernel:
    row = Row(kernel, Role.LANE, _bounded(ranges, kernel.body), machine.lanes, vector)
    return _spread(kernel, nest.axes, row.body(nest.body), WARPS, WARPS * machine.lanes)


def _per_group(kernel: Kernel, nest: Nest, row: Row, group: int) -> Kernel:
    body = row.body(nest.body)
    if _ordered(kernel):
        body = with_barriers(body)
    axes = nest.axes or (Axis("row", 1),)
    for axis in reversed(axes):
        body = (Loop(axis.var, axis.extent, body, Role.GRID),)
    return replace(kernel, body=body, group=group)


@dataclass(frozen=True, slots=True)
class Row:
    """Distributes the statements of one row over the workers of role `role`."""

    kernel: Kernel
    role: Role
    ranges: Ranges
    lanes: int
    vector_bytes: int

    def body(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """All statements of a row."""
        return tuple(self.statement(stmt, place) for place, stmt in enumerate(stmts))

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
        extent = product(axis.extent for axis in fold.axes)
        values, body = fold.values, tuple(_sequential(s) for s in fold.body)
        if len(fold.axes) > 1:
            values, body = self._rewritten(values, body, decoded(fold.axes, symbol(joint)))
        axes: tuple[Axis, ...] = (Axis(joint, extent),)
        width = 1
        if not body:
            width = self.width(tuple(Let(f"v{k}", v) for k, v in enumerate(values)), axes[0])
        if width > 1:
            quads, lane = f"{joint}_q", f"{joint}_v"
            place = symbol(quads) * width + symbol(lane)
            values, body = self._rewritten(values, body, {joint: place})
            axes = (Axis(quads, ceildiv(extent, width)), Axis(lane, width))
        return Fold(fold.states, fold.monoid, axes, values, body, self.role)

    def _rewritten(
        self, values: tuple[Scalar, ...], body: tuple[Stmt, ...], env: dict[str, Dim]
    ) -> tuple[tuple[Scalar, ...], tuple[Stmt, ...]]:
        lets = tuple(Let(f"v{k}", v) for k, v in enumerate(values))
        fresh = substitute_vars(lets, env)
        return tuple(s.value for s in fresh if isinstance(s, Let)), substitute_vars(body, env)

    def loop(self, loop: Loop) -> Loop:
        """A nest of independent loops as one joint loop over workers."""
        nest = _nest((loop,))
        joint = nest.axes[0].var if len(nest.axes) == 1 else f"{nest.axes[-1].var}_j"
        extent, body = nest.points, tuple(_sequential(s) for s in nest.body)
        if len(nest.axes) > 1:
            body = substitute_vars(body, decoded(nest.axes, symbol(joint)))
        width = self.width(body, Axis(joint, extent)) if is_straight(body) else 1
        if width == 1:
            return Loop(joint, extent, body, self.role)
        quads, lane = f"{joint}_q", f"{joint}_v"
        place = symbol(quads) * width + symbol(lane)
        inner = Loop(lane, width, substitute_vars(body, {joint: place}), Role.VECTOR)
        return Loop(quads, ceildiv(extent, width), (inner,), self.role)

    def folds_long(self, loop: Loop) -> bool:
        """Whether each iteration of a group's loop folds enough to keep a warp busy."""
        body = _nest((loop,)).body
        return self.role is Role.GROUP and any(
            isinstance(stmt, Fold) and _span_of(stmt) > SHORT_ROW for stmt in body
        )

    def by_warps(self, loop: Loop) -> Loop:
        """A nest of independent loops as one joint loop over warps, whose lanes share the folds."""
        nest = _nest((loop,))
        joint = f"{nest.axes[-1].var}_j"
        body = substitute_vars(nest.body, decoded(nest.axes, symbol(joint)))
        lanes = replace(self, role=Role.LANE)
        return Loop(joint, nest.points, lanes.body(body), Role.GROUP)

    def width(self, body: tuple[Stmt, ...], axis: Axis) -> int:
        """Elements per worker and step; only for rows long enough that all workers still have some."""
        params = {p.name: p for p in self.kernel.params}
        inside = {**self.ranges, **_axis_ranges((axis,))}
        width = width_of(params, body, axis.var, axis.extent, inside, self.vector_bytes)
        while width > 1 and _number(axis.extent) < width * self.lanes:
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
            if _writes(inner) & _reads(inner):
                inner = (*inner, Sync())
            stmt = replace(stmt, body=inner)
        elif isinstance(stmt, When):
            yes, no = with_barriers(stmt.body), with_barriers(stmt.otherwise)
            stmt = replace(stmt, body=yes, otherwise=no)
        reads, writes = _reads((stmt,)), _writes((stmt,))
        if written & (reads | writes) or read & writes:
            result.append(Sync())
            read, written = set(), set()
        result.append(stmt)
        read |= reads
        written |= writes
    return tuple(result)


def _reads(body: tuple[Stmt, ...]) -> set[str]:
    return {load.buffer for load in all_loads(body)}


def _writes(body: tuple[Stmt, ...]) -> set[str]:
    return {stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)}


# --- numbers ---------------------------------------------------------------------------------------------


def _number(extent: Dim) -> int:
    return extent if isinstance(extent, int) else SYMBOLIC


def _axis_ranges(axes: tuple[Axis, ...]) -> dict[str, Range]:
    return {
        axis.var: (0, axis.extent - 1 if isinstance(axis.extent, int) else None) for axis in axes
    }


def _bounded(ranges: Ranges, body: tuple[Stmt, ...]) -> dict[str, Range]:
    """The ranges with every loop and fold variable of a body."""
    inside = dict(ranges)
    for stmt in walk(body):
        match stmt:
            case Loop():
                inside |= _axis_ranges((Axis(stmt.var, stmt.extent),))
            case Fold():
                inside |= _axis_ranges(stmt.axes)
            case _:
                pass
    return inside
