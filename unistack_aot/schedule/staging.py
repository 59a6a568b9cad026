"""Schedule operator: operands of a streamed contraction pass through near tiles, some of which are under way.

Not here: the stream itself (tiling.py), how many stages pay (block_tiles.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import substitute, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import substitute_indices
from unistack_aot.mcir.nodes import Contract, Fill, Kernel, Space, Span, Stream, Sync, Tile, View
from unistack_aot.schedule.operator import Kernels, Operator
from unistack_aot.schedule.tile_instruction import SHOWN, TileInstruction
from unistack_aot.schedule.tiling import Tiled, find_tiled

Inner = tuple[bool, bool]
"""For each operand, whether the depth is the inner axis of its near tile."""


def can_stage(kernel: Kernel, tile: TileInstruction, inner: Inner, stages: int) -> Yes | No:
    """Whether the kernel is a contraction streamed straight from far memory."""
    found = find_tiled(kernel)
    if isinstance(found, No):
        return found
    if _streamed(found) is None:
        return No("no stream holds the product alone")
    return YES if stages > 0 else No(f"{stages} stages")


def staged(kernel: Kernel, tile: TileInstruction, inner: Inner, stages: int) -> Kernel:
    """Each step of a stream copies its part of both operands to near tiles, `stages` steps in flight.

    before:
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
    after:
        kernel k0(a: f32[N, 20] far, b: f32[20, M] far, c: f32[M] far) -> y: f32[N, M] far group=16 {
          for row_tile in (N + 3)//4 role=grid, col_tile in (M + 3)//4 role=grid {
            acc: f32[4, 4] reg = 0.0
            a_near: f32[4, 8] near
            b_near: f32[8, 4] near
            stream k0 in 20 step 8 depth=3 {
              fill a_near[m in 4*row_tile ..+ min(4, N - 4*row_tile), k in k0 ..+ min(8, -k0 + 20)] <- a[m, k]
              fill b_near[k in k0 ..+ min(8, -k0 + 20), n in 4*col_tile ..+ min(4, M - 4*col_tile)] <- b[k, n]
              sync
              acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ min(4, M - 4*col_tile)]
                  += contract(a_near[m - 4*row_tile, k], b_near[k, -4*col_tile + n])
                  over k in min(8, -k0 + 20) via fma.4x4x8 blocks(4, 4, 8)
              sync
            }
            drain acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ min(4, M - 4*col_tile)] as s {
              y[m, n] = max(s + c[n], 0.0)
            }
          }
        }
    """
    found = find_tiled(kernel)
    assert isinstance(found, Tiled)
    parts = _streamed(found)
    assert parts is not None
    stream, contract = parts
    (depth,) = contract.depth
    slab = Span(depth.var, symbol(stream.var), depth.extent)
    a_near, a_fill, a = _near("a_near", contract.a, contract.rows, slab, tile.rows, inner[0], tile)
    b_near, b_fill, b = _near("b_near", contract.b, contract.cols, slab, tile.cols, inner[1], tile)
    step = (a_fill, b_fill, Sync(), replace(contract, a=a, b=b), Sync())
    product = replace(stream, depth=stages, body=step)
    return replace(found, tiles=(*found.tiles, a_near, b_near), product=product).within(kernel)


def _streamed(found: Tiled) -> tuple[Stream, Contract] | None:
    """The stream and the product over one axis that is all it holds."""
    stream = found.product
    if not isinstance(stream, Stream) or len(stream.body) != 1:
        return None
    (contract,) = stream.body
    if not isinstance(contract, Contract) or len(contract.depth) != 1:
        return None
    return stream, contract


def _near(
    name: str, far: View, outer: Span, slab: Span, size: int, inner: bool, tile: TileInstruction
) -> tuple[Tile, Fill, View]:
    """An operand's near tile, how it is filled, and the view of it that the tile instruction reads."""
    depth = {slab.var: symbol(slab.var) - slab.first}
    source = View(
        far.buffer,
        tuple(substitute(entry, depth) for entry in far.index),
        None if far.within is None else substitute_indices(far.within, depth),
    )
    at, deep = symbol(outer.var) - outer.first, symbol(slab.var)
    if inner:
        held = Tile(name, tile.element, (size, tile.depth), Space.NEAR)
        return held, Fill(name, outer, slab, source), View(name, (at, deep))
    held = Tile(name, tile.element, (tile.depth, size), Space.NEAR)
    return held, Fill(name, slab, outer, source), View(name, (deep, at))


def _example(kernels: Kernels) -> Kernels | No:
    found = STAGE(kernels[0], SHOWN, (True, False), 3)
    return found if isinstance(found, No) else (found,)


STAGE = Operator("stage", can_stage, staged, _example)
