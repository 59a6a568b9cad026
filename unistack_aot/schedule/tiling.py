"""Schedule operators on contractions for groups of workers: tiles of the result, and the depth as a stream.

Not here: near tiles of the operands (staging.py), which tile instruction pays (block_tiles.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unistack_aot.base.symbolic import Ranges, ceildiv, minimum, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import substitute_indices
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
    Stream,
    Tile,
    View,
)
from unistack_aot.mcir.transform import around, perfect_nest, substitute_vars
from unistack_aot.schedule.contraction import Factor, Site, find_site, product
from unistack_aot.schedule.nests import decoded, part
from unistack_aot.schedule.operands import joint_index
from unistack_aot.schedule.operator import Kernels, Operator
from unistack_aot.schedule.tile_instruction import SHOWN, TileInstruction

STEP = "k0"  # the variable of the stream over the depth


@dataclass(frozen=True, slots=True)
class Tiled:
    """What a tiled contraction is made of: loops over its tiles, declarations, the product, what stores the sums."""

    loops: tuple[Loop, ...]
    tiles: tuple[Tile, ...]
    product: Contract | Stream
    drain: Drain

    def within(self, kernel: Kernel) -> Kernel:
        """The kernel with this as its body."""
        return kernel.with_body(around(self.loops, (*self.tiles, self.product, self.drain)))


def find_tiled(kernel: Kernel) -> Tiled | No:
    """The tiled contraction that a kernel is, or why it is none."""
    loops, body = perfect_nest(kernel.body)
    match body:
        case (*declared, (Contract() | Stream()) as product, Drain() as drain):
            tiles = tuple(stmt for stmt in declared if isinstance(stmt, Tile))
            if tiles and len(tiles) == len(declared):
                return Tiled(loops, tiles, product, drain)
        case _:
            pass
    return No("it is no tiled contraction")


def can_tile(kernel: Kernel, site: Site | No, tile: TileInstruction, ranges: Ranges) -> Yes | No:
    """Whether the kernel is one contraction whose tail is all that follows."""
    if isinstance(site, No):
        return site
    return No("more nests follow the contraction") if site.rest else YES


def tiled(kernel: Kernel, site: Site | No, tile: TileInstruction, ranges: Ranges) -> Kernel:
    """The contraction as one group of workers per tile of the result, whose sums stay in registers.

    before:
        kernel product(a: f32[N, 20] far, b: f32[20, M] far, c: f32[M] far) -> y: f32[N, M] far {
          for i in N, j in M {
            s = fold sum over k in 20 of a[i, k] * b[k, j]
            y[i, j] = max(s + c[j], 0.0)
          }
        }
    after:
        kernel k0(a: f32[N, 20] far, b: f32[20, M] far, c: f32[M] far) -> y: f32[N, M] far group=16 {
          for row_tile in (N + 3)//4 role=grid, col_tile in (M + 3)//4 role=grid {
            acc: f32[4, 4] reg = 0.0
            acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ min(4, M - 4*col_tile)]
                += contract(a[m, k], b[k, n]) over k in 20 via fma.4x4x8 blocks(4, 4, 8)
            drain acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ min(4, M - 4*col_tile)] as s {
              y[m, n] = max(s + c[n], 0.0)
            }
          }
        }
    """
    assert isinstance(site, Site)
    first_row, first_col = symbol("row_tile") * tile.rows, symbol("col_tile") * tile.cols
    total_rows, total_cols, deep = (product(x) for x in (site.rows, site.cols, site.depth))
    rows = Span("m", first_row, part(total_rows, first_row, tile.rows))
    cols = Span("n", first_col, part(total_cols, first_col, tile.cols))
    a = _matrix(site.a, site.rows, rows.var, site, ranges)
    b = _matrix(site.b, site.cols, cols.var, site, ranges)
    sizes = (tile.rows, tile.cols, tile.depth)
    contract = Contract("acc", a, b, rows, cols, (Axis("k", deep),), tile.name, sizes)
    env = decoded(site.rows, symbol("m")) | decoded(site.cols, symbol("n"))
    drain = Drain("acc", rows, cols, site.acc.name, substitute_vars(site.tail, env))
    held = Tile("acc", tile.accumulator, (tile.rows, tile.cols), Space.REG, 0.0)
    body: tuple[Stmt, ...] = (held, contract, drain)
    grid = (
        *site.batch,
        Axis("row_tile", ceildiv(total_rows, tile.rows)),
        Axis("col_tile", ceildiv(total_cols, tile.cols)),
    )
    for axis in reversed(grid):
        body = (Loop(axis.var, axis.extent, body, Role.GRID),)
    return replace(kernel, body=body, group=tile.workers)


def _matrix(factor: Factor, outer: tuple[Axis, ...], var: str, site: Site, ranges: Ranges) -> View:
    """An operand by the joint number `var` of its own axes and the joint number `k` of the depth."""
    index = joint_index(factor, outer, site.depth, var, "k", site, ranges)
    within = factor.within
    if within is not None:
        env = decoded(outer, symbol(var)) | decoded(site.depth, symbol("k"))
        within = substitute_indices(within, env)
    return View(factor.load.buffer, index, within)


def can_stream(kernel: Kernel, step: int) -> Yes | No:
    """Whether the kernel is a tiled contraction over one depth that is not cut yet."""
    found = find_tiled(kernel)
    if isinstance(found, No):
        return found
    if not isinstance(found.product, Contract) or len(found.product.depth) != 1:
        return No("its depth is cut already")
    return YES if step > 0 else No(f"steps of {step}")


def streamed(kernel: Kernel, step: int) -> Kernel:
    """The depth of a tiled contraction in steps of a stream.

    before:
        kernel k0(a: f32[N, 20] far, b: f32[20, M] far, c: f32[M] far) -> y: f32[N, M] far group=16 {
          for row_tile in (N + 3)//4 role=grid, col_tile in (M + 3)//4 role=grid {
            acc: f32[4, 4] reg = 0.0
            acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ min(4, M - 4*col_tile)]
                += contract(a[m, k], b[k, n]) over k in 20 via fma.4x4x8 blocks(4, 4, 8)
            drain acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ min(4, M - 4*col_tile)] as s {
              y[m, n] = max(s + c[n], 0.0)
            }
          }
        }
    after:
        kernel k0(a: f32[N, 20] far, b: f32[20, M] far, c: f32[M] far) -> y: f32[N, M] far group=16 {
          for row_tile in (N + 3)//4 role=grid, col_tile in (M + 3)//4 role=grid {
            acc: f32[4, 4] reg = 0.0
            stream k0 in 20 step 8 depth=1 {
              acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ min(4, M - 4*col_tile)]
                  += contract(a[m, k + k0], b[k + k0, n]) over k in min(8, -k0 + 20) via fma.4x4x8 blocks(4, 4, 8)
            }
            drain acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ min(4, M - 4*col_tile)] as s {
              y[m, n] = max(s + c[n], 0.0)
            }
          }
        }
    """
    found = find_tiled(kernel)
    assert isinstance(found, Tiled) and isinstance(found.product, Contract)
    (axis,) = found.product.depth
    place, deep = symbol(STEP), axis.extent
    even = isinstance(deep, int) and deep % step == 0
    (moved,) = substitute_vars((found.product,), {axis.var: place + symbol(axis.var)})
    assert isinstance(moved, Contract)
    slab = Axis(axis.var, step if even else minimum(step, deep - place))
    stream = Stream(STEP, deep, step, 1, (replace(moved, depth=(slab,)),))
    return replace(found, product=stream).within(kernel)


def _example_tile(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    found = TILE(kernel, find_site(kernel), SHOWN, {})
    return found if isinstance(found, No) else (found,)


def _example_stream(kernels: Kernels) -> Kernels | No:
    found = STREAM(kernels[0], SHOWN.depth)
    return found if isinstance(found, No) else (found,)


TILE = Operator("tile", can_tile, tiled, _example_tile)
STREAM = Operator("stream", can_stream, streamed, _example_stream)
