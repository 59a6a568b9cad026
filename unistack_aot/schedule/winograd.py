"""3x3 stride-1 convolutions as F(m x m, 3x3): which form is allowed and pays, and the kernel it gives.

Not here: the algorithm's matrices (mcir/winograd.py), direct convolutions (panel_tiles.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, sqrt

import numpy as np

from unistack_aot.base.dtypes import f32
from unistack_aot.base.symbolic import Dim, substitute, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.hw.catalogue import builtin_maps
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.nodes import (
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
from unistack_aot.schedule.contraction import Site, find_site, product
from unistack_aot.schedule.merging import outputs_last
from unistack_aot.schedule.nests import decoded, part
from unistack_aot.schedule.operator import Arrays, Kernels, Operator
from unistack_aot.schedule.panel_packing import pack_constant
from unistack_aot.schedule.panels import PANEL, Depth, depth_of, split_depth

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


def can_tile_winograd(
    kernel: Kernel, site: Site | No, depth: Depth, form: Form, packed: str, machine: Machine
) -> Yes | No:
    """Whether the kernel is a 3x3 convolution over whole tiles of a form."""
    if isinstance(site, No):
        return site
    fits = winograd_fits(site, depth, kernel.param(site.a.load.buffer).layout.block)
    if isinstance(fits, No):
        return fits
    image = image_of(site)
    assert image is not None
    if image.height % form.tile or image.width % form.tile:
        return No(f"{image.height}x{image.width} pixels are no whole tiles of {form.name}")
    return YES if isinstance(product(site.cols), int) else No("its channels have no number")


def tiled_winograd(
    kernel: Kernel, site: Site | No, depth: Depth, form: Form, packed: str, machine: Machine
) -> Kernel:
    """The convolution as tasks of output tiles or of panels, weights transformed; pixels are numbered tile by tile.

    before:
        kernel convolve(x: f32[1, 32, 6, 6] far block(1, 16), w: f32[20, 32, 3, 3] far) -> y: f32[1, 20, 4, 4] far {
              for o in 20, i in 4, j in 4 {
                s = fold sum over c in 32, di in 3, dj in 3 of x[0, c, di + i, dj + j] * w[o, c, di, dj]
                y[0, o, i, j] = max(s, 0.0)
              }
            }
    after:
        kernel k0(
            x: f32[1, 32, 6, 6] far block(1, 16),
            weights: f32[16, 2, 32, 16] far
        ) -> y: f32[1, 20, 4, 4] far {
          tile: f32[16, 32] reg = 0.0
          tile[m in 0 ..+ 16, n in 0 ..+ 20]
              += contract(x[0, c_i + 16*c_o, di + 2*(m//8) + (m//2)%2, dj + m%2 + 2*((m//4)%2)], weights[3*di + dj,
              n//16, c_i + 16*c_o, n%16])
              over c_o in 2, di in 3, dj in 3, c_i in 16 via winograd.f2x2.panel16 blocks(4, 4, 0)
          drain tile[m in 0 ..+ 16, n in 0 ..+ 20] as s {
            y[0, n, 2*(m//8) + (m//2)%2, m%2 + 2*((m//4)%2)] = max(s, 0.0)
          }
        }
    """
    assert isinstance(site, Site)
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
    env = _pixel(image, form.tile, symbol("m")) | decoded(site.cols, symbol("n"))
    a, b = _pixels(kernel, site, env), View(packed, _transformed_place(depth))
    sizes = (image.height, image.width, 0)
    contract = Contract("tile", a, b, rows, columns, depth.axes, form.via, sizes)
    drain = Drain("tile", rows, columns, site.acc.name, substitute_vars(site.tail, env))
    shape = (tiles * pixels, beside * PANEL)
    body: tuple[Stmt, ...] = (Tile("tile", f32, shape, Space.REG, 0.0), contract, drain)
    for axis in reversed((*image.outer, *(a for a in tasks if a.extent != 1))):
        body = (Loop(axis.var, axis.extent, body, Role.GRID),)
    fresh = Param(packed, f32, (form.points**2, panels, depth.axes[0].extent * PANEL, PANEL))
    params = tuple(p for p in kernel.params if p.name != site.b.load.buffer)
    return replace(kernel, params=outputs_last((*params, fresh)), body=(*body, *site.rest))


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


def _depth(kernel: Kernel, site: Site) -> Depth:
    a = kernel.param(site.a.load.buffer)
    found = depth_of(site, a.layout, a.shape, {})
    assert isinstance(found, Depth)
    return found


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    site = find_site(kernel)
    assert isinstance(site, Site)
    machine = Machine(next(iter(builtin_maps().values())))
    found = TILE_WINOGRAD(kernel, site, _depth(kernel, site), F2, "weights", machine)
    return found if isinstance(found, No) else (found,)


def _example_constants(kernels: Kernels, arrays: Arrays) -> Arrays:
    """The weights of the example, packed and transformed."""
    (kernel,) = kernels
    site = find_site(kernel)
    assert isinstance(site, Site)
    layout, weights = kernel.param(site.a.load.buffer).layout, arrays[site.b.load.buffer]
    packed = pack_constant(site, _depth(kernel, site), layout, weights)
    assert packed is not None
    return {"weights": transform_constant(packed, F2)}


TILE_WINOGRAD = Operator(
    "tile-winograd", can_tile_winograd, tiled_winograd, _example, _example_constants
)
