"""Schedule operator: what is independent inside ordered loops moves outside, where it can be spread.

Not here: who takes which iteration (many_narrow.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from unistack_aot.base.symbolic import Dim, symbol, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import IndexEntry, Scalar
from unistack_aot.mcir.nodes import Kernel, Loop, Role, Stmt, Store
from unistack_aot.mcir.transform import all_loads, substitute_vars, walk
from unistack_aot.schedule.operator import Kernels, Operator


def can_move_outside(kernel: Kernel) -> Yes | No:
    """Whether the kernel is an ordered nest with iterations that never meet inside."""
    found = _outside(kernel)
    return found if isinstance(found, No) else YES


def moved_outside(kernel: Kernel) -> Kernel:
    """The loops of an ordered nest that touch parts of their own of everything written, outermost and independent.

    before:
        kernel scan(x: f32[9, 4, 8] far) -> y: f32[9, 4, 8] far {
              for t in 9 role=seq {
                for r in 4, u in 8 {
                  y[t, r, u] = x[t, r, u] + where([t] == 0, 0.0, y[t - 1, r, -u + 7])
                }
              }
            }
    after:
        kernel k0(x: f32[9, 4, 8] far) -> y: f32[9, 4, 8] far {
          for r in 4, t in 9 role=seq, u in 8 {
            y[t, r, u] = x[t, r, u] + where(t == 0, 0.0, y[t - 1, r, -u + 7])
          }
        }
    """
    found = _outside(kernel)
    assert not isinstance(found, No)
    return kernel.with_body(found)


def _outside(kernel: Kernel) -> tuple[Stmt, ...] | No:
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], Loop):
        return No("it is not one nest")
    outer = kernel.body[0]
    if outer.role is not Role.SEQ:
        return No("its outermost loop is not ordered")
    chain, body = _chain(outer)
    moved = [loop for loop in chain if _own(loop.var, kernel.body) and _free(loop, chain)]
    if not moved:
        return _parts_outside(outer)
    for loop in reversed([loop for loop in chain if loop not in moved]):
        body = (replace(loop, body=body),)
    for loop in reversed(moved):
        body = (Loop(loop.var, loop.extent, body),)
    return body


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


def _parts_outside(outer: Loop) -> tuple[Stmt, ...] | No:
    """One ordered loop over several independent nests, if the first axis of all of them may move outside."""
    parts = [part for part in outer.body if isinstance(part, Loop) and part.role is Role.MAP]
    if len(parts) < 2 or len(parts) < len(outer.body):
        return No("no loop inside has places of its own")
    first: Dim = parts[0].extent
    if any(part.extent != first for part in parts) or symbols(first) & {outer.var}:
        return No("the nests inside have different extents")
    var = parts[0].var
    inner = tuple(
        stmt
        for part in parts
        for stmt in (
            part.body if part.var == var else substitute_vars(part.body, {part.var: symbol(var)})
        )
    )
    if not _own(var, inner):
        return No("no loop inside has places of its own")
    return (Loop(var, first, (replace(outer, body=inner),)),)


def _example(kernels: Kernels) -> Kernels | No:
    found = MOVE_OUTSIDE(kernels[0])
    return found if isinstance(found, No) else (found,)


MOVE_OUTSIDE = Operator("move-outside", can_move_outside, moved_outside, _example)
