"""Loops that treat some iterations apart: the choice is made once per iteration, not at every element inside.

Not here: guards of windows (clipping.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.ir.scalar import (
    Call,
    Index,
    Lit,
    Load,
    Name,
    Scalar,
    index_symbols,
    postorder,
    transform,
)
from unistack_aot.mcir.nodes import Fold, Loop, Stmt, When
from unistack_aot.mcir.transform import map_scalars, scalars, walk


def unswitched(loop: Loop) -> Loop:
    """Hoist a condition on the loop variable alone out of everything inside the loop.

    before:
        for t in 9 role=seq { for i in 8 { h[t, i] = where(t == 0, x[i], h[t - 1, i]) } }
    after:
        for t in 9 role=seq {
          if (t == 0) { for i in 8 { h[t, i] = x[i] } } else { for i in 8 { h[t, i] = h[t - 1, i] } } }
    """
    condition = _condition(loop)
    if condition is None:
        return loop
    branches = [_taking(loop.body, condition, side) for side in (1, 2)]
    return replace(loop, body=(When(condition, *branches),))


def _condition(loop: Loop) -> Scalar | None:
    """The first condition of a `where` with loads, inside an inner loop or fold, that the loop variable decides."""
    loops = (stmt for stmt in walk(loop.body) if isinstance(stmt, Fold | Loop))
    inner = (each for stmt in loops for each in (stmt, *walk(stmt.body)))
    nodes = (node for each in inner for value in scalars(each) for node in postorder(value))
    for node in nodes:
        if isinstance(node, Call) and _decided(node, loop.var):
            return node.args[0]
    return None


def _decided(node: Call, var: str) -> bool:
    if node.fn != "where":
        return False
    condition = node.args[0]
    plain = all(isinstance(n, Call | Index | Lit) for n in postorder(condition))
    reads = any(isinstance(n, Load | Name) for arg in node.args[1:] for n in postorder(arg))
    return plain and reads and set(index_symbols(condition)) == {var}


def _taking(body: tuple[Stmt, ...], condition: Scalar, side: int) -> tuple[Stmt, ...]:
    def change(value: Scalar) -> Scalar | None:
        found = isinstance(value, Call) and value.fn == "where" and value.args[0] is condition
        return value.args[side] if found and isinstance(value, Call) else None

    return map_scalars(body, lambda value: transform(value, change))
