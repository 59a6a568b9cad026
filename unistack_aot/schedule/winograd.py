"""3x3 stride-1 convolutions as F(4x4, 3x3): where it is allowed and pays, and the kernel it gives.

Not here: the algorithm's matrices (mcir/winograd.py), direct convolutions (panels.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from unistack_aot.base.dtypes import f32
from unistack_aot.base.symbolic import Dim, substitute, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import Scalar
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
    Tile,
    View,
)
from unistack_aot.mcir.transform import substitute_vars
from unistack_aot.mcir.winograd import POINTS, TAPS, TILE, VIA, Array, transformed
from unistack_aot.schedule.contraction import Site, product
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.panels import PANEL, Depth, decode, part, split_depth

LEAST_SIDE = 28  # smaller images gain nothing: too few tiles share the transformed weights
LEAST_TILES = 12  # tiles per task: fewer rows make the products wait for the transformed weights


@dataclass(frozen=True, slots=True)
class Image:
    """The rows of a convolution as pixels: `outer` loops around an image of `height` x `width`."""

    outer: tuple[Axis, ...]
    y: Axis
    x: Axis
    height: int
    width: int

    @property
    def tiles(self) -> int:
        """Output tiles of one image."""
        return (self.height // TILE) * (self.width // TILE)


def winograd_fits(site: Site, depth: Depth, block: tuple[int, int] | None) -> Yes | No:
    """Whether a direct convolution may run as F(4x4, 3x3), and should.

    Its rounding error is about ten times that of the direct sum, which the tolerance of an f32 contraction of this
    depth still covers; it was faster than the direct form from 28x28 output pixels on.
    """
    image = image_of(site)
    if block is None or block[1] != PANEL or image is None:
        return No("the operand is no image in channel blocks")
    if image.height % TILE or image.width % TILE or min(image.height, image.width) < LEAST_SIDE:
        return No(f"{image.height}x{image.width} pixels are too few, or no whole tiles")
    taps = [axis for axis in site.depth if axis.extent == TAPS]
    if len(site.depth) != 3 or len(taps) != 2 or len(depth.axes) != 4:
        return No("the window is not 3x3")
    entries = [e for e in site.a.load.index if not isinstance(e, int | Scalar)]
    for axis, tap in ((image.y, taps[0]), (image.x, taps[1])):
        steps = [e - symbol(axis.var) - symbol(tap.var) for e in entries if axis.var in e.symbols]
        if len(steps) != 1 or not isinstance(steps[0], int):
            return No("the window is strided or dilated")
    if tuple(axis.var for axis in depth.axes[1:3]) != (taps[0].var, taps[1].var):
        return No("the taps are not in the image's order")
    return YES


def image_of(site: Site) -> Image | None:
    """The two innermost row loops as an image, if they have constant extents."""
    if len(site.rows) < 2 or site.batch:
        return None
    *outer, y, x = site.rows
    if not isinstance(y.extent, int) or not isinstance(x.extent, int):
        return None
    return Image(tuple(outer), y, x, y.extent, x.extent)


def transform_constant(packed: Array) -> Array:
    """Packed panels [OC/16, IC/16 * 9 * 16, 16] of a direct convolution as [36, OC/16, IC, 16]."""
    panels, steps, lanes = packed.shape
    blocks = steps // (TAPS * TAPS * PANEL)
    split = packed.reshape(panels, blocks, TAPS * TAPS, PANEL, lanes)
    taps = np.moveaxis(split, 2, 0).reshape(TAPS * TAPS, panels, blocks * PANEL, lanes)
    return np.ascontiguousarray(transformed(taps))


def tiled_winograd(
    kernel: Kernel, site: Site, depth: Depth, packed: str, machine: Machine, subject: str
) -> tuple[Kernel, Decision]:
    """The convolution as tasks of output tiles; pixels are numbered tile by tile.

    before:
        for o in 64, y in 56, x in 56 {
          acc = fold sum over c, i, j of a[c, y+i, x+j] * w[o, c, i, j]; r[o, y, x] = acc }
    after:
        for tiles in 196 step 25 role=grid { tile: f32[400, 64] reg = 0
          tile += contract(a, packed) via winograd.f4x4.panel16; drain tile { r[o, y, x] = tile } }
    """
    image = image_of(site)
    cols = product(site.cols)
    assert image is not None and isinstance(cols, int)
    panels, pixels = ceil(cols / PANEL), TILE * TILE
    per_task = _tiles_per_task(image, machine)
    first: Dim = symbol("tile_task") * (per_task * pixels)
    rows = Span("m", first, part(image.height * image.width, first, per_task * pixels))
    columns = Span("n", 0, cols)
    env = _pixel(image, symbol("m")) | decode(site.cols, symbol("n"))
    contract = Contract(
        "tile",
        _pixels(kernel, site, env),
        View(packed, _transformed_place(depth)),
        rows,
        columns,
        depth.axes,
        VIA,
        (image.height, image.width, 0),
    )
    drain = Drain("tile", rows, columns, site.acc.name, substitute_vars(site.tail, env))
    shape = (per_task * pixels, panels * PANEL)
    body: tuple[Stmt, ...] = (Tile("tile", f32, shape, Space.REG, 0.0), contract, drain)
    for axis in reversed((*image.outer, Axis("tile_task", ceil(image.tiles / per_task)))):
        body = (Loop(axis.var, axis.extent, body, Role.GRID),)
    fresh = Param(packed, f32, (POINTS * POINTS, panels, depth.axes[0].extent * PANEL, PANEL))
    params = [p for p in kernel.params if p.name != site.b.load.buffer]
    ins = [p for p in params if p.access is Access.IN]
    outs = [p for p in params if p.access is not Access.IN]
    made = replace(kernel, params=(*ins, fresh, *outs), body=(*body, *site.rest))
    because = (
        f"{image.height}x{image.width} pixels: a quarter of the products, ten times the rounding"
    )
    chosen = f"F(4x4, 3x3), {per_task} tiles per task"
    return made, Decision("algorithm", subject, chosen, because, ("direct sum",))


def _pixels(kernel: Kernel, site: Site, env: Mapping[str, Dim]) -> View:
    """The left operand at pixel `m` and the depth axes."""
    layout = kernel.param(site.a.load.buffer).layout
    parts = {**split_depth(site, layout), **env}
    entries = (e for e in site.a.load.index if not isinstance(e, Scalar))
    return View(site.a.load.buffer, tuple(substitute(e, parts) for e in entries))


def _transformed_place(depth: Depth) -> tuple[Dim, ...]:
    channel, row, column, lane = (symbol(axis.var) for axis in depth.axes)
    n = symbol("n")
    return (row * TAPS + column, n // PANEL, channel * PANEL + lane, n % PANEL)


def _tiles_per_task(image: Image, machine: Machine) -> int:
    """A task for every unit, if each has enough tiles."""
    tasks = max(1, min(machine.parallel_units, image.tiles // LEAST_TILES))
    return ceil(image.tiles / tasks)


def _pixel(image: Image, m: Dim) -> dict[str, Dim]:
    """Row and column of pixel `m` in tile order."""
    across = image.width // TILE
    tile, within = m // (TILE * TILE), m % (TILE * TILE)
    y = tile // across * TILE + within // TILE
    x = tile % across * TILE + within % TILE
    return {image.y.var: y, image.x.var: x}
