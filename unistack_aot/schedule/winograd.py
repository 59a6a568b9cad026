"""3x3 stride-1 convolutions as F(m x m, 3x3): which form is allowed and pays, and the kernel it gives.

Not here: the algorithm's matrices (mcir/winograd.py), direct convolutions (panels.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, sqrt

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
from unistack_aot.mcir.winograd import F2, F4, TAPS, Array, Form, transformed
from unistack_aot.schedule.contraction import Site, product
from unistack_aot.schedule.panels import PANEL, Depth, decode, part, split_depth

LEAST_TILES = 12  # tiles per task: fewer rows make the products wait for the transformed weights
LEAST_PANELS = 4  # panels per task: each transforms the whole input
ALLOWED = 8  # an f32 sum of K terms may be off by this times sqrt(K) eps of its terms' magnitudes
WORST = {F2: 8, F4: 150}
"""Bounds of the error in these units, above the worst found with adversarial inputs (docs/winograd.md)."""
LEAST_SIDE = {F2: 14, F4: 28}
"""Smaller images gain nothing: too few tiles share the transformed weights."""


@dataclass(frozen=True, slots=True)
class Image:
    """The rows of a convolution as pixels: `outer` loops around an image of `height` x `width`."""

    outer: tuple[Axis, ...]
    y: Axis
    x: Axis
    height: int
    width: int

    def tiles(self, side: int) -> int:
        """Output tiles of one image."""
        return (self.height // side) * (self.width // side)


def winograd_form(site: Site, depth: Depth, block: tuple[int, int] | None) -> Form | No:
    """The form in which a convolution is fastest, of those whose tiles and rounding fit, or why there is none."""
    fits = winograd_fits(site, depth, block)
    if isinstance(fits, No):
        return fits
    image = image_of(site)
    assert image is not None
    terms = product(site.depth)
    assert isinstance(terms, int)
    for form in (F4, F2):
        sides = (image.height, image.width)
        if any(n % form.tile or n < LEAST_SIDE[form] for n in sides):
            continue
        if WORST[form] <= ALLOWED * sqrt(terms):
            return form
    return No(
        f"{image.height}x{image.width} pixels are too few, no whole tiles, or too short a sum"
    )


def winograd_fits(site: Site, depth: Depth, block: tuple[int, int] | None) -> Yes | No:
    """Whether a convolution is 3x3 with stride 1 over an image in channel blocks."""
    image = image_of(site)
    if block is None or block[1] != PANEL or image is None:
        return No("the operand is no image in channel blocks")
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


def transform_constant(packed: Array, form: Form) -> Array:
    """Packed panels [OC/16, IC/16 * 9 * 16, 16] of a direct convolution as [positions, OC/16, IC, 16]."""
    panels, steps, lanes = packed.shape
    blocks = steps // (TAPS * TAPS * PANEL)
    split = packed.reshape(panels, blocks, TAPS * TAPS, PANEL, lanes)
    taps = np.moveaxis(split, 2, 0).reshape(TAPS * TAPS, panels, blocks * PANEL, lanes)
    return np.ascontiguousarray(transformed(taps, form))


def tiled_winograd(
    kernel: Kernel, site: Site, depth: Depth, form: Form, packed: str, machine: Machine
) -> Kernel:
    """The convolution as tasks of output tiles or of panels; pixels are numbered tile by tile.

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
    panels, pixels = ceil(cols / PANEL), form.tile**2
    tiles, beside = _task(image.tiles(form.tile), panels, machine)
    tasks = (
        Axis("tile_task", ceil(image.tiles(form.tile) / tiles)),
        Axis("panel_task", ceil(panels / beside)),
    )
    first, left = (
        symbol(axis.var) * size if axis.extent != 1 else 0
        for axis, size in zip(tasks, (tiles * pixels, beside * PANEL), strict=True)
    )
    rows = Span("m", first, part(image.height * image.width, first, tiles * pixels))
    columns = Span("n", left, part(cols, left, beside * PANEL))
    env = _pixel(image, form.tile, symbol("m")) | decode(site.cols, symbol("n"))
    contract = Contract(
        "tile",
        _pixels(kernel, site, env),
        View(packed, _transformed_place(depth)),
        rows,
        columns,
        depth.axes,
        form.via,
        (image.height, image.width, 0),
    )
    drain = Drain("tile", rows, columns, site.acc.name, substitute_vars(site.tail, env))
    shape = (tiles * pixels, beside * PANEL)
    body: tuple[Stmt, ...] = (Tile("tile", f32, shape, Space.REG, 0.0), contract, drain)
    for axis in reversed((*image.outer, *(a for a in tasks if a.extent != 1))):
        body = (Loop(axis.var, axis.extent, body, Role.GRID),)
    fresh = Param(packed, f32, (form.points**2, panels, depth.axes[0].extent * PANEL, PANEL))
    params = [p for p in kernel.params if p.name != site.b.load.buffer]
    ins = [p for p in params if p.access is Access.IN]
    outs = [p for p in params if p.access is not Access.IN]
    return replace(kernel, params=(*ins, fresh, *outs), body=(*body, *site.rest))


def winograd_saves(site: Site, form: Form) -> str:
    """What a form saves, and how far its rounding may go, in words."""
    image, terms = image_of(site), product(site.depth)
    assert image is not None and isinstance(terms, int)
    share = (form.tile * TAPS / form.points) ** 2
    return (
        f"{form.name} on {image.height}x{image.width} pixels has {share:.3g} times fewer products; errors up to "
        f"{WORST[form]} eps of the terms' magnitudes, {ALLOWED * sqrt(terms):.0f} are allowed; "
        f"an inf or NaN may spread over its {form.tile}x{form.tile} tile"
    )


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


def _task(tiles: int, panels: int, machine: Machine) -> tuple[int, int]:
    """Tiles and panels of a task: a task for every unit, if each has enough of what is split.

    Splitting tiles reads the weights once per task, splitting panels the input: the smaller one is read again.
    """
    if tiles >= panels * PANEL:
        return ceil(tiles / max(1, min(machine.parallel_units, tiles // LEAST_TILES))), panels
    return tiles, ceil(panels / max(1, min(machine.parallel_units, panels // LEAST_PANELS)))


def _pixel(image: Image, side: int, m: Dim) -> dict[str, Dim]:
    """Row and column of pixel `m` in tile order."""
    across = image.width // side
    tile, within = m // side**2, m % side**2
    y = tile // across * side + within // side
    x = tile % across * side + within % side
    return {image.y.var: y, image.x.var: x}
