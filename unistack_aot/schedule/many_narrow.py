"""Loop roles for machines of many narrow workers (GPUs): which rows go to a thread, a warp or a group, and how wide.

Not here: how workers share a row (row_workers.py), which accesses are wide (vectors.py), contractions (block_tiles.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unistack_aot.base.symbolic import Ranges, ceildiv, divisible, minimum, symbol
from unistack_aot.base.verdict import No
from unistack_aot.hw.machine import Machine
from unistack_aot.mcir.nodes import Axis, Fold, Kernel, Loop, Role, Stmt, Store
from unistack_aot.mcir.transform import all_loads, substitute_vars, walk
from unistack_aot.schedule.contraction import product
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.independent import MOVE_OUTSIDE
from unistack_aot.schedule.loops import FUSE
from unistack_aot.schedule.nests import (
    Nest,
    axis_ranges,
    bounded,
    decoded,
    last_var,
    nest_of,
    number,
    span_of,
)
from unistack_aot.schedule.operator import or_same
from unistack_aot.schedule.row_workers import SHORT_ROW, Row, sequential, with_barriers
from unistack_aot.schedule.vectorising import VECTORISE
from unistack_aot.schedule.vectors import is_straight, stride_in, width_of

MAP_GROUP = 256  # threads of a group that maps elements: eight warps hide each other's latency
WARPS = 4  # rows of one group when a warp owns a row
LONG_ROW = 1024  # rows beyond this length keep a whole group busy


@dataclass(frozen=True, slots=True)
class Most:
    """What the loops of a kernel may use: bytes of a wide access, threads of a group."""

    vector_bytes: int = 16
    group: int = 512


def assign_roles(
    kernel: Kernel, ranges: Ranges, machine: Machine, most: Most = Most()
) -> tuple[Kernel, Decision]:
    """Decide every loop and fold of a one-stage kernel, and why so."""
    vector = min(machine.vector_bytes, most.vector_bytes)
    kernel = kernel.with_body(tuple(_unordered(stmt) for stmt in kernel.body))
    kernel = or_same(MOVE_OUTSIDE(kernel), kernel)
    nest = nest_of(kernel.body)
    if not any(isinstance(stmt, Loop | Fold) for stmt in walk(nest.body)):
        return _mapped(kernel, nest, ranges, vector)
    length, contiguous = _row(kernel, nest, ranges)
    points, lanes = number(nest.points), machine.lanes
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
        done = per_warp(kernel, nest, ranges, lanes, vector)
        because = f"{rows}: a warp folds without barriers"
        return done, Decision("rows", _subject(kernel), "warp per row", because)
    group = machine.lanes
    while group < min(most.group, machine.max_threads) and group * 4 < length:
        group *= 2
    row = Row(kernel, Role.GROUP, bounded(ranges, kernel.body), machine.lanes, vector)
    done = _per_group(kernel, nest, row, group)
    return done, Decision("rows", _subject(kernel), "group per row", rows)


def _subject(kernel: Kernel) -> str:
    return ", ".join(p.name for p in kernel.outputs)


def _row(kernel: Kernel, nest: Nest, ranges: Ranges) -> tuple[int, bool]:
    """The longest fold or loop of a row, and whether its elements are contiguous in memory."""
    length, contiguous = 1, True
    params = {p.name: p for p in kernel.params}
    inside = bounded(ranges, kernel.body)
    for stmt in nest.body:
        found = span_of(stmt)
        if found > length:
            length = found
            last = last_var(stmt)
            strides = [
                stride_in(params[load.buffer], load.index, last, inside)
                for load in all_loads((stmt,))
                if load.buffer in params and last is not None
            ]
            moving = [s for s in strides if s != 0]
            contiguous = bool(moving) and all(s == 1 for s in moving)
    return length, contiguous


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
    """Elements over threads, several neighbouring ones each."""
    width, nest = _widened(kernel, _joined(kernel, nest, ranges), ranges, vector)
    body = tuple(sequential(stmt) for stmt in nest.body)
    done = _spread(kernel, nest.axes, body, MAP_GROUP, MAP_GROUP)
    text = f"{width} elements per thread"
    return done, Decision("map", _subject(kernel), text, "contiguous and aligned accesses only")


def _widened(kernel: Kernel, nest: Nest, ranges: Ranges, vector: int) -> tuple[int, Nest]:
    """A nest of straight code with as many neighbouring elements at once as its accesses allow, and how many."""
    if not nest.axes or not is_straight(nest.body):
        return 1, nest
    *outer, last = nest.axes
    inside = {**bounded(ranges, kernel.body), **axis_ranges(tuple(outer))}
    params = {p.name: p for p in kernel.params}
    width = width_of(params, nest.body, last.var, last.extent, inside, vector)
    if width == 1:
        return 1, nest
    wide = VECTORISE.sure(kernel, Loop(last.var, last.extent, nest.body), width, inside)
    return width, Nest((*outer, Axis(wide.var, wide.extent)), wide.body)


def _per_thread(kernel: Kernel, nest: Nest, ranges: Ranges, machine: Machine) -> Kernel:
    body = tuple(sequential(stmt) for stmt in nest.body)
    points = number(nest.points)
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
        joint = FUSE(kernel, loop, {**ranges, **axis_ranges(tuple(axes[:-2]))})
        if isinstance(joint, No):
            break
        axes[-2:] = [Axis(joint.var, joint.extent)]
        body = joint.body
    return Nest(tuple(axes), body)


def _spread(
    kernel: Kernel, axes: tuple[Axis, ...], body: tuple[Stmt, ...], size: int, group: int
) -> Kernel:
    """All points of `axes` in blocks of `size`, one block per unit, its points over the unit's workers."""
    total = product(axes)
    block, within = "block", "within"
    joint = symbol(block) * size + symbol(within) if axes else 0
    body = substitute_vars(body, decoded(axes, joint))
    whole = divisible(total, size)
    extent = size if whole else minimum(size, total - symbol(block) * size)
    inner = Loop(within, extent if axes else 1, body, Role.GROUP)
    outer = Loop(block, ceildiv(total, size) if axes else 1, (inner,), Role.GRID)
    return replace(kernel, body=(outer,), group=group)


# --- a warp or a group per row ----------------------------------------------------------------------------


def per_warp(kernel: Kernel, nest: Nest, ranges: Ranges, lanes: int, vector: int) -> Kernel:
    """A warp per point of a nest, `WARPS` to a group."""
    row = Row(kernel, Role.LANE, bounded(ranges, kernel.body), lanes, vector)
    return _spread(kernel, nest.axes, row.body(nest.body), WARPS, WARPS * lanes)


def _per_group(kernel: Kernel, nest: Nest, row: Row, group: int) -> Kernel:
    body = row.body(nest.body)
    if _ordered(kernel):
        body = with_barriers(body)
    axes = nest.axes or (Axis("row", 1),)
    for axis in reversed(axes):
        body = (Loop(axis.var, axis.extent, body, Role.GRID),)
    return replace(kernel, body=body, group=group)
