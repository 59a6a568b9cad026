"""Schedule operator: a contraction over packed panels as tasks of rows and panels, sums in registers.

The tile instruction reads a row of `a` as segments of contiguous elements: one for a matrix product, one per (channel
block, tap) for a convolution. Not here: packing (panel_packing.py), how a contraction is cut (panel_blocks.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from unistack_aot.base.symbolic import Dim, Ranges, ceildiv, simplify, substitute, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.nodes import (
    Axis,
    Contract,
    Drain,
    Kernel,
    Loop,
    Role,
    Space,
    Span,
    Stmt,
    Tile,
    View,
)
from unistack_aot.mcir.transform import substitute_vars
from unistack_aot.schedule.contraction import Factor, Site, find_site, product
from unistack_aot.schedule.nests import decoded, part
from unistack_aot.schedule.operator import Kernels, Operator
from unistack_aot.schedule.panels import FMA, PANEL, Blocks, PanelInstruction, ranges_of


def can_tile_panels(
    kernel: Kernel,
    site: Site | No,
    blocks: Blocks,
    ranges: Ranges,
    via: PanelInstruction = FMA,
) -> Yes | No:
    """Whether the right operand lies in panels, and tasks hold something."""
    if isinstance(site, No):
        return site
    if kernel.param(site.b.load.buffer).shape[-1] != PANEL or site.b.load.dtype is not via.dtype:
        return No("the right operand is not packed")
    if site.a.within is not None or site.b.within is not None:
        return No("an operand has guarded elements")
    return YES if blocks.task_panels > 0 else No("tasks without panels")


def panels_tiled(
    kernel: Kernel, site: Site | No, blocks: Blocks, ranges: Ranges, via: PanelInstruction = FMA
) -> Kernel:
    """The contraction over packed panels as tasks of rows and panels, in blocks that stay near.

    before:
        kernel product(a: f32[N, 6] far, c: f32[20] far, packed: f32[2, 6, 16] far) -> y: f32[N, 20] far {
              for i in N, j in 20 {
                s = fold sum over k in 6 of a[i, k] * packed[j//16, k, j%16]
                y[i, j] = max(s + c[j], 0.0)
              }
            }
    after:
        kernel k0(a: f32[N, 6] far, c: f32[20] far, packed: f32[2, 6, 16] far) -> y: f32[N, 20] far {
          for row_task in (N + 3)//4 role=grid, panel_task in 2 role=grid {
            tile: f32[4, 16] reg = 0.0
            tile[m in 4*row_task ..+ min(4, N - 4*row_task), n in 16*panel_task
                ..+ min(16, -16*panel_task + 20)]
                += contract(a[m, k], packed[n//16, k, n%16]) over k in 6 via fma.panel16 blocks(4, 16, 0)
            drain tile[m in 4*row_task ..+ min(4, N - 4*row_task), n in 16*panel_task
                ..+ min(16, -16*panel_task + 20)] as s {
              y[m, n] = max(s + c[n], 0.0)
            }
          }
        }
    """
    assert isinstance(site, Site)
    total_rows, total_cols = product(site.rows), product(site.cols)
    panels = ceildiv(total_cols, PANEL)
    row_task, panel_task = symbol("row_task"), symbol("panel_task")
    task_rows: Dim = blocks.task_rows or total_rows
    first_row: Dim = row_task * task_rows if blocks.task_rows else 0
    first_col = panel_task * (blocks.task_panels * PANEL)
    rows = Span("m", first_row, part(total_rows, first_row, task_rows))
    cols = Span("n", first_col, part(total_cols, first_col, blocks.task_panels * PANEL))
    env = decoded(site.rows, symbol("m")) | decoded(site.cols, symbol("n"))
    inside = ranges_of(site, site.depth, ranges)
    # bounds of the row axes are known before they become parts of one row number
    a = _view(site.a, {}, inside)
    a = replace(a, index=tuple(simplify(substitute(e, env), inside) for e in a.index))
    a = replace(a, rounded=via.rounds)
    b = _view(site.b, env, {})
    near = (blocks.row_block, blocks.panel_group * PANEL, blocks.depth_block)
    contract = Contract("tile", a, b, rows, cols, site.depth, via.name, near)
    drain = Drain("tile", rows, cols, site.acc.name, substitute_vars(site.tail, env))
    shape = (task_rows, blocks.task_panels * PANEL)
    body: tuple[Stmt, ...] = (Tile("tile", via.sums, shape, Space.REG, 0.0), contract, drain)
    tasks = (
        Axis("row_task", ceildiv(total_rows, task_rows) if blocks.task_rows else 1),
        Axis("panel_task", ceildiv(panels, blocks.task_panels)),
    )
    for axis in reversed((*site.batch, *tasks)):
        if axis.extent != 1 or axis in site.batch:
            body = (Loop(axis.var, axis.extent, body, Role.GRID),)
        else:
            body = substitute_vars(body, {axis.var: 0})
    return kernel.with_body((*body, *site.rest))


def _view(factor: Factor, env: Mapping[str, Dim], inside: Ranges) -> View:
    """An operand with its index over other variables."""
    entries = (entry for entry in factor.load.index if not isinstance(entry, Scalar))
    return View(factor.load.buffer, tuple(simplify(substitute(e, env), inside) for e in entries))


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    found = TILE_PANELS(kernel, find_site(kernel), Blocks(4, 1, 4, 1, 0), {})
    return found if isinstance(found, No) else (found,)


TILE_PANELS = Operator("tile-panels", can_tile_panels, panels_tiled, _example)
