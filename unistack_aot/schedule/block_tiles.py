"""Contractions on machines with managed near memory: a group owns a result tile, operands stream through near tiles.

Not here: what a contraction is (contraction.py), which tile instructions exist (targets), attention (attention.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import ceil

from unistack_aot.base.symbolic import (
    Dim,
    Range,
    Ranges,
    bounds,
    ceildiv,
    linear_split,
    maximum,
    minimum,
    simplify,
    substitute,
    symbol,
)
from unistack_aot.base.verdict import No
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.occupancy import resident_groups
from unistack_aot.ir.scalar import Scalar, substitute_indices
from unistack_aot.mcir.nodes import (
    Access,
    Axis,
    Contract,
    Drain,
    Fill,
    Kernel,
    Loop,
    Param,
    Role,
    Space,
    Span,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    View,
)
from unistack_aot.mcir.transform import substitute_vars, walk
from unistack_aot.schedule.contraction import Factor, Site, product
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.nests import decoded
from unistack_aot.schedule.tile_instruction import TileInstruction

FEWEST = 8  # rows or columns below this waste most of any tile; folds do better
OPEN_EXTENT = 512  # what an extent without a bound counts as
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


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a contraction: `outer` are its own axes (rows or columns); `inner`: depth is contiguous in it."""

    factor: Factor
    param: Param
    outer: tuple[Axis, ...]
    inner: bool


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
    if first.var in site.a.names or _size(product(rest), ranges) < LONG_COLUMNS:
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

    before:
        fold sum over c in C, i in 3, j in 3 of x[n, h + i, w + j, c] * k[o, c, i, j]
    after:
        fold sum over i in 3, j in 3, c in C of x[n, h + i, w + j, c] * k[o, c, i, j]
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
            if parts is not None and parts[0] == 1 and _size(axis.extent, ranges) >= FEWEST:
                others = tuple(each for each in site.depth if each is not axis)
                return replace(site, depth=(*others, axis))
    return site


def choose_tile(
    kernel: Kernel,
    site: Site,
    tiles: Sequence[TileInstruction],
    machine: Machine,
    ranges: Ranges,
) -> tuple[TileInstruction, int, Decision] | No:
    """The tile instruction and the number of depth parts with the least predicted time; a reason if none pays."""
    sizes = Sizes(
        *(_size(product(x), ranges) for x in (site.rows, site.cols, site.depth, site.batch))
    )
    if min(sizes.rows, sizes.cols, sizes.depth) < FEWEST:
        return No(f"{sizes} fills no tile")
    a_inner = operand(kernel, site, site.a, site.rows, ranges).inner
    b_inner = operand(kernel, site, site.b, site.cols, ranges).inner
    scored = sorted(
        (
            (predicted(tile, parts, sizes, machine), tile, parts)
            for tile in tiles
            if tile.takes(a_inner, b_inner)
            for parts in PARTS
            if parts == 1 or sizes.depth >= parts * LEAST_PART
        ),
        key=lambda each: (each[0], each[1].name, each[2]),
    )
    if not scored:
        return No("no tile instruction takes these dtypes")
    words = [f"{tile.name}{f' in {parts} parts' if parts > 1 else ''}" for _, tile, parts in scored]
    tried = tuple(
        f"{word} {seconds * 1e6:.2f} us"
        for word, (seconds, _, _) in zip(words[1:6], scored[1:6], strict=True)
    )
    seconds, best, parts = scored[0]
    because = (
        f"{seconds * 1e6:.2f} us predicted on {machine.id}: {sizes}; "
        f"{best.share:.0%} of the peak is assumed, not probed"
    )
    subject = ", ".join(outputs_of(kernel))
    return best, parts, Decision("tile", subject, words[0], because, tried)


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


def operand(
    kernel: Kernel, site: Site, factor: Factor, outer: tuple[Axis, ...], ranges: Ranges
) -> Operand:
    """An operand of the site, and whether its depth is contiguous in memory."""
    param = kernel.param(factor.load.buffer)
    index = joint_index(factor, outer, site.depth, "o", "k", site, ranges)
    offset = simplify(param.layout.offset(param.shape, index), site_ranges(site, ranges))
    joint = linear_split(offset, "k")
    inner = joint is not None and joint[0] == 1
    if not inner and site.depth and outer:
        # Depth in parts: contiguous inside its last axis is enough, if that is long and rows are not contiguous.
        plain = tuple(e for e in factor.load.index if not isinstance(e, Scalar))
        offset = simplify(param.layout.offset(param.shape, plain), site_ranges(site, ranges))
        deep, wide = site.depth[-1], outer[-1]
        strides = [linear_split(offset, axis.var) for axis in (deep, wide)]
        steps = [None if s is None else s[0] for s in strides]
        inner = steps[0] == 1 and steps[1] != 1 and _size(deep.extent, ranges) >= FEWEST
    return Operand(factor, param, outer, inner)


def joint_index(
    factor: Factor,
    outer: tuple[Axis, ...],
    depth: tuple[Axis, ...],
    row: str,
    deep: str,
    site: Site,
    ranges: Ranges,
) -> tuple[Dim, ...]:
    """The operand's index over a joint row (or column) number and a joint depth number."""
    env = decoded(outer, symbol(row)) | decoded(depth, symbol(deep))
    inside = site_ranges(site, ranges) | {row: _span(outer), deep: _span(depth)}
    entries: list[Dim] = []
    for entry in factor.load.index:
        assert not isinstance(entry, Scalar)
        entries.append(simplify(substitute(entry, env), inside))
    return tuple(entries)


def block_tiled(
    kernel: Kernel,
    site: Site,
    tile: TileInstruction,
    machine: Machine,
    ranges: Ranges,
    parts: int = 1,
) -> Kernel:
    """The contraction as one group per result tile (and part of the depth), operands streamed through near memory.

    before:
        for i in M role=map { for j in N role=map { acc = fold sum over k in K of a[i, k] * b[k, j]; y[i, j] = acc } }
    after:
        for rows in M step 64 role=grid { for cols in N step 64 role=grid {
          acc: f32[64, 64] reg = 0
          stream k in K step 16 depth=3 { a_near <- a; b_near <- b; sync; acc += contract(a_near, b_near); sync }
          drain acc { y[i, j] = acc } } }
    """
    a = operand(kernel, site, site.a, site.rows, ranges)
    b = operand(kernel, site, site.b, site.cols, ranges)
    total_rows, total_cols, deep = (product(x) for x in (site.rows, site.cols, site.depth))
    first_row, first_col = symbol("row_tile") * tile.rows, symbol("col_tile") * tile.cols
    share = deep if parts == 1 else ceildiv(ceildiv(deep, parts), tile.depth) * tile.depth
    start: Dim = 0 if parts == 1 else symbol("part") * share
    rows = Span("m", first_row, _part(total_rows, first_row, tile.rows))
    cols = Span("n", first_col, _part(total_cols, first_col, tile.cols))
    even = isinstance(deep, int) and deep % (tile.depth * parts) == 0
    place = start + symbol("k0")
    steps = isinstance(deep, int) and deep % tile.depth == 0
    slab = Span("k", place, tile.depth if steps else minimum(tile.depth, deep - place))
    a_shape, a_fill, a_view = _near("a_near", a, site, rows, slab, tile.rows, tile, ranges)
    b_shape, b_fill, b_view = _near("b_near", b, site, cols, slab, tile.cols, tile, ranges)
    sizes = (tile.rows, tile.cols, tile.depth)
    depth = (Axis("k", slab.extent),)
    contract = Contract("acc", a_view, b_view, rows, cols, depth, tile.name, sizes)
    stages = stages_of(tile, machine, stage_bytes(tile, a.inner, b.inner))
    extent = share if even or parts == 1 else minimum(share, maximum(0, deep - start))
    stream = Stream("k0", extent, tile.depth, stages, (a_fill, b_fill, Sync(), contract, Sync()))
    env = decoded(site.rows, symbol("m")) | decoded(site.cols, symbol("n"))
    drain = Drain("acc", rows, cols, site.acc.name, substitute_vars(site.tail, env))
    body: tuple[Stmt, ...] = (
        Tile("acc", tile.accumulator, (tile.rows, tile.cols), Space.REG, 0.0),
        Tile("a_near", tile.element, a_shape, Space.NEAR),
        Tile("b_near", tile.element, b_shape, Space.NEAR),
        stream,
        drain,
    )
    grid = (
        *site.batch,
        *((Axis("part", parts),) if parts > 1 else ()),
        Axis("row_tile", ceildiv(total_rows, tile.rows)),
        Axis("col_tile", ceildiv(total_cols, tile.cols)),
    )
    for axis in reversed(grid):
        body = (Loop(axis.var, axis.extent, body, Role.GRID),)
    return replace(kernel, body=body, group=tile.workers)


def _near(
    name: str,
    side: Operand,
    site: Site,
    outer: Span,
    slab: Span,
    size: int,
    tile: TileInstruction,
    ranges: Ranges,
) -> tuple[tuple[int, int], Fill, View]:
    """An operand's near tile: its shape, how it is filled, and the view of it that the tile instruction reads."""
    index = joint_index(side.factor, side.outer, site.depth, outer.var, slab.var, site, ranges)
    within = side.factor.within
    if within is not None:
        env = decoded(side.outer, symbol(outer.var)) | decoded(site.depth, symbol(slab.var))
        within = substitute_indices(within, env)
    source = View(side.param.name, index, within)
    at, deep = symbol(outer.var) - outer.first, symbol(slab.var)
    inside = Span(slab.var, slab.first, slab.extent)
    if side.inner:
        return (size, tile.depth), Fill(name, outer, inside, source), View(name, (at, deep))
    return (tile.depth, size), Fill(name, inside, outer, source), View(name, (deep, at))


def _part(total: Dim, first: Dim, size: int) -> Dim:
    return size if isinstance(total, int) and total % size == 0 else minimum(size, total - first)


def _size(extent: Dim, ranges: Ranges) -> int:
    """A number that stands for an extent: its upper bound, or a usual size."""
    if isinstance(extent, int):
        return extent
    high = bounds(extent, ranges)[1]
    return OPEN_EXTENT if high is None else min(high, 1 << 16)


def site_ranges(site: Site, ranges: Ranges) -> dict[str, Range]:
    """The ranges with those of every loop and summed variable of a site."""
    inside = dict(ranges)
    for axis in (*site.batch, *site.rows, *site.cols, *site.depth):
        top = axis.extent - 1 if isinstance(axis.extent, int) else None
        inside[axis.var] = (0, top)
    return inside


def _span(axes: tuple[Axis, ...]) -> tuple[int, int | None]:
    total = product(axes)
    return (0, total - 1 if isinstance(total, int) else None)


def outputs_of(kernel: Kernel) -> tuple[str, ...]:
    """Names of the results, for decision records."""
    return tuple(p.name for p in kernel.params if p.access is not Access.IN)
