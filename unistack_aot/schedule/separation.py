"""Kernels of several nests as several kernels: there is no barrier across a whole grid.

Not here: loops that are one nest (many_narrow.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.mcir.nodes import Access, Kernel, Loop, Param, Stmt, Store
from unistack_aot.mcir.transform import all_loads, walk


def stages(kernel: Kernel) -> tuple[Kernel, ...]:
    """A kernel as a sequence of kernels, one per independent nest: there is no barrier across a whole grid.

    before:
        for i in 4 role=map { y[i] = x[i] } for j in 2 role=map { y[j + 4] = z[j] }
    after:
        for i in 4 role=map { y[i] = x[i] }   and then   for j in 2 role=map { y[j + 4] = z[j] }
    """
    if len(kernel.body) < 2 or not all(isinstance(stmt, Loop) for stmt in kernel.body):
        return (kernel,)
    nests = [(stmt,) for stmt in kernel.body]
    return tuple(_part(kernel, nest, _written(kernel.body[:k])) for k, nest in enumerate(nests))


def _part(kernel: Kernel, body: tuple[Stmt, ...], before: set[str]) -> Kernel:
    """A kernel with only the parameters that `body` uses; results that hold something of `before` are updated."""
    read = {load.buffer for load in all_loads(body)}
    written = {stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)}
    partial = {s.buffer for s in walk(body) if isinstance(s, Store) and s.combine != "set"}
    params: list[Param] = []
    for param in kernel.params:
        if param.name in written:
            both = param.name in read | partial | before
            params.append(replace(param, access=Access.INOUT if both else Access.OUT))
        elif param.name in read:
            params.append(replace(param, access=Access.IN))
    return replace(kernel, params=tuple(params), body=body)


def _written(body: tuple[Stmt, ...]) -> set[str]:
    return {stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)}
