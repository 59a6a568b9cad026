"""Contractions over packed panels: the right operand lies in panels of 16 columns, the left one is read in place.

The tile instruction reads a row of `a` as segments of contiguous elements: one for a matrix product, one per (channel
block, tap) for a convolution. Not here: how activations get their layout (layouts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unistack_aot.base.dtypes import f32
from unistack_aot.base.symbolic import (
    Dim,
    Ranges,
    ceildiv,
    linear_split,
    minimum,
    simplify,
    substitute,
    symbol,
    symbols,
)
from unistack_aot.base.verdict import No
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import Scalar, cast, index_value, literal, substitute_indices, where
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.nodes import (
    Access,
    Axis,
    Contract,
    Drain,
    Kernel,
    Loop,
    Param,
    Role,
    Space,
    Span,
    Stmt,
    Store,
    Tile,
    View,
)
from unistack_aot.mcir.transform import all_loads, substitute_vars
from unistack_aot.schedule.contraction import Site, product

PANEL = 16
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Sizes of one contraction: rows (0: all) and panels per task, and the blocks kept near inside a task."""

    task_rows: int
    task_panels: int
    row_block: int
    panel_group: int
    depth_block: int


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Rows and neighbouring panels whose sums one tile of the instruction keeps in registers."""

    rows: int
    panels: int


def register_tile(machine: Machine) -> RegisterTile:
    """The largest tile whose sums, one step of the panels and a broadcast fit the vector registers.

    Where one vector holds a whole panel the tile takes two panels, so that each broadcast serves two
    multiply-adds; without fused ones, products are formed in the broadcast's register and the panel is read
    from memory. The device header has the same numbers (kTileRows, kTilePanels).
    """
    panels = 2 if machine.lanes >= PANEL else 1
    vectors = panels * max(1, PANEL // machine.lanes)
    spare = 1 if machine.can("fma") else 0
    return RegisterTile((machine.registers - vectors - spare) // vectors, panels)


@dataclass(frozen=True, slots=True)
class Depth:
    """The summed axes in the order in which `a` holds them: `segments` outermost, then one contiguous run."""

    axes: tuple[Axis, ...]
    run: int


def depth_of(site: Site, layout: Layout, shape: tuple[Dim, ...], ranges: Ranges) -> Depth | No:
    """Order the summed axes by their stride in `a`; refuse if rows and depth cannot be told apart.

    The blocked axis of the layout splits the depth axis that indexes it.
    """
    env = split_depth(site, layout)
    axes = split_axes(site, layout)
    inside = _ranges(site, axes, ranges)
    index = tuple(substitute(_dim(e), env) for e in site.a.load.index)
    offset = simplify(layout.offset(shape, index), inside)
    strides: list[tuple[Dim, Axis]] = []
    rest: Dim = offset
    for axis in axes:
        parts = linear_split(rest, axis.var)
        if parts is None or symbols(parts[0]) & _loop_names(site, axes):
            return No(f"a is not linear in {axis.var}")
        stride, rest = parts
        strides.append((stride, axis))
    return _ordered(strides)


def _ordered(strides: list[tuple[Dim, Axis]]) -> Depth | No:
    unit = [pair for pair in strides if pair[0] == 1]
    if len(unit) != 1:
        return No("no summed axis is contiguous in a")
    others = [pair for pair in strides if pair[0] != 1]
    others.sort(key=lambda pair: pair[0] if isinstance(pair[0], int) else 1 << 60, reverse=True)
    order = [*(axis for _, axis in others), unit[0][1]]
    run: Dim = unit[0][1].extent
    while others and isinstance(run, int) and others[-1][0] == run:
        axis = others.pop()[1]
        if not isinstance(axis.extent, int):
            break
        run = run * axis.extent
    if not isinstance(run, int):
        return Depth(tuple(order), 0)
    return Depth(tuple(order), run)


def split_depth(site: Site, layout: Layout) -> Mapping[str, Dim]:
    """How the depth variable on a blocked axis is written in its two parts."""
    axis = _blocked_axis(site, layout)
    if axis is None or layout.block is None:
        return {}
    size = layout.block[1]
    return {axis.var: symbol(f"{axis.var}_o") * size + symbol(f"{axis.var}_i")}


def split_axes(site: Site, layout: Layout) -> tuple[Axis, ...]:
    """The depth axes, the one on a blocked axis split and rounded up."""
    blocked = _blocked_axis(site, layout)
    axes: list[Axis] = []
    for axis in site.depth:
        if axis == blocked and layout.block is not None:
            size = layout.block[1]
            axes.append(Axis(f"{axis.var}_o", ceildiv(axis.extent, size)))
            axes.append(Axis(f"{axis.var}_i", size))
        else:
            axes.append(axis)
    return tuple(axes)


def _blocked_axis(site: Site, layout: Layout) -> Axis | None:
    if layout.block is None:
        return None
    entry = site.a.load.index[layout.block[0]]
    return next((a for a in site.depth if entry == symbol(a.var)), None)


def _ranges(site: Site, axes: tuple[Axis, ...], ranges: Ranges) -> dict[str, Any]:
    inside = dict(ranges)
    for axis in (*site.batch, *site.rows, *site.cols, *axes):
        inside[axis.var] = (0, axis.extent - 1)
    return inside


def _loop_names(site: Site, axes: tuple[Axis, ...]) -> set[str]:
    return {a.var for a in (*site.batch, *site.rows, *site.cols, *axes)}


def _dim(entry: object) -> Dim:
    assert not isinstance(entry, Scalar)
    return entry  # type: ignore[return-value]


# --- packing of the right operand --------------------------------------------------------------------


def packed_shape(site: Site, depth: Depth) -> tuple[Dim, ...]:
    """[batch..., panels, depth, 16]."""
    batch = tuple(axis.extent for axis in _packed_batch(site))
    return (*batch, ceildiv(product(site.cols), PANEL), product(depth.axes), PANEL)


def _packed_batch(site: Site) -> tuple[Axis, ...]:
    return tuple(axis for axis in site.batch if axis.var in site.b.names)


def pack_constant(site: Site, depth: Depth, layout: Layout, array: Array) -> Array | None:
    """The packed panels of a constant whose index is a permutation of the loops; None if it is not."""
    env = {axis.var: symbol(axis.var) for axis in (*site.batch, *site.cols, *site.depth)}
    wanted = (*_packed_batch(site), *site.cols, *site.depth)
    entries = [next((v for v, s in env.items() if s == e), None) for e in site.b.load.index]
    names = [axis.var for axis in wanted]
    loose = [k for k, e in enumerate(site.b.load.index) if e == 0 and array.shape[k] == 1]
    array = array.reshape([n for k, n in enumerate(array.shape) if k not in loose])
    entries = [e for k, e in enumerate(entries) if k not in loose]
    if (
        sorted(filter(None, entries)) != sorted(names)
        or None in entries
        or site.b.within is not None
    ):
        return None
    moved = array.transpose([entries.index(name) for name in names]).astype(np.float32)
    batch, cols = len(_packed_batch(site)), len(site.cols)
    moved = moved.reshape(*moved.shape[:batch], -1, *moved.shape[batch + cols :])
    moved = _ordered_depth(moved, batch + 1, site, depth, layout)
    flat = moved.reshape(*moved.shape[: batch + 1], -1)
    pad = -flat.shape[batch] % PANEL
    flat = np.pad(flat, [(0, 0)] * batch + [(0, pad), (0, 0)])
    panels = flat.reshape(*flat.shape[:batch], -1, PANEL, flat.shape[-1])
    return np.ascontiguousarray(np.swapaxes(panels, -1, -2))


def _ordered_depth(array: Array, first: int, site: Site, depth: Depth, layout: Layout) -> Array:
    """Split the blocked depth axis (zero-padded) and put the depth axes in the order of `depth`."""
    blocked = _blocked_axis(site, layout)
    names: list[str] = []
    place = first
    for axis in site.depth:
        if axis == blocked and layout.block is not None:
            size = layout.block[1]
            pad = -array.shape[place] % size
            array = np.pad(array, [(0, pad if k == place else 0) for k in range(array.ndim)])
            shape = (*array.shape[:place], -1, size, *array.shape[place + 1 :])
            array = array.reshape(shape)
            names += [f"{axis.var}_o", f"{axis.var}_i"]
            place += 2
        else:
            names.append(axis.var)
            place += 1
    order = [names.index(axis.var) + first for axis in depth.axes]
    return array.transpose([*range(first), *order])


def pack_kernel(site: Site, depth: Depth, layout: Layout, source: Param) -> Kernel:
    """The map that packs the right operand at run time (products of two activations)."""
    batch = _packed_batch(site)
    panel, lane = symbol("panel"), symbol("lane")
    column = panel * PANEL + lane
    env: dict[str, Dim] = {**split_depth(site, layout), **decode(site.cols, column)}
    value = substitute_indices(site.b.load, env)
    guards = [index_value(column) < index_value(product(site.cols))]
    blocked = _blocked_axis(site, layout)
    if blocked is not None:
        guards.append(index_value(env[blocked.var]) < index_value(blocked.extent))
    if site.b.within is not None:
        guards.append(substitute_indices(site.b.within, env))
    value = cast(f32, value)
    for guard in reversed(guards):
        value = where(guard, value, literal(0, f32))
    joint: Dim = 0
    for axis in depth.axes:
        joint = joint * axis.extent + symbol(axis.var)
    index = (*(symbol(a.var) for a in batch), panel, joint, lane)
    shape = packed_shape(site, depth)
    result = Param("packed", f32, shape, Access.OUT)
    loops = (*batch, Axis("panel", shape[-3]), *depth.axes, Axis("lane", PANEL))
    body: tuple[Stmt, ...] = (Store("packed", index, value),)
    for axis in reversed(loops):
        body = (Loop(axis.var, axis.extent, body),)
    return Kernel((source, result), body)


def decode(axes: tuple[Axis, ...], joint: Dim) -> dict[str, Dim]:
    """Each axis's variable as an expression of the joint (row-major) number."""
    env: dict[str, Dim] = {}
    for axis in reversed(axes):
        env[axis.var] = joint % axis.extent if axis is not axes[0] else joint
        joint = joint // axis.extent
    return env


# --- the tiled kernel ----------------------------------------------------------------------------------


def tiled(
    kernel: Kernel,
    site: Site,
    depth: Depth,
    layout: Layout,
    packed: str,
    blocks: Blocks,
    ranges: Ranges,
) -> Kernel:
    """The contraction as tasks of rows x panels over packed operand `packed`.

    before:
        for i in M role=map { for j in N role=map { acc = fold sum over k in K of a[i, k] * b[k, j]; y[i, j] = acc } }
    after:
        for rows in M step 48 role=grid { for panels in N/16 step 8 role=grid {
          tile: f32[48, 128] reg = 0; tile += contract(a, packed) via fma.panel16; drain tile { y[i, j] = tile } } }
    """
    total_rows, total_cols = product(site.rows), product(site.cols)
    panels = ceildiv(total_cols, PANEL)
    row_task, panel_task = symbol("row_task"), symbol("panel_task")
    task_rows: Dim = blocks.task_rows or total_rows
    first_row: Dim = row_task * task_rows if blocks.task_rows else 0
    first_col = panel_task * (blocks.task_panels * PANEL)
    rows = Span("m", first_row, part(total_rows, first_row, task_rows))
    cols = Span("n", first_col, part(total_cols, first_col, blocks.task_panels * PANEL))
    env = decode(site.rows, symbol("m")) | decode(site.cols, symbol("n"))
    a, b = _views(site, depth, layout, packed, env, ranges)
    near = (blocks.row_block, blocks.panel_group * PANEL, blocks.depth_block)
    contract = Contract("tile", a, b, rows, cols, depth.axes, "fma.panel16", near)
    drain = Drain("tile", rows, cols, site.acc.name, substitute_vars(site.tail, env))
    shape = (task_rows, blocks.task_panels * PANEL)
    body: tuple[Stmt, ...] = (Tile("tile", f32, shape, Space.REG, 0.0), contract, drain)
    tasks = (
        Axis("row_task", ceildiv(total_rows, task_rows) if blocks.task_rows else 1),
        Axis("panel_task", ceildiv(panels, blocks.task_panels)),
    )
    for axis in reversed((*site.batch, *tasks)):
        if axis.extent != 1 or axis in site.batch:
            body = (Loop(axis.var, axis.extent, body, Role.GRID),)
        else:
            body = substitute_vars(body, {axis.var: 0})
    old = site.b.load.buffer
    params = [p for p in kernel.params if p.name != old or _still_read(old, site)]
    fresh = Param(packed, f32, packed_shape(site, depth))
    ins = [p for p in params if p.access is Access.IN]
    outs = [p for p in params if p.access is not Access.IN]
    return replace(kernel, params=(*ins, fresh, *outs), body=(*body, *site.rest))


def _views(
    site: Site,
    depth: Depth,
    layout: Layout,
    packed: str,
    env: Mapping[str, Dim],
    ranges: Ranges,
) -> tuple[View, View]:
    """The operands by row `m`, column `n` and depth: the left one in place, the right one in its panels."""
    joint: Dim = 0
    for axis in depth.axes:
        joint = joint * axis.extent + symbol(axis.var)
    inner = _ranges(site, depth.axes, ranges)
    apart = split_depth(site, layout)
    # bounds of the row axes are known before they become parts of one row number
    index = tuple(simplify(substitute(_dim(e), apart), inner) for e in site.a.load.index)
    index = tuple(simplify(substitute(_dim(e), env), inner) for e in index)
    batch = tuple(symbol(axis.var) for axis in _packed_batch(site))
    column = symbol("n")
    panel = (*batch, column // PANEL, joint, column % PANEL)
    return View(site.a.load.buffer, index), View(packed, panel)


def part(total: Dim, first: Dim, size: Dim) -> Dim:
    """How many of `size` items from `first` on lie below `total`."""
    whole = total == size or (
        isinstance(total, int) and isinstance(size, int) and total % size == 0
    )
    return size if whole else minimum(size, total - first)


def _still_read(buffer: str, site: Site) -> bool:
    """Whether the right operand's buffer is also read elsewhere (as the left operand, or by the tail)."""
    if site.a.load.buffer == buffer:
        return True
    return any(load.buffer == buffer for load in all_loads(site.tail))
