"""Panels of 16 columns, in which the right operand of a contraction lies: its depth in the order of the left operand.

Not here: packing (panel_packing.py), the tiled contraction (panel_tiles.py), layouts of activations (layouts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from unistack_aot.base.dtypes import DType, f32
from unistack_aot.base.symbolic import (
    Dim,
    Ranges,
    ceildiv,
    linear_split,
    simplify,
    substitute,
    symbol,
    symbols,
)
from unistack_aot.base.verdict import No
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.layout import PLAIN, Layout
from unistack_aot.mcir.nodes import (
    Axis,
)
from unistack_aot.schedule.contraction import Site

PANEL = 16
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class PanelInstruction:
    """A tile instruction over panels: the type of its elements, and how panels hold the depth.

    `sums` is the type of sums, `takes` those of operands in
    memory. `pairs` consecutive elements of a column lie side by side; the depth is padded to a multiple of `unit` with
    zeros. Where elements are of another type than f32, the left operand is `gathered`: converted into near rows
    before the tiles read it. `rows` is the most that a tile has, where not the vector registers say; `needs` the
    capability of machines that have the instruction.
    """

    name: str
    dtype: DType
    sums: DType = f32
    takes: tuple[DType, ...] = (f32,)
    unit: int = 1
    pairs: int = 1
    rows: int | None = None
    needs: str | None = None

    @property
    def gathered(self) -> bool:
        """Whether the left operand is brought into the instruction's type and order first."""
        return self.dtype is not f32

    @property
    def rounds(self) -> DType | None:
        """The type to which it rounds elements of the left operand; None where it keeps their values."""
        return self.dtype if self.dtype.is_narrow else None

    def depth(self, depth: Dim) -> Dim:
        """The depth that panels hold."""
        return depth if self.unit == 1 else ceildiv(depth, self.unit) * self.unit

    def layout(self, rank: int) -> Layout:
        """How a packed buffer of that rank, [..., panels, depth, 16], lies in memory."""
        return PLAIN if self.pairs == 1 else Layout((rank - 2, self.pairs))


FMA = PanelInstruction("fma.panel16", f32)
"""Multiply-adds of f32 vectors; every machine has them."""


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


def register_tile(machine: Machine, via: PanelInstruction = FMA) -> RegisterTile:
    """The largest tile whose sums, one step of the panels and a broadcast fit the vector registers.

    Where one vector holds a whole panel the tile takes two panels, so that each broadcast serves two
    multiply-adds; without fused ones, products are formed in the broadcast's register and the panel is read
    from memory. The device header has the same numbers (kTileRows, kTilePanels).
    """
    panels = 2 if machine.lanes >= PANEL else 1
    if via.rows is not None:
        return RegisterTile(via.rows, panels)
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
    inside = ranges_of(site, axes, ranges)
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
    axis = blocked_axis(site, layout)
    if axis is None or layout.block is None:
        return {}
    size = layout.block[1]
    return {axis.var: symbol(f"{axis.var}_o") * size + symbol(f"{axis.var}_i")}


def split_axes(site: Site, layout: Layout) -> tuple[Axis, ...]:
    """The depth axes, the one on a blocked axis split and rounded up."""
    blocked = blocked_axis(site, layout)
    axes: list[Axis] = []
    for axis in site.depth:
        if axis == blocked and layout.block is not None:
            size = layout.block[1]
            axes.append(Axis(f"{axis.var}_o", ceildiv(axis.extent, size)))
            axes.append(Axis(f"{axis.var}_i", size))
        else:
            axes.append(axis)
    return tuple(axes)


def blocked_axis(site: Site, layout: Layout) -> Axis | None:
    """The summed axis that indexes the blocked axis of the left operand: all of it, or whole blocks of it (a slice)."""
    if layout.block is None:
        return None
    place, size = layout.block
    entry = _dim(site.a.load.index[place])
    for axis in site.depth:
        first = entry - symbol(axis.var)
        whole = isinstance(first, int) and isinstance(axis.extent, int)
        if first == 0 or (whole and first % size == 0 and axis.extent % size == 0):
            return axis
    return None


def ranges_of(site: Site, axes: tuple[Axis, ...], ranges: Ranges) -> dict[str, Any]:
    """The ranges with those of the loops of a site, and of `axes` as its depth."""
    inside = dict(ranges)
    for axis in (*site.batch, *site.rows, *site.cols, *axes):
        inside[axis.var] = (0, axis.extent - 1)
    return inside


def _loop_names(site: Site, axes: tuple[Axis, ...]) -> set[str]:
    return {a.var for a in (*site.batch, *site.rows, *site.cols, *axes)}


def _dim(entry: object) -> Dim:
    assert not isinstance(entry, Scalar)
    return entry  # type: ignore[return-value]
