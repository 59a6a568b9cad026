"""A contraction whose depth is split among groups: parts go to a workspace, a second kernel adds them and finishes.

Not here: when that pays (block_tiles.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import Dim, ceildiv, maximum, minimum, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import Load, Name
from unistack_aot.mcir.nodes import (
    Access,
    Axis,
    Fold,
    Kernel,
    Loop,
    Param,
    Role,
    Stmt,
    Store,
    Stream,
)
from unistack_aot.mcir.transform import all_loads, substitute_vars
from unistack_aot.schedule.contraction import Site, find_site, joint, product
from unistack_aot.schedule.nests import decoded
from unistack_aot.schedule.operator import Kernels, Operator
from unistack_aot.schedule.staging import STAGE
from unistack_aot.schedule.tile_instruction import SHOWN
from unistack_aot.schedule.tiling import STREAM, TILE, Tiled, find_tiled

PART = symbol("part")


def workspace_shape(site: Site, parts: int) -> tuple[Dim, ...]:
    """[batch..., parts, rows, columns]."""
    batch = tuple(axis.extent for axis in site.batch)
    return (*batch, parts, product(site.rows), product(site.cols))


def can_split(kernel: Kernel, site: Site | No, workspace: str, parts: int) -> Yes | No:
    """Whether the kernel streams the depth of the contraction `site`, and there is something to split."""
    if isinstance(site, No):
        return site
    found = find_tiled(kernel)
    if isinstance(found, No):
        return found
    if not isinstance(found.product, Stream):
        return No("its depth is no stream")
    if any(param.name == workspace for param in kernel.params):
        return No(f"{workspace} is taken")
    return YES if parts > 1 else No(f"{parts} parts")


def split_reduced(
    kernel: Kernel, site: Site | No, workspace: str, parts: int
) -> tuple[Kernel, Kernel]:
    """A streamed contraction whose groups each sum a part of the depth, and the kernel that adds parts and finishes.

    The example's contraction has become tiles, a stream and near stages before.

    before:
        kernel product(a: f32[N, 20] far, b: f32[20, M] far, c: f32[M] far) -> y: f32[N, M] far {
          for i in N, j in M {
            s = fold sum over k in 20 of a[i, k] * b[k, j]
            y[i, j] = max(s + c[j], 0.0)
          }
        }
    after:
        kernel k0(a: f32[N, 20] far, b: f32[20, M] far) -> parts: f32[2, N, M] far group=16 {
          for part in 2 role=grid, row_tile in (N + 3)//4 role=grid, col_tile in (M + 3)//4 role=grid {
            acc: f32[4, 4] reg = 0.0
            a_near: f32[4, 8] near
            b_near: f32[8, 4] near
            stream k0 in min(16, max(0, -16*part + 20)) step 8 depth=2 {
              fill a_near[m in 4*row_tile ..+ min(4, N - 4*row_tile), k in k0 + 16*part
                  ..+ min(8, -k0 - 16*part + 20)] <- a[m, k]
              fill b_near[k in k0 + 16*part ..+ min(8, -k0 - 16*part + 20), n in 4*col_tile
                  ..+ min(4, M - 4*col_tile)] <- b[k, n]
              sync
              acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ min(4, M - 4*col_tile)]
                  += contract(a_near[m - 4*row_tile, k], b_near[k, -4*col_tile + n])
                  over k in min(8, -k0 - 16*part + 20) via fma.4x4x8 blocks(4, 4, 8)
              sync
            }
            drain acc[m in 4*row_tile ..+ min(4, N - 4*row_tile), n in 4*col_tile ..+ min(4, M - 4*col_tile)] as s {
              parts[part, m, n] = s
            }
          }
        }

        kernel k1(parts: f32[2, N, M] far, c: f32[M] far) -> y: f32[N, M] far {
          for i in N, j in M {
            s = fold sum over part in 2 of parts[part, i, j]
            y[i, j] = max(s + c[j], 0.0)
          }
        }
    """
    assert isinstance(site, Site)
    return _summing(kernel, site, workspace, parts), _finishing(kernel, site, workspace, parts)


def _summing(kernel: Kernel, site: Site, workspace: str, parts: int) -> Kernel:
    """The streamed contraction with one more loop over parts of its depth, stored to `workspace`."""
    found = find_tiled(kernel)
    assert isinstance(found, Tiled) and isinstance(found.product, Stream)
    stream = found.product
    share = ceildiv(ceildiv(stream.extent, parts), stream.step) * stream.step
    start = PART * share
    deep = stream.extent
    whole = isinstance(deep, int) and deep % (stream.step * parts) == 0
    extent = share if whole else minimum(share, maximum(0, deep - start))
    body = substitute_vars(stream.body, {stream.var: start + symbol(stream.var)})
    env = decoded(site.rows, symbol("m")) | decoded(site.cols, symbol("n"))
    store = Store(workspace, _index(site), Name(site.acc.name, site.acc.dtype))
    tiles = len(found.loops) - 2
    loops = (*found.loops[:tiles], Loop("part", parts, (), Role.GRID), *found.loops[tiles:])
    held = Param(workspace, site.acc.dtype, workspace_shape(site, parts), Access.OUT)
    names = {site.a.load.buffer, site.b.load.buffer}
    params = tuple(p for p in kernel.params if p.access is Access.IN and p.name in names)
    part = replace(
        found,
        loops=loops,
        product=replace(stream, extent=extent, body=body),
        drain=replace(found.drain, body=substitute_vars((store,), env)),
    )
    return replace(part.within(kernel), params=(*params, held))


def _finishing(kernel: Kernel, site: Site, workspace: str, parts: int) -> Kernel:
    """The kernel that adds the parts and runs the contraction's tail."""
    load = Load(workspace, _index(site), site.acc.dtype)
    fold = Fold((site.acc.name,), "sum", (Axis("part", parts),), (load,))
    body: tuple[Stmt, ...] = (fold, *site.tail)
    for axis in reversed((*site.batch, *site.rows, *site.cols)):
        body = (Loop(axis.var, axis.extent, body),)
    held = Param(workspace, site.acc.dtype, workspace_shape(site, parts))
    names = {x.buffer for x in all_loads(site.tail)}
    params = tuple(p for p in kernel.params if p.access is not Access.IN or p.name in names)
    return Kernel((held, *params), body)


def _index(site: Site) -> tuple[Dim, ...]:
    batch = tuple(symbol(axis.var) for axis in site.batch)
    return (*batch, PART, joint(site.rows), joint(site.cols))


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    site = find_site(kernel)
    streamed = STREAM.sure(TILE.sure(kernel, site, SHOWN, {}), SHOWN.depth)
    return SPLIT_REDUCE(STAGE.sure(streamed, SHOWN, (True, False), 2), site, "parts", 2)


SPLIT_REDUCE = Operator("split-reduce", can_split, split_reduced, _example)
