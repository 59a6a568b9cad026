"""How a contraction over packed panels is cut: tasks for cores, blocks that stay in their caches.

The rules are those measured with the tile instruction itself (targets/cpu/include/README.md); the cache sizes come
from the machine's property map. Not here: the packed form (panels.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from unistack_aot.base.symbolic import Dim, Ranges, bounds, linear_split, simplify
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import Scalar
from unistack_aot.schedule.contraction import Site, product
from unistack_aot.schedule.panels import (
    FMA,
    PANEL,
    Blocks,
    Depth,
    PanelInstruction,
    RegisterTile,
    register_tile,
)

F32 = 4
OPEN_EXTENT = 256  # rows assumed for an extent without a bound
MOST_ROWS = 512  # kMaxRowBlock of ua/contract.h
SCATTERED_ROWS = 192  # beyond this a convolution's rows no longer gain from a larger block
FEW_PANELS = 4  # panels whose partial sums stay near when all of them do not fit


@dataclass(frozen=True, slots=True)
class Extents:
    """A contraction in numbers: `taps` input elements of one channel per pixel, `step` the stride between pixels.

    `via`: the tile instruction that computes it. One that gathers its left operand meets neither windows nor runs.
    """

    rows: int
    cols: int
    depth: int
    batch: int
    run: int
    taps: int
    step: int
    via: PanelInstruction = FMA

    @property
    def windowed(self) -> bool:
        """Whether neighbouring rows share input elements."""
        return self.taps > 1 and not self.via.gathered

    @property
    def scattered(self) -> bool:
        """Whether a row is gathered from several places, as in every convolution."""
        return self.run < self.depth and not self.via.gathered

    @property
    def panels(self) -> int:
        """Panels of the packed operand."""
        return ceil(self.cols / PANEL)


def extents_of(site: Site, depth: Depth, ranges: Ranges, via: PanelInstruction = FMA) -> Extents:
    """The numbers of a site; extents without a bound count as OPEN_EXTENT."""
    rows, cols, deep, batch = (
        _number(product(axes), ranges) for axes in (site.rows, site.cols, depth.axes, site.batch)
    )
    taps, step = 1, 1
    for entry in site.a.load.index:
        if isinstance(entry, int | Scalar):
            continue
        inner = [axis for axis in site.depth if axis.var in entry.symbols]
        outer = [axis for axis in site.rows if axis.var in entry.symbols]
        if inner and outer:
            taps *= prod(_number(axis.extent, ranges) for axis in inner)
            parts = linear_split(simplify(entry, ranges), outer[-1].var)
            step = parts[0] if parts is not None and isinstance(parts[0], int) else step
    return Extents(rows, cols, deep, batch, depth.run, taps, max(1, step), via)


def choose_blocks(e: Extents, machine: Machine) -> Blocks:
    """Enough tasks to share, a block of the packed operand in L1, one of the left operand in L2."""
    near, mid = (int(machine.capacity(level).value) for level in ("l1", "l2"))
    tile = register_tile(machine, e.via)
    depth_block = _depth_block(e, near // tile.panels)
    held = e.depth if e.via.gathered else depth_block or e.depth
    row_block = _row_block(e, held, mid, tile)
    together = row_block * PANEL * F32 * e.panels <= mid // 2
    panel_group = e.panels if together else min(FEW_PANELS, e.panels)
    by_rows, tasks = _tasks(e, machine.parallel_units, tile)
    task_rows = ceil(e.rows / tasks) if by_rows else 0
    task_panels = e.panels if by_rows else ceil(e.panels / tasks)
    return Blocks(task_rows, task_panels, row_block, panel_group, depth_block)


def described(e: Extents, machine: Machine) -> str:
    """What the usual blocks follow from, for records."""
    near, mid = (int(machine.capacity(level).value) for level in ("l1", "l2"))
    tile = register_tile(machine, e.via)
    return (
        f"{e.rows} rows, {e.cols} columns, depth {e.depth}; tiles of {tile.rows} x "
        f"{tile.panels * PANEL}, L1 {near} B, L2 {mid} B"
    )


def _depth_block(e: Extents, near: int) -> int:
    """Depth steps whose panel fills half of L1, a quarter if rows are scattered; 0: all of them."""
    unit = depth_unit(e)
    share = 4 if e.scattered and not e.windowed else 2
    most = max(1, (near // share // (PANEL * e.via.dtype.bytes) + unit // 4) // unit)
    count = ceil(e.depth / (most * unit))
    return 0 if count <= 1 else ceil(e.depth / unit / count) * unit


def depth_unit(e: Extents) -> int:
    """What a block of the depth is a multiple of: whole channel blocks of a window, whole runs."""
    if e.via.gathered:
        return e.via.unit
    channels = PANEL * e.taps
    if e.windowed and channels % e.run == 0 and e.depth % channels == 0:
        return channels
    return e.run if e.scattered else 1


def _row_block(e: Extents, depth: int, mid: int, tile: RegisterTile) -> int:
    """Rows whose elements of one depth block fill a quarter of L2, beside the partial sums."""
    shared = e.taps if e.windowed else 1
    most = max(tile.rows, mid // 4 // (e.via.dtype.bytes * max(1, depth // shared)))
    if e.scattered:
        most = min(most, SCATTERED_ROWS // min(e.step, 2))
    return max(1, min(e.rows, most, MOST_ROWS))


def _tasks(e: Extents, units: int, tile: RegisterTile) -> tuple[bool, int]:
    """Whether rows are split (else panels), and into how many tasks per batch element."""
    wanted = max(1, ceil(units / max(1, e.batch)))
    inputs = e.rows * e.step**2 * e.depth // e.taps if e.windowed else e.rows * e.depth
    by_rows = inputs > e.depth * e.cols
    parts = (e.rows // (2 * tile.rows), e.panels // (2 * tile.panels))
    if parts[0 if by_rows else 1] < wanted // 2:
        by_rows = parts[0] >= parts[1]
    most = parts[0] if by_rows else parts[1]
    if by_rows and e.rows >= 4 * wanted * SCATTERED_ROWS:
        wanted *= 2
    return by_rows, max(1, min(wanted, most))


def _number(value: Dim, ranges: Ranges) -> int:
    if isinstance(value, int):
        return value
    return usual_size(bounds(value, ranges)[1])


def usual_size(top: int | None) -> int:
    """The number that an extent of at most `top` (None: no bound) counts as."""
    return OPEN_EXTENT if top is None or top > 4 * OPEN_EXTENT else top
