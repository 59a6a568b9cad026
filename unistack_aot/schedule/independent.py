"""Ordered loops whose inner iterations never meet: what is independent moves outside, where it can be spread.

Not here: who takes which iteration (many_narrow.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from unistack_aot.base.symbolic import Dim, symbol, symbols
from unistack_aot.ir.scalar import IndexEntry, Scalar
from unistack_aot.mcir.nodes import Kernel, Loop, Role, Stmt, Store
from unistack_aot.mcir.transform import all_loads, substitute_vars, walk


def independent_outside(kernel: Kernel) -> Kernel:
    """The loops of an ordered nest that touch parts of their own of everything written, outermost and independent.

    before:
        for t in 9 role=seq { for r in 4 role=map { for u in 8 role=map { h[t, r, u] = f(h[t - 1, r, 7 - u]) } } }
    after:
        for r in 4 role=map { for t in 9 role=seq { for u in 8 role=map { h[t, r, u] = f(h[t - 1, r, 7 - u]) } } }
    """
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], Loop):
        return kernel
    outer = kernel.body[0]
    if outer.role is not Role.SEQ:
        return kernel
    chain, parts = _chain(outer)
    moved = [loop for loop in chain if _own(loop.var, kernel.body) and _free(loop, chain)]
    body = parts
    for loop in reversed([loop for loop in chain if loop not in moved]):
        body = (replace(loop, body=body),)
    if not moved:
        return kernel.with_body(_parts_outside(outer))
    for loop in reversed(moved):
        body = (Loop(loop.var, loop.extent, body),)
    return kernel.with_body(body)


def _chain(outer: Loop) -> tuple[list[Loop], tuple[Stmt, ...]]:
    """Loops directly inside each other, and what is inside the last one."""
    chain = [outer]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], Loop):
        chain.append(chain[-1].body[0])
    return chain, chain[-1].body


def _free(loop: Loop, chain: Iterable[Loop]) -> bool:
    """Whether a loop's extent follows from no other loop of the chain, nor another's from it."""
    others = [each for each in chain if each is not loop]
    names = {each.var for each in others}
    return not symbols(loop.extent) & names and not any(
        loop.var in symbols(each.extent) for each in others
    )


def _own(var: str, body: tuple[Stmt, ...]) -> bool:
    """Whether every access of every written buffer has `var` itself as the index of one and the same axis."""
    stores = [stmt for stmt in walk(body) if isinstance(stmt, Store)]
    written = {stmt.buffer for stmt in stores}
    places: dict[str, set[int]] = {}
    accesses = [(s.buffer, s.index) for s in stores]
    accesses += [(x.buffer, x.index) for x in all_loads(body) if x.buffer in written]
    for buffer, index in accesses:
        found = {axis for axis, entry in enumerate(index) if _is(entry, var)}
        places[buffer] = places.get(buffer, found) & found
    return bool(places) and all(places.values())


def _is(entry: IndexEntry, var: str) -> bool:
    return not isinstance(entry, Scalar) and entry == symbol(var)


def _parts_outside(outer: Loop) -> tuple[Stmt, ...]:
    """One ordered loop over several independent nests, if the first axis of all of them may move outside."""
    parts = [part for part in outer.body if isinstance(part, Loop) and part.role is Role.MAP]
    if len(parts) < 2 or len(parts) < len(outer.body):
        return (outer,)
    first: Dim = parts[0].extent
    if any(part.extent != first for part in parts) or symbols(first) & {outer.var}:
        return (outer,)
    var = parts[0].var
    inner = tuple(
        stmt
        for part in parts
        for stmt in (
            part.body if part.var == var else substitute_vars(part.body, {part.var: symbol(var)})
        )
    )
    if not _own(var, inner):
        return (outer,)
    return (Loop(var, first, (replace(outer, body=inner),)),)
