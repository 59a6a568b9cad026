"""A contraction whose depth is split among groups: parts go to a workspace, a second kernel adds them and finishes.

Not here: when that pays (block_tiles.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import Dim, symbol
from unistack_aot.ir.scalar import Load, Name
from unistack_aot.mcir.nodes import Access, Axis, Fold, Kernel, Loop, Param, Stmt, Store
from unistack_aot.mcir.transform import all_loads
from unistack_aot.schedule.contraction import Site, product


def workspace_shape(site: Site, parts: int) -> tuple[Dim, ...]:
    """[batch..., parts, rows, columns]."""
    batch = tuple(axis.extent for axis in site.batch)
    return (*batch, parts, product(site.rows), product(site.cols))


def partial(kernel: Kernel, site: Site, workspace: str, parts: int) -> tuple[Kernel, Site]:
    """The kernel and site that store sums over parts of the depth to `workspace`.

    before:
        y[i, j] = f(fold sum over k in K of a[i, k] * b[k, j])
    after:
        workspace[part, i, j] = fold sum over k in part of a[i, k] * b[k, j]
    """
    value = Name(site.acc.name, site.acc.dtype)
    store = Store(workspace, _index(site, symbol("part")), value)
    held = Param(workspace, site.acc.dtype, workspace_shape(site, parts), Access.OUT)
    names = {site.a.load.buffer, site.b.load.buffer}
    params = tuple(p for p in kernel.params if p.access is Access.IN and p.name in names)
    return replace(kernel, params=(*params, held)), replace(site, tail=(store,))


def finishing(kernel: Kernel, site: Site, workspace: str, parts: int) -> Kernel:
    """The kernel that adds the parts and runs the contraction's tail.

    before:
        workspace[part, i, j] of every part
    after:
        for i, j role=map { acc = fold sum over part of workspace[part, i, j]; y[i, j] = f(acc) }
    """
    load = Load(workspace, _index(site, symbol("part")), site.acc.dtype)
    fold = Fold((site.acc.name,), "sum", (Axis("part", parts),), (load,))
    body: tuple[Stmt, ...] = (fold, *site.tail)
    for axis in reversed((*site.batch, *site.rows, *site.cols)):
        body = (Loop(axis.var, axis.extent, body),)
    held = Param(workspace, site.acc.dtype, workspace_shape(site, parts))
    names = {x.buffer for x in all_loads(site.tail)}
    params = tuple(p for p in kernel.params if p.access is not Access.IN or p.name in names)
    return Kernel((held, *params), body)


def _index(site: Site, part: Dim) -> tuple[Dim, ...]:
    batch = tuple(symbol(axis.var) for axis in site.batch)
    return (*batch, part, _joint(site.rows), _joint(site.cols))


def _joint(axes: tuple[Axis, ...]) -> Dim:
    result: Dim = 0
    for axis in axes:
        result = result * axis.extent + symbol(axis.var)
    return result
