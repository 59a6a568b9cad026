"""Canonical names inside kernels, so that equal kernels are equal values.

And launches with buffers as parameter names.
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.mcir.nodes import Access, Kernel, Param, Tile
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import bound_vars, rename_bound, rename_buffers, walk


def opened(launch: Launch) -> Kernel:
    """The launch's kernel with each parameter named as the buffer it is bound to."""
    names = {p.name: a for p, a in zip(launch.kernel.params, launch.args, strict=True)}
    # Two steps, because a buffer may be called like another parameter.
    apart = {old: f"{old}.p" for old in names}
    body = rename_buffers(launch.kernel.body, apart)
    body = rename_buffers(body, {apart[old]: new for old, new in names.items()})
    params = tuple(replace(p, name=names[p.name]) for p in launch.kernel.params)
    return Kernel(params, body, launch.kernel.reinterprets, launch.kernel.group)


def closed(kernel: Kernel, like: Launch) -> Launch:
    """A launch of a kernel whose parameters are named as buffers, with canonical names inside."""
    inputs = [p for p in kernel.params if p.access is Access.IN]
    others = [p for p in kernel.params if p.access is not Access.IN]
    names = {p.name: f"x{k}" for k, p in enumerate(inputs)}
    names |= {p.name: f"y{k}" for k, p in enumerate(others)}
    apart = {old: f"{old}.p" for old in names}
    body = rename_buffers(kernel.body, apart)
    body = rename_buffers(body, {apart[old]: new for old, new in names.items()})
    ordered = (*inputs, *others)
    params = tuple(replace(p, name=names[p.name]) for p in ordered)
    inner = canonical(Kernel(params, body, kernel.reinterprets, kernel.group))
    return replace(like, kernel=inner, args=tuple(p.name for p in ordered))


def canonical(kernel: Kernel) -> Kernel:
    """Bound variables renamed by order of appearance: i0, i1, ...; tiles keep the names their schedule gave them."""
    tiles = {stmt.name for stmt in walk(kernel.body) if isinstance(stmt, Tile)}
    found = tuple(name for name in dict.fromkeys(bound_vars(kernel.body)) if name not in tiles)
    apart = {old: f"{old}.b" for old in found}
    fresh = {f"{old}.b": f"i{k}" for k, old in enumerate(found)}
    body = rename_bound(rename_bound(kernel.body, apart), fresh)
    return kernel.with_body(body)


def apart_from(kernel: Kernel, other: Kernel) -> Kernel:
    """`kernel` with its bound variables renamed so that none is bound in `other` too."""
    taken = set(bound_vars(other.body))
    mine = tuple(dict.fromkeys(bound_vars(kernel.body)))
    names: dict[str, str] = {}
    for old in mine:
        if old in taken:
            fresh = old
            while fresh in taken or fresh in mine or fresh in names.values():
                fresh = f"{fresh}_"
            names[old] = fresh
    return kernel.with_body(rename_bound(kernel.body, names)) if names else kernel


def union(first: tuple[Param, ...], second: tuple[Param, ...]) -> tuple[Param, ...]:
    """Parameters of two kernels, by name; one that is read and written becomes INOUT."""
    merged: dict[str, Param] = {}
    for param in (*first, *second):
        old = merged.get(param.name)
        if old is None:
            merged[param.name] = param
        elif old.access is not param.access:
            merged[param.name] = replace(old, access=Access.INOUT)
    return tuple(merged.values())
