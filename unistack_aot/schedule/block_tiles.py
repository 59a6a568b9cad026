"""Contractions on machines with managed near memory: a group owns a result tile, operands stream through near tiles.

Not here: what a contraction is (contraction.py), which tile instructions exist (targets), attention (attention.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2

from unistack_aot.base.symbolic import Dim, Ranges, linear_split, simplify
from unistack_aot.base.verdict import No
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.occupancy import resident_groups
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.nodes import Access, Kernel, Store
from unistack_aot.mcir.transform import walk
from unistack_aot.schedule.contraction import Site, product
from unistack_aot.schedule.offers import Way
from unistack_aot.schedule.operands import FEWEST, joint_index, operand, site_ranges, size_of
from unistack_aot.schedule.staging import STAGE
from unistack_aot.schedule.tile_instruction import TileInstruction
from unistack_aot.schedule.tiling import STREAM, TILE

LONG_COLUMNS = (
    256  # columns per image from which the last, partly filled tile of each image does not matter
)
PARTS = (
    1,
    2,
    4,
    8,
    16,
)  # into how many the depth may be split where the grid would not fill the machine
LEAST_PART = 128  # depth of a part below which starting its pipeline costs more than it computes
STAGES = 3  # tiles in flight with asynchronous copies; more stages cost near memory and with it resident groups


def oriented(kernel: Kernel, site: Site, ranges: Ranges) -> Site:
    """The site with the result's contiguous axis among the columns, so that results are stored in runs."""
    store = next((s for s in walk(site.tail) if isinstance(s, Store)), None)
    if store is None:
        return site
    param = kernel.param(store.buffer)
    if any(isinstance(e, Scalar) for e in store.index):
        return site
    offset = simplify(param.layout.offset(param.shape, store.index), ranges)  # type: ignore[arg-type]
    for axis in site.rows:
        parts = linear_split(offset, axis.var)
        if parts is not None and parts[0] == 1 and axis.extent != 1:
            return site.swapped()
    return site


def hoisted(kernel: Kernel, site: Site, ranges: Ranges) -> Site:
    """The site with its first column axis as a batch loop, where only that makes the right operand a strided matrix.

    A convolution over a batch of images reads image by image then, with one division less per address.
    """
    if len(site.cols) < 2 or site.cols[0].extent == 1:
        return site
    first, rest = site.cols[0], site.cols[1:]
    if first.var in site.a.names or size_of(product(rest), ranges) < LONG_COLUMNS:
        return site
    param = kernel.param(site.b.load.buffer)
    moved = replace(site, batch=(*site.batch, first), cols=rest)

    def steps(of: Site) -> Dim | None:
        index = joint_index(of.b, of.cols, of.depth, "o", "k", of, ranges)
        offset = simplify(param.layout.offset(param.shape, index), site_ranges(of, ranges))
        parts = linear_split(offset, "o")
        return None if parts is None else parts[0]

    return moved if steps(site) is None and steps(moved) is not None else site


def runs_inside(kernel: Kernel, site: Site, constant: Collection[str], ranges: Ranges) -> Site:
    """The site with the depth axis that is contiguous in one operand innermost, if the other is a constant.

    A sum over c, i, j of x[n, h + i, w + j, c] * k[o, c, i, j] runs over i, j, c then: k can be laid out as it likes.
    """
    for factor, other in ((site.a, site.b), (site.b, site.a)):
        if other.load.buffer not in constant or factor.load.buffer in constant:
            continue
        param = kernel.param(factor.load.buffer)
        if any(isinstance(entry, Scalar) for entry in factor.load.index):
            continue
        offset = simplify(
            param.layout.offset(param.shape, factor.load.index),  # type: ignore[arg-type]
            site_ranges(site, ranges),
        )
        for axis in site.depth[:-1]:
            parts = linear_split(offset, axis.var)
            if parts is not None and parts[0] == 1 and size_of(axis.extent, ranges) >= FEWEST:
                others = tuple(each for each in site.depth if each is not axis)
                return replace(site, depth=(*others, axis))
    return site


def tile_ways(
    kernel: Kernel,
    site: Site,
    tiles: Sequence[TileInstruction],
    machine: Machine,
    ranges: Ranges,
) -> tuple[Way[TileWay], ...] | No:
    """Tile instructions and numbers of depth parts, the least predicted time first; a reason if none pays."""
    sizes = Sizes(
        *(size_of(product(x), ranges) for x in (site.rows, site.cols, site.depth, site.batch))
    )
    if min(sizes.rows, sizes.cols, sizes.depth) < FEWEST:
        return No(f"{sizes} fills no tile")
    a_inner = operand(kernel, site, site.a, site.rows, ranges).inner
    b_inner = operand(kernel, site, site.b, site.cols, ranges).inner
    found = [
        _way(tile, parts, sizes, machine)
        for tile in tiles
        if tile.takes(a_inner, b_inner)
        for parts in PARTS
        if parts == 1 or sizes.depth >= parts * LEAST_PART
    ]
    if not found:
        return No("no tile instruction takes these dtypes")
    return tuple(sorted(found, key=lambda way: (way.seconds, way.built, way.made.parts)))


@dataclass(frozen=True, slots=True)
class TileWay:
    """A tile instruction, and into how many parts the depth is split."""

    tile: TileInstruction
    parts: int


def _way(tile: TileInstruction, parts: int, sizes: Sizes, machine: Machine) -> Way[TileWay]:
    seconds = predicted(tile, parts, sizes, machine)
    because = (
        f"{seconds * 1e6:.2f} us predicted on {machine.id}: {sizes}; "
        f"{tile.share:.0%} of the peak is assumed, not probed"
    )
    name = f"{tile.name} in {parts} parts" if parts > 1 else tile.name
    place = tuple(log2(size) for size in (tile.rows, tile.cols, tile.held, parts))
    return Way(name, seconds, place, TileWay(tile, parts), because, tile.name)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Extents of a contraction as numbers; symbolic ones count as their bound or a usual size."""

    rows: int
    cols: int
    depth: int
    batch: int

    def __str__(self) -> str:
        return f"{self.batch} x {self.rows} x {self.cols} x {self.depth}"


def predicted(tile: TileInstruction, parts: int, sizes: Sizes, machine: Machine) -> float:
    """Seconds: whole waves of groups, each at the share of the engine that resident groups reach together.

    Depth in `parts` costs a second launch that reads what the parts wrote.
    """
    blocks = ceil(sizes.rows / tile.rows) * ceil(sizes.cols / tile.cols) * sizes.batch * parts
    near = stage_bytes(tile, False, True) * STAGES
    held = tile.per_worker[0] * tile.per_worker[1] + 40
    resident = max(1, resident_groups(machine, tile.workers, held, near).groups)
    found = machine.find_rate(tile.engine, tile.rate_dtype)
    if found is None:
        return float("inf")
    rate = found.value / machine.parallel_units
    steps = ceil(ceil(sizes.depth / tile.depth) / parts)
    flops = 2.0 * tile.rows * tile.cols * steps * tile.depth
    busiest = ceil(blocks / machine.parallel_units)
    # Eight warps on a unit hide the latency of near memory; fewer leave the engine waiting.
    warps = min(busiest, resident) * tile.workers / machine.lanes
    hiding = min(1.0, (warps / 8) ** 0.5)
    seconds = machine.latency("far").value * 2 + busiest * flops / (rate * tile.share * hiding)
    if parts == 1:
        return seconds
    moved = 2.0 * parts * sizes.rows * sizes.cols * sizes.batch * tile.accumulator.bytes
    again = machine.launch_cost(graph=True).value + machine.latency("far").value
    return seconds + again + moved / machine.bandwidth("far").value


def stage_bytes(tile: TileInstruction, a_inner: bool, b_inner: bool) -> int:
    """Near bytes of one stage: a tile of each operand."""
    a = (tile.rows, tile.depth) if a_inner else (tile.depth, tile.rows)
    b = (tile.cols, tile.depth) if b_inner else (tile.depth, tile.cols)
    return tile.near_bytes(*a, a_inner) + tile.near_bytes(*b, b_inner)


def stages_of(tile: TileInstruction, machine: Machine, bytes_per_stage: int) -> int:
    """Tiles in flight: STAGES where copies are asynchronous, two otherwise, fewer if near memory is short."""
    depth = STAGES if machine.can("async_copy", "far", "near") else 2
    while depth > 1 and depth * bytes_per_stage > machine.shared_bytes_per_group:
        depth -= 1
    return depth


def outputs_of(kernel: Kernel) -> tuple[str, ...]:
    """Names of the results, for decision records."""
    return tuple(p.name for p in kernel.params if p.access is not Access.IN)


def block_tiled(
    kernel: Kernel, site: Site, tile: TileInstruction, machine: Machine, ranges: Ranges
) -> Kernel:
    """The contraction as one group per result tile, operands streamed through as many near stages as pay."""
    a = operand(kernel, site, site.a, site.rows, ranges)
    b = operand(kernel, site, site.b, site.cols, ranges)
    stages = stages_of(tile, machine, stage_bytes(tile, a.inner, b.inner))
    streamed = STREAM.sure(TILE.sure(kernel, site, tile, ranges), tile.depth)
    return STAGE.sure(streamed, tile, (a.inner, b.inner), stages)
