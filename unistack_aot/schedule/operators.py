"""Schedule operators on loops: each checks (or refuses with a reason) and applies. Not here: who calls them when."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import Dim, Ranges, ceildiv, minimum, symbol, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.mcir.accesses import accesses
from unistack_aot.mcir.nodes import Kernel, Loop, Role, Stmt
from unistack_aot.mcir.transform import substitute_vars


def can_split(loop: Loop, size: int) -> Yes | No:
    """Whether a loop can be cut into chunks of `size` iterations."""
    if loop.role is not Role.MAP or loop.step != 1:
        return No("its role or step is decided already")
    return YES if size >= 1 else No(f"chunks of {size} iterations")


def split(loop: Loop, size: int, outer: Role, inner: Role) -> Loop:
    """Tile a loop: chunks of `size`, the last one shorter.

    before:
        kernel k(x: f32[N] far) -> y: f32[N] far {
          for i in N {
            y[i] = x[i]
          }
        }
    after split(4, grid, vector):
        kernel k(x: f32[N] far) -> y: f32[N] far {
          for i_o in (N + 3)//4 role=grid, i_i in min(4, N - 4*i_o) role=vector {
            y[i_i + 4*i_o] = x[i_i + 4*i_o]
          }
        }
    """
    chunk, within = f"{loop.var}_o", f"{loop.var}_i"
    place = symbol(chunk) * size + symbol(within)
    body = substitute_vars(loop.body, {loop.var: place})
    whole = isinstance(loop.extent, int) and loop.extent % size == 0
    rest: Dim = size if whole else minimum(size, loop.extent - symbol(chunk) * size)
    return Loop(chunk, ceildiv(loop.extent, size), (Loop(within, rest, body, inner),), outer)


def can_fuse(kernel: Kernel, outer: Loop, ranges: Ranges) -> Yes | No:
    """Whether two nested loops can run as one with plain addresses.

    They must be perfectly nested and independent, and every access must stay linear in the joint variable.
    """
    if len(outer.body) != 1 or not isinstance(outer.body[0], Loop):
        return No(f"loop {outer.var} holds more than one loop")
    inner = outer.body[0]
    if outer.role is not Role.MAP or inner.role is not Role.MAP:
        return No("their roles are decided already")
    if outer.var in (symbols(inner.extent) if not isinstance(inner.extent, int) else ()):
        return No(f"the extent of {inner.var} depends on {outer.var}")
    joint = fused(outer)
    inside = {**ranges, joint.var: (0, _top(joint.extent))}
    for access in accesses(kernel, joint.body, inside):
        if access.stride(joint.var) is None:
            return No(f"{access.buffer} is not linear in the joint loop")
    return YES


def fused(outer: Loop) -> Loop:
    """Join two perfectly nested loops.

    before:
        kernel k(x: f32[3, 4] far) -> y: f32[3, 4] far {
          for i in 3, j in 4 {
            y[i, j] = x[i, j]
          }
        }
    after fused():
        kernel k(x: f32[3, 4] far) -> y: f32[3, 4] far {
          for i_j in 12 {
            y[i_j//4, i_j%4] = x[i_j//4, i_j%4]
          }
        }
    """
    inner = outer.body[0]
    assert isinstance(inner, Loop)
    var = f"{outer.var}_{inner.var}"
    joint = symbol(var)
    body = substitute_vars(
        inner.body, {outer.var: joint // inner.extent, inner.var: joint % inner.extent}
    )
    return Loop(var, outer.extent * inner.extent, body, Role.MAP)


def _top(extent: Dim) -> int | None:
    return extent - 1 if isinstance(extent, int) else None


def can_interchange(outer: Loop) -> Yes | No:
    """Whether two nested loops may be swapped: perfectly nested, independent, extents apart."""
    if len(outer.body) != 1 or not isinstance(outer.body[0], Loop):
        return No(f"loop {outer.var} holds more than one loop")
    inner = outer.body[0]
    if outer.role is not Role.MAP or inner.role is not Role.MAP:
        return No("their roles are decided already")
    if outer.var in symbols(inner.extent):
        return No(f"the extent of {inner.var} depends on {outer.var}")
    return YES


def interchange(outer: Loop) -> Loop:
    """Swap two perfectly nested independent loops.

    before:
        kernel k(x: f32[4, 3] far) -> y: f32[4, 3] far {
          for i in 3, j in 4 {
            y[j, i] = x[j, i]
          }
        }
    after interchange():
        kernel k(x: f32[4, 3] far) -> y: f32[4, 3] far {
          for j in 4, i in 3 {
            y[j, i] = x[j, i]
          }
        }
    """
    inner = outer.body[0]
    assert isinstance(inner, Loop)
    return replace(inner, body=(replace(outer, body=inner.body),))


def with_role(loop: Loop, role: Role, body: tuple[Stmt, ...] | None = None) -> Loop:
    """The same loop in another role, optionally around another body."""
    return replace(loop, role=role, body=loop.body if body is None else body)
