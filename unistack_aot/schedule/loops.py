"""Schedule operators on one loop or two nested ones: split, fuse, bind to a role. Not here: who calls them when."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import Dim, Ranges, ceildiv, minimum, symbol, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.mcir.accesses import accesses
from unistack_aot.mcir.nodes import Kernel, Loop, Role, Stmt
from unistack_aot.mcir.transform import substitute_vars
from unistack_aot.schedule.operator import Operator, on_loop


def can_split(loop: Loop, size: int, outer: Role, inner: Role) -> Yes | No:
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
    after:
        kernel k0(x: f32[N] far) -> y: f32[N] far {
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
    joint = fused(kernel, outer, ranges)
    inside = {**ranges, joint.var: (0, _top(joint.extent))}
    for access in accesses(kernel, joint.body, inside):
        if access.stride(joint.var) is None:
            return No(f"{access.buffer} is not linear in the joint loop")
    return YES


def fused(kernel: Kernel, outer: Loop, ranges: Ranges) -> Loop:
    """Join two perfectly nested loops.

    before:
        kernel k(x: f32[3, 4] far) -> y: f32[3, 4] far {
          for i in 3, j in 4 {
            y[i, j] = x[i, j]
          }
        }
    after:
        kernel k0(x: f32[3, 4] far) -> y: f32[3, 4] far {
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


def can_bind(loop: Loop, role: Role, body: tuple[Stmt, ...] | None = None) -> Yes | No:
    """Whether a loop's iterations may be executed as `role` says: only independent ones run at once."""
    if role is Role.MAP:
        return No("a role is wanted")
    if loop.role not in (Role.MAP, role):
        return No(f"it has the role {loop.role.value} already")
    return YES


def bound(loop: Loop, role: Role, body: tuple[Stmt, ...] | None = None) -> Loop:
    """The loop in a role, optionally around another body.

    before:
        kernel k(x: f32[8] far) -> y: f32[8] far {
          for i in 8 {
            y[i] = x[i]
          }
        }
    after:
        kernel k0(x: f32[8] far) -> y: f32[8] far {
          for i in 8 role=vector {
            y[i] = x[i]
          }
        }
    """
    return replace(loop, role=role, body=loop.body if body is None else body)


SPLIT = Operator(
    "split",
    can_split,
    split,
    lambda kernels: on_loop(lambda _, loop: SPLIT(loop, 4, Role.GRID, Role.VECTOR), kernels),
)
FUSE = Operator(
    "fuse-loops",
    can_fuse,
    fused,
    lambda kernels: on_loop(lambda kernel, loop: FUSE(kernel, loop, {}), kernels),
)
BIND = Operator(
    "bind",
    can_bind,
    bound,
    lambda kernels: on_loop(lambda _, loop: BIND(loop, Role.VECTOR), kernels),
)
