"""Maps whose load and store are contiguous along different axes: through a near tile, so that both are coalesced.

Not here: maps with one contiguous order (many_narrow.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import (
    Dim,
    Ranges,
    ceildiv,
    minimum,
    symbol,
    symbols,
)
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import IndexEntry, Load, Scalar, all_of, index_value
from unistack_aot.mcir.nodes import (
    Axis,
    Fill,
    Kernel,
    Loop,
    Role,
    Space,
    Span,
    Stmt,
    Store,
    Sync,
    Tile,
    View,
    When,
)
from unistack_aot.mcir.transform import map_store, replace_loads, substitute_vars
from unistack_aot.schedule.operator import Kernels, Operator
from unistack_aot.schedule.vectors import always_loaded, stride_in

SIDE = 32  # of the near tile: one warp reads or writes a row of it at once
GROUP = 256
FEWEST = 8  # along either axis; below, most of a tile would be empty


@dataclass(frozen=True, slots=True)
class Turn:
    """A map that turns a matrix: `load` is contiguous along `read`, the store along `write`."""

    axes: tuple[Axis, ...]
    store: Store
    load: Load
    read: Axis
    write: Axis


def find_turn(kernel: Kernel, ranges: Ranges) -> Turn | No:
    """The turn that a kernel is, or why it is none."""
    found = map_store(kernel)
    if found is None:
        return No("it is no map")
    loops, store = found
    axes = tuple(Axis(loop.var, loop.extent) for loop in loops)
    if any(
        loop.role is not Role.MAP or symbols(loop.extent) & {a.var for a in axes} for loop in loops
    ):
        return No("its loops are not independent")
    inside = {**ranges, **{a.var: (0, _top(a.extent)) for a in axes}}
    params = {p.name: p for p in kernel.params}
    target = params[store.buffer]
    write = _contiguous(axes, lambda v: stride_in(target, store.index, v, inside))
    if write is None:
        return No("its results are not contiguous")
    turned: list[tuple[Load, Axis]] = []
    for load in always_loaded(store.value):
        if load.buffer not in params or any(isinstance(e, Scalar) for e in load.index):
            continue
        source = params[load.buffer]
        if stride_in(source, load.index, write.var, inside) in (0, 1):
            continue
        read = _contiguous(axes, lambda v, s=source, x=load: stride_in(s, x.index, v, inside))
        if read is not None and read is not write:
            turned.append((load, read))
    if len({load for load, _ in turned}) != 1:
        return No("not exactly one operand is turned")
    (load, read), *_ = turned
    if any(isinstance(a.extent, int) and a.extent < FEWEST for a in (read, write)):
        return No("the matrix is narrow")
    return Turn(axes, store, load, read, write)


def _contiguous(axes: tuple[Axis, ...], stride: object) -> Axis | None:
    """The axis along which an access moves by one element, if there is one of more than one point."""
    assert callable(stride)
    return next((a for a in axes if a.extent != 1 and stride(a.var) == 1), None)


def can_turn(kernel: Kernel, ranges: Ranges) -> Yes | No:
    """Whether the kernel is a map that turns a matrix."""
    found = find_turn(kernel, ranges)
    return found if isinstance(found, No) else YES


def turned(kernel: Kernel, ranges: Ranges) -> Kernel:
    """A map as square near tiles: loaded along the axis of one operand, stored along that of the result.

    before:
        kernel turn(x: f32[64, N] far, z: f32[N, 64] far) -> y: f32[N, 64] far {
              for i in N, j in 64 {
                y[i, j] = max(x[j, i], z[i, j])
              }
            }
    after:
        kernel k0(x: f32[64, N] far, z: f32[N, 64] far) -> y: f32[N, 64] far group=256 {
          for read_tile in (N + 31)//32 role=grid, write_tile in 2 role=grid {
            turned: f32[32, 32] near
            fill turned[j in 32*write_tile ..+ 32, i in 32*read_tile ..+ min(32, N - 32*read_tile)] <- x[j, i]
            sync
            for place in 1024 role=group {
              when [place//32] < [min(32, N - 32*read_tile)] {
                y[32*read_tile + place//32, 32*write_tile + place%32] = max(turned[place%32, place//32],
                    z[32*read_tile + place//32, 32*write_tile + place%32])
              }
            }
          }
        }
    """
    turn = find_turn(kernel, ranges)
    assert isinstance(turn, Turn)
    read, write = turn.read, turn.write
    first_read, first_write = symbol("read_tile") * SIDE, symbol("write_tile") * SIDE
    rows = Span(write.var, first_write, _part(write.extent, first_write))
    cols = Span(read.var, first_read, _part(read.extent, first_read))
    entries = tuple(e for e in turn.load.index if not isinstance(e, Scalar))
    fill = Fill("turned", rows, cols, View(turn.load.buffer, entries))
    dtype = kernel.param(turn.load.buffer).dtype
    body: tuple[Stmt, ...] = (
        Tile("turned", dtype, (SIDE, SIDE), Space.NEAR),
        fill,
        Sync(),
        Loop("place", SIDE * SIDE, _stored(turn, rows, cols, dtype), Role.GROUP),
    )
    tiles = (
        Axis("read_tile", ceildiv(read.extent, SIDE)),
        Axis("write_tile", ceildiv(write.extent, SIDE)),
    )
    others = tuple(a for a in turn.axes if a is not read and a is not write)
    for axis in reversed((*others, *tiles)):
        body = (Loop(axis.var, axis.extent, body, Role.GRID),)
    return replace(kernel, body=body, group=GROUP)


def _stored(turn: Turn, rows: Span, cols: Span, dtype: DType) -> tuple[Stmt, ...]:
    """What a worker does at a place of the tile, which runs along the results."""
    at_read, at_write = symbol("place") // SIDE, symbol("place") % SIDE
    near: tuple[IndexEntry, ...] = (at_write, at_read)
    (store,) = replace_loads(
        (turn.store,), lambda load: Load("turned", near, dtype) if load is turn.load else None
    )
    env = {turn.read.var: cols.first + at_read, turn.write.var: rows.first + at_write}
    return _guarded(substitute_vars((store,), env), rows, at_write, cols, at_read)


def _guarded(
    body: tuple[Stmt, ...], rows: Span, at_row: Dim, cols: Span, at_col: Dim
) -> tuple[Stmt, ...]:
    checks = [
        index_value(at) < index_value(span.extent)
        for span, at in ((rows, at_row), (cols, at_col))
        if not isinstance(span.extent, int)
    ]
    return (When(all_of(*checks), body),) if checks else body


def _part(extent: Dim, first: Dim) -> Dim:
    whole = isinstance(extent, int) and extent % SIDE == 0
    return SIDE if whole else minimum(SIDE, extent - first)


def _top(extent: Dim) -> int | None:
    return extent - 1 if isinstance(extent, int) else None


def _example(kernels: Kernels) -> Kernels | No:
    found = TURN(kernels[0], {})
    return found if isinstance(found, No) else (found,)


TURN = Operator("turn", can_turn, turned, _example)
